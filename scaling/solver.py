"""Minimises the misfit of a law: all starts, all resamples and all groups as one batch, in float64.

First the non-linear parameters are scanned with the linear ones solved for (variable projection), then the best
places are refined by a damped Newton iteration with exact second derivatives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scaling.arrays import Bools, Floats, Ints
from scaling.laws import Law, Parameter, Projection, law_over
from scaling.objectives import Objective, Parts, link_slopes, linked, parts

GRADIENT_TOLERANCE = 1e-8  # of (delta * sum of weights)
STEP_TOLERANCE = 1e-14
EXACT = 1e-13  # residuals of this size are rounding: the law holds exactly
GAIN_TOLERANCE = 1e-15  # of the objective: rounding
ROUNDS = 200
RIDGE = 1e-12  # relative; keeps the scan's normal equations solvable
GRID = {0: 1, 1: 61, 2: 40, 3: 12}  # scanned places a side, by number of non-linear parameters
SOBOL_PLACES = 1024
BLOCK = 2**14  # array entries handled at once: what fits the processor's cache
SCAN_BLOCK = 2**22
HUGE = 1e100
NESTED_STARTS = 5
SMALLEST_LOG = -700.0  # exp of less underflows


@dataclass(frozen=True)
class Problem:
    """R data sets for one law.

    logs [d, R or 1, n]: logarithms of the inputs. y, scale, count: [R or 1, n]; `scale` multiplies residuals,
    `count` is the multiplicity of a row (0: absent). `low` and `high` [R or 1, p] bound the internal coordinates.
    `censored` [n] marks rows whose y is only a lower bound.
    """

    law: Law
    logs: Floats
    y: Floats
    scale: Floats
    count: Floats
    objective: Objective
    low: Floats
    high: Floats
    censored: Bools | None = None

    @property
    def size(self) -> int:
        """R."""
        return max((self.logs.shape[1], *(len(a) for a in (self.y, self.scale, self.count, self.low))), default=0)

    def take(self, which: Ints) -> Problem:
        return replace(
            self, logs=self.logs if self.logs.shape[1] == 1 else self.logs[:, which], y=_take(self.y, which),
            scale=_take(self.scale, which), count=_take(self.count, which), low=_take(self.low, which),
            high=_take(self.high, which),
        )  # fmt: skip

    def residuals(self, theta: Floats) -> Floats:
        """[R, n] at theta [R, p]; infinite where the law leaves the domain of the residual."""
        return self._misfit(self.law.inside(theta, self.logs))

    def _misfit(self, f: Floats) -> Floats:
        residual = self.objective.residual
        if self.objective.name == "binomial":
            r = linked("logit", f)
        else:
            r = (linked(residual, f) - linked(residual, self.y)) * self.scale
        return np.where(np.isfinite(r), r, np.inf)

    def objective_at(self, theta: Floats) -> Floats:
        """[R] at theta [R, p]."""
        out = np.empty(len(theta))
        for block in _blocks(len(theta), self.y.shape[-1]):
            part = self.take(np.arange(len(theta))[block])
            out[block] = part.total(part.residuals(theta[block]))
        return out

    def parts(self, r: Floats) -> Parts:
        return parts(self.objective, r, self.censored, self.y)

    def total(self, r: Floats) -> Floats:
        rho = self.parts(r).rho
        if self.objective.name == "binomial":
            rho = rho * self.scale**2
        with np.errstate(invalid="ignore"):
            return np.asarray(np.where(self.count > 0, self.count * rho, 0.0).sum(axis=-1))


def _take(array: Floats, which: Ints) -> Floats:
    return array if len(array) == 1 else array[which]


def _blocks(total: int, row: int, entries: int = BLOCK) -> Iterator[slice]:
    size = max(1, entries // max(row, 1))
    return (slice(i, min(i + size, total)) for i in range(0, total, size))


@dataclass(frozen=True)
class Solution:
    """Where starts ended: theta [B, p], objective, converged, which problem, largest relative gradient (all [B])."""

    theta: Floats
    objective: Floats
    converged: Bools
    which: Ints
    gradient: Floats

    def best(self, problems: int) -> tuple[Floats, Floats, Bools]:
        """Of each problem the start that ended lowest: theta [R, p], objective [R], converged [R]."""
        order = np.lexsort((self.objective, self.which))
        first = order[np.searchsorted(self.which[order], np.arange(problems))]
        return self.theta[first], self.objective[first], self.converged[first]


def box(law: Law, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Bounds [1, p], [1, p] in internal coordinates: fixed ones, and data-made ones of linear parameters."""
    natural = np.array([0.5 * (p.start[0] + p.start[1]) for p in law.parameters])
    projection = law.natural_projection
    columns = [
        np.abs(np.concatenate([np.broadcast_to(c[k], x.shape[1:]).ravel() for c in _corner_columns(law, natural, x)]))
        for k in range(len(projection.which))
    ]
    smallest, largest = np.min(np.abs(y[y != 0]), initial=np.inf), np.max(np.abs(y), initial=0.0)
    low, high = np.empty((1, len(natural))), np.empty((1, len(natural)))
    for i, p in enumerate(law.parameters):
        ends = (p.low, p.high)
        if p.linear and not np.isfinite(p.high):
            column = columns[projection.which.index(i)]
            seen = column[np.isfinite(column) & (column > 0)]
            top = 1e9 * largest / seen.min() if len(seen) else 1e9
            bottom = 1e-9 * smallest / seen.max() if len(seen) else 1e-9
            ends = (max(p.low, bottom), top) if p.positive else (max(p.low, -top), top)
        with np.errstate(divide="ignore"):
            low[0, i], high[0, i] = np.maximum(np.log(ends), SMALLEST_LOG) if p.positive else ends
    return low, high


