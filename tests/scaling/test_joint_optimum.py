import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.errors import AnalysisError
from scaling.joint_optimum import Bowl, JointOptimum, bowl_noise, find_joint_optimum
from scaling.optimum import ValleyNoise

LR, BATCH = 2.0 ** np.arange(-12, -5), 2.0 ** np.arange(16, 23)
QUIET = ValleyNoise(1e-6, 0.0, 40.0, "replicates")
NOISE = ValleyNoise(8e-4, 0.0, 40.0, "replicates")
CURVED = np.array([[0.004, 0.0012], [0.0012, 0.003]])


def grid() -> np.ndarray:
    return np.array([(a, b) for a in LR for b in BATCH])


def loss_at(x: np.ndarray, place: tuple[float, float], hessian: np.ndarray = CURVED, skew: float = 0.0) -> np.ndarray:
    """log loss = log 3 + t H t / 2 (+ skew t1^3), t in octaves from `place` (log2)."""
    t = np.log2(x) - place
    return 3 * np.exp(0.5 * np.einsum("ki,ij,kj->k", t, hessian, t) + skew * t[:, 0] ** 3)


def bowl(loss: np.ndarray, x: np.ndarray | None = None, **more: object) -> Bowl:
    return Bowl.of(("lr", "batch"), "width 64", grid() if x is None else x, loss, **more)  # type: ignore[arg-type]


def find(b: Bowl, noise: ValleyNoise = QUIET, **more: object) -> JointOptimum:
    more = {"draws": 400} | more
    return find_joint_optimum(b, noise, rng=np.random.default_rng(0), **more)  # type: ignore[arg-type]


@given(u=st.floats(-10.3, -7.7), v=st.floats(17.7, 20.3), unit=st.floats(0.1, 10))
@settings(deadline=None, max_examples=40)
def test_a_quadratic_is_found_exactly(u: float, v: float, unit: float) -> None:
    found = find(bowl(unit * loss_at(grid(), (u, v))))
    assert found.status == "ok"
    assert np.log2(found.values[0].value) == pytest.approx(u, abs=1e-5)
    assert np.log2(found.values[1].value) == pytest.approx(v, abs=1e-5)
    assert found.loss == pytest.approx(3 * unit, rel=1e-7)
    np.testing.assert_allclose(found.hessian, CURVED, rtol=1e-4)


def test_the_order_of_the_hyperparameters_does_not_matter() -> None:
    x, loss = grid(), loss_at(grid(), (-9.2, 18.7))
    one = find(bowl(loss))
    other = find(Bowl.of(("batch", "lr"), "", x[:, ::-1], loss))
    assert other.values[1].value == pytest.approx(one.values[0].value, rel=1e-6)


def test_the_band_is_where_the_loss_is_a_thousandth_worse() -> None:
    """Along each axis, the other re-optimised: checked on the bowl itself by brute force."""
    found = find(bowl(loss_at(grid(), (-9.0, 19.0))))
    for i in (0, 1):
        end = np.log2(found.bands[i].hi)
        other = np.linspace(16, 22, 20_001) if i == 0 else np.linspace(-12, -6, 20_001)
        pairs = np.stack([np.full_like(other, end), other] if i == 0 else [other, np.full_like(other, end)], axis=1)
        assert loss_at(2.0**pairs, (-9.0, 19.0)).min() / 3 == pytest.approx(1.001, abs=2e-6)


def test_the_interval_is_that_of_least_squares() -> None:
    """All 49 pairs lie in the floor: the vertex's error follows from the normal matrix by hand."""
    flat = CURVED / 20
    found = find(bowl(loss_at(grid(), (-9.0, 19.0), flat)), ValleyNoise(1e-5, 0.0, 1e6, "replicates"), degree=2,
                 draws=20_000)  # fmt: skip
    assert found.n_points == 49
    t = np.log2(grid()) - (-9.0, 19.0)
    design = np.stack([np.ones(49), *t.T, t[:, 0] ** 2, t[:, 0] * t[:, 1], t[:, 1] ** 2], axis=1)
    slopes = 1e-10 * np.linalg.inv(design.T @ design)[1:3, 1:3]
    covariance = np.linalg.inv(flat) @ slopes @ np.linalg.inv(flat)
    np.testing.assert_allclose(np.cov(found.draws.T), covariance, rtol=0.06)
    np.testing.assert_allclose(found.u_stderr, np.sqrt(np.diag(covariance)), rtol=0.05)


