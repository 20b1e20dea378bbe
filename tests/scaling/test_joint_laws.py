from pathlib import Path

import numpy as np
import orjson
import polars as pl
import pytest

from scaling.errors import AnalysisError
from scaling.joint_laws import advice, law_of_optima, pooled_law, regret
from scaling.joint_optimum import Bowl, JointOptimum, bowl_noise, find_joint_optimum

SWEEP = Path(__file__).parents[2] / "sweeps" / "published" / "data" / "synthetic_lr_batch_sweep.csv"
TUNE = ("lr", "batch_tokens")
Cells = list[tuple[dict[str, float], Bowl]]


def planted(facts: dict[str, float]) -> tuple[float, float]:
    """The truth behind the sweep: that of the Step Law (arXiv 2503.04715)."""
    return 1.79 * facts["n_params"] ** -0.713 * facts["tokens"] ** 0.307, 0.58 * facts["tokens"] ** 0.571


@pytest.fixture(scope="module")
def cells() -> Cells:
    table = pl.read_csv(SWEEP, infer_schema_length=None)
    made = []
    for (n, tokens), part in table.group_by("n_params", "tokens", maintain_order=True):
        loss = part["loss"].cast(pl.Float64).fill_null(np.nan).to_numpy()
        bowl = Bowl.of(
            TUNE, f"n_params {n:g}, tokens {tokens:g}", part.select(TUNE).to_numpy(), loss,
            diverged=part["diverged"].to_numpy() > 0, replicate=part["seed"].to_numpy(),
        )  # fmt: skip
        made.append(({"n_params": float(str(n)), "tokens": float(str(tokens))}, bowl))
    return made


def optima(cells: Cells, degree: int | None) -> list[tuple[dict[str, float], JointOptimum]]:
    noise = bowl_noise([b for _, b in cells])
    return [
        (f, find_joint_optimum(b, noise, degree=degree, draws=300, rng=np.random.default_rng(0)))  # type: ignore[arg-type]
        for f, b in cells
    ]


@pytest.fixture(scope="module")
def quadratics(cells: Cells) -> list[tuple[dict[str, float], JointOptimum]]:
    return optima(cells, 2)


def test_all_cells_have_an_optimum(cells: Cells, quadratics: list[tuple[dict[str, float], JointOptimum]]) -> None:
    assert len(cells) == 15
    assert all(o.status == "ok" for _, o in quadratics)
    noise = bowl_noise([b for _, b in cells])
    assert noise.source == "replicates"


def test_the_law_over_the_cells(quadratics: list[tuple[dict[str, float], JointOptimum]]) -> None:
    lr = law_of_optima(quadratics, "lr", ["n_params", "tokens"], weighted=False, draws=4000)
    n, tokens = lr.params["p_n_params"], lr.params["p_tokens"]
    assert n.value == pytest.approx(-0.7096, abs=5e-5)
    assert tokens.value == pytest.approx(0.3101, abs=5e-5)
    # the published ends are of pairs of cells drawn with replacement; wild draws over 15 cells reach a little further
    assert (n.lo, n.hi) == pytest.approx((-0.720, -0.697), abs=5e-3)
    assert (tokens.lo, tokens.hi) == pytest.approx((0.299, 0.322), abs=5e-3)
    batch = law_of_optima(quadratics, "batch_tokens", ["tokens"], weighted=False)
    assert batch.params["p_tokens"].value == pytest.approx(0.585, abs=5e-4)
    assert lr.rows.cluster is not None
    assert len(lr.rows) == 15


def test_weights_bring_the_law_closer(quadratics: list[tuple[dict[str, float], JointOptimum]]) -> None:
    """Cells whose bowl is cut by divergence have wide errors: weighted, both exponents come closer to the truth."""
    for tune, over, name, true in (
        ("lr", ["n_params", "tokens"], "p_n_params", -0.713),
        ("batch_tokens", ["tokens"], "p_tokens", 0.571),
    ):
        plain = law_of_optima(quadratics, tune, over, weighted=False, draws=0).params[name].value
        weighted = law_of_optima(quadratics, tune, over, draws=0).params[name].value
        assert abs(weighted - true) < abs(plain - true)


