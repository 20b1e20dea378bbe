"""Loss curves as functions of the learning-rate schedule: the multi-power law and the annealing law.

python -m scaling.schedules CURVES.csv --train cosine_24000,constant_24000,wsdcon_9 [--json]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, cast

import numpy as np
import polars as pl
import typer
from rich.console import Console

from scaling.arrays import Floats, Ints
from scaling.errors import AnalysisError, nearest
from scaling.laws import Jet, Law, Parameter
from scaling.objectives import Objective
from scaling.solver import Problem, nonnegative, refine
from scaling.sources import AsJson, failing, print_json

NODES = 16  # interpolation nodes of a far block: (3 + sqrt 8)^-16 = 6e-13 of a bend that is itself small
LEAF = 32  # changes that are always summed one by one
SMOOTH = 1e-12  # relative; a block whose schedule bends more than its nodes can follow is split
PLACES = 128  # scanned values of the non-linear parameters
STARTS = 4
REBUILT = 1e-6  # relative; a shape whose learning rates differ by less from the logged ones is theirs
LONGEST = 10_000_000  # steps
FAR = 2.0  # errors of the other curves over those of the training curves that are worth a sentence

HUBER = Objective("huber", delta=1e-3)  # of the published fits
SHAPES = ("cosine", "constant", "wsd_exponential", "wsd_linear", "two_step")
COLUMNS = ("schedule", "step", "lr", "loss")
NO_INTERVALS = (
    "No intervals: the losses of one run are not independent, so that a curve is one observation, and {count} "
    "training {curves} can't be resampled."
)


@dataclass(frozen=True)
class Schedule:
    """The learning rate `eta` [T + 1] of every step 0 … T, the warmup included.

    A warmup of W steps rises in equal steps from 0 at step 0 to the peak at step W - 1; this is how the published
    fits of arXiv 2503.12811 count, down to the last digit of their objective.
    """

    name: str
    eta: Floats = field(repr=False)

    def __post_init__(self) -> None:
        bad = np.flatnonzero(~(np.isfinite(self.eta) & (self.eta >= 0)))
        if len(bad):
            raise AnalysisError(
                f"schedule {self.name!r}, step {bad[0]}: learning rate = {self.eta[bad[0]]:g}, must be >= 0."
            )

    @classmethod
    def of(cls, shape: str, **settings: Any) -> Schedule:
        """The schedule of a shape by its name, one of `SHAPES`. Raises AnalysisError for another name."""
        if shape not in SHAPES:
            raise AnalysisError(f"schedule {shape!r} is not known.{nearest(shape, SHAPES)}")
        made: Schedule = getattr(cls, shape)(**settings)
        return made

    @classmethod
    def cosine(cls, steps: int, peak: float, end: float, warmup: int = 0, name: str = "cosine") -> Schedule:
        """Half a cosine from `peak` at step `warmup` to `end` at step `steps`."""
        t = _clock(name, steps, warmup)
        return cls(name, _warmed(end + 0.5 * (peak - end) * (1 + np.cos(np.pi * t)), peak, warmup))

    @classmethod
    def constant(cls, steps: int, peak: float, warmup: int = 0, name: str = "constant") -> Schedule:
        return cls(name, _warmed(np.full(len(_clock(name, steps, warmup)), peak), peak, warmup))

    @classmethod
    def wsd_exponential(
        cls, steps: int, peak: float, end: float, *, start: int, warmup: int = 0, name: str = "wsd_exponential"
    ) -> Schedule:
        """`peak` up to step `start`, then geometrically to `end` at step `steps`."""
        if not (peak > 0 and end > 0):
            raise AnalysisError(f"schedule {name!r}: an exponential decay from {peak:g} to {end:g} needs both > 0.")
        return cls(name, _warmed(peak * (end / peak) ** np.maximum(_clock(name, steps, start), 0), peak, warmup))

    @classmethod
    def wsd_linear(
        cls, steps: int, peak: float, end: float, *, start: int, warmup: int = 0, name: str = "wsd_linear"
    ) -> Schedule:
        """`peak` up to step `start`, then in equal steps to `end` at step `steps`."""
        return cls(name, _warmed(peak + (end - peak) * np.maximum(_clock(name, steps, start), 0), peak, warmup))

    @classmethod
    def two_step(
        cls, steps: int, peak: float, end: float, *, start: int, warmup: int = 0, name: str = "two_step"
    ) -> Schedule:
        """`peak` before step `start`, `end` from then on."""
        return cls(name, _warmed(np.where(_clock(name, steps, start) >= 0, end, peak), peak, warmup))

    @classmethod
    def table(cls, steps: Ints, lr: Floats, warmup: int = 0, name: str = "table") -> Schedule:
        """Learning rates `lr` [n] at increasing `steps` [n], on straight lines in between, at the first before it."""
        every = np.arange(int(steps[-1]) + 1)
        return cls(name, _warmed(np.interp(every, steps, lr), float(lr[0]), min(warmup, int(steps[0]))))

    @property
    def last(self) -> int:
        """The last step."""
        return len(self.eta) - 1

    @cached_property
    def summed(self) -> Floats:
        """The sum of the learning rates up to and including each step [T + 1]."""
        return np.cumsum(self.eta)

    @cached_property
    def changes(self) -> Ints:
        """The steps whose learning rate differs from the one before: all others contribute nothing to any law."""
        return np.flatnonzero(np.diff(self.eta)) + 1


def _clock(name: str, steps: int, start: int) -> Floats:
    """0 at step `start`, 1 at the last one."""
    if not 0 <= start < steps <= LONGEST:
        raise AnalysisError(f"schedule {name!r}: step {start} must lie in 0 … {steps - 1}, steps in 1 … {LONGEST}.")
    return (np.arange(steps + 1) - start) / (steps - start)


def _warmed(eta: Floats, peak: float, warmup: int) -> Floats:
    out = np.array(eta, dtype=float)
    out[:warmup] = np.linspace(0, peak, warmup) if warmup > 1 else 0.0
    return out


def read_schedule(name: str, steps: Ints, lr: Floats, warmup: int) -> Schedule:
    """The schedule behind learning rates `lr` [n] logged at increasing `steps` [n] after a warmup.

    One of the five shapes if it gives the logged values back, so that also the steps in between are exact;
    otherwise straight lines between them.
    """
    if steps[0] > 0:
        for made in _shapes(name, steps, lr, warmup):
            if (np.abs(made.eta[steps] - lr) <= REBUILT * lr).all():
                return made
    return Schedule.table(steps, lr, warmup if steps[0] > 0 else 0, name)


def _shapes(name: str, steps: Ints, lr: Floats, warmup: int) -> Iterator[Schedule]:
    """Schedules of each shape that could have been logged so."""
    peak, end, last = float(lr[0]), float(lr[-1]), int(steps[-1])
    warmup = min(warmup, int(steps[0]))
    below = np.flatnonzero(lr < peak)
    if last <= warmup:
        return
    if not len(below):
        yield Schedule.constant(last, peak, warmup, name)
        return
    if end <= 0 or (lr > peak).any():
        return
    if len(set(lr.tolist())) == 2:
        yield Schedule.two_step(last, peak, end, start=int(steps[below[0]]), warmup=warmup, name=name)
        return
    first = below[0]
    for made, change in ((Schedule.wsd_linear, float), (Schedule.wsd_exponential, np.log)):
        top, high, low = (float(change(v)) for v in (peak, lr[first], end))
        if high > low:
            slope = (low - high) / (last - int(steps[first]))
            start = round(int(steps[first]) - (high - top) / slope)
            if warmup <= start < last:
                yield made(last, peak, end, start=start, warmup=warmup, name=name)
    yield _cosine(name, steps, lr, warmup)


def _cosine(name: str, steps: Ints, lr: Floats, warmup: int) -> Schedule:
    """The cosine from the end of the warmup that comes closest, its last step up to two logs after the last log."""
    peak, last = float(lr[0]), int(steps[-1])
    ends = np.arange(last, last + 2 * int(np.diff(steps).max()) + 1)
    fallen = 0.5 * (1 - np.cos(np.pi * (steps - warmup) / (ends - warmup)[:, None]))
    floor = peak - (fallen @ (peak - lr)) / (fallen**2).sum(1)
    misses = np.abs(peak + (floor - peak)[:, None] * fallen - lr).max(1)
    best = int(np.argmin(misses))
    return Schedule.cosine(int(ends[best]), peak, max(float(floor[best]), 0.0), warmup, name)


@dataclass(frozen=True)
class Trace:
    """What a law needs of schedules at n rows.

    s1 [n]: sum of the learning rates up to a row. The rest are m weighted changes of the learning rate, in the order
    of the rows: `weight` eta_{k-1} - eta_k, `log_eta` log eta_k, `log_sum` log sum of eta from k up to the row,
    `lag` t - k + 1. `first` [q] is where those of each row with changes, `rows` [q], begin.
    """

    s1: Floats
    weight: Floats
    log_eta: Floats
    log_sum: Floats
    lag: Floats
    first: Ints
    rows: Ints

    def total(self, values: Floats) -> Floats:
        """Weighted sums of values [..., m] over the changes of each row [..., n]."""
        out = np.zeros((*values.shape[:-1], len(self.s1)))
        if len(self.first):
            out[..., self.rows] = np.add.reduceat(values * self.weight, self.first, axis=-1)
        return out

    @classmethod
    def of(cls, schedule: Schedule, steps: Ints) -> Trace:
        """The trace of a schedule up to increasing `steps` [n].

        Changes far before a row are merged: over a block of them the laws are smooth, so that their values at a few
        of the block's steps, with the weights of polynomial interpolation, give the sum to rounding.

        Raises AnalysisError for a step outside the schedule or a learning rate that changes to 0.
        """
        steps = np.asarray(steps, dtype=np.int64)
        outside = np.flatnonzero((steps < 0) | (steps > schedule.last))
        if len(outside):
            raise AnalysisError(
                f"schedule {schedule.name!r}: step {steps[outside[0]]} is outside its steps 0 … {schedule.last}."
            )
        s1 = schedule.summed[steps]
        bad = np.flatnonzero(s1 <= 0)
        if len(bad):
            raise AnalysisError(
                f"schedule {schedule.name!r}, step {steps[bad[0]]}: no learning rate above 0 so far, so no loss."
            )
        changes = _Changes.of(schedule, int(steps.max(initial=0)))
        row, index, weight = changes.pairs(steps, s1)
        k = changes.step[index]
        summed = np.maximum(s1[row] - changes.before[index], changes.eta[index])
        rows, first = np.unique(row, return_index=True)
        lag = (steps[row] - k + 1).astype(float)
        return cls(s1, weight, np.log(changes.eta[index]), np.log(summed), lag, first, rows)

    @classmethod
    def join(cls, traces: Sequence[Trace]) -> Trace:
        """The rows of several traces one after the other."""
        rows = np.cumsum([0, *(len(t.s1) for t in traces)])
        first = np.cumsum([0, *(len(t.weight) for t in traces)])

        def chain(name: str) -> Floats:
            return np.concatenate([getattr(t, name) for t in traces])

        return cls(
            chain("s1"), chain("weight"), chain("log_eta"), chain("log_sum"), chain("lag"),
            np.concatenate([t.first + f for t, f in zip(traces, first[:-1], strict=True)]),
            np.concatenate([t.rows + r for t, r in zip(traces, rows[:-1], strict=True)]),
        )  # fmt: skip


@dataclass(frozen=True)
class _Changes:
    """Steps at which the learning rate changes [c]: to what, by how much down, and the sum of eta before."""

    step: Ints
    eta: Floats
    fall: Floats
    before: Floats

    @classmethod
    def of(cls, schedule: Schedule, last: int) -> _Changes:
        k = schedule.changes[schedule.changes <= last]
        eta = schedule.eta[k]
        bad = k[eta <= 0]
        if len(bad):
            raise AnalysisError(
                f"schedule {schedule.name!r}, step {bad[0]}: learning rate = 0, must be > 0 after the first step."
            )
        return cls(k, eta, schedule.eta[k - 1] - eta, schedule.summed[k - 1])

    def pairs(self, steps: Ints, s1: Floats) -> tuple[Ints, Ints, Floats]:
        """Row, change and weight [m] of all summands, ordered by row."""
        found: list[tuple[Ints, Ints, Floats]] = []
        blocks = [(0, len(self.step), np.arange(len(steps)))] if len(self.step) else []
        while blocks:
            low, high, rows = blocks.pop()
            rows = rows[steps[rows] >= self.step[low]]
            if not len(rows):
                continue
            merged = None
            if high - low > LEAF:
                far = self._far(low, high, steps[rows], s1[rows])
                merged = self._merged(low, high) if far.any() else None
                if merged is not None:
                    found.append(_product(rows[far], *merged))
                    rows = rows[~far]
                middle = (low + high) // 2
                blocks += [(low, middle, rows), (middle, high, rows)]
            else:
                row, index, weight = _product(rows, np.arange(low, high), self.fall[low:high])
                seen = self.step[index] <= steps[row]
                found.append((row[seen], index[seen], weight[seen]))
        if not found:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
        row, index, weight = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.argsort(row, kind="stable")
        return row[order], index[order], weight[order]

    def _far(self, low: int, high: int, steps: Ints, s1: Floats) -> Any:
        """Rows at least as far behind the block as the block is long, in steps and in summed learning rate."""
        last = high - 1
        far_steps = steps - self.step[last] >= self.step[last] - self.step[low]
        return far_steps & (s1 - self.before[last] >= self.before[last] - self.before[low])

    def _merged(self, low: int, high: int) -> tuple[Ints, Floats] | None:
        """Changes [m] that stand for the block and their weights; None where the schedule isn't smooth there."""
        nodes, basis = _interpolation(high - low)
        span = self.before[high - 1] - self.before[low], float(self.step[high - 1] - self.step[low])
        followed = (np.log(self.eta[low:high]), 1.0), (self.before[low:high], span[0]), (self.step[low:high], span[1])
        for values, unit in followed:
            moved = values - values[0]
            if np.abs(basis @ moved[nodes] - moved).max() > SMOOTH * unit:
                return None
        return nodes + low, self.fall[low:high] @ basis


