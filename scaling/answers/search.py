"""The best place on a surface of equal cost, or the cheapest place of equal loss, for many sets of parameters at once.

Everything is in logarithms of the inputs: u [d, b, k] are k places for each of b sets of parameters. A place is a
direction (the ratios of the free inputs) and a common factor, which the constraint decides; what is left is a search
over directions: by sign of the slope for two free inputs, by Newton's method for more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np

from scaling.answers.additive import Powers, powers_of
from scaling.answers.cost import Cost
from scaling.answers.roots import crossing
from scaling.arrays import Bools, Floats, Ints
from scaling.laws import Law

SPAN = 230.0  # logarithms on either side of the start within which a common factor is looked for
REACH = 27.6  # log 1e12: an optimum whose ratios are farther off is none
TICKS = {2: 41, 3: 21, 4: 11}  # grid points per direction, by the number of free inputs
MOST_FREE = max(TICKS)
NEWTON_ROUNDS, LONGEST_STEP, FINEST_STEP = 80, 2.0, 1e-12
DIFFERENCE = 1e-4  # in a logarithm, for second derivatives
SLACK = 1e-9  # by which a constraint may seem broken


@dataclass(frozen=True)
class Task:
    """What is searched: the law (times `sign`: the smallest is best), the cost, and where the inputs may be.

    `free` [d] inputs are chosen between `low` and `high` [d], the others stay at `u` [d], which is also where the
    search starts. `cap` (i, j) keeps input i at most as large as input j.
    """

    law: Law
    cost: Cost
    free: Bools
    u: Floats
    low: Floats
    high: Floats
    sign: float = 1.0
    cap: tuple[int, int] | None = None

    def actual(self, u: Floats) -> Floats:
        """u [d, ...] with the cap applied."""
        if self.cap is None:
            return u
        i, j = self.cap
        made = np.array(u)
        made[i] = np.minimum(u[i], u[j])
        return made

    def badness(self, parameters: Floats, u: Floats) -> Floats:
        """sign * y [b, k] of places u [d, b, k] for `parameters` [b, p]; +inf where there is no value."""
        with np.errstate(all="ignore"):
            y = self.sign * self.law.value(parameters, np.exp(self.actual(u)))
        return np.where(np.isnan(y), np.inf, y)

    def badness_slopes(self, parameters: Floats, u: Floats) -> Floats:
        """d badness / d u [d, b, k]."""
        with np.errstate(all="ignore"):
            x = np.exp(self.actual(u))
            slopes = self.sign * x * np.array([self.law.partial(parameters, x, i) for i in range(len(u))])
        if self.cap is not None:
            i, j = self.cap
            bound = u[i] >= u[j]
            slopes[j] += np.where(bound, slopes[i], 0.0)
            slopes[i] = np.where(bound, 0.0, slopes[i])
        return np.asarray(slopes)


@dataclass(frozen=True)
class Places:
    """The best places u [d, b] and the objective there [b]: badness, or log cost; +inf where nothing is possible.

    An input that runs off to 0 or without end has u = -inf or +inf.
    """

    u: Floats
    value: Floats


@dataclass(frozen=True)
class Search:
    """The task for b sets of `parameters` [b, p]: least badness at log cost `level` [b], or, the other way round
    (`cheapest`), least log cost at badness `level` [b]."""

    task: Task
    parameters: Floats
    level: Floats
    cheapest: bool = False

    def run(self, u: Floats | None = None, free: Bools | None = None) -> Places:
        """The best places within the limits; `u` [d, b] and `free` [d] replace those of the task."""
        if u is None:
            u = np.repeat(self.task.u[:, None], len(self.parameters), axis=1)
        free = self.task.free if free is None else free
        place = self._unlimited(u, free)
        return self._limited(u, free, place) if free.any() else place

    # limits

    def _limited(self, u: Floats, free: Bools, place: Places) -> Places:
        """Where the place breaks limits: each broken limit in turn holds its input there, and the best is taken.

        At a constrained minimum of a convex problem one of the limits that the free minimum breaks is reached.
        """
        best_u, best = place.u.copy(), place.value.copy()
        tasks = [(i, end, sign) for i in np.flatnonzero(free)
                 for end, sign in ((self.task.low[i], -1.0), (self.task.high[i], 1.0))]  # fmt: skip
        with np.errstate(invalid="ignore"):
            broken = [sign * (place.u[i] - end) > 1e-12 for i, end, sign in tasks]
        best[np.any(broken, axis=0)] = np.inf
        for (i, end, _), out in zip(tasks, broken, strict=True):
            if not out.any():
                continue
            rows = np.flatnonzero(out)
            held, rest = u[:, rows].copy(), free.copy()
            held[i], rest[i] = end, False
            found = self._take(rows).run(held, rest)
            better = found.value < best[rows]
            best_u[:, rows[better]], best[rows[better]] = found.u[:, better], found.value[better]
        return Places(best_u, best)

    def _take(self, rows: Ints) -> Search:
        return replace(self, parameters=self.parameters[rows], level=self.level[rows])

    # without limits

    def _unlimited(self, u: Floats, free: Bools) -> Places:
        # what costs nothing is taken as far as it may go
        idle = free & ~self.task.cost.used
        if idle.any():
            u = np.where(idle[:, None], self.task.high[:, None], u)
            free = free & ~idle
        count = int(free.sum())
        if count == 0:
            return Places(u, np.where(self._allowed(u), self._objective(u[..., None])[:, 0], np.inf))
        if (count > 1 or self.cheapest) and (terms := self._terms()) is not None and self.task.cost.powers is not None:
            return self._closed(terms, self.task.cost.powers, u, free)
        if count == 1:
            return self._priced(self._scaled(u[..., None], free)[..., 0])
        t, runs = (self._two if count == 2 else self._many)(u, free)
        place = self._priced(self._along(u, free, t[:, :, None])[..., 0])
        origin = self._along(u, free, np.zeros((count - 1, 1, 1)))[..., 0]
        runs &= np.isfinite(place.value)
        value = np.where(runs, -np.inf, place.value) if self.cheapest else place.value
        return Places(_ran_off(place.u, origin, runs, free), value)

    def _allowed(self, u: Floats) -> Bools:
        gap = self._gap(u[..., None])[:, 0]
        return np.asarray(gap >= -SLACK if self.cheapest else gap <= SLACK)

    def _priced(self, u: Floats) -> Places:
        value = self._objective(u[..., None])[:, 0]
        return Places(u, np.where(np.isnan(value) | ~np.isfinite(u).all(axis=0), np.inf, value))

    def _objective(self, u: Floats) -> Floats:
        return self.task.cost.value(u) if self.cheapest else self.task.badness(self.parameters, u)

    def _gap(self, u: Floats) -> Floats:
        """By how much places u [d, b, k] miss the constraint [b, k]; grows with the inputs' common factor."""
        if self.cheapest:
            return self.level[:, None] - self.task.badness(self.parameters, u)
        return self.task.cost.value(u) - self.level[:, None]

    def _slopes(self, u: Floats) -> tuple[Floats, Floats]:
        """Slopes [d, b, k] of objective and constraint."""
        ours, cost = self.task.badness_slopes(self.parameters, u), self.task.cost.slopes(u)
        return (cost, -ours) if self.cheapest else (ours, cost)

    def _scaled(self, u: Floats, free: Bools) -> Floats:
        """u [d, b, k] with the free inputs times the factor that meets the constraint; infinite where none does."""
        u = np.broadcast_to(u, (len(u), len(self.parameters), u.shape[2]))
        mask = free[:, None, None]
        powers = self.task.cost.powers
        if powers is not None and not self.cheapest:
            return np.asarray(u - mask * self._gap(u) / powers[1][free].sum())
        shape = u.shape[1:]
        low, high = np.full(shape, -SPAN), np.full(shape, SPAN)

        def gap(s: Floats) -> Floats:
            return self._gap(u + mask * s)

        s = crossing(gap, low, high)
        s = np.where(gap(high) < 0, np.inf, np.where(gap(low) > 0, -np.inf, s))
        with np.errstate(invalid="ignore"):
            return np.asarray(u + np.where(mask, s, 0.0))

    def _along(self, u: Floats, free: Bools, t: Floats) -> Floats:
        """Places [d, b, k] in directions t [m - 1, b or 1, k]."""
        made = np.repeat(u[..., None], t.shape[2], axis=2)
        made[free] += np.einsum("ij,jbk->ibk", contrasts(int(free.sum())), t)
        return self._scaled(made, free)

    def _turning(self, u: Floats, free: Bools, t: Floats) -> Floats:
        """d objective / d t [m - 1, b, k] on the constraint; nan where it can't be met."""
        with np.errstate(all="ignore"):
            ours, theirs = (part[free] for part in self._slopes(self._along(u, free, t)))
            bent = ours - theirs * ours.sum(axis=0) / theirs.sum(axis=0)
        return np.asarray(np.einsum("ij,ibk->jbk", contrasts(int(free.sum())), bent))

    def _start(self, u: Floats, free: Bools) -> tuple[Floats, Ints]:
        """The best of a grid of directions [m - 1, b], and its number [b]."""
        grid = directions(int(free.sum()))
        at = self._along(u, free, grid[:, None, :])
        with np.errstate(invalid="ignore"):
            value = self._objective(at)
        value = np.where(np.isfinite(at).all(axis=0) & ~np.isnan(value), value, np.inf)
        best = np.argmin(value, axis=1)
        return grid[:, best], best

    def _two(self, u: Floats, free: Bools) -> tuple[Floats, Bools]:
        """The direction [1, b] where the slope changes its sign, and where it doesn't."""
        ticks = directions(2)[0]
        middle, best = self._start(u, free)
        low, high = ticks[np.maximum(best - 1, 0)], ticks[np.minimum(best + 1, len(ticks) - 1)]

        def slope(t: Floats) -> Floats:
            found = self._turning(u, free, t[None, :, None])[0, :, 0]
            return np.where(np.isnan(found), t - middle[0], found)

        runs: Bools = np.logical_or(slope(low) >= 0, slope(high) <= 0)
        return np.where(runs, middle[0], crossing(slope, low, high))[None], runs

    def _many(self, u: Floats, free: Bools) -> tuple[Floats, Bools]:
        """Directions [m - 1, b] by damped Newton from the best of the grid; second derivatives by differences."""
        t, _ = self._start(u, free)
        damping = np.zeros(t.shape[1])
        value = self._value(u, free, t)
        for _ in range(NEWTON_ROUNDS):
            slope, bend = self._bend(u, free, t)
            step = _newton(slope, bend, damping)
            made = t + step
            found = self._value(u, free, made)
            better = found <= value + 1e-14 * np.abs(value)
            t, value = np.where(better, made, t), np.where(better, np.minimum(found, value), value)
            strength = np.abs(bend).max(axis=(0, 1))
            damping = np.where(better, damping / 10, np.maximum(10 * damping, 1e-3 * strength))
            damping = np.where(damping < 1e-9 * strength, 0.0, damping)
            if np.all(np.abs(step).max(axis=0) < FINEST_STEP):
                break
        return t, _beyond(t)

    def _value(self, u: Floats, free: Bools, t: Floats) -> Floats:
        at = self._along(u, free, t[:, :, None])
        with np.errstate(invalid="ignore"):
            value = self._objective(at)[:, 0]
        return np.where(np.all(np.isfinite(at[..., 0]), axis=0) & ~np.isnan(value), value, np.inf)

    def _bend(self, u: Floats, free: Bools, t: Floats) -> tuple[Floats, Floats]:
        """Slope [m - 1, b] and second derivatives [m - 1, m - 1, b] by directions."""
        size = len(t)
        moved = np.concatenate([np.zeros((size, 1)), DIFFERENCE * np.eye(size), -DIFFERENCE * np.eye(size)], axis=1)
        slopes = self._turning(u, free, t[:, :, None] + moved[:, None, :])
        bend = (slopes[..., 1 : size + 1] - slopes[..., size + 1 :]).transpose(0, 2, 1) / (2 * DIFFERENCE)
        return np.nan_to_num(slopes[..., 0]), np.nan_to_num(0.5 * (bend + bend.transpose(1, 0, 2)))

    # closed form

    def _terms(self) -> Powers | None:
        if self.task.cap is not None or self.task.sign < 0:
            return None
        return powers_of(self.task.law, self.parameters)

    def _closed(self, terms: Powers, powers: tuple[float, Floats], u: Floats, free: Bools) -> Places:
        log_k, p = powers
        gone, floor = (terms.vanished & free[:, None]).any(axis=0), terms.held(u, free)
        total, drive = terms.lagrange(free, p)
        held = log_k + p[~free] @ u[~free]  # log cost of what isn't free
        with np.errstate(all="ignore"):
            if self.cheapest:
                log_mu = np.log((self.level - floor) / total)
                cost = held + drive - total * log_mu
                value = np.where(gone, -np.inf, cost)
            else:
                cost = self.level
                log_mu = (drive + held - cost) / total
                value = np.where(gone, floor, floor + total * np.exp(log_mu))
            found = u.copy()
            found[free] = terms.place(free, p, log_mu)
            origin = u - free[:, None] * (log_k + p @ u - cost) / p[free].sum()
            found = np.where(gone & free[:, None], np.where(terms.vanished, -np.inf, np.inf), found)
            far = _beyond(contrasts(int(free.sum())).T @ (found - u)[free]) | gone
        if self.cheapest:
            lost = ~(self.level > floor)
            found, value = np.where(lost & free[:, None], np.inf, found), np.where(lost, np.inf, value)
            far &= ~lost
        return Places(_ran_off(found, origin, far, free), value)


