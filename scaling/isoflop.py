"""IsoFLOP profiles: the best size at each budget by a polynomial in log N, then N* and D* as powers of the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl

from scaling.arrays import Bools, Floats, Ints
from scaling.budgets import WITHIN, BudgetLaw, Optima, assign_budgets, budget_laws, group_budgets
from scaling.counts import Finding
from scaling.errors import AnalysisError, nearest
from scaling.intervals import ENOUGH_DOF, Interval, ends, generator, heavy
from scaling.polynomials import minimum

Residual = Literal["log", "linear"]
Status = Literal["ok", "open", "refused"]

DEPTH = 0.15  # a cubic follows a valley this deep; grids that go further out would bend it
BRACKET = 2.0  # noise units by which the profile must rise on both sides
SCATTER_DOF = 3.0
LOST = 0.05  # share of draws without a minimum from which an interval is no longer given
LEAN = 0.05  # relative difference between the optima of two degrees that is told
CENTRE_DRIFT = 0.05  # slope of log(grid centre / N*) over log C from which a parabola's exponent is suspect
FEWEST_SIZES = 3  # fewer sizes are no budget of a profile, only stray runs


@dataclass(frozen=True)
class Runs:
    """Runs of an isoFLOP design: flops, n_params, loss [n] and, for D*, tokens [n]. Loss that isn't finite: diverged.

    Raises AnalysisError for an input that is not positive, or arrays of different length.
    """

    flops: Floats
    n_params: Floats
    loss: Floats
    tokens: Floats | None = None

    def __post_init__(self) -> None:
        for name in ("flops", "n_params", "loss", "tokens"):
            values = getattr(self, name)
            if values is None:
                continue
            array = np.asarray(values, dtype=float)
            object.__setattr__(self, name, array)
            if array.shape != np.shape(self.flops):
                raise AnalysisError(f"{name} has {array.size} rows, flops has {np.size(self.flops)}.")
            bad = ~(np.isfinite(array) & (array > 0))
            for i in np.flatnonzero(bad)[:1] if name != "loss" else ():
                raise AnalysisError(f"row {i + 1}: {name} = {array[i]:g}, must be > 0.")

    @classmethod
    def of(cls, frame: pl.DataFrame, of: str = "val_loss", n_params: str = "n_params") -> Runs:
        """From columns flops, `n_params`, `of` and, if there, tokens; raises AnalysisError for a missing one."""
        for name in ("flops", n_params, of):
            if name not in frame.columns:
                raise AnalysisError(f"no column {name!r}.{nearest(name, frame.columns)}")
        flops, sizes, loss = (frame[c].cast(pl.Float64).to_numpy() for c in ("flops", n_params, of))
        return cls(flops, sizes, loss, frame["tokens"].cast(pl.Float64).to_numpy() if "tokens" in frame else None)

    def take(self, which: Bools | Ints) -> Runs:
        tokens = None if self.tokens is None else self.tokens[which]
        return Runs(self.flops[which], self.n_params[which], self.loss[which], tokens)


@dataclass(frozen=True)
class Options:
    """How profiles are read.

    `degree` 3 or 2; sizes about the best one that enter: an odd number `points`, else those whose loss is at most
    `depth` above the best, relatively (None: all); `residual`: polynomials of
    log loss or of the loss itself; `noise`: standard deviation of one run in that unit (None: from replicates with
    enough freedom, else from the scatter about the profiles); `bracket`: noise units by which it must rise on both
    sides; `weighted`: laws weighted by 1/sd^2 of the optima; `keep_open`: optima that are not bracketed, or lie
    beyond the sizes tried, enter the laws all the same, as many published profiles have it.
    """

    degree: Literal[2, 3] = 3
    points: int | None = None
    depth: float | None = DEPTH
    residual: Residual = "log"
    noise: float | None = None
    bracket: float = BRACKET
    weighted: bool = True
    keep_open: bool = False
    draws: int = 1000
    level: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        if self.degree not in (2, 3):
            raise AnalysisError(f"degree = {self.degree}: 3 (cubic) or 2 (parabola).")
        if self.points is not None and (self.points % 2 == 0 or self.points < self.degree + 2):
            raise AnalysisError(f"points = {self.points}: an odd number >= {self.degree + 2}, such as 5.")

    @property
    def word(self) -> str:
        return "cubic" if self.degree == 3 else "parabola"


@dataclass(frozen=True)
class ProfileNoise:
    """Standard deviation of one run about its profile, None when unknown, and the freedom behind it."""

    sd: float | None
    dof: float
    source: Literal["given", "replicates", "scatter", "none"]


@dataclass(frozen=True)
class Profile:
    """One budget: its best size, or why there is none; an open one has a size that is not bracketed.

    `sizes` and `losses` [k] are means over replicates, `count` [k] their numbers. `curve` are points (n_params,
    loss) of the polynomial. `other_degree` is the best size by the other degree, where that has one. Draws [b] are
    of log n_params and of log tokens.
    """

    budget: float
    status: Status
    why: tuple[str, ...]
    sizes: Floats
    losses: Floats
    count: Floats
    degree: int
    n_points: int = 0
    n_params: Interval | None = None
    tokens: Interval | None = None
    loss: Interval | None = None
    log_stderr: float | None = None
    other_degree: float | None = None
    curve: tuple[Floats, Floats] | None = None
    draws: Floats | None = None
    token_draws: Floats | None = None

    @property
    def place(self) -> str:
        return _place(self.budget)

    def to_json(self) -> dict[str, Any]:
        head: dict[str, Any] = {
            "budget": self.budget, "status": self.status, "why": list(self.why), "degree": self.degree,
            "sizes": self.sizes.tolist(), "losses": self.losses.tolist(), "count": self.count.tolist(),
        }  # fmt: skip
        if self.n_params is None or self.loss is None or self.curve is None:
            return head
        rest = {"log_stderr": self.log_stderr, "other_degree": self.other_degree}
        return head | {
            "n_points": self.n_points, "n_params": self.n_params.to_json(), "loss": self.loss.to_json(),
            "curve": {"x": self.curve[0].tolist(), "y": self.curve[1].tolist()},
        } | ({} if self.tokens is None else {"tokens": self.tokens.to_json()}) | {
            k: v for k, v in rest.items() if v is not None
        }  # fmt: skip


@dataclass(frozen=True)
class IsoFlop:
    """Profiles by ascending budget, laws of N* and D* over them, and what is to be said."""

    profiles: tuple[Profile, ...]
    n_params: BudgetLaw
    tokens: BudgetLaw | None
    noise: ProfileNoise
    options: Options
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def found(self) -> tuple[Profile, ...]:
        """The profiles with an optimum."""
        return tuple(p for p in self.profiles if p.status != "refused")

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, lists and texts; what was refused is absent."""
        options = {k: v for k, v in vars(self.options).items() if v is not None}
        noise = {"source": self.noise.source, "dof": self.noise.dof if np.isfinite(self.noise.dof) else None}
        return {
            "options": options,
            "noise": {k: v for k, v in (noise | {"sd": self.noise.sd}).items() if v is not None},
            "profiles": [p.to_json() for p in self.profiles],
            "n_params": self.n_params.to_json(),
            "findings": [f.to_json() for f in self.findings], "notes": list(self.notes),
        } | ({} if self.tokens is None else {"tokens": self.tokens.to_json()})  # fmt: skip