def _corner_columns(law: Law, natural: Floats, x: Floats) -> list[list[Any]]:
    """Columns at the middle of the start ranges, and with each shape at either end of its range."""
    places = [natural]
    for i, p in enumerate(law.parameters):
        for end in p.start if not p.linear else ():
            place = natural.copy()
            place[i] = end
            places.append(place)
    with np.errstate(all="ignore"):
        return [law.natural_projection.columns(*place, *x) for place in places]


def places(law: Law, solved: tuple[int, ...]) -> Floats:
    """The scanned natural parameters [g, p]; those that are solved for are 1."""
    shapes = [i for i in range(len(law.parameters)) if i not in solved]
    side = GRID.get(len(shapes))
    if side is not None:
        axes = np.meshgrid(*[np.linspace(0, 1, side)] * len(shapes), indexing="ij")
        unit = np.stack(axes, -1).reshape(-1, len(shapes)) if shapes else np.zeros((1, 0))
    else:
        from scipy.stats import qmc

        unit = qmc.Sobol(len(shapes), scramble=False).random(SOBOL_PLACES)
    out = np.ones((len(unit), len(law.parameters)))
    for column, i in enumerate(shapes):
        out[:, i] = _spread(law.parameters[i], unit[:, column])
    return out


def _spread(p: Parameter, unit: Floats) -> Floats:
    low, high = p.start
    return np.asarray(low * (high / low) ** unit if p.positive else low + (high - low) * unit)


def projection_of(problem: Problem) -> Projection:
    """How the scan solves for parameters: in the law's logarithm where more of them are linear there."""
    log = problem.law.log_projection if problem.objective.residual == "log" else None
    return log or problem.law.natural_projection


def scan(problem: Problem, keep: int, held: Mapping[int, float] | None = None) -> tuple[Floats, Ints]:
    """The `keep` best scanned places of each problem as starts: theta [R * keep, p], which [R * keep].

    Natural parameters in `held` stay where they are.
    """
    projection = projection_of(problem)
    grid = places(problem.law, (*projection.which, *(held or ())))
    for i, fixed in (held or {}).items():
        grid[:, i] = fixed
    total, size = problem.size, len(grid)
    keep = min(keep, size)
    out = np.empty((total, keep, grid.shape[1]))
    for block in _blocks(total, size * problem.y.shape[-1], SCAN_BLOCK):
        part = problem.take(np.arange(total)[block])
        theta = _project(part, projection, grid)
        theta = np.broadcast_to(theta, (block.stop - block.start, *theta.shape[1:]))
        which = np.repeat(np.arange(len(theta)), size)
        value = part.take(which).objective_at(theta.reshape(len(which), -1)).reshape(len(theta), size)
        value = np.where(np.isfinite(value), value, np.inf)
        best = np.argsort(value, axis=1, kind="stable")[:, :keep]
        out[block] = np.take_along_axis(theta, best[:, :, None], axis=1)
    return out.reshape(total * keep, -1), np.repeat(np.arange(total), keep)