def test_intervals_cover() -> None:
    hits = np.zeros(2)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        place = rng.uniform((-10, 18), (-8, 20))
        loss = loss_at(grid(), tuple(place)) * np.exp(1e-3 * rng.standard_normal(49))
        found = find(bowl(loss), ValleyNoise(1e-3, 0.0, 200.0, "replicates"), draws=300)
        hits += [v.lo < 2.0**p < v.hi for v, p in zip(found.values, place, strict=True)]
    assert np.all(hits >= 90), hits
    assert np.any(hits < 100), hits


def test_noise_of_replicates_and_of_scatter() -> None:
    rng = np.random.default_rng(0)
    bowls, singles = [], []
    for i in range(12):
        truth = loss_at(grid(), (-9 - i / 20, 19.0))
        level = np.repeat(np.exp(0.01 * rng.standard_normal(2)), 49)
        both = np.tile(truth, 2) * level * np.exp(2e-3 * rng.standard_normal(98))
        bowls.append(bowl(both, np.tile(grid(), (2, 1)), replicate=np.repeat([0, 1], 49)))
        singles.append(bowl(truth * np.exp(2e-3 * rng.standard_normal(49))))
    replicated, scattered = bowl_noise(bowls), bowl_noise(singles)
    assert replicated.source == "replicates"
    assert replicated.within == pytest.approx(2e-3, rel=0.15)
    assert replicated.common == pytest.approx(0.01, rel=0.5)
    assert scattered.source == "scatter"
    assert scattered.within == pytest.approx(2e-3, rel=0.25)
    assert "one run per pair" in " ".join(find(singles[0], scattered).why)


def test_replicates_and_diverged_runs() -> None:
    x = np.array([[1.0, 1.0], [2.0, 1.0], [1.0, 1.0], [2.0, 1.0]])
    made = Bowl.of(("lr", "batch"), "", x, np.array([3.0, 4.0, 5.0, np.nan]))
    np.testing.assert_array_equal(made.x, [[1, 1], [2, 1]])
    np.testing.assert_array_equal(made.table, [[3, 5], [4, np.nan]])
    np.testing.assert_array_equal(made.unstable, [False, True])
    np.testing.assert_allclose(made.height, [np.log(4)])


def test_one_hyperparameter_at_its_edge_leaves_a_conditional_optimum() -> None:
    loss = loss_at(grid(), (-9.0, 15.0), np.diag([0.02, 0.02]))
    found = find(bowl(loss), NOISE)
    assert found.status == "conditional"
    assert found.held == "batch"
    assert found.values[1].value == 2.0**16
    assert np.log2(found.values[0].value) == pytest.approx(-9.0, abs=0.05)
    assert found.values[0].lo < 2.0**-9 < found.values[0].hi
    assert (
        "best batch 2^16 is the smallest tried. Add 2^15, 2^14. lr below is the best for batch 2^16 only"
        in " ".join(found.why)
    )
    assert np.ptp(found.draws[:, 1]) == 0


def test_a_vertex_close_to_the_edge_is_no_joint_optimum() -> None:
    loss = loss_at(grid(), (-9.0, 16.4), np.diag([0.004, 0.004]))
    i = np.flatnonzero((grid() == (2.0**-9, 2.0**17)).all(axis=1))[0]
    loss[i] = loss.min() * 0.9999
    found = find(bowl(loss), NOISE)
    assert found.status == "conditional"
    assert "within half a step of batch 2^16" in found.why[0]


def test_both_at_their_edges_is_refused() -> None:
    found = find(bowl(loss_at(grid(), (-13.0, 24.0), np.diag([0.02, 0.02]))))
    assert found.status == "edge"
    assert found.values is None
    assert "best lr 2^-12 is the smallest tried. Add 2^-13, 2^-14." in found.why[0]
    assert "best batch 2^22 is the largest tried. Add 2^23, 2^24." in found.why[0]


