"""The best value of a tuned hyperparameter in one cell: a local parabola in log2(value), with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from scaling.arrays import Bools, Floats, Ints
from scaling.intervals import ENOUGH_DOF, ends, heavy
from scaling.polynomials import minimum, polynomial

Status = Literal["ok", "edge", "refused"]

DEPTH = 0.005  # points this far above the best, relatively, belong to the valley's floor
FEWEST, MOST = 5, 9  # points of the local parabola
SCATTER_DOF = 3.0  # freedom from which the scatter about the parabolas may stand for noise


@dataclass(frozen=True)
class Valley:
    """One cell's response against one tuned hyperparameter.

    x [k] > 0 ascending; table [k, s] responses by replicate, NaN where there is none; unstable [k]: a replicate
    diverged there. `place` says where, such as "width 64, rule standard".
    """

    tune: str
    place: str
    x: Floats
    table: Floats
    unstable: Bools
    goal: Literal["min", "max"] = "min"

    @property
    def log(self) -> bool:
        seen = self.table[np.isfinite(self.table)]
        return bool(np.all(seen > 0))

    @property
    def usable(self) -> Ints:
        """Indices of points with a response and no diverged replicate."""
        return np.flatnonzero(np.isfinite(self.table).any(axis=1) & ~self.unstable)

    @property
    def u(self) -> Floats:
        return np.log2(self.x[self.usable])

    @property
    def height(self) -> Floats:
        """What is minimised at the usable points: log of the mean response (or its negative, or the mean)."""
        mean = np.nanmean(self.table[self.usable], axis=1)
        return self.rise(np.asarray(mean))

    @property
    def count(self) -> Floats:
        return np.asarray(np.isfinite(self.table[self.usable]).sum(axis=1), dtype=float)

    def rise(self, response: Floats) -> Floats:
        value = np.log(response) if self.log else response
        return np.asarray(value if self.goal == "min" else -value)

    def response(self, height: Floats) -> Floats:
        value = height if self.goal == "min" else -height
        return np.asarray(np.exp(value) if self.log else value)


@dataclass(frozen=True)
class ValleyNoise:
    """Noise of one run in height units.

    `within` is what differs from point to point of a valley (it moves the optimum), `common` what a replicate
    shares along a valley (it moves the loss only). None: unknown.
    """

    within: float | None
    common: float
    dof: float
    source: Literal["replicates", "scatter", "none"]


@dataclass(frozen=True)
class Shape:
    """Local polynomials of B versions of a valley: vertices u [b] (log2) and heights [b].

    coefficients [b, 5] in (u - centre), centre [b], window ends [b], [b] in log2, valid [b], cubic [b].
    """

    u: Floats
    height: Floats
    coefficients: Floats
    centre: Floats
    low: Floats
    high: Floats
    valid: Bools
    cubic: Bools
    points: Ints

    def at(self, u: Floats) -> Floats:
        """The polynomial at u [b]."""
        return polynomial(self.coefficients, u - self.centre)


@dataclass(frozen=True)
class Optimum:
    """The optimum of one cell; `value`, `lo`, `hi` in the hyperparameter's unit, `loss` in the response's.

    Edge and refused optima have no numbers. `draws` [b] of log2(value), `losses` [b]. `lean`: octaves from the
    parabola's vertex to the cubic's, None where one is missing.
    """

    valley: Valley
    status: Status
    why: tuple[str, ...]
    value: float | None = None
    lo: float | None = None
    hi: float | None = None
    loss: float | None = None
    loss_stderr: float | None = None
    n_points: int = 0
    degree: int = 2
    lean: float | None = None
    window: tuple[float, float] | None = None
    shape: Shape | None = None  # of the measured means, b = 1
    sampled: Shape | None = None  # of the draws
    curves: Floats | None = None  # [b, k] heights of the draws at the usable points
    draws: Floats | None = None
    losses: Floats | None = None
    noise: ValleyNoise = field(default_factory=lambda: ValleyNoise(None, 0.0, 0.0, "none"))

    @property
    def u_stderr(self) -> float | None:
        """Standard error of log2(value), robust to stray draws."""
        if self.draws is None:
            return None
        lo, hi = np.quantile(self.draws, [0.1587, 0.8413])
        return float(hi - lo) / 2


def valley_noise(valleys: Sequence[Valley]) -> ValleyNoise:
    """The noise of one run, pooled over the floors of `valleys`: from replicates, else from the scatter."""
    square = dof = shared = shared_dof = scatter = scatter_dof = 0.0
    for valley in valleys:
        if len(valley.usable) < 3:
            continue
        height = valley.height[None, :]
        low, high = _windows(height, valley.log)
        index = valley.usable[int(low[0]) : int(high[0]) + 1]
        part = interaction(valley.rise(valley.table[index]))
        square, dof = square + part[0], dof + part[1]
        shared, shared_dof = shared + part[2], shared_dof + part[3]
        rest = _scatter(valley, int(low[0]), int(high[0]))
        scatter, scatter_dof = scatter + rest[0], scatter_dof + rest[1]
    if dof >= 1 and square > 0:
        within = square / dof
        common = max(0.0, shared / shared_dof) if shared_dof else 0.0
        return ValleyNoise(float(np.sqrt(within)), float(np.sqrt(common)), dof, "replicates")
    if scatter_dof >= SCATTER_DOF and scatter > 0:
        return ValleyNoise(float(np.sqrt(scatter / scatter_dof)), 0.0, scatter_dof, "scatter")
    return ValleyNoise(None, 0.0, 0.0, "none")


def interaction(table: Floats) -> tuple[float, float, float, float]:
    """Sums of squares and freedom of table [w, s]: within a replicate's valley, and between replicates' levels."""
    table = table[:, np.isfinite(table).all(axis=0)]
    points, seeds = table.shape
    if seeds < 2 or points < 2:
        return 0.0, 0.0, 0.0, 0.0
    level = table.mean(axis=0)
    rest = table - table.mean(axis=1, keepdims=True) - level + table.mean()
    square, dof = float((rest**2).sum()), float((points - 1) * (seeds - 1))
    between = float(((level - level.mean()) ** 2).sum())
    # a level holds 1/points of the noise within
    return square, dof, between - (seeds - 1) * square / dof / points, float(seeds - 1)


def _scatter(valley: Valley, low: int, high: int) -> tuple[float, float]:
    """Weighted residual square and freedom of the parabola over points low..high, per single run."""
    u, height, count = valley.u[low : high + 1], valley.height[low : high + 1], valley.count[low : high + 1]
    freedom = len(u) - 3
    if freedom < 1:
        return 0.0, 0.0
    design = np.vander(u - u.mean(), 3) * np.sqrt(count)[:, None]
    target = height * np.sqrt(count)
    fitted = design @ np.linalg.lstsq(design, target, rcond=None)[0]
    return float(((target - fitted) ** 2).sum()), float(freedom)


def _windows(height: Floats, log: bool) -> tuple[Ints, Ints]:
    """First and last point of each valley floor in height [b, k].

    Grows from the lowest point to the lower neighbour: five points, then those within 0.5 % of the best, nine at most.
    """
    rows, k = height.shape
    at = np.arange(rows)
    best = height.argmin(axis=1)
    floor = height[at, best]
    limit = floor + (np.log1p(DEPTH) if log else DEPTH * np.abs(floor))
    low, high = np.maximum(best - 1, 0), np.minimum(best + 1, k - 1)
    for _ in range(MOST):
        left = np.where(low > 0, height[at, np.maximum(low - 1, 0)], np.inf)
        right = np.where(high < k - 1, height[at, np.minimum(high + 1, k - 1)], np.inf)
        size = high - low + 1
        lower = np.minimum(left, right)
        grow = np.isfinite(lower) & (size < MOST) & ((size < FEWEST) | (lower <= limit))
        low = np.where(grow & (left <= right), low - 1, low)
        high = np.where(grow & (left > right), high + 1, high)
    return low, high


@dataclass(frozen=True)
class _Floors:
    """Where the valley floors of versions height [b, k] lie: first and last point [b], lowest place [b]."""

    u: Floats
    count: Floats
    height: Floats
    low: Ints
    high: Ints

    @classmethod
    def of(cls, valley: Valley, height: Floats) -> _Floors:
        return cls(valley.u, valley.count, height, *_windows(height, valley.log))

    @property
    def centre(self) -> Floats:
        return np.asarray(self.u[self.height.argmin(axis=1)])

    @property
    def points(self) -> Ints:
        return np.asarray(self.high - self.low + 1)

    def holds(self, t: Floats) -> Bools:
        """Whether centre + t [b] lies in the floor."""
        u = self.centre + t
        return np.asarray((u >= self.u[self.low]) & (u <= self.u[self.high]))

    def polynomial(self, degree: int) -> Floats:
        """Least squares polynomials [b, 5] in (u - centre) over the floors."""
        index = np.arange(len(self.u))
        inside = (index >= self.low[:, None]) & (index <= self.high[:, None])
        t = self.u - self.centre[:, None]
        reach = np.abs(t * inside).max(axis=1)
        powers = (t / reach[:, None])[:, :, None] ** np.arange(degree + 1)
        weight = inside * self.count
        gram = np.einsum("bki,bkj,bk->bij", powers, powers, weight)
        gram += 1e-13 * np.trace(gram, axis1=1, axis2=2)[:, None, None] * np.eye(degree + 1)
        moment = np.einsum("bki,bk,bk->bi", powers, weight, self.height)
        out = np.zeros((len(self.height), 5))
        out[:, : degree + 1] = np.linalg.solve(gram, moment[:, :, None])[:, :, 0]
        return np.asarray(out / reach[:, None] ** np.arange(5))

    def cubic(self) -> tuple[Floats, Floats, Bools]:
        """Cubics, their minima, and which of these lie in a floor of enough points."""
        third = self.polynomial(3)
        t, sound = minimum(third)
        return third, t, sound & self.holds(t) & (self.points >= FEWEST)


def _shapes(valley: Valley, height: Floats, spread: float | None) -> Shape:
    """Local fits of versions height [b, k] of a valley.

    The cubic replaces the parabola where their vertices differ by more than sqrt(2) times `spread`, the standard
    deviation that noise gives to that difference (then the parabola's bias outweighs the cubic's variance);
    without a spread, where they differ by more than half a grid step.
    """
    u, floors = valley.u, _Floors.of(valley, height)
    centre = floors.centre
    square = floors.polynomial(2)
    t, valid = minimum(square)
    third, t3, sound = floors.cubic()
    limit = _half_step(valley) if spread is None else np.sqrt(2) * spread
    cubic = sound & (~valid | (np.abs(t3 - t) > limit))
    square = np.where(cubic[:, None], third, square)
    t, valid = np.where(cubic, t3, t), valid | cubic
    vertex = centre + t
    valid &= (vertex >= u[0]) & (vertex <= u[-1])
    # a version without a minimum stands at its lowest point: its draw must not be lost, nor run away
    vertex = np.where(valid, vertex, centre)
    shape = Shape(vertex, np.zeros(0), square, centre, u[floors.low], u[floors.high], valid, cubic, floors.points)
    return replace(shape, height=np.where(valid, shape.at(vertex), height.min(axis=1)))


def _quartic_vertex(coefficients: Floats, t: Floats) -> tuple[Floats, Bools]:
    """The minimum [b] of polynomials of degree 4 near t [b], by Newton's method on the slope."""
    _, b, c, d, e = coefficients.T
    for _ in range(8):
        slope = b + t * (2 * c + t * (3 * d + t * 4 * e))
        bend = 2 * c + t * (6 * d + t * 12 * e)
        with np.errstate(all="ignore"):
            t = t - np.where(bend > 0, np.clip(slope / bend, -0.5, 0.5), 0.0)
    slope = b + t * (2 * c + t * (3 * d + t * 4 * e))
    bend = 2 * c + t * (6 * d + t * 12 * e)
    return t, (bend > 0) & (np.abs(slope) < 1e-9 * bend)