def isoflop(
    runs: Runs, *, budgets: Sequence[float] | None = None, within: float = WITHIN, options: Options = Options()
) -> IsoFlop:
    """Profiles of `runs` and the laws of their optima.

    With `budgets` in FLOP a row belongs to the budget it is `within` of, relatively, and rows of none are left out;
    without them rows group themselves by the same tolerance.

    >>> n = np.geomspace(1e7, 1e9, 9)
    >>> c = np.repeat([1e18, 1e19, 1e20], 9)
    >>> size = np.tile(n, 3) * np.sqrt(c / 1e19)
    >>> loss = 1.7 + 0.1 * np.cosh(np.log(size / 1e8 / np.sqrt(c / 1e19)))
    >>> found = isoflop(Runs(c, size, loss, c / (6 * size)))
    >>> round(found.n_params.exponent.value, 6)
    0.5

    Raises AnalysisError for a loss that is not positive under residual: log.
    """
    kept = np.isfinite(runs.loss)
    notes = [f"{int((~kept).sum())} of {len(kept)} rows diverged or have no loss: left out."] if not kept.all() else []
    # in an order that does not depend on how the rows came, down to the last bit
    runs = runs.take(np.flatnonzero(kept)[np.lexsort((runs.loss[kept], runs.n_params[kept], runs.flops[kept]))])
    if options.residual == "log":
        for i in np.flatnonzero(runs.loss <= 0)[:1]:
            raise AnalysisError(f"loss = {runs.loss[i]:g}, must be > 0 under residual: log; residual: linear takes it.")
    slices, more = _slices(runs, budgets, within, options)
    noise = _noise(slices, options)
    profiles = tuple(_Reader(s, noise, options).profile() for s in slices)
    found = [p for p in profiles if p.status != "refused"]
    sizes, data, findings = budget_laws(
        _optima(found), weighted=options.weighted, draws=options.draws, level=options.level, seed=options.seed
    )
    refused = [f"{len(profiles) - len(found)} of {len(profiles)} budgets have no optimum."]
    said = [*notes, *more, *(refused if len(found) < len(profiles) else []), *_centres(found), *_leaning(found)]
    return IsoFlop(profiles, sizes, data, noise, options, findings, tuple(said))


