"""Does N mean what the FLOPs follow? Checks of counts, warmup and schedules before a law over N and D is believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from scaling.arrays import Bools, Floats
from scaling.errors import AnalysisError, nearest

Level = Literal["note", "warning", "fault"]

COUNTS = ("all", "no_embedding", "matrices_and_head")
CONSTANT = 0.02  # C/(N D) this close to its median everywhere is a constant
DRIFT = 0.10  # a smaller change from end to end is scatter
STEEP = 0.10  # exponents of N and D that miss 1 by more than this are wrong whatever the scatter
SUM_SLACK = 0.02
SURE = 0.95
WARMUP_SHARE = 0.10  # of a run's tokens; a warmup of N tokens at D = 20 N takes 5 %
UNFINISHED = 0.01


@dataclass(frozen=True)
class Finding:
    """One thing that was checked and is not as it should be, with the numbers behind the sentence."""

    level: Level
    check: str
    text: str
    numbers: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"level": self.level, "check": self.check, "text": self.text, "numbers": dict(self.numbers)}


@dataclass(frozen=True)
class Slope:
    """y over x [n] by least squares, with its standard error and whether that error excludes no slope at 95 %."""

    value: float
    stderr: float | None
    sure: bool


def slope(x: Floats, y: Floats) -> Slope:
    """The slope of y [n] over x [n]; x must have two values at least. No standard error from two points."""
    t = x - x.mean()
    value = float(t @ y / (t @ t))
    freedom = len(x) - 2
    if freedom < 1:
        return Slope(value, None, False)
    rest = y - y.mean() - value * t
    stderr = float(np.sqrt(rest @ rest / freedom / (t @ t)))
    from scipy.special import stdtrit

    return Slope(value, stderr, bool(abs(value) > stdtrit(freedom, (1 + SURE) / 2) * stderr))


def same_counts(counts: Sequence[str]) -> str:
    """The one meaning of N that all rows share.

    Raises AnalysisError where rows differ, or for a meaning that isn't known.
    """
    seen = sorted(set(counts))
    for name in seen:
        if name not in COUNTS:
            raise AnalysisError(f"counts: {name!r} is no way to count parameters.{nearest(name, COUNTS)}")
    if len(seen) != 1:
        shares = ", ".join(f"{name} ({list(counts).count(name)} rows)" for name in seen)
        raise AnalysisError(
            f"counts: n_params means {shares or 'nothing'} in one fit; the exponents of N depend on it. "
            "Fit them apart, or convert all rows to one count."
        )
    return seen[0]


def constant_product(flops: Floats, n_params: Floats, tokens: Floats) -> tuple[Finding, ...]:
    """Whether C/(N D) is one number, for rows flops, n_params, tokens [n] > 0.

    It is 6 for dense transformers when N counts what does arithmetic. A drift along C shows as exponents of N* and
    D* that don't sum to 1, since their sum is 1 minus the drift's slope.
    """
    for name, values in (("flops", flops), ("n_params", n_params), ("tokens", tokens)):
        for i in np.flatnonzero(~(np.isfinite(values) & (values > 0)))[:1]:
            raise AnalysisError(f"row {i + 1}: {name} = {values[i]:g}, must be > 0.")
    if not len(flops):
        return ()
    ratio = np.log(flops) - np.log(n_params) - np.log(tokens)
    middle = float(np.median(ratio))
    if np.abs(np.expm1(ratio - middle)).max() <= CONSTANT:
        return ()
    numbers = {"low": float(np.exp(ratio.min())), "high": float(np.exp(ratio.max())), "median": float(np.exp(middle))}
    name, x = _along(flops, n_params)
    scatter = Finding(
        "note", "constant_product",
        f"C/(N·D) is not one number: {numbers['low']:.3g} to {numbers['high']:.3g}, without a drift over 10 %. "
        "Optima read off by eye or by parabolas scatter so; runs should not.", numbers,
    )  # fmt: skip
    if np.ptp(x) == 0:
        return (scatter,)
    found = slope(x, ratio)
    numbers |= {"slope": found.value} | ({} if found.stderr is None else {"stderr": found.stderr})
    wide = abs(found.value) * float(np.ptp(x))
    if np.expm1(wide) <= DRIFT:
        return (scatter,)
    order = np.argsort(x, kind="stable")
    first, last = np.exp(ratio[order[0]]), np.exp(ratio[order[-1]])
    level: Level = "fault" if found.sure or abs(found.value) > STEEP else "warning"
    error = "" if found.stderr is None else f" ± {found.stderr:.2f}"
    doubt = "" if found.sure else ", within its scatter"
    return (
        Finding(
            level, "constant_product",
            f"C/(N·D) drifts from {first:.3g} to {last:.3g} along {name} (slope {found.value:+.3f}{error}{doubt}): "
            f"{_suspect(found.value)} Exponents of N are those of this count only; give n_params as the FLOPs "
            "follow it.", numbers,
        ),
    )  # fmt: skip


def _along(flops: Floats, n_params: Floats) -> tuple[str, Floats]:
    """What a drift is told along: the budget where there is one row for each, the size where a budget has many."""
    if len(np.unique(flops)) == len(flops) and np.ptp(np.log(flops)) > 0 and _together(flops, n_params):
        return "flops", np.log(flops)
    return "n_params", np.log(n_params)


def _together(flops: Floats, n_params: Floats) -> bool:
    """Whether size only grows with the budget, as optima do."""
    return bool(np.all(np.diff(n_params[np.argsort(flops, kind="stable")]) > 0))


def _suspect(value: float) -> str:
    if value > 0:
        return "N holds parameters that cost no FLOP, whose share shrinks with size (embeddings, lookup tables)."
    return "N leaves out what costs FLOP, whose share shrinks with size (the head, attention over long contexts)."


def exponent_sum(a: float, b: float, stderr: float | None = None) -> tuple[Finding, ...]:
    """Whether the exponents of N* ~ C^a and D* ~ C^b sum to 1, as they must where C ~ N D.

    `stderr` is that of the sum, None where it isn't known.
    """
    miss = a + b - 1
    if abs(miss) <= max(SUM_SLACK, 2 * (stderr or 0.0)):
        return ()
    numbers = {"a": a, "b": b, "sum": a + b} | ({} if stderr is None else {"stderr": stderr})
    level: Level = "fault" if abs(miss) > STEEP else "warning"
    error = "" if stderr is None else f" ± {stderr:.3f}"
    return (
        Finding(
            level, "exponent_sum",
            f"a + b = {a:.3f} + {b:.3f} = {a + b:.3f}{error}, must be 1 where C ~ N·D: "
            f"{_suspect(-miss)} The budget goes elsewhere than these exponents say.", numbers,
        ),
    )  # fmt: skip


def check_warmup(tokens: Floats, warmup_tokens: Floats) -> tuple[Finding, ...]:
    """Whether warmup [n] takes a small and even part of each run's tokens [n].

    A warmup that stays while runs get shorter spoils small runs most and steepens N* (Porian et al. 2024,
    arXiv 2406.19146, step 3).
    """
    share = warmup_tokens / tokens
    long = np.isfinite(share) & (share > WARMUP_SHARE)
    if not long.any():
        return ()
    worst = int(np.nanargmax(share))
    fixed = len(np.unique(warmup_tokens[long])) == 1 and long.sum() > 1
    how = f"always {warmup_tokens[worst]:.3g} tokens" if fixed else "longest"
    return (
        Finding(
            "warning", "warmup",
            f"warmup takes more than {WARMUP_SHARE:.0%} of the tokens in {_rows(long)} ({how}; "
            f"{share[worst]:.0%} of row {worst + 1} with {tokens[worst]:.3g} tokens). Short runs lose most by it, "
            "which tilts the exponents. Scale warmup with the run, or leave these rows out.",
            {"rows": float(long.sum()), "largest_share": float(share[worst])},
        ),
    )  # fmt: skip


def unfinished(tokens: Floats, schedule_tokens: Floats) -> Bools:
    """Rows [n] that end before their learning-rate schedule does; rows without a schedule end with it."""
    with np.errstate(invalid="ignore"):
        return np.asarray(tokens < (1 - UNFINISHED) * schedule_tokens)


def check_schedule(tokens: Floats, schedule_tokens: Floats) -> tuple[Finding, ...]:
    """Whether every row stands at the end of its schedule, which is `schedule_tokens` [n] long (NaN: unknown).

    Rows that don't are not on the law's surface (Hoffmann et al. 2022, arXiv 2203.15556, section 2).
    """
    early = unfinished(tokens, schedule_tokens)
    if not early.any():
        return ()
    share = tokens / schedule_tokens
    worst = int(np.argmin(np.where(early, share, np.inf)))
    level: Level = "fault" if early.mean() > 0.5 else "warning"
    return (
        Finding(
            level, "schedule",
            f"the learning rate has not reached the end of its schedule in {_rows(early)} (row {worst + 1} stops at "
            f"{share[worst]:.0%}): their loss is too high for their tokens. Leave them out, or fit a schedule law.",
            {"rows": float(early.sum()), "earliest_share": float(share[worst])},
        ),
    )  # fmt: skip


def _rows(which: Bools) -> str:
    return f"{int(which.sum())} of {len(which)} rows"