def _product(rows: Ints, index: Ints, weight: Floats) -> tuple[Ints, Ints, Floats]:
    return np.repeat(rows, len(index)), np.tile(index, len(rows)), np.tile(weight, len(rows))


@lru_cache(maxsize=64)
def _interpolation(size: int) -> tuple[Ints, Floats]:
    """Nodes among 0 … size - 1, Chebyshev's rounded, and the values [size, nodes] of their Lagrange polynomials."""
    angles = np.pi * (np.arange(NODES) + 0.5) / NODES
    nodes = np.unique(np.round(0.5 * (size - 1) * (1 - np.cos(angles)))).astype(np.int64)
    gaps = (nodes[:, None] - nodes) * (4 / size) + np.eye(len(nodes))
    scale = 1 / gaps.prod(1)
    apart = (np.arange(size)[:, None] - nodes) * (4 / size)
    on = apart == 0
    terms = scale / np.where(on, 1.0, apart)
    basis = terms / terms.sum(1, keepdims=True)
    return nodes, np.where(on.any(1, keepdims=True), on.astype(float), basis)


class ScheduleLaw(Protocol):
    """A law of the loss at rows of a `Trace`, with parameters in their natural and internal coordinates."""

    @property
    def name(self) -> str: ...

    @property
    def parameters(self) -> tuple[Parameter, ...]: ...

    def encode(self, parameters: Floats) -> Floats:
        """Natural parameters [..., p] to internal coordinates."""

    def decode(self, theta: Floats) -> Floats:
        """Internal coordinates [..., p] to natural parameters."""

    def columns(self, parameters: Floats, trace: Trace) -> Floats:
        """What the three linear parameters are multiplied by [..., 3, n]."""

    def jet(self, theta: Floats, trace: Trace, order: int = 2) -> Jet:
        """Value [b, n] and derivatives up to `order` at internal coordinates theta [b, p]."""