def _optima(found: Sequence[Profile]) -> Optima:
    """The profiles' optima as rows of a law."""

    def column(values: list[float]) -> Floats:
        return np.array(values, dtype=float)

    sizes = column([p.n_params.value for p in found if p.n_params])
    tokens = column([p.tokens.value for p in found if p.tokens])
    stderr = [p.log_stderr for p in found]
    draws, token_draws = [p.draws for p in found], [p.token_draws for p in found]
    made = Optima(column([p.budget for p in found]), sizes, tokens if len(tokens) == len(found) else None)
    if not found or any(s is None or s <= 0 for s in stderr):
        return made
    made = replace(made, log_stderr=np.array(stderr, dtype=float))
    if any(d is None for d in draws):
        return made
    shifts = np.stack([d for d in draws if d is not None], axis=1) - np.log(sizes)
    if made.tokens is None:
        return replace(made, shifts=shifts)
    data = np.stack([d for d in token_draws if d is not None], axis=1) - np.log(tokens)
    return replace(made, shifts=shifts, token_shifts=data)


# -- budgets ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Slice:
    """The runs of one budget: distinct sizes ascending [k], heights [k] (means over replicates), counts [k]; runs."""

    budget: float
    sizes: Floats
    height: Floats
    count: Floats
    runs: Runs
    square: float  # within replicates
    dof: float

    @property
    def x(self) -> Floats:
        return np.log(self.sizes)


def _slices(
    runs: Runs, budgets: Sequence[float] | None, within: float, options: Options
) -> tuple[list[_Slice], list[str]]:
    notes = []
    if budgets is None:
        labels = group_budgets(runs.flops, within)
        centres = [
            float(np.exp(np.log(runs.flops[labels == i]).mean())) for i in range(int(labels.max(initial=-1)) + 1)
        ]
    else:
        centres = sorted(float(b) for b in budgets)
        labels = assign_budgets(runs.flops, np.array(centres), within)
        if (outside := int((labels < 0).sum())) > 0:
            notes.append(f"{outside} of {len(labels)} rows are within {within:.0%} of no budget: left out.")
    made = [_slice(centre, runs.take(labels == i), options) for i, centre in enumerate(centres) if (labels == i).any()]
    whole = [s for s in made if len(s.sizes) >= FEWEST_SIZES]
    if stray := len(made) - len(whole):
        rows = sum(len(s.runs.loss) for s in made if len(s.sizes) < FEWEST_SIZES)
        notes.append(
            f"rows left out, as their budgets have fewer than {FEWEST_SIZES} sizes: {rows} (budgets: {stray})."
        )
    return whole, notes