def _differences(valley: Valley, height: Floats) -> tuple[Floats, Floats]:
    """Vertex of the cubic minus that of the parabola, and of the quartic minus that of the cubic, [b] and [b].

    NaN where either is missing.
    """
    floors = _Floors.of(valley, height)
    t2, valid = minimum(floors.polynomial(2))
    _, t3, sound = floors.cubic()
    t4, good = _quartic_vertex(floors.polynomial(4), t3)
    first = np.where(valid & sound, t3 - t2, np.nan)
    return first, np.where(sound & good & floors.holds(t4), t4 - t3, np.nan)


@dataclass(frozen=True)
class _Step:
    """How far the vertex moves with one more degree, and the standard deviation that noise gives to the move."""

    move: float
    spread: float

    @property
    def bias(self) -> float:
        """What of the move noise does not explain."""
        return float(np.sqrt(max(0.0, self.move**2 - self.spread**2)))


def _steps(valley: Valley, curves: Floats) -> tuple[_Step | None, _Step | None]:
    """From parabola to cubic, from cubic to quartic; None where most draws lack one of them."""
    measured = _differences(valley, valley.height[None, :])
    out: list[_Step | None] = []
    for move, draws in zip(measured, _differences(valley, curves), strict=True):
        seen = draws[np.isfinite(draws)]
        if len(seen) <= len(draws) / 2:
            out.append(None)
            continue
        lo, hi = np.quantile(seen, [0.1587, 0.8413])
        out.append(_Step(float(np.nan_to_num(move[0])), float(hi - lo) / 2))
    return out[0], out[1]