def _ran_off(u: Floats, origin: Floats, runs: Bools, free: Bools) -> Floats:
    """u [d, b] with the free inputs that went far from the `origin` in rows that run off at 0 or without end."""
    with np.errstate(invalid="ignore"):
        moved = u - origin
    gone = runs & free[:, None] & (np.abs(moved) > REACH / 4)
    return np.where(gone, np.copysign(np.inf, moved), u)


def _beyond(t: Floats) -> Bools:
    """Whether directions t [m - 1, b] lead out of the grid of `directions`."""
    return np.asarray(np.any(np.abs(t) > REACH / np.sqrt(2), axis=0))


@cache
def contrasts(count: int) -> Floats:
    """Orthonormal directions [m, m - 1] whose entries sum to 0."""
    made = np.zeros((count, count - 1))
    for j in range(1, count):
        made[:j, j - 1], made[j, j - 1] = -1.0, j
        made[:, j - 1] /= np.sqrt(j * (j + 1))
    return made


@cache
def directions(count: int) -> Floats:
    """A grid of directions [m - 1, g] over ratios up to 1e12."""
    ticks = np.linspace(-REACH, REACH, TICKS[count]) / np.sqrt(2)
    return np.array(list(product(ticks, repeat=count - 1))).T


def _newton(slope: Floats, bend: Floats, damping: Floats) -> Floats:
    """Steps [m, b] for slopes [m, b] and second derivatives [m, m, b], downhill and of bounded length."""
    values, vectors = np.linalg.eigh(bend.transpose(2, 0, 1))
    values = np.abs(values) + damping[:, None]
    values = np.maximum(values, np.maximum(1e-12 * values.max(axis=1, keepdims=True), 1e-300))
    step = -np.einsum("bij,bj,bkj,kb->ib", vectors, 1 / values, vectors, slope)
    longest = np.abs(step).max(axis=0)
    return np.asarray(step * np.minimum(1.0, LONGEST_STEP / np.maximum(longest, 1e-300)))