def _centre(flops: Floats) -> float:
    """The geometric mean; of equal FLOP their very number."""
    return float(flops[0]) if np.ptp(flops) == 0 else float(np.exp(np.log(flops).mean()))


def _slice(budget: float, runs: Runs, options: Options) -> _Slice:
    height = np.log(runs.loss) if options.residual == "log" else runs.loss
    sizes, which, count = np.unique(runs.n_params, return_inverse=True, return_counts=True)
    mean = np.bincount(which, weights=height) / count
    square = float(((height - mean[which]) ** 2).sum())
    return _Slice(budget, sizes, mean, count.astype(float), runs, square, float(len(height) - len(sizes)))


def _noise(slices: Sequence[_Slice], options: Options) -> ProfileNoise:
    """The noise of one run, pooled over budgets."""
    if options.noise is not None:
        return ProfileNoise(options.noise, np.inf, "given")
    dof = sum(s.dof for s in slices)
    replicates = ProfileNoise(float(np.sqrt(sum(s.square for s in slices) / dof)) if dof else None, dof, "replicates")
    if dof >= ENOUGH_DOF:
        return replicates
    parts = [_scatter(s, options) for s in slices]
    freedom = sum(f for _, f in parts)
    if freedom >= SCATTER_DOF:
        return ProfileNoise(float(np.sqrt(sum(s for s, _ in parts) / freedom)), freedom, "scatter")
    return replicates if dof else ProfileNoise(None, 0.0, "none")


def _scatter(part: _Slice, options: Options) -> tuple[float, float]:
    """Weighted residual square and freedom about a budget's polynomial."""
    index = _window(part, options)
    freedom = len(index) - options.degree - 1
    if freedom < 1:
        return 0.0, 0.0
    fit = _Polynomials.through(part.x[index], part.height[None, index], part.count[index], options.degree)
    return float((part.count[index] * (part.height[index] - fit.at(part.x[index])[0]) ** 2).sum()), float(freedom)


def _window(part: _Slice, options: Options) -> Ints:
    """Indices of the sizes that a budget's polynomial is fitted to."""
    low, high = _windows(part.height[None, :], options)
    return np.arange(low[0], high[0] + 1)


def _windows(height: Floats, options: Options) -> tuple[Ints, Ints]:
    """First and last size that each version [b, k] is fitted to."""
    rows, k = height.shape
    at, best = np.arange(rows), height.argmin(axis=1)
    if options.points is not None:
        half = options.points // 2
        return np.maximum(best - half, 0), np.minimum(best + half, k - 1)
    if options.depth is None:
        return np.zeros(rows, dtype=int), np.full(rows, k - 1)
    floor = height[at, best]
    limit = floor + (np.log1p(options.depth) if options.residual == "log" else options.depth * np.abs(floor))
    low, high = best, best
    for _ in range(k):
        left = np.where(low > 0, height[at, np.maximum(low - 1, 0)], np.inf)
        right = np.where(high < k - 1, height[at, np.minimum(high + 1, k - 1)], np.inf)
        small = high - low + 1 < options.degree + 2
        low = np.where((left <= limit) | (small & np.isfinite(left) & (left <= right)), low - 1, low)
        high = np.where((right <= limit) | (small & np.isfinite(right) & (right < left)), high + 1, high)
    return low, high