def _lean(valley: Valley) -> float | None:
    """Octaves from the parabola's vertex to the cubic's."""
    move = float(_differences(valley, valley.height[None, :])[0][0])
    return move if np.isfinite(move) else None


def _half_step(valley: Valley) -> float:
    return 0.5 * float(np.median(np.diff(valley.u)))


def find_optimum(
    valley: Valley, noise: ValleyNoise, *, draws: int = 1000, level: float = 0.95, rng: np.random.Generator
) -> Optimum:
    """The optimum of `valley`, or the reason why there is none.

    Draws repeat the selection of lowest point and window, and of the degree where a cubic was taken, on the fitted
    valley disturbed by `noise`.
    """
    trouble = _trouble(valley)
    if trouble is not None:
        return trouble
    height = valley.height[None, :]
    shifts = _shifts(valley, noise, draws, rng)
    steps = (None, None) if shifts is None else _steps(valley, valley.height + shifts)
    spread = None if steps[0] is None else steps[0].spread
    shape = _shapes(valley, height, spread)
    if not shape.valid[0]:
        return _refused(
            valley, "the points near the best value do not form a valley (the parabola has no minimum inside)."
        )
    edge = _near_edge(valley, float(shape.u[0]))
    if edge is not None:
        return edge
    found = Optimum(
        valley, "ok", (), float(2.0 ** shape.u[0]), loss=float(valley.response(shape.height)[0]),
        n_points=int(shape.points[0]), degree=3 if shape.cubic[0] else 2, lean=_lean(valley),
        window=(float(2.0 ** shape.low[0]), float(2.0 ** shape.high[0])), shape=shape, noise=noise,
    )  # fmt: skip
    if shifts is None:
        return replace(found, why=(*_remarks(found, None), f"{_title(valley)}: no interval, nothing is replicated."))
    step = steps[found.degree - 2]
    curves = _smoothed(valley, shape) + shifts
    # draws of a kept parabola keep it: its own error is the parabola's noise and the move to a cubic, not both fits'
    sampled = _shapes(valley, curves, np.inf if found.degree == 2 else spread)
    found = replace(found, curves=curves, sampled=sampled)
    return _with_interval(found, sampled, 0.0 if step is None else step.bias, level, rng)