@dataclass(frozen=True)
class MPL:
    """L0 + A S1^-alpha - B sum_k (eta_{k-1} - eta_k) (1 - (1 + C eta_k^-gamma S_k)^-beta) (Luo et al. 2025).

    The multi-power law of arXiv 2503.12811: S1 sums eta up to the row, S_k from k up to the row. All changes
    count, those of the warmup as well, with their sign. Internal coordinates are logarithms.
    """

    name: ClassVar[str] = "schedule_mpl"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("L0", True, True),
        Parameter("A", True, True),
        Parameter("alpha", True, False, 1e-3, 5.0, (0.1, 1.5)),
        Parameter("B", True, True),
        Parameter("C", True, False, 1e-6, 1e6, (0.05, 50.0)),
        Parameter("beta", True, False, 1e-3, 20.0, (0.1, 2.0)),
        Parameter("gamma", True, False, 1e-3, 3.0, (0.1, 1.0)),
    )

    def encode(self, parameters: Floats) -> Floats:
        return np.asarray(np.log(parameters))

    def decode(self, theta: Floats) -> Floats:
        return np.asarray(np.exp(theta))

    def value(self, parameters: Floats, trace: Trace) -> Floats:
        """Loss [..., n] at natural parameters [..., 7]."""
        return _linear(np.asarray(parameters)[..., [0, 1, 3]], self.columns(parameters, trace))

    def columns(self, parameters: Floats, trace: Trace) -> Floats:
        alpha, c, beta, gamma = (np.asarray(parameters)[..., i, None] for i in (2, 4, 5, 6))
        kept = np.exp(-beta * _log1p(np.log(c) - gamma * trace.log_eta + trace.log_sum))
        return _stack(trace.s1, alpha, -trace.total(1 - kept))

    def jet(self, theta: Floats, trace: Trace, order: int = 2) -> Jet:
        low, a, alpha, b, _, beta, gamma = (np.exp(theta[:, i, None]) for i in range(7))
        power, log_s = a * np.exp(-alpha * np.log(trace.s1)), np.log(trace.s1)
        z = theta[:, 4, None] - gamma * trace.log_eta + trace.log_sum
        grown = _log1p(z)  # log(1 + u), u = C eta^-gamma S
        kept = np.exp(-beta * grown)
        share = np.exp(z - grown) * kept  # u/(1 + u) of what is kept
        by_z = -beta * share
        at = {"z": trace.total(by_z), "zg": trace.total(by_z * trace.log_eta), "b": trace.total(-beta * grown * kept)}
        # the sum falls where more is kept: B sum w (kept - 1)
        lift = b * trace.total(kept - 1)
        gradient = [low, power, -alpha * log_s * power, lift, b * at["z"], b * at["b"], -b * gamma * at["zg"]]
        value = low + power + lift
        if order < 2:
            return Jet(value, gradient, {})
        curved = by_z * (1 - (1 + beta) * np.exp(z - grown))
        mixed = by_z * (1 - beta * grown)
        zz, zg, gg = (trace.total(curved * trace.log_eta**i) for i in range(3))
        hessian = {
            (0, 0): low, (1, 1): power, (1, 2): gradient[2],
            (2, 2): gradient[2] * (1 - alpha * log_s), (3, 3): lift,
            (3, 4): gradient[4], (3, 5): gradient[5], (3, 6): gradient[6],
            (4, 4): b * zz, (4, 5): b * trace.total(mixed), (4, 6): -b * gamma * zg,
            (5, 5): b * trace.total(-beta * grown * kept * (1 - beta * grown)),
            (5, 6): -b * gamma * trace.total(mixed * trace.log_eta),
            (6, 6): b * gamma**2 * gg + gradient[6],
        }  # fmt: skip
        return Jet(value, gradient, hessian)


