"""Minimises the robust misfit of a law: all starts, all resamples and all groups as one batch, in float64.

First the non-linear parameters are scanned with the linear ones solved for (variable projection), then the best
places are refined by a damped Newton iteration with exact second derivatives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from scaling.arrays import Bools, Floats, Ints
from scaling.laws import Law, Parameter

STEP_CAP = 2.0  # longest move of a round in any internal coordinate
GRADIENT_TOLERANCE = 1e-8  # of (delta * sum of weights)
STEP_TOLERANCE = 1e-11
EXACT = 1e-13  # residuals of this size are rounding: the law holds exactly
GAIN_TOLERANCE = 1e-15  # of the objective: rounding
ROUNDS = 200
RIDGE = 1e-12  # relative; keeps the scan's normal equations solvable
GRID = {0: 1, 1: 61, 2: 20**2, 3: 10**3}  # scanned places by number of non-linear parameters
SOBOL_PLACES = 1024


@dataclass(frozen=True)
class Objective:
    """Sum over rows of rho(r), r = scale * (log y_hat - log y), or scale * (y_hat - y) where residual is linear.

    `name` is "huber" (quadratic within `delta`, linear outside) or "l2" (delta infinite).
    """

    name: Literal["huber", "l2"] = "huber"
    residual: Literal["log", "linear"] = "log"
    delta: float | None = None  # None: chosen from the residuals


@dataclass(frozen=True)
class Problem:
    """R data sets for one law.

    x, y, scale, count: [R, n]. `scale` multiplies residuals, `count` is the multiplicity of a row (0: absent).
    `delta` is the bend of the Huber function (infinite: least squares).
    """

    law: Law
    x: Floats
    y: Floats
    scale: Floats
    count: Floats
    delta: float
    log: bool
    low: Floats  # [p], internal coordinates
    high: Floats

    def take(self, which: Ints) -> Problem:
        return Problem(
            self.law, self.x[which], self.y[which], self.scale[which], self.count[which], self.delta, self.log,
            self.low, self.high,
        )  # fmt: skip

    def residuals(self, theta: Floats) -> Floats:
        """[R, n] at theta [R, p]; +inf where the law is not positive under log residuals."""
        f = self.law.value(self.law.decode(theta), self.x)
        return self._misfit(f)

    def _misfit(self, f: Floats) -> Floats:
        with np.errstate(all="ignore"):
            r = np.log(f) - np.log(self.y) if self.log else f - self.y
        return np.asarray(np.where(np.isfinite(r), r, np.inf) * self.scale)

    def objective(self, theta: Floats) -> Floats:
        """[R] at theta [R, p]."""
        return self._sum(self.residuals(theta))

    def _sum(self, r: Floats) -> Floats:
        return np.asarray(np.where(self.count > 0, self.count * rho(r, self.delta), 0.0).sum(axis=-1))


@dataclass(frozen=True)
class Solution:
    """Where starts ended: theta [B, p], objective, converged, which problem, largest relative gradient (all [B])."""

    theta: Floats
    objective: Floats
    converged: Bools
    which: Ints
    gradient: Floats


def rho(r: Floats, delta: float) -> Floats:
    """Huber's function of residuals; half the square for an infinite `delta`."""
    size = np.abs(r)
    if np.isinf(delta):
        return np.asarray(0.5 * size * size)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(size <= delta, 0.5 * size * size, delta * (size - 0.5 * delta))