def _with_interval(found: Optimum, sampled: Shape, bias: float, level: float, rng: np.random.Generator) -> Optimum:
    """Adds draws of the optimum; `bias` is how far one more degree would move it beyond what noise explains."""
    valley, noise = found.valley, found.noise
    count = len(sampled.u)
    u = np.clip(sampled.u + bias * rng.standard_normal(count), valley.u[0], valley.u[-1])
    seeds = float(np.median(valley.count))
    shared = noise.common / np.sqrt(seeds) * rng.standard_normal(count)
    losses = valley.response(sampled.height + shared)
    lo, hi = ends(u, level)
    found = replace(
        found, lo=float(2.0**lo), hi=float(2.0**hi), loss_stderr=float(np.std(losses)),
        draws=u, losses=losses,
    )  # fmt: skip
    return replace(found, why=tuple(_remarks(found, float(np.mean(~sampled.valid)))))


def _remarks(found: Optimum, lost: float | None) -> list[str]:
    title, out = _title(found.valley), []
    if found.degree == 3:
        assert found.value is not None
        other = "has none" if found.lean is None else f"would at {found.value / 2.0**found.lean:.3g}"
        out.append(
            f"{title}: the valley is lopsided; its cubic puts the optimum at {found.value:.3g}, a parabola {other}."
        )
    elif found.lean is not None and abs(found.lean) > _half_step(found.valley):
        assert found.value is not None
        out.append(
            f"{title}: a cubic would put the optimum at {found.value * 2.0**found.lean:.3g} instead of "
            f"{found.value:.3g}, more than half a grid step off, yet no further than noise alone moves it."
        )
    if found.n_points < FEWEST:
        out.append(f"{title}: {found.n_points} points near the optimum, so the parabola itself is not tested.")
    if lost is not None and lost > 0.025:
        out.append(f"{title}: in {lost:.0%} of the draws the valley had no minimum inside the values tried.")
    if found.noise.source == "scatter":
        out.append(f"{title}: one run per value; the interval comes from the scatter about the parabolas.")
    if found.noise.source == "replicates" and found.noise.dof < ENOUGH_DOF:
        out.append(f"{title}: the noise rests on {found.noise.dof:.0f} degrees of freedom.")
    return out