# -- one profile -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Polynomials:
    """Least squares polynomials [b, 4] in (x - centre) / reach."""

    coefficients: Floats
    centre: float
    reach: float
    inverse: Floats  # of the weighted normal matrix [d + 1, d + 1]
    low: float
    high: float

    @classmethod
    def through(cls, x: Floats, height: Floats, weight: Floats, degree: int) -> _Polynomials:
        """Of `degree` through height [b, k] over x [k], weight [k]."""
        centre = 0.5 * (x[0] + x[-1])
        reach = 0.5 * (x[-1] - x[0])
        design = ((x - centre) / reach)[:, None] ** np.arange(degree + 1)
        root = np.sqrt(weight)
        inner = np.linalg.pinv(design * root[:, None])
        coefficients = np.zeros((len(height), 4))
        coefficients[:, : degree + 1] = (height * root) @ inner.T
        return cls(coefficients, float(centre), float(reach), inner @ inner.T, float(x[0]), float(x[-1]))

    def at(self, x: Floats) -> Floats:
        """Values [b, m] at x [m]."""
        powers = ((x - self.centre) / self.reach)[:, None] ** np.arange(4)
        return np.asarray(self.coefficients @ powers.T)

    def lowest(self) -> tuple[Floats, Floats, Bools]:
        """Minima x [b], heights [b] there, and whether there is one."""
        t, valid = minimum(self.coefficients)
        height = (self.coefficients * t[:, None] ** np.arange(4)).sum(axis=1)
        return self.centre + self.reach * t, height, valid

    def holds(self, x: Floats) -> Bools:
        """Whether x [b] lies within the points."""
        return np.asarray((x > self.low) & (x < self.high))

    def vertex_stderr(self, sd: float) -> float:
        """Standard error of the first polynomial's minimum by the delta method, for runs of noise `sd`."""
        t = float(minimum(self.coefficients)[0][0])
        power = np.arange(len(self.inverse))
        slope = np.where(power > 0, power * t ** np.maximum(power - 1, 0), 0.0)
        bend = 2 * self.coefficients[0, 2] + 6 * self.coefficients[0, 3] * t
        return float(self.reach * sd * np.sqrt(slope @ self.inverse @ slope) / bend)


