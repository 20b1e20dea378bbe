from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import orjson
import pytest

from scaling.answers.allocate import allocate, frontier
from scaling.answers.asked import Limit
from scaling.errors import AnalysisError
from scaling.fits import Fit

Made = Callable[..., Fit]
CONSTRAINED = {"E": float(np.exp(0.6254804)), "A": float(np.exp(6.255414)), "B": float(np.exp(7.3049974)),
               "alpha": 0.3526596, "beta": 0.3526596, "R_D": 15.387756, "R_N": 5.309743}  # fmt: skip
ROWS = np.array([[1e8, 1e9, 8e9], [1e9, 1e10, 1e11], [1e9, 1e10, 2.5e10]])


@pytest.fixture(scope="module")
def repeats(made: Made) -> Fit:
    """The published fit of Muennighoff et al. 2023 (huggingface/datablations)."""
    return made("data_constrained", ("n_params", "tokens", "unique_tokens"), CONSTRAINED, x=ROWS)


def test_published_allocation_of_the_chinchilla_table(epoch: Fit) -> None:
    """Besiroglu et al. 2024 as recomputed from their rows: 4000 resamples."""
    found = allocate(epoch, 5.76e23)
    assert found.method == "closed form"
    assert found["n_params"].value == pytest.approx(7.32e10, rel=1e-3)
    ratio = found.ratios[0].value
    assert (found.ratios[0].over, found.ratios[0].under) == ("tokens", "n_params")
    assert ratio.value == pytest.approx(17.9, abs=0.05)
    assert ratio.lo == pytest.approx(7.6, abs=0.3)
    assert ratio.hi == pytest.approx(35.9, abs=1.0)
    far = allocate(epoch, 1e26)
    assert far.ratios[0].value.value == pytest.approx(15.5, abs=0.05)
    assert far.ratios[0].value.lo == pytest.approx(4.3, abs=0.25)
    assert far.ratios[0].value.hi == pytest.approx(43.8, abs=2.0)
    narrow = allocate(epoch, 1e26, level=0.8).ratios[0].value
    assert narrow.lo == pytest.approx(6.4, abs=0.3)
    assert narrow.hi == pytest.approx(31.5, abs=1.0)
    exponent = next(i.exponent for i in found.inputs if i.name == "n_params")
    assert exponent is not None
    assert exponent.value == pytest.approx(0.367172 / (0.367172 + 0.347310), abs=1e-5)
    assert found.reach == pytest.approx(5.76e23 / epoch.rows.x.prod(axis=0).max() / 6)


def test_loss_at_chinchilla_s_own_place(epoch: Fit) -> None:
    place = np.array([[70e9], [1.4e12]])
    draws = epoch.spread(place)
    assert draws is not None
    assert epoch.predict(place).value[0] == pytest.approx(1.9734, abs=1e-4)
    assert np.quantile(draws, [0.025, 0.975]) == pytest.approx([1.9509, 2.0019], abs=2e-3)


def test_closed_frontier_and_interval_are_those_of_each_draw(drawn: Fit) -> None:
    found = allocate(drawn, 1e23)
    assert drawn.draws is not None
    e, a, alpha, b, beta = (drawn.draws[:, drawn.law.names.index(n)] for n in ("E", "A", "alpha", "B", "beta"))
    g = (alpha * a / (beta * b)) ** (1 / (alpha + beta))
    n, d = g * (1e23 / 6) ** (beta / (alpha + beta)), (1e23 / 6) ** (alpha / (alpha + beta)) / g
    best = e + (a * g**-alpha + b * g**beta) * (1e23 / 6) ** (-alpha * beta / (alpha + beta))
    assert (found["n_params"].lo, found["n_params"].hi) == pytest.approx(tuple(np.quantile(n, [0.025, 0.975])))
    assert (found["tokens"].lo, found["tokens"].hi) == pytest.approx(tuple(np.quantile(d, [0.025, 0.975])))
    assert found.frontier is not None
    gamma = np.quantile(alpha * beta / (alpha + beta), [0.025, 0.975])
    assert (found.frontier.gamma.lo, found.frontier.gamma.hi) == pytest.approx(tuple(gamma))
    curve = frontier(drawn, [1e21, 1e23])
    assert curve.lo is not None
    assert curve.hi is not None
    assert (curve.lo[1], curve.hi[1]) == pytest.approx(tuple(np.quantile(best, [0.025, 0.975])))
    law = found.frontier
    assert curve.response == pytest.approx(law.E.value + law.K.value * np.array([1e21, 1e23]) ** -law.gamma.value)


