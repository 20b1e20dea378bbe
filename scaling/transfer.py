"""Does a tuned hyperparameter hold along an axis? Drift of its optimum, exponent, and what the wrong value costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scaling.arrays import Floats
from scaling.fits import Fit
from scaling.fitting import fit_law
from scaling.intervals import Interval, ends
from scaling.laws import law_over
from scaling.optimum import Optimum, Shape, Valley
from scaling.rows import Rows

LN2 = float(np.log(2.0))
DECIDED = 0.975  # share of draws that settles a comparison
HALF = 0.5


@dataclass(frozen=True)
class Transfer:
    """One tuned hyperparameter along one axis in one group, between the smallest and the largest scale with an optimum.

    `drift` is optimum(to) / optimum(from); `octaves` its log2; `exponent` that of the optimum as a power of the
    axis; `cost` what the optimum of `from` loses at `to`, in the response's unit. Missing: not measurable, see `why`.
    """

    tune: str
    axis: str
    group: Mapping[str, Any]
    start: float | None
    end: float | None
    drift: Interval | None = None
    octaves: Interval | None = None
    exponent: Interval | None = None
    cost: Interval | None = None
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """Drifts of two groups over the same scales.

    `ratio` is |a| / |b| in octaves, `half` the share of draws in which it is below 1/2.
    """

    tune: str
    axis: str
    a: Mapping[str, Any]
    b: Mapping[str, Any]
    start: float
    end: float
    octaves_a: Interval
    octaves_b: Interval
    ratio: Interval
    half: float | None
    verdict: str


def transfer(
    tune: str,
    axis: str,
    group: Mapping[str, Any],
    optima: Sequence[tuple[float, Optimum]],
    *,
    level: float,
    seed: int,
    draws: int = 1000,
) -> Transfer:
    """Reads the transfer of `tune` off `optima`, pairs of (axis value, optimum) ascending."""
    found = [(x, o) for x, o in optima if o.status == "ok"]
    lost = ", ".join(f"{x:g}" for x, o in optima if o.status != "ok")
    said = (f"no optimum at {axis} {lost}",) if lost else ()
    if len(found) < 2:
        grid = (optima[0][0], optima[-1][0]) if optima else (None, None)
        return Transfer(tune, axis, group, grid[0], grid[1], why=said or (f"only one {axis}",))
    (start, one), (end, other) = found[0], found[-1]
    octaves = drift_octaves(one, other, level)
    cost, why = cost_of_transfer(one, other, level)
    exponent, more = _exponent(axis, found, level, seed, draws)
    return Transfer(
        tune, axis, group, start, end, octaves.map(lambda u: 2.0**u), octaves, exponent, cost, (*said, *why, *more)
    )


def drift_octaves(one: Optimum, other: Optimum, level: float) -> Interval:
    """log2 of optimum(other) / optimum(one)."""
    assert one.value is not None
    assert other.value is not None
    value = float(np.log2(other.value / one.value))
    if one.draws is None or other.draws is None:
        return Interval(value)
    return Interval(value, *ends(other.draws - one.draws, level))


def optimum_rows(found: Sequence[tuple[float, Optimum]]) -> Rows:
    """Optimal values over an axis, as rows of a law."""
    stderr = [None if o.u_stderr is None else float(o.value or 0) * LN2 * o.u_stderr for _, o in found]
    known = None if any(s is None for s in stderr) else np.array(stderr, dtype=float)
    dof = min((o.noise.dof for _, o in found), default=0.0)
    names = tuple(f"{o.valley.tune} at {o.valley.place}" for _, o in found)
    return Rows(np.array([x for x, _ in found]), np.array([o.value for _, o in found], dtype=float), known, dof, names)


def _exponent(
    axis: str, found: Sequence[tuple[float, Optimum]], level: float, seed: int, draws: int
) -> tuple[Interval | None, tuple[str, ...]]:
    """The exponent p of optimum ~ axis^p: from two scales their ratio, from more a fit."""
    if len({x for x, _ in found}) == 2:
        (start, one), (end, other) = found[0], found[-1]
        wide = float(np.log2(end / start))
        ratio = drift_octaves(one, other, level).map(lambda u: u / wide)
        return ratio, (f"two {axis}: the exponent is their ratio, untested.",)
    fit: Fit = fit_law(law_over("power", axis), optimum_rows(found), level=level, seed=seed, draws=draws)
    alpha = fit.params.get("alpha")
    if alpha is None:
        return None, fit.why
    return alpha.map(lambda v: -v), fit.why


def cost_of_transfer(one: Optimum, other: Optimum, level: float) -> tuple[Interval | None, tuple[str, ...]]:
    """Response lost at `other`'s cell by the optimum of `one`, against the best there.

    Inside the valley's floor the local polynomial is read, elsewhere the straight line between measured means;
    beyond the values tried the last one stands, which is a lower bound.
    """
    assert one.shape is not None
    assert other.shape is not None
    valley = other.valley
    why: list[str] = []
    u = float(one.shape.u[0])
    if _diverges(valley, u):
        return None, (f"at {valley.place} runs with {valley.tune} near {2.0**u:.3g} diverged: the cost has no number.",)
    if not valley.u[0] <= u <= valley.u[-1]:
        end = "smallest" if u < valley.u[0] else "largest"
        why.append(
            f"{2.0**u:.3g} is outside the values tried at {valley.place}; "
            f"the {end} one stands for it: at least this cost."
        )
    value = float(_lost(other, other.shape, valley.height[None, :], one.shape.u)[0])
    if one.sampled is None or other.sampled is None or one.draws is None or other.curves is None:
        return Interval(value), tuple(why)
    lost = _lost(other, other.sampled, other.curves, one.draws)
    return Interval(value, *ends(lost, level)), tuple(why)


def _diverges(valley: Valley, u: float) -> bool:
    """Whether u lies beside a tried value that diverged, or beyond one."""
    grid = np.log2(valley.x)
    i = int(np.clip(np.searchsorted(grid, u), 1, len(grid) - 1))
    near = [i - 1, i]
    if u < grid[0] or u > grid[-1]:
        near = [0 if u < grid[0] else len(grid) - 1]
    return bool(valley.unstable[near].any())


def _lost(other: Optimum, shape: Shape, curves: Floats, u: Floats) -> Floats:
    """Response lost at u [b] on each version [b] of a valley."""
    valley = other.valley
    inside = (u >= shape.low) & (u <= shape.high)
    height = np.where(inside, shape.at(u), _straight(valley.u, curves, u))
    best = np.minimum(shape.height, height)
    return np.abs(valley.response(height) - valley.response(best))


def _straight(grid: Floats, curves: Floats, u: Floats) -> Floats:
    """Linear interpolation of curves [b, k] over grid [k] at u [b], clamped to the grid."""
    u = np.clip(u, grid[0], grid[-1])
    right = np.clip(np.searchsorted(grid, u), 1, len(grid) - 1)
    share = (u - grid[right - 1]) / (grid[right] - grid[right - 1])
    rows = np.arange(len(curves))
    return np.asarray(curves[rows, right - 1] * (1 - share) + curves[rows, right] * share)


Group = tuple[Mapping[str, Any], Mapping[float, Optimum]]


def compare(tune: str, axis: str, a: Group, b: Group, level: float) -> Comparison | None:
    """Compares the drift of two groups (name, optimum by axis value) between the outermost scales both have.

    The group that drifts less is `a` in the result. None without two common scales.
    """
    common = sorted(x for x in a[1].keys() & b[1].keys() if a[1][x].status == b[1][x].status == "ok")
    if len(common) < 2:
        return None
    start, end = common[0], common[-1]
    one, other = (drift_octaves(g[1][start], g[1][end], level) for g in (a, b))
    if abs(one.value) > abs(other.value):
        a, b, one, other = b, a, other, one
    draws = [_octave_draws(g[1][start], g[1][end]) for g in (a, b)]
    ratio = Interval(abs(one.value) / max(abs(other.value), 1e-300))
    half = None
    if draws[0] is not None and draws[1] is not None:
        sizes = np.abs(draws[0]), np.abs(draws[1])
        ratio = Interval(ratio.value, *ends(sizes[0] / np.maximum(sizes[1], 1e-12), level))
        half = float(np.mean(sizes[0] < HALF * sizes[1]))
    made = Comparison(tune, axis, a[0], b[0], start, end, one, other, ratio, half, "")
    return replace(made, verdict=_verdict(made))


def _octave_draws(one: Optimum, other: Optimum) -> Floats | None:
    return None if one.draws is None or other.draws is None else other.draws - one.draws


def _verdict(c: Comparison) -> str:
    half = c.half
    text = (
        f"From {c.axis} {c.start:g} to {c.end:g} the best {c.tune} drifts {_octaves(c.octaves_a)} octaves under "
        f"{_label(c.a)} and {_octaves(c.octaves_b)} under {_label(c.b)}: {_octaves(c.ratio, signed=False)} of it."
    )
    if half is None:
        return f"{text} Without replicates the difference has no interval."
    if half >= DECIDED:
        return f"{text} Less than half: yes, in {_percent(half)} of the draws."
    if half <= 1 - DECIDED:
        return f"{text} Less than half: no, in {_percent(1 - half)} of the draws."
    return f"{text} Less than half: undecided, {_percent(half)} of the draws say so."


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _octaves(x: Interval, signed: bool = True) -> str:
    sign = "+" if signed else ""
    text = f"{x.value:{sign}.2f}"
    return text if x.lo is None or x.hi is None else f"{text} [{x.lo:{sign}.2f}, {x.hi:{sign}.2f}]"


def _label(group: Mapping[str, Any]) -> str:
    return ", ".join(str(v) for v in group.values()) or "all runs"