def _project(problem: Problem, projection: Projection, grid: Floats) -> Floats:
    """For every scanned place the best linear parameters, by least squares: theta [R or 1, g, p].

    Where the law is projected in its own value under another residual, residuals are relative: scaled by the slope
    of the residual at the observed value.
    """
    law = problem.law
    given = law.encode(grid) if projection.log else grid
    x = np.exp(problem.logs)[:, :, None, :]
    with np.errstate(all="ignore"):
        made = projection.columns(*(given[None, :, i, None] for i in range(given.shape[1])), *x)
    rows = np.broadcast_shapes(problem.y.shape, problem.scale.shape, problem.count.shape)
    target = linked("log", problem.y) if projection.log else problem.y
    slope = 1.0 if projection.log else link_slopes(problem.objective.residual, problem.y)[0]
    root = np.broadcast_to(np.abs(slope) * problem.scale * np.sqrt(problem.count), rows)
    root = np.where(np.isfinite(root), root, 0.0)
    out = np.broadcast_to(given, (len(rows) and rows[0], *given.shape)).copy()
    if projection.which:
        columns = [np.nan_to_num(c, posinf=0.0, neginf=0.0) for c in made[:-1]]
        rest = np.nan_to_num(target[:, None, :] - made[-1], posinf=0.0, neginf=0.0)
        solved = _solve_columns(columns, rest, root[:, None, :] ** 2, projection.signed)
        out[:, :, list(projection.which)] = solved
    theta = out if projection.log else law.encode(_domain(law, out))
    return np.clip(theta, problem.low[:, None, :], problem.high[:, None, :])


def _domain(law: Law, parameters: Floats) -> Floats:
    signed = np.array([p.signed for p in law.parameters])
    return np.where(signed, parameters, np.maximum(parameters, 0))


def _solve_columns(columns: list[Floats], target: Floats, weight: Floats, signed: tuple[bool, ...]) -> Floats:
    """Weighted least squares of target [R, g, n] on columns (each broadcasts to it): [R, g, k].

    The products are summed over rows without being stored.
    """
    k = len(columns)
    shape = np.broadcast_shapes(target.shape, weight.shape, *(np.shape(c) for c in columns))[:-1]
    gram, moment = np.empty((*shape, k, k)), np.empty((*shape, k))
    n = target.shape[-1]
    wide = [np.broadcast_to(c, (*np.broadcast_shapes(np.shape(c)[:-1], (1, 1)), n)) for c in columns]
    for i, a in enumerate(wide):
        weighted = a * weight
        moment[..., i] = np.einsum("...n,...n->...", weighted, target)
        for j in range(i, k):
            gram[..., i, j] = gram[..., j, i] = np.einsum("...n,...n->...", weighted, wide[j])
    return nonnegative(gram, moment, signed)


def nonnegative(gram: Floats, moment: Floats, signed: tuple[bool, ...]) -> Floats:
    """argmin c'Gc/2 - m'c with c >= 0 where not `signed`, for stacks: gram [..., k, k], moment [..., k] -> [..., k].

    Tries every set of active columns; k is small.
    """
    k = moment.shape[-1]
    size = np.sqrt(np.einsum("...kk->...k", gram))
    size = np.where(size > 0, size, 1.0)
    gram = gram / (size[..., :, None] * size[..., None, :]) + RIDGE * np.eye(k)
    moment = moment / size
    always = [i for i in range(k) if signed[i]]
    best, gain = np.zeros(moment.shape), np.full(moment.shape[:-1], -1.0)
    for chosen in range(2**k):
        active = [i for i in range(k) if chosen >> i & 1]
        if not active or not set(always) <= set(active):
            continue
        size_of = len(active)
        some = gram[..., active, :][..., active].reshape(-1, size_of, size_of)
        part = _cholesky_solve(some, moment[..., active].reshape(-1, size_of))[0].reshape(*moment.shape[:-1], size_of)
        gained = (part * moment[..., active]).sum(-1)
        allowed = np.array([signed[i] for i in active])
        better = ((part >= 0) | allowed).all(-1) & (gained > np.maximum(gain, -np.inf if always else 0))
        full = np.zeros(moment.shape)
        full[..., active] = part
        best = np.where(better[..., None], full, best)
        gain = np.where(better, gained, gain)
    return np.asarray(best / size)