@dataclass(frozen=True)
class Anneal:
    """L0 + A S1^-alpha - C S2, S2 = sum_i sum_{k<=i} (eta_{k-1} - eta_k) lambda^(i-k) (Tissue et al. 2024).

    arXiv 2408.11029. Summed over i, a change at step k weighs (1 - lambda^(t-k+1))/(1 - lambda) at step t; changes
    of the warmup count as well. Internal coordinates are logarithms, that of lambda is log(-log lambda).
    """

    name: ClassVar[str] = "schedule_anneal"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("L0", True, True),
        Parameter("A", True, True),
        Parameter("alpha", True, False, 1e-3, 5.0, (0.1, 1.5)),
        Parameter("C", True, True),
        Parameter("lambda", False, False, 0.9, 1 - 1e-6, (0.95, 0.9999)),
    )

    def encode(self, parameters: Floats) -> Floats:
        theta = np.log(parameters)
        theta[..., 4] = np.log(-theta[..., 4])
        return np.asarray(theta)

    def decode(self, theta: Floats) -> Floats:
        parameters = np.exp(theta)
        parameters[..., 4] = np.exp(-parameters[..., 4])
        return np.asarray(parameters)

    def value(self, parameters: Floats, trace: Trace) -> Floats:
        """Loss [..., n] at natural parameters [..., 5]."""
        return _linear(np.asarray(parameters)[..., [0, 1, 3]], self.columns(parameters, trace))

    def columns(self, parameters: Floats, trace: Trace) -> Floats:
        alpha, rate = np.asarray(parameters)[..., 2, None], -np.log(np.asarray(parameters)[..., 4, None])
        return _stack(trace.s1, alpha, trace.total(np.expm1(-rate * trace.lag)) / -np.expm1(-rate))

    def jet(self, theta: Floats, trace: Trace, order: int = 2) -> Jet:
        low, a, alpha, c, rate = (np.exp(theta[:, i, None]) for i in range(5))
        power, log_s = a * np.exp(-alpha * np.log(trace.s1)), np.log(trace.s1)
        aged = rate * trace.lag
        left = np.exp(-aged)
        # S2 = top/bottom; derivatives by log rate
        top, top1 = trace.total(-np.expm1(-aged)), trace.total(aged * left)
        bottom, bottom1 = -np.expm1(-rate), rate * np.exp(-rate)
        s2 = top / bottom
        slope = (top1 - s2 * bottom1) / bottom
        gradient = [low, power, -alpha * log_s * power, -c * s2, -c * slope]
        value = low + power - c * s2
        if order < 2:
            return Jet(value, gradient, {})
        top2 = trace.total(aged * left * (1 - aged))
        bend = (top2 - 2 * slope * bottom1 - s2 * bottom1 * (1 - rate)) / bottom
        hessian = {
            (0, 0): low, (1, 1): power, (1, 2): gradient[2], (2, 2): gradient[2] * (1 - alpha * log_s),
            (3, 3): gradient[3], (3, 4): gradient[4], (4, 4): -c * bend,
        }  # fmt: skip
        return Jet(value, gradient, hessian)