def box(law: Law, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Bounds [p], [p] in internal coordinates: fixed ones of shapes, data-made ones of linear parameters."""
    natural = np.array([0.5 * (p.start[0] + p.start[1]) for p in law.parameters])
    columns = np.abs(np.concatenate([law.columns(n, x)[0] for n in _corners(law, natural)], axis=-1))
    smallest, largest = np.min(np.abs(y[y != 0]), initial=np.inf), np.max(np.abs(y), initial=0.0)
    low, high = np.empty(len(natural)), np.empty(len(natural))
    k = 0
    for i, p in enumerate(law.parameters):
        if p.linear:
            seen = columns[k][np.isfinite(columns[k]) & (columns[k] > 0)]
            ends = (1e-9 * smallest / seen.max(), 1e9 * largest / seen.min())
            k += 1
        else:
            ends = (p.low, p.high)
        low[i], high[i] = np.log(ends) if p.positive else ends
    return low, high


def _corners(law: Law, natural: Floats) -> list[Floats]:
    """The middle, and each shape at either end of its start range."""
    places = [natural]
    for i, p in enumerate(law.parameters):
        for end in p.start if not p.linear else ():
            place = natural.copy()
            place[i] = end
            places.append(place)
    return places


def places(law: Law) -> Floats:
    """The scanned natural parameters [g, p]; linear entries are 1."""
    shapes = [i for i, p in enumerate(law.parameters) if not p.linear]
    count = GRID.get(len(shapes), SOBOL_PLACES)
    out = np.ones((count, len(law.parameters)))
    if not shapes:
        return out
    if len(shapes) in GRID:
        side = round(count ** (1 / len(shapes)))
        unit = np.stack(np.meshgrid(*[np.linspace(0, 1, side)] * len(shapes), indexing="ij"), -1).reshape(
            -1, len(shapes)
        )
    else:
        from scipy.stats import qmc

        unit = qmc.Sobol(len(shapes), scramble=False).random(count)
    for column, i in enumerate(shapes):
        out[:, i] = _spread(law.parameters[i], unit[:, column])
    return out


def _spread(p: Parameter, unit: Floats) -> Floats:
    low, high = p.start
    return np.asarray(low * (high / low) ** unit if p.positive else low + (high - low) * unit)


def scan(problem: Problem, keep: int) -> tuple[Floats, Ints]:
    """The `keep` best scanned places of each problem as starts: theta [R * keep, p], which [R * keep]."""
    law = problem.law
    grid = places(law)
    theta = _project(problem, grid)  # [R, g, p]
    rounds, size = theta.shape[:2]
    flat = theta.reshape(rounds * size, -1)
    which = np.repeat(np.arange(rounds), size)
    value = problem.take(which).objective(flat).reshape(rounds, size)
    value = np.where(np.isfinite(value), value, np.inf)
    best = np.argsort(value, axis=1, kind="stable")[:, : min(keep, size)]
    starts = np.take_along_axis(theta, best[:, :, None], axis=1)
    return starts.reshape(-1, theta.shape[2]), np.repeat(np.arange(rounds), best.shape[1])


def _project(problem: Problem, grid: Floats) -> Floats:
    """For every scanned place the best linear parameters >= 0, least squares in relative residuals: [R, g, p]."""
    law = problem.law
    columns, rest = law.columns(grid[None, :, :], problem.x[:, None, :])  # [k, R, g, n], [R, g, n]
    weight = problem.scale / problem.y if problem.log else problem.scale
    root = (weight * np.sqrt(problem.count))[:, None, :]
    design = np.moveaxis(np.nan_to_num(columns * root, posinf=0.0, neginf=0.0), 0, -1)  # [R, g, n, k]
    target = (problem.y[:, None, :] - rest) * root
    out = np.broadcast_to(grid, (len(problem.x), *grid.shape)).copy()
    linear = [i for i, p in enumerate(law.parameters) if p.linear]
    if linear:
        out[:, :, linear] = nonnegative_least_squares(design, target)
    theta = law.encode(np.maximum(out, 0) if all(p.positive for p in law.parameters) else _nonnegative(law, out))
    return np.clip(theta, problem.low, problem.high)


def _nonnegative(law: Law, parameters: Floats) -> Floats:
    positive = np.array([p.positive for p in law.parameters])
    return np.where(positive, np.maximum(parameters, 0), parameters)


def nonnegative_least_squares(design: Floats, target: Floats) -> Floats:
    """argmin |design c - target| with c >= 0, for a stack: design [..., n, k], target [..., n] -> [..., k].

    Tries every set of active columns; k is small.
    """
    k = design.shape[-1]
    size = np.sqrt(np.einsum("...nk,...nk->...k", design, design))
    size = np.where(size > 0, size, 1.0)
    unit = design / size[..., None, :]
    gram = np.einsum("...ni,...nj->...ij", unit, unit) + RIDGE * np.eye(k)
    moment = np.einsum("...ni,...n->...i", unit, target)
    best = np.zeros(moment.shape)
    gain = np.zeros(moment.shape[:-1])
    for chosen in range(1, 2**k):
        active = [i for i in range(k) if chosen >> i & 1]
        part = np.linalg.solve(gram[..., active, :][..., active], moment[..., active][..., None])[..., 0]
        gained = (part * moment[..., active]).sum(-1)
        better = (part >= 0).all(-1) & (gained > gain)
        full = np.zeros(moment.shape)
        full[..., active] = part
        best = np.where(better[..., None], full, best)
        gain = np.where(better, gained, gain)
    return np.asarray(best / size)


def refine(problem: Problem, theta: Floats, which: Ints, rounds: int = ROUNDS) -> Solution:
    """Damped Newton from each start theta [B, p] on its problem `which` [B], inside the box."""
    theta = np.clip(theta, problem.low, problem.high)
    total = len(theta)
    value, gradient, hessian, unit = _derivatives(problem.take(which), theta)
    damping = np.full(total, 1e-3)
    converged = np.zeros(total, dtype=bool)
    active = np.isfinite(value)
    last = np.full(total, np.inf)
    exact = 0.5 * EXACT**2 * (problem.count * problem.scale**2).sum(axis=-1)[which]
    for _ in range(rounds):
        last[active] = _relative_gradient(problem, theta[active], gradient[active], which[active])
        done = active & (((last < GRADIENT_TOLERANCE) & (damping < 1)) | (value < exact))
        converged |= done
        active &= ~done
        index = np.flatnonzero(active)
        if not len(index):
            break
        before = gradient[index]
        held = _held(problem, theta[index], before)
        step = _step(held, before, hessian[index], unit[index], damping[index])
        trial = np.clip(theta[index] + step, problem.low, problem.high)
        moved = np.abs(trial - theta[index]).max(axis=1)
        new, *derivatives = _derivatives(problem.take(which[index]), trial)
        better = new <= value[index]
        won = index[better]
        theta[won], value[won] = trial[better], new[better]
        gradient[won], hessian[won], unit[won] = (d[better] for d in derivatives)
        damping[index] = np.where(better, np.maximum(damping[index] / 10, 1e-10), damping[index] * 10)
        still = moved < STEP_TOLERANCE * (1 + np.abs(trial).max(axis=1))
        still |= np.abs((before * step).sum(axis=1)) < GAIN_TOLERANCE * value[index]
        # a step that gains this little means that rounding, not the shape, decides
        converged[index[still]] = last[index[still]] < np.sqrt(GRADIENT_TOLERANCE)
        active[index[still]] = False
        active[index[damping[index] > 1e12]] = False
    converged |= value < exact
    return Solution(theta, np.where(np.isfinite(value), value, np.inf), converged, which, last)


def _derivatives(problem: Problem, theta: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Objective [B], gradient [B, p], Hessian [B, p, p] and unit steps [B, p].

    A unit step is where the quadratic that touches the objective from above has curvature 1: it exists also where
    all residuals are beyond delta and the Hessian vanishes.
    """
    jet = problem.law.jet(theta, problem.x)
    r = problem._misfit(jet.value)
    value = problem._sum(r)
    slope, bend = jet.gradient, jet.hessian
    with np.errstate(all="ignore"):
        if problem.log:
            slope = slope / jet.value
            bend = bend / jet.value - slope[:, None] * slope[None, :]
        slope, bend = slope * problem.scale, bend * problem.scale
        inside = np.abs(r) <= problem.delta
        psi = (
            problem.count * np.where(inside, r, problem.delta * np.sign(r))
            if np.isfinite(problem.delta)
            else problem.count * r
        )
        gradient = (slope * psi).sum(axis=-1).T
        columns = np.moveaxis(slope, 0, 1)  # [b, p, n]
        hessian = (columns * (problem.count * inside)[:, None, :]) @ np.swapaxes(columns, 1, 2)
        hessian += np.moveaxis((bend * psi).sum(axis=-1), 2, 0)
        size = np.abs(r)
        touching = problem.count * np.where(size <= problem.delta, 1.0, problem.delta / size)
        unit = np.sqrt((slope * slope * touching).sum(axis=-1).T)
    return value, np.nan_to_num(gradient), np.nan_to_num(hessian), np.nan_to_num(unit)


def _held(problem: Problem, theta: Floats, gradient: Floats) -> Bools:
    """Coordinates at a bound that the gradient pushes outward."""
    return np.asarray(((theta <= problem.low) & (gradient > 0)) | ((theta >= problem.high) & (gradient < 0)))


def _relative_gradient(problem: Problem, theta: Floats, gradient: Floats, which: Ints) -> Floats:
    free = np.where(_held(problem, theta, gradient), 0.0, np.abs(gradient)).max(axis=1)
    part = problem.take(which)
    if np.isfinite(problem.delta):
        unit = np.full(len(theta), problem.delta)
    else:
        weight = np.maximum(part.count.sum(-1), 1e-300)
        unit = np.sqrt(2 * part.objective(theta) / weight)
    return np.asarray(free / np.maximum(unit * (part.count * part.scale).sum(-1), 1e-300))


def _step(held: Bools, gradient: Floats, hessian: Floats, unit: Floats, damping: Floats) -> Floats:
    """Newton's step in unit steps, with the moduli of the eigenvalues and Levenberg's damping; held ones stay."""
    count = gradient.shape[1]
    unit = np.where(held | (unit <= 1e-150), 1.0, unit)
    scaled = hessian / (unit[:, :, None] * unit[:, None, :])
    pair = held[:, :, None] | held[:, None, :]
    scaled = np.where(pair, np.eye(count), scaled)
    push = np.where(held, 0.0, gradient) / unit
    values, vectors = np.linalg.eigh(scaled)
    inverse = 1 / (np.abs(values) + damping[:, None] + 1e-14)
    along = (np.swapaxes(vectors, 1, 2) @ push[:, :, None]) * inverse[:, :, None]
    step = -(vectors @ along)[:, :, 0] / unit
    longest = np.abs(step).max(axis=1, keepdims=True)
    return np.asarray(step * np.minimum(1.0, STEP_CAP / np.maximum(longest, 1e-300)))


def curvature(problem: Problem, theta: Floats) -> Floats:
    """Weighted Jacobian [R, n, p] of the residuals in internal coordinates at theta [R, p]."""
    jet = problem.law.jet(theta, problem.x)
    with np.errstate(all="ignore"):
        slope = jet.gradient / jet.value if problem.log else jet.gradient
    return np.moveaxis(slope * problem.scale * np.sqrt(problem.count), 0, -1)