def _shifts(valley: Valley, noise: ValleyNoise, draws: int, rng: np.random.Generator) -> Floats | None:
    """What the noise of the means adds to heights, [draws, k]; None where it is unknown."""
    if noise.within is None:
        return None
    spread = noise.within / np.sqrt(valley.count)
    return np.asarray(spread * rng.standard_normal((draws, len(spread))) * heavy(rng, draws, noise.dof))


def _smoothed(valley: Valley, shape: Shape) -> Floats:
    """Heights [k] with the local polynomial on the floor: draws about it carry the noise once, not twice."""
    u = valley.u
    inside = (u >= shape.low[0]) & (u <= shape.high[0])
    fitted = np.polynomial.polynomial.polyval(u - shape.centre[0], shape.coefficients[0])
    return np.where(inside, fitted, valley.height)


def _title(valley: Valley) -> str:
    return f"tune {valley.tune} at {valley.place}" if valley.place else f"tune {valley.tune}"


def _refused(valley: Valley, problem: str) -> Optimum:
    return Optimum(valley, "refused", (f"{_title(valley)}: {problem} No optimum reported.",))


def _trouble(valley: Valley) -> Optimum | None:
    """What rules an optimum out before any fit."""
    usable = valley.usable
    if len(usable) < 3:
        return _refused(valley, f"{len(usable)} of {len(valley.x)} values have stable results, 3 are needed.")
    if not np.all(np.isfinite(valley.height)):
        return _refused(valley, "the response is not finite.")
    best = usable[int(valley.height.argmin())]
    for side, name in ((best - 1, "below"), (best + 1, "above")):
        if 0 <= side < len(valley.x) and valley.unstable[side]:
            return _refused(
                valley,
                f"the best value {_show(valley.x[best])} has diverged runs right {name} it, at "
                f"{_show(valley.x[side])}, so the valley is seen from one side only. Add values between them.",
            )
    if best == 0 or best == len(valley.x) - 1:
        return _edge(valley, low=best == 0, exact=True)
    if usable[0] == best or usable[-1] == best:
        side = best - 1 if usable[0] == best else best + 1
        return _refused(
            valley, f"{_show(valley.x[side])}, next to the best value {_show(valley.x[best])}, has no result."
        )
    return None


def _near_edge(valley: Valley, u: float) -> Optimum | None:
    """An optimum within half a step of the end of the grid is not bracketed."""
    ends_u = np.log2(valley.x)
    if u < ends_u[0] + 0.5 * (ends_u[1] - ends_u[0]):
        return _edge(valley, low=True, exact=False)
    if u > ends_u[-1] - 0.5 * (ends_u[-1] - ends_u[-2]):
        return _edge(valley, low=False, exact=False)
    return None


def _edge(valley: Valley, *, low: bool, exact: bool) -> Optimum:
    end, inner = (valley.x[0], valley.x[1]) if low else (valley.x[-1], valley.x[-2])
    ratio = end / inner
    more = f"{_show(end * ratio)}, {_show(end * ratio**2)}"
    word = "smallest" if low else "largest"
    place = f"best value {_show(end)} is the {word} tried" if exact else (
        f"the optimum lies within half a step of {_show(end)}, the {word} tried")  # fmt: skip
    return Optimum(valley, "edge", (f"{_title(valley)}: {place}. No optimum reported. Add {more}.",))


def _show(value: Any) -> str:
    power = float(np.log2(value))
    return f"2^{round(power)}" if abs(power - round(power)) < 1e-9 else f"{value:.4g}"
