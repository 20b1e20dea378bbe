"""The best pair of values of two hyperparameters tuned together: a local surface in their log2, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from scaling.arrays import Bools, Floats, Ints
from scaling.errors import AnalysisError
from scaling.intervals import ENOUGH_DOF, Interval, ends, heavy
from scaling.optimum import Optimum, Valley, ValleyNoise, find_optimum, interaction

Status = Literal["ok", "conditional", "edge", "refused"]
Goal = Literal["min", "max"]

DEPTH = {2: 0.01, 3: 0.03}  # of the bowl's floor by degree, relatively: a cubic follows a deeper one
FEWEST = {2: 9, 3: 14}  # points of a floor: 6 and 10 terms, and a test
BAND = 0.001  # loss that nobody would pay for, relatively
LOST = 0.05  # share of draws without an optimum from which an interval is no longer given
SCATTER_DOF = 3.0
NEWTON_ROUNDS, NEWTON_STEP, NEWTON_TOLERANCE = 40, 0.5, 1e-12
TERMS = {
    2: ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)),
    3: ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2), (3, 0), (2, 1), (1, 2), (0, 3)),
}


@dataclass(frozen=True)
class Bowl:
    """One cell's response against two hyperparameters tuned together.

    x [k, 2] > 0 are the distinct pairs tried; table [k, s] responses by replicate, NaN where there is none;
    unstable [k]: a replicate diverged there. `place` says where, such as "n_params 6e7, tokens 2e9".
    """

    tune: tuple[str, str]
    place: str
    x: Floats
    table: Floats
    unstable: Bools
    goal: Goal = "min"

    @classmethod
    def of(
        cls, tune: tuple[str, str], place: str, values: Floats, response: Floats, *, diverged: Bools | None = None,
        replicate: Ints | None = None, goal: Goal = "min",
    ) -> Bowl:  # fmt: skip
        """From runs: values [n, 2], response [n], whether each diverged (default: where it isn't finite).

        `replicate` [n] numbers the replicates; without it runs of one pair are numbered as they come.
        """
        if not np.all(np.isfinite(values) & (values > 0)):
            raise AnalysisError(f"tune {', '.join(tune)} at {place}: every value tried must be > 0.")
        response = np.asarray(response, dtype=float)
        lost = ~np.isfinite(response) if diverged is None else np.asarray(diverged, dtype=bool)
        x, which = np.unique(np.asarray(values, dtype=float), axis=0, return_inverse=True)
        which = which.ravel()
        seed = _running(which) if replicate is None else np.unique(replicate, return_inverse=True)[1].ravel()
        table = np.full((len(x), int(seed.max(initial=0)) + 1), np.nan)
        good = ~lost & np.isfinite(response)
        table[which[good], seed[good]] = response[good]
        return cls(tune, place, x, table, np.bincount(which[lost], minlength=len(x)) > 0, goal)

    @property
    def log(self) -> bool:
        return bool(np.all(self.table[np.isfinite(self.table)] > 0))

    @property
    def usable(self) -> Ints:
        """Indices of pairs with a response and no diverged replicate."""
        return np.flatnonzero(np.isfinite(self.table).any(axis=1) & ~self.unstable)

    @property
    def u(self) -> Floats:
        """log2 of the usable pairs [m, 2]."""
        return np.asarray(np.log2(self.x[self.usable]))

    @property
    def height(self) -> Floats:
        """What is minimised at the usable pairs [m]: log of the mean response (or its negative, or the mean)."""
        return self.rise(np.nanmean(self.table[self.usable], axis=1))

    @property
    def count(self) -> Floats:
        return np.asarray(np.isfinite(self.table[self.usable]).sum(axis=1), dtype=float)

    def rise(self, response: Floats) -> Floats:
        value = np.log(response) if self.log else response
        return np.asarray(value if self.goal == "min" else -value)

    def response(self, height: Floats) -> Floats:
        value = height if self.goal == "min" else -height
        return np.asarray(np.exp(value) if self.log else value)

    def above(self, floor: Floats, share: float) -> Floats:
        """Heights a relative `share` worse than `floor` [b]."""
        return np.asarray(floor + (np.log1p(share) if self.log else share * np.abs(floor)))

    @property
    def title(self) -> str:
        return f"tune {self.tune[0]}, {self.tune[1]}" + (f" at {self.place}" if self.place else "")


def _running(which: Ints) -> Ints:
    """The how-manieth of its kind each entry [n] is."""
    order = np.argsort(which, kind="stable")
    starts = np.searchsorted(which[order], which[order])
    out = np.empty(len(which), dtype=np.int64)
    out[order] = np.arange(len(which)) - starts
    return out


@dataclass(frozen=True)
class JointOptimum:
    """The best pair of one cell, or why there is none.

    `values` with intervals, `bands`: how far each can go, the other following, until the response is 0.1 % worse;
    `hessian` [2, 2] of the height in log2. `quadratic` and `cubic` are both vertices where there are two; `degree`
    says which one stands. A conditional optimum has the value of one hyperparameter at the edge value of `held`.
    draws [b, 2] of log2 of the values.
    """

    bowl: Bowl
    status: Status
    why: tuple[str, ...]
    values: tuple[Interval, Interval] | None = None
    loss: float | None = None
    loss_stderr: float | None = None
    bands: tuple[Interval, Interval] | None = None
    hessian: Floats | None = None
    degree: int = 2
    n_points: int = 0
    quadratic: tuple[float, float] | None = None
    cubic: tuple[float, float] | None = None
    held: str | None = None
    draws: Floats | None = None
    noise: ValleyNoise = field(default_factory=lambda: ValleyNoise(None, 0.0, 0.0, "none"))

    @property
    def u_stderr(self) -> Floats | None:
        """Standard errors [2] of log2 of the values, robust to stray draws; 0 for the one that is held."""
        if self.draws is None:
            return None
        low, high = np.quantile(self.draws, [0.1587, 0.8413], axis=0)
        return np.asarray(high - low) / 2

    def to_json(self) -> dict[str, Any]:
        head: dict[str, Any] = {"tune": list(self.bowl.tune), "place": self.bowl.place, "status": self.status,
                                "why": list(self.why)}  # fmt: skip
        if self.values is None:
            return head
        names = self.bowl.tune
        rest = {
            "loss": self.loss, "loss_stderr": self.loss_stderr, "held": self.held,
            "hessian": None if self.hessian is None else self.hessian.tolist(),
            "quadratic": None if self.quadratic is None else list(self.quadratic),
            "cubic": None if self.cubic is None else list(self.cubic),
            "bands": None if self.bands is None else {n: b.to_json() for n, b in zip(names, self.bands, strict=True)},
        }  # fmt: skip
        return head | {
            "values": {n: v.to_json() for n, v in zip(names, self.values, strict=True)},
            "degree": self.degree, "n_points": self.n_points,
        } | {k: v for k, v in rest.items() if v is not None}  # fmt: skip


def bowl_noise(bowls: Sequence[Bowl]) -> ValleyNoise:
    """The noise of one run, pooled over the floors of `bowls`: from replicates, else from the scatter."""
    square = dof = shared = shared_dof = scatter = scatter_dof = 0.0
    for bowl in bowls:
        if len(bowl.usable) < FEWEST[2]:
            continue
        height = bowl.height[None, :]
        floor = _floors(bowl, height, 2)[0]
        part = interaction(bowl.rise(bowl.table[bowl.usable[floor]]))
        square, dof, shared, shared_dof = square + part[0], dof + part[1], shared + part[2], shared_dof + part[3]
        fit = _Surfaces.through(bowl.u, height, bowl.count, floor[None, :], 2)
        rest = (bowl.height - fit.at(bowl.u)[0])[floor]
        scatter += float((bowl.count[floor] * rest**2).sum())
        scatter_dof += float(floor.sum() - len(TERMS[2]))
    if dof >= 1 and square > 0:
        common = max(0.0, shared / shared_dof) if shared_dof else 0.0
        return ValleyNoise(float(np.sqrt(square / dof)), float(np.sqrt(common)), dof, "replicates")
    if scatter_dof >= SCATTER_DOF and scatter > 0:
        return ValleyNoise(float(np.sqrt(scatter / scatter_dof)), 0.0, scatter_dof, "scatter")
    return ValleyNoise(None, 0.0, 0.0, "none")


# -- surfaces --------------------------------------------------------------------------------------


def _floors(bowl: Bowl, height: Floats, degree: int) -> Bools:
    """Which usable pairs belong to the floor of each version [b, m]: those close to the best, the fewest at least."""
    limit = bowl.above(height.min(axis=1), DEPTH[degree])
    fewest = np.partition(height, min(FEWEST[degree], height.shape[1]) - 1, axis=1)
    fewest = fewest[:, min(FEWEST[degree], height.shape[1]) - 1]
    return np.asarray(height <= np.maximum(limit, fewest)[:, None])


@dataclass(frozen=True)
class _Surfaces:
    """Polynomials in two variables [b, terms] in (u - centre) / reach."""

    coefficients: Floats
    degree: int
    centre: Floats  # [2]
    reach: Floats  # [2]

    @classmethod
    def through(cls, u: Floats, height: Floats, count: Floats, floor: Bools, degree: int) -> _Surfaces:
        """Weighted least squares of height [b, m] over u [m, 2], on the floors [b, m]."""
        centre = 0.5 * (u.min(axis=0) + u.max(axis=0))
        reach = np.maximum(0.5 * np.ptp(u, axis=0), 1e-12)
        design = _powers((u - centre) / reach, degree)
        weight = floor * count
        outer = (design[:, :, None] * design[:, None, :]).reshape(len(u), -1)
        terms = design.shape[1]
        gram = (weight @ outer).reshape(-1, terms, terms)
        gram += 1e-13 * np.trace(gram, axis1=1, axis2=2)[:, None, None] * np.eye(terms)
        moment = (weight * height) @ design
        coefficients = np.asarray(np.linalg.solve(gram, moment[:, :, None])[:, :, 0], dtype=np.float64)
        return cls(coefficients, degree, centre, reach)

    def at(self, u: Floats) -> Floats:
        """Values [b, m] at u [m, 2]."""
        return np.asarray(self.coefficients @ _powers((u - self.centre) / self.reach, self.degree).T)

    def slopes(self, t: Floats) -> tuple[Floats, Floats, Floats]:
        """Value [b], gradient [b, 2] and Hessian [b, 2, 2] in t at t [b, 2]."""
        a, b = t.T
        value, gradient, hessian = np.zeros(len(t)), np.zeros((len(t), 2)), np.zeros((len(t), 2, 2))
        for c, (i, j) in zip(self.coefficients.T, TERMS[self.degree], strict=True):
            value += c * _power(a, i) * _power(b, j)
            gradient[:, 0] += c * i * _power(a, i - 1) * _power(b, j)
            gradient[:, 1] += c * j * _power(a, i) * _power(b, j - 1)
            hessian[:, 0, 0] += c * i * (i - 1) * _power(a, i - 2) * _power(b, j)
            hessian[:, 1, 1] += c * j * (j - 1) * _power(a, i) * _power(b, j - 2)
            hessian[:, 0, 1] += c * i * j * _power(a, i - 1) * _power(b, j - 1)
        hessian[:, 1, 0] = hessian[:, 0, 1]
        return value, gradient, hessian

    def lowest(self, start: Floats | None = None) -> _Vertices:
        """Minima by Newton's method from u = start [b, 2] (the centre for a quadratic, which needs one step)."""
        t = np.zeros((len(self.coefficients), 2)) if start is None else (start - self.centre) / self.reach
        moving = np.arange(len(t))
        for _ in range(1 if self.degree == 2 else NEWTON_ROUNDS):
            _, gradient, hessian = replace(self, coefficients=self.coefficients[moving]).slopes(t[moving])
            step = _newton(gradient, hessian)
            t[moving] -= step if self.degree == 2 else np.clip(step, -NEWTON_STEP, NEWTON_STEP)
            moving = moving[np.abs(step).max(axis=1) > NEWTON_TOLERANCE]
        value, gradient, hessian = self.slopes(t)
        curved = np.linalg.eigvalsh(hessian)[:, 0] > 0
        scale = np.abs(hessian).max(axis=(1, 2))
        still = np.abs(gradient).max(axis=1) < 1e-8 * np.maximum(scale, 1e-300)
        bend = hessian / (self.reach[:, None] * self.reach)
        return _Vertices(self.centre + self.reach * t, value, bend, curved & still)


@dataclass(frozen=True)
class _Vertices:
    """Minima u [b, 2], heights [b], Hessians [b, 2, 2] in log2, and which are minima at all."""

    u: Floats
    height: Floats
    hessian: Floats
    valid: Bools


def _powers(t: Floats, degree: int) -> Floats:
    """The terms [m, terms] of t [m, 2]."""
    return np.stack([_power(t[:, 0], i) * _power(t[:, 1], j) for i, j in TERMS[degree]], axis=1)


def _power(t: Floats, i: int) -> Floats:
    return np.asarray(t**i) if i > 0 else np.ones_like(t)


def _newton(gradient: Floats, hessian: Floats) -> Floats:
    """Newton steps [b, 2]; where the Hessian is not positive definite its eigenvalues enter by their size."""
    values, vectors = np.linalg.eigh(hessian)
    size = np.maximum(np.abs(values), 1e-12 * np.abs(values).max(axis=1, keepdims=True) + 1e-300)
    return np.asarray(np.einsum("bij,bj,bkj,bk->bi", vectors, 1 / size, vectors, gradient))


# -- one optimum -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sampling:
    """How many draws, for which level, from which random numbers."""

    draws: int
    level: float
    rng: np.random.Generator


def find_joint_optimum(
    bowl: Bowl,
    noise: ValleyNoise,
    *,
    degree: Literal[2, 3] | None = None,
    band: float = BAND,
    draws: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator,
) -> JointOptimum:
    """The optimum of `bowl`, or the reason why there is none.

    A quadratic in log2 through the pairs within 1 % of the best; beside it, where the pairs suffice, a cubic
    through those within 3 %, which stands (`degree` None) where the two lie more than half a grid step apart. Draws
    repeat the choice of the floor on the fitted surface disturbed by `noise`, and carry what of the difference of
    the two degrees noise doesn't explain.
    """
    sampling = _Sampling(draws, level, rng)
    if len(bowl.usable) < FEWEST[2]:
        return _refused(bowl, f"{len(bowl.usable)} of {len(bowl.x)} pairs have stable results, {FEWEST[2]} are needed.")
    best = bowl.usable[int(bowl.height.argmin())]
    beside = _beside(bowl, int(best))
    if beside:
        return _refused(bowl, beside)
    edges = _edges(bowl, int(best))
    if edges:
        return _at_edges(bowl, noise, edges, sampling)
    reading = _Reading.of(bowl, bowl.height[None, :], degree)
    if not reading.chosen.valid[0]:
        return _refused(bowl, _no_bowl(bowl, reading))
    edges = _near_edges(bowl, reading.chosen.u[0])
    if edges:
        return _at_edges(bowl, noise, edges, sampling)
    return _reported(bowl, noise, reading, band, sampling)


@dataclass(frozen=True)
class _Reading:
    """Vertices of versions [b, m] of a bowl by both degrees; `third` [b]: which take the cubic."""

    quadratic: _Vertices
    cubic: _Vertices | None
    third: Bools
    chosen: _Vertices
    floor: Bools  # [m], of the first version and its degree
    surface: _Surfaces  # of the first version's degree

    @classmethod
    def of(cls, bowl: Bowl, height: Floats, degree: int | None) -> _Reading:
        u, count = bowl.u, bowl.count
        floor = _floors(bowl, height, 2)
        surface = _Surfaces.through(u, height, count, floor, 2)
        square = _kept(surface.lowest(), u)
        if degree == 2 or len(u) < FEWEST[3]:
            return cls(square, None, np.zeros(len(height), dtype=bool), square, floor[0], surface)
        wide = _floors(bowl, height, 3)
        other = _Surfaces.through(u, height, count, wide, 3)
        start = np.where(square.valid[:, None], square.u, u[height.argmin(axis=1)])
        cubic = _kept(other.lowest(start), u)
        apart = (np.abs(cubic.u - square.u) > 0.5 * _steps(bowl)).any(axis=1)
        third = cubic.valid & (apart | ~square.valid if degree is None else np.ones(len(height), dtype=bool))
        chosen = _Vertices(*(
            np.where(third.reshape(-1, *(1,) * (c.ndim - 1)), c, s)
            for c, s in zip(vars(cubic).values(), vars(square).values(), strict=True)
        ))  # fmt: skip
        first = bool(third[0])
        return cls(square, cubic, third, chosen, wide[0] if first else floor[0], other if first else surface)


def _kept(found: _Vertices, u: Floats) -> _Vertices:
    """Minima far beyond the pairs tried are none."""
    reach = np.ptp(u, axis=0)
    inside = ((found.u > u.min(axis=0) - reach) & (found.u < u.max(axis=0) + reach)).all(axis=1)
    return replace(found, valid=found.valid & inside)


def _steps(bowl: Bowl) -> Floats:
    """The median grid step of each hyperparameter in log2 [2]."""
    steps = [np.diff(np.unique(np.log2(bowl.x[:, i]))) for i in (0, 1)]
    return np.array([float(np.median(s)) if len(s) else 0.0 for s in steps])


def _reported(bowl: Bowl, noise: ValleyNoise, reading: _Reading, band: float, sampling: _Sampling) -> JointOptimum:
    chosen = reading.chosen
    place = chosen.u[0]
    inverse = np.linalg.inv(chosen.hessian[0])
    drop = float(bowl.above(chosen.height[:1], band)[0] - chosen.height[0])
    half = np.sqrt(2 * drop * np.diag(inverse))
    found = JointOptimum(
        bowl, "ok", (), _natural(place), float(bowl.response(chosen.height)[0]),
        bands=_natural(place, place - half, place + half), hessian=chosen.hessian[0],
        degree=3 if reading.third[0] else 2, n_points=int(reading.floor.sum()),
        quadratic=_pair(reading.quadratic), cubic=_pair(reading.cubic), noise=noise,
    )  # fmt: skip
    if noise.within is None or sampling.draws == 0:
        silent = () if noise.within is not None else (f"{bowl.title}: no interval, nothing is replicated.",)
        return replace(found, why=(*_remarks(found), *silent))
    return _with_draws(found, reading, sampling)


def _with_draws(found: JointOptimum, reading: _Reading, sampling: _Sampling) -> JointOptimum:
    bowl, noise, rng, draws = found.bowl, found.noise, sampling.rng, sampling.draws
    assert noise.within is not None
    # draws about the fitted surface carry the noise once, not twice
    smooth = np.where(reading.floor, reading.surface.at(bowl.u)[0], bowl.height)
    spread = noise.within / np.sqrt(bowl.count)
    shift = spread * rng.standard_normal((draws, len(smooth))) * heavy(rng, draws, noise.dof)
    sampled = _Reading.of(bowl, smooth + shift, None if reading.cubic is not None else 2)
    degrees = sampled.cubic if found.degree == 3 and sampled.cubic is not None else sampled.quadratic
    low, high = np.log2(bowl.x.min(axis=0)), np.log2(bowl.x.max(axis=0))
    valid = degrees.valid & ((degrees.u >= low) & (degrees.u <= high)).all(axis=1)
    lowest = bowl.u[(smooth + shift).argmin(axis=1)]
    u = np.where(valid[:, None], degrees.u, lowest) + _bias(reading, sampled) * rng.standard_normal((draws, 1))
    u = np.clip(u, low, high)
    height = np.where(valid, degrees.height, (smooth + shift).min(axis=1))
    seeds = float(np.median(bowl.count))
    losses = bowl.response(height + noise.common / np.sqrt(seeds) * rng.standard_normal(draws))
    found = replace(found, draws=u, loss_stderr=float(np.std(losses)))
    lost = float(np.mean(~valid))
    if lost > LOST:
        why = f"{bowl.title}: no interval; in {lost:.0%} of the draws the pairs tried hold no optimum."
        return replace(found, why=(*_remarks(found), why))
    both = np.array([ends(u[:, i], sampling.level) for i in (0, 1)])
    assert found.values is not None
    return replace(found, values=_natural(reading.chosen.u[0], both[:, 0], both[:, 1]), why=_remarks(found))


def _bias(reading: _Reading, sampled: _Reading) -> Floats:
    """How far [2] the two degrees lie apart beyond what noise explains."""
    if reading.cubic is None or sampled.cubic is None or not (reading.cubic.valid[0] and reading.quadratic.valid[0]):
        return np.zeros(2)
    move = reading.cubic.u[0] - reading.quadratic.u[0]
    good = sampled.cubic.valid & sampled.quadratic.valid
    if good.sum() < len(good) / 2:
        return np.zeros(2)
    low, high = np.quantile((sampled.cubic.u - sampled.quadratic.u)[good], [0.1587, 0.8413], axis=0)
    # the sign is kept: both values move together when the degree changes
    return np.asarray(np.sign(move) * np.sqrt(np.maximum(0.0, move**2 - ((high - low) / 2) ** 2)))


def _natural(u: Floats, low: Floats | None = None, high: Floats | None = None) -> tuple[Interval, Interval]:
    if low is None or high is None:
        one, other = (Interval(float(2.0**v)) for v in u)
        return one, other
    one, other = (Interval(float(2.0**v), float(2.0**a), float(2.0**b)) for v, a, b in zip(u, low, high, strict=True))
    return one, other


def _pair(found: _Vertices | None) -> tuple[float, float] | None:
    if found is None or not found.valid[0]:
        return None
    return float(2.0 ** found.u[0, 0]), float(2.0 ** found.u[0, 1])


# -- edges -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Edge:
    axis: int
    low: bool
    exact: bool  # the best pair lies there; else the vertex comes within half a step of it


def _levels(bowl: Bowl, axis: int) -> Floats:
    return np.unique(bowl.x[:, axis])


def _edges(bowl: Bowl, best: int) -> list[_Edge]:
    """The hyperparameters whose best value is the smallest or the largest tried."""
    out = []
    for axis in (0, 1):
        levels = _levels(bowl, axis)
        if bowl.x[best, axis] in (levels[0], levels[-1]):
            out.append(_Edge(axis, bool(bowl.x[best, axis] == levels[0]), True))
    return out


def _near_edges(bowl: Bowl, u: Floats) -> list[_Edge]:
    out = []
    for axis in (0, 1):
        levels = np.log2(_levels(bowl, axis))
        if u[axis] < levels[0] + 0.5 * (levels[1] - levels[0]):
            out.append(_Edge(axis, True, False))
        elif u[axis] > levels[-1] - 0.5 * (levels[-1] - levels[-2]):
            out.append(_Edge(axis, False, False))
    return out


def _beside(bowl: Bowl, best: int) -> str | None:
    """Names a diverged neighbour of the best pair along either axis."""
    for axis in (0, 1):
        levels = _levels(bowl, axis)
        i = int(np.searchsorted(levels, bowl.x[best, axis]))
        for side, word in ((i - 1, "below"), (i + 1, "above")):
            if not 0 <= side < len(levels):
                continue
            there = (bowl.x[:, axis] == levels[side]) & (bowl.x[:, 1 - axis] == bowl.x[best, 1 - axis])
            if (there & bowl.unstable).any():
                return (
                    f"the best pair {_show(bowl, best)} has diverged runs right {word} it, at {bowl.tune[axis]} "
                    f"{_value(levels[side])}, so the bowl is seen from one side only. Add values between them."
                )
    return None


def _at_edges(bowl: Bowl, noise: ValleyNoise, edges: list[_Edge], sampling: _Sampling) -> JointOptimum:
    """One hyperparameter at an edge: the other's optimum on condition of the edge value. Both: none."""
    said = [_edge_words(bowl, edge) for edge in edges]
    if len(edges) == 2:
        return JointOptimum(bowl, "edge", (f"{bowl.title}: {' '.join(said)} No optimum reported.",))
    edge = edges[0]
    levels = _levels(bowl, edge.axis)
    value = float(levels[0] if edge.low else levels[-1])
    rows = np.flatnonzero(bowl.x[:, edge.axis] == value)
    name, other = bowl.tune[edge.axis], bowl.tune[1 - edge.axis]
    place = f"{bowl.place}, {name} {_value(value)}" if bowl.place else f"{name} {_value(value)}"
    valley = Valley(other, place, bowl.x[rows, 1 - edge.axis], bowl.table[rows], bowl.unstable[rows], bowl.goal)
    found = find_optimum(valley, noise, draws=sampling.draws, level=sampling.level, rng=sampling.rng)
    head = f"{bowl.title}: {said[0]}"
    if found.status != "ok" or found.value is None:
        return JointOptimum(bowl, "edge", (f"{head} No optimum reported.", *found.why))
    return _conditional(bowl, found, edge, value, f"{head} {other} below is the best for {name} {_value(value)} only.")


def _conditional(bowl: Bowl, found: Optimum, edge: _Edge, value: float, sentence: str) -> JointOptimum:
    assert found.value is not None
    free, held = Interval(found.value, found.lo, found.hi), Interval(value)
    draws = None
    if found.draws is not None:
        fixed = np.full(len(found.draws), np.log2(value))
        draws = np.stack([fixed, found.draws] if edge.axis == 0 else [found.draws, fixed], axis=1)
    return JointOptimum(
        bowl, "conditional", (sentence, *found.why), (held, free) if edge.axis == 0 else (free, held), found.loss,
        found.loss_stderr, degree=found.degree, n_points=found.n_points, held=bowl.tune[edge.axis], draws=draws,
        noise=found.noise,
    )  # fmt: skip


def _edge_words(bowl: Bowl, edge: _Edge) -> str:
    levels = _levels(bowl, edge.axis)
    end, inner = (levels[0], levels[1]) if edge.low else (levels[-1], levels[-2])
    ratio, word = end / inner, "smallest" if edge.low else "largest"
    name = bowl.tune[edge.axis]
    head = (
        f"best {name} {_value(end)} is the {word} tried."
        if edge.exact
        else f"the optimum lies within half a step of {name} {_value(end)}, the {word} tried, or beyond it."
    )
    return f"{head} Add {_value(end * ratio)}, {_value(end * ratio**2)}."


# -- words -----------------------------------------------------------------------------------------


def _refused(bowl: Bowl, problem: str) -> JointOptimum:
    return JointOptimum(bowl, "refused", (f"{bowl.title}: {problem} No optimum reported.",))


def _no_bowl(bowl: Bowl, reading: _Reading) -> str:
    """In which direction the surface does not rise, in the user's words."""
    values, vectors = np.linalg.eigh(reading.quadratic.hessian[0])
    one, other = bowl.tune
    if values[0] > 0:
        return "the pairs near the best form a bowl whose bottom lies far beyond the pairs tried. Widen the grid."
    a, b = vectors[:, 0]
    if abs(b) < 0.2 * abs(a):
        way = one
    elif abs(a) < 0.2 * abs(b):
        way = other
    else:
        way = f"{one} ~ {other}^{a / b:.2g}"
    return f"the pairs near the best form no bowl: along {way} the response does not rise. Add pairs on that line."


def _remarks(found: JointOptimum) -> tuple[str, ...]:
    title, out = found.bowl.title, []
    if found.quadratic is not None and found.cubic is not None:
        octaves = np.log2(np.array(found.cubic) / np.array(found.quadratic))
        if found.degree == 3:
            out.append(
                f"{title}: the bowl is lopsided; its cubic puts the optimum at {_both(found.cubic)}, "
                f"a quadratic would at {_both(found.quadratic)}."
            )
        elif np.abs(octaves).max() > 0.1 * _steps(found.bowl).max():
            out.append(
                f"{title}: a cubic would put the optimum {octaves[0]:+.2f} and {octaves[1]:+.2f} octaves off; "
                "less than half a step, so the quadratic stands and the interval holds the difference."
            )
    if found.noise.source == "scatter":
        out.append(f"{title}: one run per pair; the interval comes from the scatter about the surfaces.")
    if found.noise.source == "replicates" and found.noise.dof < ENOUGH_DOF:
        out.append(f"{title}: the noise rests on {found.noise.dof:.0f} degrees of freedom.")
    return tuple(out)


def _both(pair: tuple[float, float]) -> str:
    return f"({pair[0]:.3g}, {pair[1]:.3g})"


def _show(bowl: Bowl, i: int) -> str:
    return ", ".join(f"{name} {_value(v)}" for name, v in zip(bowl.tune, bowl.x[i], strict=True))


def _value(value: Any) -> str:
    power = float(np.log2(value))
    return f"2^{round(power)}" if abs(power - round(power)) < 1e-9 else f"{value:.4g}"