@dataclass
class _State:
    """Where each start is: position, value and derivatives there."""

    theta: Floats
    value: Floats
    gradient: Floats
    hessian: Floats
    unit: Floats

    def take(self, index: Ints | Bools) -> _State:
        return _State(*(a[index] for a in self._arrays()))

    def put(self, index: Ints, other: _State) -> None:
        for mine, theirs in zip(self._arrays(), other._arrays(), strict=True):
            mine[index] = theirs

    def _arrays(self) -> tuple[Floats, ...]:
        return self.theta, self.value, self.gradient, self.hessian, self.unit


def starts(problem: Problem, keep: int) -> Floats:
    """Starts [k, p] for the one data set of `problem`: the best of a scan, and of scans about a simpler law's fit."""
    found = [scan(problem, keep)[0]]
    nested = problem.law.nested
    if nested is not None:
        simple = law_over(nested.law, problem.law.inputs)
        x = np.exp(problem.logs[:, 0])
        low, high = box(simple, x, problem.y[0])
        inner = replace(problem, law=simple, low=low, high=high)
        inside = starts(inner, NESTED_STARTS)
        ends = refine(inner, inside, np.zeros(len(inside), dtype=int))
        best = simple.decode(ends.theta[int(np.argmin(ends.objective))])
        held = {
            problem.law.names.index(ours): float(best[simple.names.index(theirs)]) for ours, theirs in nested.shared
        }
        solved = projection_of(problem).which
        found.append(scan(problem, keep, {i: v for i, v in held.items() if i not in solved})[0])
    return np.vstack(found)


def refine(problem: Problem, theta: Floats, which: Ints, rounds: int = ROUNDS) -> Solution:
    """Damped Newton from each start theta [B, p] on its problem `which` [B], inside the box.

    A step that ends higher is not given up at once: the next step starts from there, and only if that ends higher
    than before as well are both undone (the watchdog of Chamberlain et al. 1982). Along a curved valley, where the
    floor and an amplitude trade off, the first step leaves the valley's bottom and the second falls back to it.
    """
    total = len(theta)
    theta = np.clip(theta, _take(problem.low, which), _take(problem.high, which))
    at = _State(theta, *_derivatives(problem, theta, which))
    anchor, probing = at.take(np.arange(total)), np.zeros(total, dtype=bool)
    damping = np.full(total, 1e-3)
    converged, active = np.zeros(total, dtype=bool), np.isfinite(at.value)
    last = np.full(total, np.inf)
    weights = _Weights.of(problem, which)
    for _ in range(rounds):
        index = np.flatnonzero(active)
        if not len(index):
            break
        here, firm = at.take(index), ~probing[index]
        low, high = _take(problem.low, which[index]), _take(problem.high, which[index])
        held = _held(low, high, here.theta, here.gradient)
        slope = weights.relative(problem.objective, here, held, index)
        last[index[firm]] = slope[firm]
        done = firm & (((slope < GRADIENT_TOLERANCE) & (damping[index] < 1)) | (here.value < weights.exact[index]))
        converged[index[done]] = True
        active[index[done]] = False
        step = _step(problem.law, held, here, damping[index])
        trial_theta = np.clip(here.theta + step, low, high)
        with np.errstate(invalid="ignore", over="ignore"):
            gain = -((here.gradient + 0.5 * np.einsum("bij,bj->bi", here.hessian, step)) * step).sum(axis=1)
        still = np.abs(trial_theta - here.theta).max(axis=1) < STEP_TOLERANCE * (1 + np.abs(trial_theta).max(axis=1))
        still |= np.abs((here.gradient * step).sum(axis=1)) < GAIN_TOLERANCE * np.abs(here.value)
        still &= firm & ~done
        # a step that gains this little means that rounding, not the shape, decides
        converged[index[still]] = slope[still] < np.sqrt(GRADIENT_TOLERANCE)
        active[index[still]] = False
        go = ~(done | still)
        if not go.any():
            continue
        index, firm, here, gain = index[go], firm[go], here.take(go), gain[go]
        trial = _State(trial_theta[go], *_derivatives(problem, trial_theta[go], which[index]))
        bar = np.where(firm, here.value, anchor.value[index])
        better = trial.value <= bar
        hope = ~better & firm & np.isfinite(trial.value)
        lost = ~better & ~hope
        anchor.put(index[hope], here.take(hope))
        at.put(index[better | hope], trial.take(better | hope))
        back = lost & ~firm
        at.put(index[back], anchor.take(index[back]))
        probing[index] = hope
        with np.errstate(invalid="ignore"):
            good = better & (here.value - trial.value > 0.5 * gain)
        factor = np.where(good, 0.1, np.where(lost, 10.0, 1.0))
        damping[index] = np.maximum(damping[index] * factor, 1e-10)
        active[index[damping[index] > 1e12]] = False
    at.put(np.flatnonzero(probing), anchor.take(probing))
    converged |= at.value < weights.exact
    return Solution(at.theta, np.where(np.isfinite(at.value), at.value, np.inf), converged, which, last)