@dataclass(frozen=True)
class _Reader:
    """Reads one budget's slice."""

    part: _Slice
    noise: ProfileNoise
    options: Options

    def profile(self) -> Profile:
        part, options = self.part, self.options
        best = int(part.height.argmin())
        edge = self._edge(best)
        if edge and not options.keep_open:
            return self._refused(edge)
        index = _window(part, options)
        if (lacking := options.degree + 2 - len(index)) > 0:
            return self._refused(
                f"{len(index)} sizes; a {options.word} with a test needs >= {options.degree + 2}. "
                f"Add {self._between(best, lacking)}."
            )
        fit = _Polynomials.through(part.x[index], part.height[None, index], part.count[index], options.degree)
        vertex, height, valid = (v[0] for v in fit.lowest())
        outside = not valid or not fit.holds(vertex)
        if outside and not (valid and options.keep_open):
            return self._refused(
                f"the {options.word} has no minimum within the sizes tried. Add {self._between(best, 2)}."
            )
        open_side = self._open_side(fit, float(vertex), float(height))
        if open_side and not options.keep_open:
            return self._refused(open_side)
        found = self._with_interval(self._found(fit, float(vertex), float(height), index), fit)
        problem = edge or open_side or ("the optimum lies beyond the sizes tried." if outside else None)
        if problem is None:
            return found
        return replace(found, status="open", why=(f"{found.place}: {problem} Kept all the same.", *found.why))

    def _edge(self, best: int) -> str | None:
        if 0 < best < len(self.part.sizes) - 1:
            return None
        side, size = "smallest" if best == 0 else "largest", _n(self.part.sizes[best])
        return f"the smallest loss is at the {side} size tried, {size}. Add {self._beyond(best == 0)}."

    def _found(self, fit: _Polynomials, vertex: float, height: float, index: Ints) -> Profile:
        part, options = self.part, self.options
        grid = np.linspace(fit.low, fit.high, 33)
        other = _Polynomials.through(part.x[index], part.height[None, index], part.count[index], 5 - options.degree)
        place, _, valid = (v[0] for v in other.lowest())
        valid &= other.holds(place)
        return Profile(
            part.budget, "ok", (), part.sizes, self._response(part.height), part.count, options.degree, len(index),
            Interval(float(np.exp(vertex))), self._tokens_at(np.array([vertex])),
            Interval(float(self._response(np.array(height)))),
            None if self.noise.sd is None else fit.vertex_stderr(self.noise.sd),
            float(np.exp(place)) if valid else None, (np.exp(grid), self._response(fit.at(grid)[0])),
        )  # fmt: skip

    def _with_interval(self, found: Profile, fit: _Polynomials) -> Profile:
        part, options, noise = self.part, self.options, self.noise
        if noise.sd is None:
            return replace(found, why=(f"{found.place}: no interval, nothing is replicated.",))
        if options.draws == 0:
            return found
        rng = generator(options.seed, "isoflop", part.budget)
        inside = (part.x >= fit.low) & (part.x <= fit.high)
        smooth = np.where(inside, fit.at(part.x)[0], part.height)
        shape = (options.draws, len(part.x))
        shift = noise.sd / np.sqrt(part.count) * rng.standard_normal(shape) * heavy(rng, options.draws, noise.dof)
        vertex, height, valid = self._drawn(smooth + shift)
        lost = float(np.mean(~valid))
        tokens = self._tokens_at(vertex)
        found = replace(found, draws=vertex, token_draws=self._log_tokens(vertex))
        if lost > LOST:
            why = f"{found.place}: no interval; in {lost:.0%} of the draws there is no minimum within the sizes tried."
            return replace(found, why=(why,))
        assert found.n_params is not None
        assert found.loss is not None
        lo, hi = np.exp(ends(vertex, options.level))
        return replace(
            found, n_params=Interval(found.n_params.value, float(lo), float(hi)),
            tokens=None if found.tokens is None or tokens is None else replace(tokens, value=found.tokens.value),
            loss=Interval(found.loss.value, *ends(self._response(height), options.level)),
        )  # fmt: skip

    def _drawn(self, height: Floats) -> tuple[Floats, Floats, Bools]:
        """Minima of versions [b, k]; one without a minimum stands at its lowest size."""
        part, options = self.part, self.options
        keys = np.stack(_windows(height, options), axis=1)
        lowest = height.argmin(axis=1)
        vertex, value, valid = part.x[lowest], height.min(axis=1), np.zeros(len(height), dtype=bool)
        for key in np.unique(keys, axis=0):
            rows = np.flatnonzero((keys == key).all(axis=1))
            index = np.arange(key[0], key[1] + 1)
            if len(index) < options.degree + 1:
                continue
            fit = _Polynomials.through(part.x[index], height[np.ix_(rows, index)], part.count[index], options.degree)
            place, there, sound = fit.lowest()
            sound &= fit.holds(place) | options.keep_open
            vertex[rows] = np.where(sound, place, vertex[rows])
            value[rows] = np.where(sound, there, value[rows])
            valid[rows] = sound
        return vertex, value, valid

    def _log_tokens(self, vertex: Floats) -> Floats | None:
        """log tokens [b] of runs of the budget at log sizes [b], read off a parabola through the runs."""
        runs = self.part.runs
        if runs.tokens is None:
            return None
        degree = min(2, len(self.part.sizes) - 2)
        x = np.log(runs.n_params)
        centre = x.mean()
        return np.polyval(np.polyfit(x - centre, np.log(runs.tokens), degree), vertex - centre)

    def _tokens_at(self, vertex: Floats) -> Interval | None:
        """Of one size its tokens; of draws [b] their interval."""
        logs = self._log_tokens(vertex)
        if logs is None:
            return None
        middle = float(np.exp(np.median(logs)))
        if len(logs) == 1:
            return Interval(middle)
        lo, hi = ends(logs, self.options.level)
        return Interval(middle, float(np.exp(lo)), float(np.exp(hi)))

    def _open_side(self, fit: _Polynomials, vertex: float, height: float) -> str | None:
        """Says on which side of the optimum the profile does not rise enough."""
        if self.noise.sd is None:
            return None
        x = self.part.x[(self.part.x >= fit.low) & (self.part.x <= fit.high)]
        rise = fit.at(x)[0] - height >= self.options.bracket * self.noise.sd
        for low, side in ((True, x < vertex), (False, x > vertex)):
            if not (rise & side).any():
                where = f"below the optimum, down to {_n(np.exp(x[0]))}" if low else (
                    f"above the optimum, up to {_n(np.exp(x[-1]))}")  # fmt: skip
                return (
                    f"no size {where}, stands {self.options.bracket:g} noise units ({self._unit()}) higher: it is not "
                    f"bracketed. Add {self._beyond(low)}."
                )
        return None

    def _response(self, height: Floats) -> Floats:
        return np.asarray(np.exp(height) if self.options.residual == "log" else height)

    def _unit(self) -> str:
        wide = self.options.bracket * (self.noise.sd or 0.0)
        return f"{100 * wide:.2g} %" if self.options.residual == "log" else f"{wide:.2g}"

    def _refused(self, problem: str) -> Profile:
        part = self.part
        why = f"{_place(part.budget)}: {problem}"
        return Profile(part.budget, "refused", (why,), part.sizes, self._response(part.height), part.count,
                       self.options.degree)  # fmt: skip

    def _beyond(self, low: bool) -> str:
        """Two sizes further out, in the grid's own step, if that is worth a run."""
        sizes = self.part.sizes
        end, inner = (sizes[0], sizes[1]) if low else (sizes[-1], sizes[-2])
        step = np.clip(max(end / inner, inner / end), 1.5, 4.0)
        ratio = 1 / step if low else step
        return f"n_params = {_n(end * ratio)}, {_n(end * ratio**2)}"

    def _between(self, best: int, count: int) -> str:
        """Sizes in the middle of the gaps nearest to the best one."""
        x = self.part.x
        middles = 0.5 * (x[1:] + x[:-1])
        chosen = middles[np.argsort(np.abs(middles - x[best]), kind="stable")[:count]]
        return "n_params = " + ", ".join(_n(v) for v in np.sort(np.exp(chosen)))