def test_a_best_pair_beside_a_diverged_one() -> None:
    loss = loss_at(grid(), (-8.0, 19.0))
    loss[np.log2(grid()[:, 0]) >= -7] = np.nan
    found = find(bowl(loss))
    assert found.status == "refused"
    assert "has diverged runs right above it, at lr 2^-7" in found.why[0]
    far = loss_at(grid(), (-9.5, 19.0))
    far[np.log2(grid()[:, 0]) >= -6] = np.nan
    assert find(bowl(far)).status == "ok"


def test_a_saddle_is_refused_and_its_direction_told() -> None:
    """A trough along lr ~ batch^0.5 that falls off slowly on both ends; the best pair stands out by noise."""
    loss = loss_at(grid(), (-9.0, 19.0), np.array([[0.008, -0.004], [-0.004, 0.0019]]))
    centre = np.flatnonzero((grid() == (2.0**-9, 2.0**19)).all(axis=1))[0]
    loss[centre] = loss.min() * 0.9999
    found = find(bowl(loss))
    assert found.status == "refused"
    assert "form no bowl: along lr ~ batch^0.4" in found.why[0] or "lr ~ batch^0.5" in found.why[0]


def test_a_lopsided_bowl_takes_the_cubic_only_when_it_matters() -> None:
    mild = find(bowl(loss_at(grid(), (-9.0, 19.0), skew=0.0001)), NOISE)
    assert mild.degree == 2
    assert mild.cubic is not None
    strong = find(bowl(loss_at(grid(), (-9.0, 19.0), CURVED / 4, skew=0.00012)), NOISE, degree=3)
    assert np.log2(strong.cubic[0]) == pytest.approx(-9.0, abs=1e-4)
    assert abs(np.log2(strong.quadratic[0]) + 9.0) > 0.02


def test_a_skew_of_more_than_half_a_step() -> None:
    """Steep on one side: the quadratic's vertex lies more than half an octave off, and the cubic's within 0.3."""
    t = np.log2(grid()) - (-9.0, 19.0)
    loss = 3 * np.exp(4e-4 * (np.exp(1.1 * t[:, 0]) - 1 - 1.1 * t[:, 0]) / 1.21 + 5e-4 * t[:, 1] ** 2)
    found = find(bowl(loss), NOISE)
    assert found.degree == 3
    assert "lopsided; its cubic puts the optimum at" in " ".join(found.why)
    assert abs(np.log2(found.quadratic[0]) + 9) > 0.5 + abs(np.log2(found.cubic[0]) + 9)
    assert found.values[0].lo < 2.0**-9 < found.values[0].hi


def test_too_few_pairs_and_bad_values() -> None:
    assert "4 of 4 pairs have stable results, 9 are needed" in find(bowl(np.ones(4), grid()[:4])).why[0]
    with pytest.raises(AnalysisError, match="every value tried must be > 0"):
        bowl(np.ones(1), np.array([[0.0, 1.0]]))


def test_without_noise_there_is_no_interval() -> None:
    found = find(bowl(loss_at(grid(), (-9.0, 19.0))), ValleyNoise(None, 0.0, 0.0, "none"))
    assert found.status == "ok"
    assert found.values[0].lo is None
    assert "no interval" in " ".join(found.why)


def test_the_best_of_a_maximum() -> None:
    t = np.log2(grid()) - (-9.3, 18.8)
    found = find(bowl(5 - 0.01 * (t**2).sum(axis=1), goal="max"))
    assert np.log2(found.values[0].value) == pytest.approx(-9.3, abs=0.02)
    assert found.loss == pytest.approx(5.0, rel=1e-3)


def test_plain_values() -> None:
    found = find(bowl(loss_at(grid(), (-9.0, 19.0))), NOISE)
    back = orjson.loads(orjson.dumps(found.to_json()))
    assert back["values"]["lr"]["value"] == found.values[0].value
    assert set(back["bands"]) == {"lr", "batch"}