def test_being_off_by_2_costs_what_the_law_says(hoffmann: Fit) -> None:
    found = allocate(hoffmann, 1e22)
    n, d = found["n_params"].value, found["tokens"].value
    best, half, twice = hoffmann.law.value(hoffmann.point, np.array([[n, n / 2, 2 * n], [d, 2 * d, d / 2]]))
    off = {(o.name, o.factor): o for o in found.off}
    assert off["n_params", 0.5].regret.value == pytest.approx(half - best, rel=1e-9)
    assert off["tokens", 2.0].regret.value == pytest.approx(half - best, rel=1e-9)
    assert off["n_params", 2.0].share.value == pytest.approx((twice - best) / best, rel=1e-9)
    assert found.flat is False
    assert allocate(hoffmann, 1e22, noise=0.02).flat is True


def test_a_flat_optimum_is_called_flat(hoffmann: Fit) -> None:
    found = allocate(hoffmann, 1e29)
    assert max(o.share.value for o in found.off) < 1e-3
    assert found.flat
    assert any(w.startswith("The optimum is flat: half or twice the best value of any input") for w in found.why)


def test_regret_is_the_mean_over_draws_of_what_the_estimate_loses(drawn: Fit) -> None:
    found = allocate(drawn, 1e22)
    assert drawn.draws is not None
    here = drawn.law.value(drawn.draws, np.array([[found["n_params"].value], [found["tokens"].value]])[:, None])[:, 0]
    grid = np.linspace(-4, 4, 8001)
    n = found["n_params"].value * np.exp(grid)
    best = np.array([drawn.law.value(p, np.array([n, 1e22 / (6 * n)])).min() for p in drawn.draws])
    assert found.regret is not None
    assert found.regret.value == pytest.approx(np.mean(here - best), rel=1e-4)
    assert found.regret.hi == pytest.approx(np.quantile(here - best, 0.95), rel=1e-4)


def test_an_upper_limit_is_an_edge_that_says_what_it_costs(drawn: Fit) -> None:
    found = allocate(drawn, 1e24, limits={"tokens": Limit(high=5e11)})
    tokens = next(i for i in found.inputs if i.name == "tokens")
    assert tokens.role == "upper limit"
    assert tokens.value.value == 5e11
    assert found["n_params"].value == pytest.approx(1e24 / 6 / 5e11)
    free = allocate(drawn, 1e24)
    assert free.response is not None
    assert found.response is not None
    gain = (found.response.value - free.response.value) / found.response.value
    text = next(w for w in found.why if w.startswith("tokens is at its limit"))
    assert f"would gain {gain:.2%} of the response" in text
    assert f"{free['tokens'].value:.3g}" in text
    assert "More passes over the same tokens may help" in " ".join(found.why)
    assert not [o for o in found.off if o.name == "tokens"]


def test_all_limits_reached_leaves_money(hoffmann: Fit) -> None:
    found = allocate(hoffmann, 1e24, limits={"tokens": Limit(high=1e10), "n_params": Limit(high=1e9)})
    assert found.used == 6e19
    assert "All inputs are at their limits: 100.0% of the budget is left over." in found.why
    with pytest.raises(AnalysisError, match="the lower limits alone cost more"):
        allocate(hoffmann, 1e18, limits={"tokens": Limit(low=1e12), "n_params": Limit(low=1e10)})


def test_published_optimum_under_limited_data(repeats: Fit) -> None:
    """The repository's README: 7.022e9 parameters, 237.3e9 tokens, 9.49 epochs at 1e22 FLOP and 25e9 unique tokens."""
    golden = repeats.law.value(repeats.point, np.array([[6.34e9, 8.67e9], [242e9, 178e9], [25e9, 25e9]]))
    assert golden == pytest.approx([2.2256440889984477, 2.2269634075087867], rel=1e-12)
    found = allocate(repeats, 1e22, at={"unique_tokens": 25e9})
    assert found.method == "search"
    assert found["n_params"].value == pytest.approx(7.022e9, rel=1e-3)
    assert found["tokens"].value == pytest.approx(237.3e9, rel=1e-3)
    assert found["unique_tokens"].value == 25e9
    assert found.ratios[1].value.value == pytest.approx(9.49, abs=0.01)