@dataclass(frozen=True)
class _Weights:
    """Of each start [B]: the sum of its rows' weights, their number, and the objective that is rounding."""

    total: Floats
    rows: Floats
    exact: Floats

    @classmethod
    def of(cls, problem: Problem, which: Ints) -> _Weights:
        def each(array: Floats) -> Floats:
            return np.broadcast_to(array, (problem.size,))[which]

        unit = 1.0 if problem.objective.residual != "linear" else np.abs(problem.y)
        exact = 0.5 * EXACT**2 * (problem.count * (problem.scale * unit) ** 2).sum(-1)
        return cls(each((problem.count * problem.scale).sum(-1)), each(problem.count.sum(-1)), each(exact))

    def relative(self, objective: Objective, at: _State, held: Bools, index: Ints) -> Floats:
        """The largest free gradient over delta (or the typical residual) times the weights [len(index)]."""
        free = np.where(held, 0.0, np.abs(at.gradient)).max(axis=1)
        if objective.delta is not None:
            unit: Floats = np.full(len(index), objective.delta)
        else:
            unit = np.sqrt(2 * np.abs(at.value) / np.maximum(self.rows[index], 1e-300))
        return np.asarray(free / np.maximum(unit * self.total[index], 1e-300))


def _derivatives(problem: Problem, theta: Floats, which: Ints) -> tuple[Floats, Floats, Floats, Floats]:
    """Objective [B], gradient [B, p], Hessian [B, p, p] and unit steps [B, p], in blocks.

    A unit step is where the quadratic that touches the objective from above has curvature 1: it exists also where
    all residuals are beyond delta and the Hessian vanishes.
    """
    total, p = theta.shape
    out = np.empty(total), np.empty((total, p)), np.empty((total, p, p)), np.empty((total, p))
    for block in _blocks(total, problem.y.shape[-1]):
        made = _derivatives_of(problem.take(which[block]), theta[block])
        for whole, part in zip(out, made, strict=True):
            whole[block] = part
    return out