# -- words -----------------------------------------------------------------------------------------


def _place(budget: float) -> str:
    return f"isoflop at {budget:.3g} FLOP"


def _n(value: Any) -> str:
    return f"{float(value):.3g}"


def _leaning(found: Sequence[Profile]) -> list[str]:
    """Says how far the other degree's optima lie, in the median over budgets."""
    both = [(p.other_degree, p.n_params.value) for p in found if p.other_degree is not None and p.n_params is not None]
    if not both:
        return []
    shift = float(np.median([np.log(a / b) for a, b in both]))
    if abs(np.expm1(shift)) < LEAN:
        return []
    other = "parabolas" if found[0].degree == 3 else "cubics"
    own = "cubics" if found[0].degree == 3 else "parabolas"
    return [
        f"{other} put N* at {np.exp(shift):.2f} times that of {own} (median over budgets): the valleys are lopsided, "
        "and a parabola's coefficient is biased on them."
    ]


def _centres(found: Sequence[Profile]) -> list[str]:
    """A grid whose centre drifts against the optimum tilts a parabola's exponent."""
    if len(found) < 3 or found[0].degree != 2:
        return []
    budgets = np.log([p.budget for p in found])
    offset = [np.log(p.sizes).mean() - np.log(p.n_params.value) for p in found if p.n_params is not None]
    drift = float(np.polyfit(budgets - budgets.mean(), offset, 1)[0])
    if abs(drift) < CENTRE_DRIFT:
        return []
    return [
        f"the sizes tried drift against the optimum (centre/N* ~ C^{drift:+.2f}): on a lopsided valley that biases a "
        "parabola's exponent. Take degree 3, or centre every grid alike."
    ]