LAWS: Mapping[str, ScheduleLaw] = {"schedule_mpl": MPL(), "schedule_anneal": Anneal()}


def _log1p(z: Floats) -> Floats:
    """log(1 + e^z) for any z."""
    return np.asarray(np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z))))


def _stack(s1: Floats, alpha: Floats, third: Floats) -> Floats:
    power = s1**-alpha
    return np.stack([np.ones_like(power), power, third], axis=-2)


def _linear(parameters: Floats, columns: Floats) -> Floats:
    return np.asarray((parameters[..., None] * columns).sum(axis=-2))


@dataclass(frozen=True)
class _Bound:
    """A law at the rows of a trace, as the solver asks for it: the inputs are in the trace."""

    law: ScheduleLaw
    trace: Trace

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return self.law.parameters

    def inside(self, theta: Floats, _: Floats) -> Floats:
        with np.errstate(all="ignore"):
            return self.law.jet(theta, self.trace, order=0).value

    def jet(self, theta: Floats, _: Floats) -> Jet:
        with np.errstate(all="ignore"):
            return self.law.jet(theta, self.trace)


@dataclass(frozen=True)
class Metrics:
    """How a fit does on one curve: errors of the loss itself, relative ones divided by the loss."""

    curve: str
    trained: bool
    steps: int
    r2: float
    mae: float
    rmse: float
    mean_relative: float
    worst_relative: float

    NUMBERS: ClassVar[tuple[str, ...]] = ("r2", "mae", "rmse", "mean_relative", "worst_relative")

    @classmethod
    def of(cls, curve: str, trained: bool, y: Floats, seen: Floats) -> Metrics:
        miss = seen - y
        spread = float(((y - y.mean()) ** 2).sum())
        relative = np.abs(miss / y)
        return cls(
            curve, trained, len(y), 1 - float((miss**2).sum()) / spread if spread > 0 else float("nan"),
            float(np.abs(miss).mean()), float(np.sqrt((miss**2).mean())), float(relative.mean()), float(relative.max()),
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return {"curve": self.curve, "trained": self.trained, "steps": self.steps} | {
            k: getattr(self, k) for k in self.NUMBERS if np.isfinite(getattr(self, k))
        }


@dataclass(frozen=True)
class ScheduleFit:
    """A schedule law fitted to training curves and judged on all.

    `objective` is the sum over the training rows, `gradient` the largest relative gradient where the fit ended.
    """

    law: str
    parameters: Mapping[str, float]
    objective: float
    converged: bool
    gradient: float
    metrics: tuple[Metrics, ...]
    schedules: Mapping[str, Schedule] = field(repr=False)
    why: tuple[str, ...]

    def predict(self, schedule: Schedule | str, steps: Sequence[int] | Ints) -> Floats:
        """Loss [n] under a schedule, or that of a curve by its name, after `steps` [n].

        Raises AnalysisError for an unknown name or steps outside the schedule.
        """
        if isinstance(schedule, str):
            if schedule not in self.schedules:
                raise AnalysisError(f"schedule {schedule!r} is not known.{nearest(schedule, self.schedules)}")
            schedule = self.schedules[schedule]
        law = LAWS[self.law]
        theta = law.encode(np.array([list(self.parameters.values())]))
        return np.asarray(law.jet(theta, Trace.of(schedule, np.asarray(steps, dtype=np.int64)), order=0).value[0])

    @property
    def test(self) -> Mapping[str, float]:
        """Means over the curves that were not trained on; empty if there are none."""
        return _means([m for m in self.metrics if not m.trained])

    def to_json(self) -> dict[str, Any]:
        return {
            "law": self.law, "parameters": dict(self.parameters), "objective": self.objective,
            "converged": self.converged, "curves": [m.to_json() for m in self.metrics],
            "test": dict(self.test), "why": list(self.why),
        }  # fmt: skip


def _means(metrics: Sequence[Metrics]) -> dict[str, float]:
    return {k: float(np.mean([getattr(m, k) for m in metrics])) for k in Metrics.NUMBERS} if metrics else {}


@dataclass(frozen=True)
class _Curve:
    schedule: Schedule
    steps: Ints
    loss: Floats

    @cached_property
    def trace(self) -> Trace:
        return Trace.of(self.schedule, self.steps)


def fit_schedules(
    curves: pl.DataFrame,
    train: Sequence[str],
    law: str = "schedule_mpl",
    objective: Objective = HUBER,
    *,
    warmup: int | None = None,
    schedules: Mapping[str, Schedule] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
) -> ScheduleFit:
    """Fits a schedule law to the curves named in `train` and judges it on all.

    curves: one row a logged step with the columns schedule, step, lr, loss. `warmup` is the number of warmup steps;
    None: the earliest logged step, unless logging starts at step 0. `schedules` gives learning rates of every step;
    those of other curves are read from the column lr. `bounds` narrows the ranges of parameters, such as
    {"gamma": (0.1, 1)}: with few curves the best of all parameters may follow them too closely.

    Raises AnalysisError for an unknown law or curve, a table that can't be read, or too few steps.
    """
    if law not in LAWS:
        raise AnalysisError(f"law {law!r} is not known.{nearest(law, LAWS)}")
    found, why = _curves(curves, warmup, schedules or {})
    for name in train:
        if name not in found:
            raise AnalysisError(f"schedule {name!r} is not in the table.{nearest(name, found)}")
    chosen = [found[name] for name in dict.fromkeys(train)]
    bound = LAWS[law]
    parameters, total, converged, gradient = _solve(bound, chosen, objective, bounds or {})
    theta = bound.encode(parameters[None])
    metrics = tuple(
        Metrics.of(name, name in set(train), c.loss, bound.jet(theta, c.trace, order=0).value[0])
        for name, c in found.items()
    )
    why = (*why, NO_INTERVALS.format(count=len(chosen), curves="curve" if len(chosen) == 1 else "curves"))
    why = (*why, *_at_ends(bound, parameters, bounds or {}), *_gap(metrics))
    if not converged:
        why = (*why, f"The fit has not converged: relative gradient {gradient:.1e}.")
    names = [p.name for p in bound.parameters]
    return ScheduleFit(
        law, dict(zip(names, parameters.tolist(), strict=True)), total, converged, gradient, metrics,
        {name: c.schedule for name, c in found.items()}, why,
    )  # fmt: skip


def _at_ends(law: ScheduleLaw, values: Floats, bounds: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    """A sentence for each non-linear parameter that stopped at an end of its range."""
    for p, value in zip(law.parameters, values.tolist(), strict=True):
        low, high = bounds.get(p.name, (p.low, p.high))
        if not p.linear and low < high and (value <= low * (1 + 1e-9) or value >= high * (1 - 1e-9)):
            yield f"{p.name} = {value:g} is at an end of its range {low:g} … {high:g}: the curves would move it beyond."


def _gap(metrics: Sequence[Metrics]) -> Iterator[str]:
    """A sentence where the other curves are missed by far more than the training curves."""
    inside, outside = (_means([m for m in metrics if m.trained is t]) for t in (True, False))
    if outside and outside["mean_relative"] > FAR * inside["mean_relative"]:
        ours, others = (100 * m["mean_relative"] for m in (inside, outside))
        yield (
            f"The parameters follow the training curves too closely: mean error {ours:.3f} % there, {others:.3f} % on "
            "the other curves. More training curves, or bounds on exponents, hold them."
        )


def _checked(frame: pl.DataFrame, given: Mapping[str, Schedule]) -> pl.DataFrame:
    """The table with numbers as float64; raises AnalysisError for the first value that can't be used."""
    for name in COLUMNS:
        if name not in frame.columns and (name != "lr" or set(frame["schedule"].to_list()) - set(given)):
            raise AnalysisError(f"no column {name!r}.{nearest(name, frame.columns)}")
    if "model" in frame.columns and frame["model"].n_unique() > 1:
        raise AnalysisError(f"column model: {frame['model'].n_unique()} models; a fit takes the curves of one.")
    numbers = [n for n in COLUMNS[1:] if n in frame.columns]
    for name in numbers:
        column = frame[name].cast(pl.Float64, strict=False)
        bad = (~column.fill_null(float("nan")).is_finite()).arg_true()
        if len(bad):
            raise AnalysisError(f"row {bad[0] + 1}: {name} = {frame[name][int(bad[0])]!r} is not a number.")
    frame = frame.with_columns(pl.col(n).cast(pl.Float64) for n in numbers)
    wrong = {
        "step": (~(frame["step"] % 1 == 0) | ~frame["step"].is_between(0, LONGEST), f"a whole number in 0 … {LONGEST}"),
        "lr": (frame["lr"] < 0 if "lr" in frame.columns else pl.Series([False]), ">= 0"),
        "loss": (frame["loss"] <= 0, "> 0"),
    }
    for name, (rows, wanted) in wrong.items():
        bad = rows.arg_true()
        if len(bad):
            at = frame.row(int(bad[0]), named=True)
            raise AnalysisError(
                f"schedule {at['schedule']!r}, step {at['step']:.12g}: {name} = {at[name]:.12g}, must be {wanted}."
            )
    return frame


def _curves(
    frame: pl.DataFrame, warmup: int | None, given: Mapping[str, Schedule]
) -> tuple[dict[str, _Curve], tuple[str, ...]]:
    frame = _checked(frame, given)
    why: tuple[str, ...] = ()
    start = int(cast(float, frame["step"].min())) if len(frame) else 0
    if warmup is None:
        warmup = start
        if start > 0 and set(frame["schedule"].to_list()) - set(given):
            why = (
                f"Warmup: {start} steps, linear, up to the earliest logged step (the table says nothing before it).",
            )
    out = {}
    for rows in frame.partition_by("schedule", maintain_order=True):
        name, part = str(rows["schedule"][0]), rows.sort("step")
        steps = part["step"].cast(pl.Int64).to_numpy()
        again = np.flatnonzero(np.diff(steps) == 0)
        if len(again):
            raise AnalysisError(f"schedule {name!r}: step {steps[again[0]]} is in the table twice.")
        schedule = given[name] if name in given else read_schedule(name, steps, part["lr"].to_numpy(), warmup)
        out[name] = _Curve(schedule, steps, part["loss"].to_numpy())
    return out, why


def _solve(
    law: ScheduleLaw, curves: Sequence[_Curve], objective: Objective, bounds: Mapping[str, tuple[float, float]]
) -> tuple[Floats, float, bool, float]:
    """Natural parameters, objective, whether converged, relative gradient."""
    count = len(law.parameters)
    y = np.concatenate([c.loss for c in curves]) if curves else np.zeros(0)
    if len(y) <= count:
        raise AnalysisError(
            f"fit {law.name}: {len(y)} logged steps in the training curves, {count} parameters: needs > {count} steps."
        )
    trace = Trace.join([c.trace for c in curves])
    low, high = _box(law, y, bounds)
    bound = cast(Law, _Bound(law, trace))
    one = np.ones((1, len(y)))
    problem = Problem(bound, np.zeros((1, 1, len(y))), y[None], one, one, objective, low, high)
    starts = _starts(law, trace, problem)
    ends = refine(problem, starts, np.zeros(len(starts), dtype=np.int64))
    best = int(np.argmin(ends.objective))
    return (
        law.decode(ends.theta[best]),
        float(ends.objective[best]),
        bool(ends.converged[best]),
        float(ends.gradient[best]),
    )


def _box(law: ScheduleLaw, y: Floats, bounds: Mapping[str, tuple[float, float]]) -> tuple[Floats, Floats]:
    """Bounds [1, p] in internal coordinates; linear parameters may be anything that the data could show."""
    ends = np.array([(1e-12, 1e12) if p.linear else (p.low, p.high) for p in law.parameters])
    ends[0] = 1e-6 * y.min(), y.max()
    names = [p.name for p in law.parameters]
    for name, (low, high) in bounds.items():
        if name not in names:
            raise AnalysisError(f"bounds: law {law.name!r} has no parameter {name!r}.{nearest(name, names)}")
        first, last = ends[names.index(name)]
        if not first <= low <= high <= last:
            raise AnalysisError(f"bounds: {name} from {low:g} to {high:g} must be a range inside {first:g} … {last:g}.")
        ends[names.index(name)] = low, high
    both = law.encode(ends.T)
    return both.min(0)[None], both.max(0)[None]


def _starts(law: ScheduleLaw, trace: Trace, problem: Problem) -> Floats:
    """The best of Sobol's places for the non-linear parameters, the linear ones solved for by least squares."""
    from scipy.stats import qmc

    shapes = [i for i, p in enumerate(law.parameters) if not p.linear]
    linear = [i for i, p in enumerate(law.parameters) if p.linear]
    inner = law.encode(np.array([(0.5, 0.5) if p.linear else p.start for p in law.parameters]).T)
    inner = np.clip(inner, problem.low, problem.high)
    unit = qmc.Sobol(len(shapes), scramble=False).random(PLACES)
    theta = np.repeat(inner[:1], PLACES, axis=0)
    theta[:, shapes] += unit * (inner[1] - inner[0])[shapes]
    value = np.empty(PLACES)
    for i, parameters in enumerate(law.decode(theta)):
        columns = law.columns(parameters, trace) / problem.y
        solved = nonnegative(columns @ columns.T, columns.sum(1), (False,) * len(linear))
        parameters[linear] = np.maximum(solved, 1e-12)
        theta[i] = np.clip(law.encode(parameters), problem.low[0], problem.high[0])
        value[i] = problem.objective_at(theta[i : i + 1])[0]
    return theta[np.argsort(np.where(np.isfinite(value), value, np.inf), kind="stable")[:STARTS]]


def _shown(fit: ScheduleFit) -> Iterator[Any]:
    """A fit for a terminal of 80 columns."""
    from rich.table import Table
    from rich.text import Text

    yield Text(f"{fit.law}: training objective {fit.objective:.6g}" + ("" if fit.converged else " (not converged)"))
    table = Table(box=None, pad_edge=False, title="\nParameters", title_justify="left")
    for name in fit.parameters:
        table.add_column(name, justify="right")
    table.add_row(*(f"{v:.5g}" for v in fit.parameters.values()))
    yield table
    table = Table(box=None, pad_edge=False, title="\nErrors of the loss", title_justify="left")
    for name in ("curve", "", "steps", "R2", "MAE", "RMSE", "mean %", "worst %"):
        table.add_column(Text(name), justify="left" if name in ("curve", "") else "right")
    for m in fit.metrics:
        numbers = {k: getattr(m, k) for k in Metrics.NUMBERS}
        table.add_row(Text(m.curve), "trained" if m.trained else "test", str(m.steps), *_digits(numbers))
    if fit.test:
        table.add_row("mean", "test", "", *_digits(fit.test))
    yield table
    for sentence in fit.why:
        yield Text(f"\n{sentence}")


def _digits(numbers: Mapping[str, float]) -> Iterator[str]:
    for name, value in numbers.items():
        yield f"{100 * value:.3f}" if name.endswith("relative") else f"{value:.4f}" if name == "r2" else f"{value:.5f}"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def main(
    curves: Annotated[Path, typer.Argument(help="CSV with the columns schedule, step, lr, loss.", show_default=False)],
    train: Annotated[str, typer.Option(help="Names of the training curves, with commas.", show_default=False)],
    law: Annotated[str, typer.Option(help="schedule_mpl or schedule_anneal.")] = "schedule_mpl",
    warmup: Annotated[
        int | None, typer.Option(min=0, help="Warmup steps; default: up to the first logged one.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fit a learning-rate-schedule law to loss curves and show its errors on all of them."""
    with failing(as_json):
        fit = fit_schedules(_read(curves), [n.strip() for n in train.split(",")], law, warmup=warmup)
        if as_json:
            print_json(fit.to_json())
        else:
            console = Console()
            for part in _shown(fit):
                console.print(part)


def _read(path: Path) -> pl.DataFrame:
    try:
        return pl.read_csv(path, comment_prefix="#")
    except (OSError, pl.exceptions.PolarsError) as error:
        raise AnalysisError(f"{path}: not a CSV that can be read ({str(error).splitlines()[0]}).") from None


if __name__ == "__main__":
    app()