def test_the_cubic_takes_away_most_of_the_skew(
    cells: Cells, quadratics: list[tuple[dict[str, float], JointOptimum]]
) -> None:
    """Octaves from the planted optimum, mean over cells: the quadratic lies below it."""

    def off(found: list[tuple[dict[str, float], JointOptimum]]) -> np.ndarray:
        places = [np.log2([v.value for v in o.values]) - np.log2(planted(f)) for f, o in found]
        return np.asarray(np.mean(places, axis=0))

    before, after = off(quadratics), off(optima(cells, 3))
    assert before[0] == pytest.approx(-0.069, abs=0.002)
    assert before[1] == pytest.approx(-0.042, abs=0.002)
    assert abs(after[0]) < 0.3 * abs(before[0])
    assert abs(after[1]) < 0.6 * abs(before[1])


def test_the_pooled_rule_is_one_regression(cells: Cells) -> None:
    """Against numpy on the means of the table itself."""
    table = pl.read_csv(SWEEP, infer_schema_length=None)
    mean = table.group_by("n_params", "tokens", *TUNE).agg(pl.col("loss").mean(), pl.col("diverged").sum())
    mean = mean.filter(pl.col("diverged") == 0)
    near = mean.filter(pl.col("loss") <= 1.0025 * pl.col("loss").min().over("n_params", "tokens"))
    x = np.log(near.select("n_params", "tokens").to_numpy())
    by_hand = np.linalg.lstsq(np.c_[np.ones(len(x)), x], np.log(near["lr"].to_numpy()), rcond=None)[0]
    found = pooled_law(cells, "lr", ["n_params", "tokens"])
    np.testing.assert_allclose(found.point, [np.exp(by_hand[0]), *by_hand[1:]], rtol=1e-4)
    assert len(found.rows) == len(near)
    assert len(np.unique(found.rows.groups)) == 15
    # whole cells are drawn: the runs of one cell are no independent witnesses
    rows = pooled_law(cells, "lr", ["n_params", "tokens"]).params["p_n_params"]
    assert rows.hi - rows.lo > 0.04


def test_regret_of_the_planted_law_is_small(cells: Cells) -> None:
    found = regret(planted, cells)
    assert found.diverged == 0
    assert 0 <= found.median < 5e-4
    assert found.worst < 2e-3
    assert len(found.cells) == 15


def test_regret_by_hand() -> None:
    x = np.array([[1, 1], [2, 1], [1, 2], [2, 2], [4, 1], [4, 2]], dtype=float)
    bowl = Bowl.of(TUNE, "here", x, np.array([3.0, 2.5, 2.0, 2.2, np.nan, 2.4]))

    def at(*pair: float) -> list[tuple[float, str]]:
        made = regret(lambda _: (pair[0], pair[1]), [({}, bowl)])
        return [(made.worst, " ".join(made.why))]

    ((cost, why),) = at(1.9, 0.9)
    assert cost == pytest.approx(0.25)
    assert "beyond the pairs tried at here" in why
    assert at(1.1, 1.9)[0][0] == 0.0
    assert at(2.2, 1.9) == [(pytest.approx(0.1), "")]
    diverged = regret(lambda _: (3.8, 1.0), [({}, bowl)])
    assert diverged.median is None
    assert diverged.diverged == 1
    assert "diverged at here" in diverged.why[0]
    assert orjson.loads(orjson.dumps(diverged.to_json()))["cells"][0]["nearest"] == [4.0, 1.0]


def test_advice_of_fitted_laws(cells: Cells, quadratics: list[tuple[dict[str, float], JointOptimum]]) -> None:
    lr = law_of_optima(quadratics, "lr", ["n_params", "tokens"], draws=0)
    batch = law_of_optima(quadratics, "batch_tokens", ["tokens"], draws=0)
    law = advice(lr, batch)
    np.testing.assert_allclose(law(cells[3][0]), planted(cells[3][0]), rtol=0.08)
    assert regret(law, cells).worst < 2e-3


def test_names_that_are_not_there(cells: Cells, quadratics: list[tuple[dict[str, float], JointOptimum]]) -> None:
    with pytest.raises(AnalysisError, match=r"no tuned hyperparameter 'batch'\. Did you mean 'batch_tokens'"):
        law_of_optima(quadratics, "batch", ["tokens"])
    with pytest.raises(AnalysisError, match=r"a cell has no 'token'\. Did you mean 'tokens'"):
        pooled_law(cells, "lr", ["token"])
    nothing = [({"tokens": 1e9}, find_joint_optimum(
        Bowl.of(TUNE, "here", np.ones((1, 2)), np.ones(1)), bowl_noise([]), rng=np.random.default_rng(0)))]  # fmt: skip
    with pytest.raises(AnalysisError, match=r"lr.optimum: none of 1 cells has both values\. tune lr, batch_tokens at"):
        law_of_optima(nothing, "lr", ["tokens"])