def test_ample_data_is_no_limit(repeats: Fit, made: Made) -> None:
    ample = allocate(repeats, 1e22, at={"unique_tokens": 1e15})
    plain = allocate(made("chinchilla", ("n_params", "tokens"), CONSTRAINED, x=ROWS[:2]), 1e22)
    assert ample["tokens"].value == pytest.approx(plain["tokens"].value, rel=1e-6)
    assert ample["unique_tokens"].value == pytest.approx(ample["tokens"].value, rel=1e-12)
    with pytest.raises(AnalysisError, match=r"unique_tokens costs nothing under .*: give its value or an upper limit"):
        allocate(repeats, 1e22)


@pytest.fixture(scope="module")
def network(made: Made) -> Fit:
    law = "E + A*neurons^-a + B*k_e^-b + D*k_c^-c"
    values = {"E": 1.0, "A": 2.0, "B": 6.0, "D": 3.0, "a": 0.6, "b": 0.5, "c": 0.7}
    return made(law, ("neurons", "k_e", "k_c"), values, x=np.array([[5, 50], [20, 400], [10, 90]]))


@pytest.mark.parametrize("budget", [900, 5_000, 23_456])
def test_whole_numbers_are_the_best_of_all(network: Fit, budget: int) -> None:
    whole = {"neurons": Limit(multiple=1), "k_e": Limit(multiple=4), "k_c": Limit(multiple=2)}
    found = allocate(network, budget, "neurons*(k_e + k_c)", limits=whole)
    n, e = np.meshgrid(np.arange(1.0, 600), np.arange(4.0, 4000, 4))
    c = (budget // n - e) // 2 * 2
    best = np.min(np.where(c >= 2, 1 + 2 * n**-0.6 + 6 * e**-0.5 + 3 * np.maximum(c, 1) ** -0.7, np.inf))
    assert found.response is not None
    assert found.response.value == pytest.approx(best, rel=1e-12)
    values = [found[n].value for n in ("neurons", "k_e", "k_c")]
    assert all(v == int(v) for v in values)
    assert (values[1] % 4, values[2] % 2) == (0, 0)
    assert found.used == values[0] * (values[1] + values[2]) <= budget


def test_what_a_limit_decides_has_no_interval(drawn: Fit) -> None:
    found = allocate(drawn, 1e26, limits={"tokens": Limit(high=1e12), "n_params": Limit(multiple=1e9)})
    assert {i.name: i.role for i in found.inputs} == {"n_params": "rounded", "tokens": "upper limit"}
    assert found["n_params"].lo is None
    assert found["tokens"].hi is None
    assert found["n_params"].value % 1e9 == 0
    assert found["tokens"].value == 1e12
    assert 1e26 - 6e21 < (found.used or 0) <= 1e26


def test_listed_values_and_given_inputs(network: Fit) -> None:
    sizes = (25.0, 81.0, 169.0, 400.0)
    found = allocate(network, 5000, "neurons*(k_e + k_c)", at={"k_c": 20}, limits={"k_e": Limit(values=sizes)})
    by_hand = {e: 1 + 2 * (5000 / (e + 20)) ** -0.6 + 6 * e**-0.5 + 3 * 20**-0.7 for e in sizes}
    assert found["k_e"].value == min(by_hand, key=lambda e: by_hand[e])
    assert found.response is not None
    assert found.response.value == pytest.approx(min(by_hand.values()), rel=1e-12)
    assert found["k_c"].value == 20
    dear = {"k_e": Limit(values=(4000.0,)), "neurons": Limit(multiple=1)}
    with pytest.raises(AnalysisError, match="budget 100: the lower limits alone cost more"):
        allocate(network, 100, "neurons*(k_e + k_c)", at={"k_c": 20}, limits=dear)


def test_limits_know_their_allowed_values() -> None:
    assert Limit(low=41, high=130, multiple=40).range == (80, 120)
    assert Limit(values=(5.0, 30.0, 9.0), low=6).range == (9.0, 30.0)
    assert Limit(multiple=64).near(200.0, 2).tolist() == [128, 192, 256, 320]
    assert Limit(multiple=64, high=260).near(200.0, 8).tolist() == [64, 128, 192, 256]
    with pytest.raises(AnalysisError, match="limit from 41 to 79: no value is allowed"):
        Limit(low=41, high=79, multiple=40)


def test_more_is_better_for_a_score(made: Made) -> None:
    """A saturating score is the mirror image of a falling loss."""
    values = {"top": 90.0, "A": 406.4, "B": 410.7, "alpha": 0.34, "beta": 0.28}
    score = made("top - A*n_params^-alpha - B*tokens^-beta", ("n_params", "tokens"), values)
    loss = made("E + A*n_params^-alpha + B*tokens^-beta", ("n_params", "tokens"), {"E": 1.0, **values})
    up, down = allocate(score, 1e22, goal="max"), allocate(loss, 1e22)
    assert up["n_params"].value == pytest.approx(down["n_params"].value, rel=1e-9)
    assert [o.regret.value for o in up.off] == pytest.approx([o.regret.value for o in down.off], rel=1e-6)


def test_draws_without_a_term_leave_the_interval_open(drawn: Fit) -> None:
    assert drawn.draws is not None
    draws = drawn.draws.copy()
    draws[:40, drawn.law.names.index("B")] = 0.0  # 10 %
    found = allocate(replace(drawn, draws=draws), 1e23)
    assert found["n_params"].hi is None
    assert found["n_params"].lo is not None
    assert found["tokens"].lo is None
    assert found["tokens"].hi is not None
    assert (
        "In 10.0% of the draws the best tokens goes towards 0 (a term vanishes): its interval is open there."
        in found.why
    )
    assert "hi" not in found.to_json()["inputs"]["n_params"]
    draws[4:40, drawn.law.names.index("B")] = drawn.draws[4:40, drawn.law.names.index("B")]
    few = allocate(replace(drawn, draws=draws), 1e23)
    assert few["tokens"].lo is not None
    assert "In 1.0% of the draws the best tokens goes towards 0 (a term vanishes)." in few.why


def test_an_estimate_without_a_term_is_refused(made: Made) -> None:
    fit = made("chinchilla", ("n_params", "tokens"), {"E": 1.7, "A": 400.0, "B": 0.0, "alpha": 0.3, "beta": 0.3})
    found = allocate(fit, 1e22)
    assert found.status == "refused"
    assert "n_params without end and tokens towards 0" in found.why[0]
    assert found.to_json()["inputs"] == {}
    assert allocate(fit, 1e22, limits={"tokens": Limit(low=1e9)})["tokens"].value == 1e9


def test_words_of_weak_and_drawless_fits(hoffmann: Fit, drawn: Fit) -> None:
    assert "No intervals: the fit has no draws." in allocate(hoffmann, 1e20).why
    weak = replace(drawn, status="weak", why=("alpha and beta trade off.",))
    assert "The fit is weak: alpha and beta trade off." in allocate(weak, 1e20).why
    assert any("the dearest row's" in w for w in allocate(drawn, 1e24).why)
    assert not any("the dearest row's" in w for w in allocate(drawn, 1e20).why)


def test_what_can_t_be_asked(hoffmann: Fit) -> None:
    refused = replace(hoffmann, params={}, status="refused", why=("16 rows, but tokens = 20 n_params.",))
    for words, call in {
        "was refused: 16 rows, but tokens = 20 n_params": lambda: allocate(refused, 1e22),
        "budget -1: must be a finite number > 0": lambda: allocate(hoffmann, -1),
        "given 'token': chinchilla has no such input. Did you mean 'tokens'": lambda: allocate(
            hoffmann, 1e22, at={"token": 1}
        ),
        "limit 'width': chinchilla has no such input": lambda: allocate(
            hoffmann, 1e22, limits={"width": Limit(high=1)}
        ),
        "given tokens = 0: must be": lambda: allocate(hoffmann, 1e22, at={"tokens": 0.0}),
        "does not rise with tokens": lambda: allocate(hoffmann, 1e22, "n_params/tokens"),
        "tokens costs nothing under 'n_params'": lambda: allocate(hoffmann, 1e22, "n_params"),
        "limit from 2 to 1: no value is allowed": lambda: Limit(low=2, high=1),
        "expected finite numbers > 0": lambda: Limit(high=-3),
    }.items():
        with pytest.raises(AnalysisError) as caught:
            call()  # type: ignore[no-untyped-call]
        assert words in str(caught.value)


def test_json_holds_plain_numbers_at_full_precision(drawn: Fit) -> None:
    found = allocate(drawn, 1e23)
    data = orjson.loads(orjson.dumps(found.to_json()))
    assert data["inputs"]["tokens"]["value"] == found["tokens"].value
    assert data["off"][0].keys() == {"input", "factor", "at", "regret", "share"}
    curve = orjson.loads(orjson.dumps(frontier(drawn, [1e21, 1e22]).to_json()))
    assert curve["budget"] == [1e21, 1e22]
    assert len(curve["inputs"]["tokens"]) == 2


def test_the_whole_answer_is_quick(drawn: Fit) -> None:
    from time import perf_counter

    start = perf_counter()
    allocate(drawn, 1e23)
    assert perf_counter() - start < 1.0