def _derivatives_of(problem: Problem, theta: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    jet = problem.law.jet(theta, problem.logs)
    r = problem._misfit(jet.value)
    found = problem.parts(r)
    binomial = problem.objective.name == "binomial"
    count = problem.count * problem.scale**2 if binomial else problem.count
    p = theta.shape[1]
    with np.errstate(all="ignore"):
        value = np.where(count > 0, count * found.rho, 0.0).sum(axis=-1)
        first, second = link_slopes("logit" if binomial else problem.objective.residual, jet.value)
        scale = np.broadcast_to(1.0 if binomial else problem.scale, r.shape)
        psi = count * found.psi * scale
        # d2 rho = bend (s g' f')^2 + psi s (g'' f' f' + g' f'')
        outer = count * found.bend * (scale * first) ** 2 + psi * second
        push = psi * first
        touch = count * found.touching * (scale * first) ** 2
        dead = ~np.isfinite(r)
        if dead.any():
            outer, push, touch = (np.where(dead, 0.0, a) for a in (outer, push, touch))
        slopes = np.empty((p, *r.shape))
        for i, slope in enumerate(jet.gradient):
            slopes[i] = slope
        if dead.any():
            slopes[:, dead] = 0.0
        gradient = np.einsum("pbn,bn->bp", slopes, push)
        columns = np.moveaxis(slopes, 0, 1)  # [b, p, n]
        hessian = (columns * outer[:, None, :]) @ np.swapaxes(columns, 1, 2)
        for (i, j), bend in jet.hessian.items():
            extra = (np.where(dead, 0.0, bend) * push if dead.any() else bend * push).sum(axis=-1)
            hessian[:, i, j] += extra
            if i != j:
                hessian[:, j, i] += extra
        unit = np.sqrt(np.einsum("pbn,pbn,bn->bp", slopes, slopes, touch))
    return value, np.nan_to_num(gradient), np.nan_to_num(hessian), np.nan_to_num(unit)


def _held(low: Floats, high: Floats, theta: Floats, gradient: Floats) -> Bools:
    """Coordinates at a bound that the gradient pushes outward, and those that a box of no width fixes."""
    return np.asarray(((theta <= low) & (gradient > 0)) | ((theta >= high) & (gradient < 0)) | (low >= high))


def _step(law: Law, held: Bools, at: _State, damping: Floats) -> Floats:
    """Newton's step in unit steps, with Levenberg's damping; held coordinates stay.

    Where the Hessian isn't positive definite its eigenvalues are replaced by their moduli.
    """
    gradient, hessian, unit = at.gradient, at.hessian, at.unit
    count = gradient.shape[1]
    unit = np.where(held | (unit <= 1e-150), 1.0, unit)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = hessian / (unit[:, :, None] * unit[:, None, :])
    pair = held[:, :, None] | held[:, None, :]
    broken = ~np.all(np.abs(scaled) < HUGE, axis=(1, 2), keepdims=True)  # the law overflows: the gradient is left
    scaled = np.where(pair | broken, np.eye(count), scaled)
    push = np.where(held, 0.0, gradient) / unit
    step, definite = _cholesky_solve(scaled + (damping[:, None, None] + 1e-14) * np.eye(count), push)
    rest = ~definite
    if rest.any():
        values, vectors = np.linalg.eigh(scaled[rest])
        inverse = 1 / (np.abs(values) + damping[rest, None] + 1e-14)
        along = (np.swapaxes(vectors, 1, 2) @ push[rest, :, None]) * inverse[:, :, None]
        step[rest] = (vectors @ along)[:, :, 0]
    step = -step / unit
    caps = np.array([p.cap for p in law.parameters])
    longest = np.abs(step / caps).max(axis=1, keepdims=True)
    return np.asarray(step / np.maximum(longest, 1.0))


def _cholesky_solve(matrix: Floats, right: Floats) -> tuple[Floats, Bools]:
    """Solutions [B, p] of matrix [B, p, p] x = right [B, p], and where the matrix is positive definite [B].

    Rows of the batch go together through one factorisation, written for small p and large B.
    """
    p = right.shape[1]
    lower = np.zeros_like(matrix)
    definite = np.ones(len(matrix), dtype=bool)
    out = right.copy()
    with np.errstate(all="ignore"):
        for j in range(p):
            pivot = matrix[:, j, j] - np.einsum("bk,bk->b", lower[:, j, :j], lower[:, j, :j])
            definite &= pivot > 1e-13
            root = np.sqrt(pivot)
            lower[:, j, j] = root
            for i in range(j + 1, p):
                dot = np.einsum("bk,bk->b", lower[:, i, :j], lower[:, j, :j])
                lower[:, i, j] = (matrix[:, i, j] - dot) / root
            out[:, j] = (out[:, j] - np.einsum("bk,bk->b", lower[:, j, :j], out[:, :j])) / root
        for j in reversed(range(p)):
            below = np.einsum("bk,bk->b", lower[:, j + 1 :, j], out[:, j + 1 :])
            out[:, j] = (out[:, j] - below) / lower[:, j, j]
    return out, definite


def curvature(problem: Problem, theta: Floats) -> Floats:
    """Weighted Jacobian [R, n, p] of the residuals in internal coordinates at theta [R, p]."""
    jet = problem.law.jet(theta, problem.logs)
    rows = np.broadcast_shapes(jet.value.shape, problem.scale.shape, problem.count.shape)
    binomial = problem.objective.name == "binomial"
    with np.errstate(all="ignore"):
        slope = link_slopes("logit" if binomial else problem.objective.residual, jet.value)[0]
        weight = slope * problem.scale * np.sqrt(problem.count)
        made = np.empty((*rows, theta.shape[1]))
        for i, part in enumerate(jet.gradient):
            made[..., i] = part * weight
    return np.nan_to_num(made, posinf=0.0, neginf=0.0)
