"""How to spend a budget: the inputs of a law with the best response at a cost, with the price of being off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from scaling.answers.additive import powers_of
from scaling.answers.asked import REPEATED, Asked, Goal, Limit, asked
from scaling.answers.discrete import rounded
from scaling.answers.plain import present
from scaling.answers.search import Places, Search
from scaling.arrays import Bools, Floats
from scaling.errors import AnalysisError
from scaling.fits import Fit
from scaling.intervals import Interval

Role = Literal["free", "given", "lower limit", "upper limit", "rounded"]
FACTORS = (0.5, 2.0)
FLAT = 1e-3  # of the response: a smaller loss is no loss
NUDGE = 0.05  # in log budget, for local exponents
SAME = 1e-9  # of a logarithm


@dataclass(frozen=True)
class Input:
    """One input at the optimum; `exponent` is d log input / d log budget."""

    name: str
    role: Role
    value: Interval
    exponent: Interval | None = None


@dataclass(frozen=True)
class Ratio:
    """One input per another at the optimum, such as tokens per parameter."""

    over: str
    under: str
    value: Interval


@dataclass(frozen=True)
class Off:
    """What it costs to have `factor` times the best value of an input at the same budget, the others being the best.

    `regret` is the response lost, `share` the same relative to the best response; `value` where the input is then.
    """

    name: str
    factor: float
    value: float
    regret: Interval
    share: Interval


@dataclass(frozen=True)
class FrontierLaw:
    """The best response at any budget, E + K C^-gamma, of a law whose optimum has a closed form."""

    E: Interval
    K: Interval
    gamma: Interval


@dataclass(frozen=True)
class Allocation:
    """The best inputs for a budget. `refused` allocations have no inputs, only reasons.

    `response` is what the law predicts at the values given, with the fit's own prediction interval (`basis`);
    `regret` what these values are expected to lose against the unknown optimum, with the upper end of its interval.
    `used` is their cost. `flat`: no factor of 2 costs more than run noise or 0.1 %.
    """

    status: Literal["ok", "refused"]
    law: str
    cost: str
    budget: float
    level: float
    method: Literal["closed form", "search"]
    why: tuple[str, ...]
    inputs: tuple[Input, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    response: Interval | None = None
    basis: str = ""
    used: float | None = None
    regret: Interval | None = None
    off: tuple[Off, ...] = ()
    frontier: FrontierLaw | None = None
    flat: bool | None = None
    reach: float | None = None  # budget over the dearest row

    def __getitem__(self, name: str) -> Interval:
        """The value of an input."""
        return next(i.value for i in self.inputs if i.name == name)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers at full precision; what was refused is absent."""
        return present({
            "status": self.status, "law": self.law, "cost": self.cost, "budget": self.budget, "level": self.level,
            "method": self.method, "used": self.used, "reach": self.reach,
            "inputs": {i.name: {"role": i.role, **i.value.to_json(), **_named("exponent", i.exponent)}
                       for i in self.inputs},
            "ratios": [{"over": r.over, "under": r.under, **r.value.to_json()} for r in self.ratios],
            **_named("response", self.response), "basis": self.basis or None, **_named("regret", self.regret),
            "off": [{"input": o.name, "factor": o.factor, "at": o.value, "regret": o.regret.to_json(),
                     "share": o.share.to_json()} for o in self.off],
            "frontier": None if self.frontier is None else {k: v.to_json() for k, v in vars(self.frontier).items()},
            "flat": self.flat, "why": list(self.why),
        })  # fmt: skip


@dataclass(frozen=True)
class Frontier:
    """The best response at budgets [m], and the inputs there [d, m]; lo and hi hold the law's own interval."""

    law: str
    cost: str
    level: float
    budget: Floats
    inputs: dict[str, Floats]
    response: Floats
    lo: Floats | None
    hi: Floats | None

    def to_json(self) -> dict[str, Any]:
        parts = {"budget": self.budget, "response": self.response, "lo": self.lo, "hi": self.hi}
        return present({
            "law": self.law, "cost": self.cost, "level": self.level,
            **{k: None if v is None else v.tolist() for k, v in parts.items()},
            "inputs": {k: v.tolist() for k, v in self.inputs.items()},
        })  # fmt: skip


def allocate(
    fit: Fit,
    budget: float,
    cost: str | None = None,
    *,
    at: Mapping[str, float] | None = None,
    limits: Mapping[str, Limit] | None = None,
    goal: Goal = "min",
    level: float | None = None,
    noise: float = 0.0,
) -> Allocation:
    """The inputs with the best response whose cost is `budget`.

    `cost` is an expression over the law's inputs, in the budget's unit: by default 6 n_params tokens;
    "6*n_params*tokens + 2*n_params*1e12" is a lifetime's. `at` gives inputs their values, `limits` bounds them or makes
    them whole. A law with `unique_tokens` takes their value as what is available: tokens beyond are repeats. `noise`
    is the standard deviation of one run's response, below which a difference is none.

    A sum of one power per input under a cost that is a product of powers has its optimum in closed form
    (`scaling.answers.additive`); any other is searched along the surface of equal cost, all draws at once.

    Raises AnalysisError for a refused fit, an unknown input, a cost that can't be read or does not rise, or limits
    that the budget can't satisfy.
    """
    question = asked(fit, cost, at=at, limits=limits, goal=goal, level=level)
    if not (np.isfinite(budget) and budget > 0):
        raise AnalysisError(f"budget {budget:g}: must be a finite number > 0.")
    return _Allocating(question, float(budget), noise).run()


def frontier(
    fit: Fit,
    budgets: Sequence[float] | Floats,
    cost: str | None = None,
    *,
    at: Mapping[str, float] | None = None,
    limits: Mapping[str, Limit] | None = None,
    goal: Goal = "min",
    level: float | None = None,
) -> Frontier:
    """The best response at each of `budgets`; arguments and errors as for `allocate`."""
    question = asked(fit, cost, at=at, limits=limits, goal=goal, level=level)
    budget = np.asarray(budgets, dtype=float)
    found = [best_places(question, float(c)) for c in budget]
    response = question.task.sign * np.array([p.value for p in found])
    between = [question.interval(r) for r in response]
    lo, hi = (np.array([np.nan if v is None else v for v in part])
              for part in ([i.lo for i in between], [i.hi for i in between]))  # fmt: skip
    inputs = np.exp(np.array([question.task.actual(p.u)[:, 0] for p in found]).T)
    return Frontier(
        fit.law.name, question.cost.text, question.level, budget, dict(zip(fit.law.inputs, inputs, strict=True)),
        response[:, 0], lo if question.drawn else None, hi if question.drawn else None,
    )  # fmt: skip


def best_places(question: Asked, budget: float) -> Places:
    """The best places at `budget` for the estimate and every draw."""
    return Search(question.task, question.parameters, np.full(len(question.parameters), np.log(budget))).run()


class _Allocating:
    """One allocation in the making."""

    def __init__(self, question: Asked, budget: float, noise: float) -> None:
        self.q, self.budget, self.noise = question, budget, noise
        self.task, self.law = question.task, question.law
        self.level = np.full(len(question.parameters), np.log(budget))
        self.why: list[str] = []

    def run(self) -> Allocation:
        best = best_places(self.q, self.budget)
        blank = Allocation(
            "refused", self.law.name, self.q.cost.text, self.budget, self.q.level, self._method(), (),
            reach=self._reach(),
        )  # fmt: skip
        if not np.isfinite(best.value[0]):
            raise AnalysisError(f"budget {self.budget:g}: the lower limits alone cost more under {self.q.cost.text!r}.")
        if not np.isfinite(best.u[:, 0]).all():
            return replace(blank, why=(self._nowhere(best.u[:, 0]),))
        chosen = self._chosen(best)
        x = self.q.exact(chosen)
        prediction = self.q.fit.predict(x[:, None], self.q.level)
        response = Interval(
            float(prediction.value[0]),
            None if prediction.lo is None else float(prediction.lo[0]),
            None if prediction.hi is None else float(prediction.hi[0]),
        )
        roles = self._roles(best)
        off = self._offs(best, roles)
        self._words(best, roles, off)
        return replace(
            blank, status="ok", inputs=self._inputs(best, x, roles), ratios=self._ratios(best, chosen),
            response=response, basis=prediction.basis, used=float(self.q.cost.at(x)), regret=self._regret(best, chosen),
            off=off, frontier=self._frontier(), flat=self._flat(off), why=tuple(self.why),
        )  # fmt: skip

    def _method(self) -> Literal["closed form", "search"]:
        return "search" if self._terms() is None else "closed form"

    def _terms(self) -> Any:
        plain = self.q.cost.powers is not None and self.task.cap is None and self.task.sign > 0
        return powers_of(self.law, self.q.parameters) if plain else None

    def _reach(self) -> float:
        return float(self.budget / np.max(self.q.cost.at(self.q.fit.rows.x)))

    def _nowhere(self, u: Floats) -> str:
        ways = [f"{name} {'without end' if v > 0 else 'towards 0'}"
                for name, v in zip(self.law.inputs, u, strict=True) if not np.isfinite(v)]  # fmt: skip
        return (
            f"{self.law.name}: no best place at this budget: the law always gains by taking {' and '.join(ways)} "
            "(a term has vanished). Limits on the inputs make it answer."
        )

    # values

    def _chosen(self, best: Places) -> Floats:
        """Logarithms of the values to recommend [d]."""
        u = rounded(self.q, self.budget, best.u[:, 0])
        return self.task.actual(u)

    def _roles(self, best: Places) -> list[Role]:
        u = self.task.actual(best.u[:, :1])[:, 0]
        roles: list[Role] = []
        for i, name in enumerate(self.law.inputs):
            if not self.task.free[i]:
                roles.append("given")
            elif name in self.q.limits and self.q.limits[name].discrete:
                roles.append("rounded")
            elif abs(u[i] - self.task.high[i]) < SAME:
                roles.append("upper limit")
            elif abs(u[i] - self.task.low[i]) < SAME:
                roles.append("lower limit")
            else:
                roles.append("free")
        return roles

    def _inputs(self, best: Places, x: Floats, roles: Sequence[Role]) -> tuple[Input, ...]:
        exponents = self._exponents(best)
        places = self.q.exact(self.task.actual(best.u))
        made = []
        for i, name in enumerate(self.law.inputs):
            values = places[i]
            values[0] = x[i]
            made.append(Input(name, roles[i], self._interval(values), None if roles[i] == "given" else exponents[i]))
        return tuple(made)

    def _interval(self, values: Floats, positive: bool = True) -> Interval:
        """The interval of values [1 + b]; none where the draws agree, since a limit or the budget decides."""
        made = self.q.interval(values, positive)
        agree = made.lo is not None and made.hi is not None and made.hi - made.lo <= SAME * abs(made.hi)
        return Interval(made.value) if agree else made

    def _exponents(self, best: Places) -> list[Interval]:
        if self._terms() is not None and not self._limited(best).any():
            terms, p = self._terms(), self.q.cost.powers[1]  # type: ignore[index]
            total, _ = terms.lagrange(self.task.free, p)
            return [self.q.interval(1 / (e * total)) for e in terms.exponent]
        below, above = (self.task.actual(best_places(self.q, self.budget * np.exp(s)).u) for s in (-NUDGE, NUDGE))
        with np.errstate(invalid="ignore"):
            return [self._interval(e, positive=False) for e in (above - below) / (2 * NUDGE)]

    def _limited(self, best: Places) -> Bools:
        """Which draws have an input at a limit."""
        with np.errstate(invalid="ignore"):
            at = np.abs(best.u - self.task.low[:, None]) < SAME
            at |= np.abs(best.u - self.task.high[:, None]) < SAME
        return np.asarray((at & self.task.free[:, None]).any(axis=0))

    def _ratios(self, best: Places, chosen: Floats) -> tuple[Ratio, ...]:
        """Each further input that is paid for per the first one, and tokens per unique token."""
        names = self.law.inputs
        paid = [int(i) for i in np.flatnonzero(self.task.cost.used & self.task.free)]
        pairs = [(i, paid[0]) for i in paid[1:]]
        if set(REPEATED) <= set(names):
            pairs.append((names.index(REPEATED[1]), names.index(REPEATED[0])))
        u = self.task.actual(best.u)
        u[:, 0] = chosen
        with np.errstate(invalid="ignore", over="ignore"):
            return tuple(Ratio(names[i], names[j], self._interval(np.exp(u[i] - u[j]))) for i, j in pairs)

    # the price of being off

    def _regret(self, best: Places, chosen: Floats) -> Interval | None:
        """What the recommended values lose against each draw's own optimum: mean, and the end of the interval."""
        here = self.task.badness(self.q.parameters, np.repeat(chosen[:, None], len(self.level), axis=1)[..., None])[
            :, 0
        ]
        lost = np.maximum(here - best.value, 0.0)[1:]
        if not len(lost) or not np.isfinite(lost).all():
            return None
        return Interval(float(lost.mean()), None, float(np.quantile(lost, self.q.level)))

    def _offs(self, best: Places, roles: Sequence[Role]) -> tuple[Off, ...]:
        if int((self.task.free & self.task.cost.used).sum()) < 2:
            return ()
        return tuple(
            found
            for i, role in enumerate(roles)
            if role in ("free", "rounded") and self.task.cost.used[i]
            for factor in FACTORS
            if (found := self._off(best, i, factor)) is not None
        )

    def _off(self, best: Places, i: int, factor: float) -> Off | None:
        """Every draw's own optimum with input i off by `factor`."""
        place = best.u[i] + np.log(factor)
        if not self.task.low[i] - SAME <= place[0] <= self.task.high[i] + SAME:
            return None
        held = np.where(np.isfinite(best.u), best.u, self.task.u[:, None])
        held[i] = np.where(np.isfinite(place), place, self.task.u[i])
        free = self.task.free.copy()
        free[i] = False
        moved = Search(self.task, self.q.parameters, self.level).run(held, free)
        with np.errstate(invalid="ignore"):
            lost = np.where(np.isfinite(place), np.maximum(moved.value - best.value, 0.0), np.nan)
            share = lost / np.abs(best.value)
        if not np.isfinite(lost[0]):
            return None
        return Off(self.law.inputs[i], factor, float(np.exp(place[0])), self.q.interval(lost, positive=False),
                   self.q.interval(share, positive=False))  # fmt: skip

    def _flat(self, off: Sequence[Off]) -> bool | None:
        if not off:
            return None
        return all(o.share.value < FLAT or o.regret.value < self.noise for o in off)

    def _frontier(self) -> FrontierLaw | None:
        terms = self._terms()
        if terms is None or np.isfinite([*self.task.low[self.task.free], *self.task.high[self.task.free]]).any():
            return None
        free, (log_k, p) = self.task.free, self.q.cost.powers  # type: ignore[misc]
        u = self.q.logs()
        total, drive = terms.lagrange(free, p)
        held = log_k + p[~free] @ u[~free]
        with np.errstate(all="ignore"):
            factor = total * np.exp((drive + held) / total)
            parts = (terms.held(u, free), factor, 1 / total)
        return FrontierLaw(*(self.q.interval(part) for part in parts))

    # words

    def _words(self, best: Places, roles: Sequence[Role], off: Sequence[Off]) -> None:
        if self.q.fit.status == "weak":
            self.why += [f"The fit is weak: {reason}" for reason in self.q.fit.why]
        elif not self.q.drawn:
            self.why += self.q.fit.why or ("No intervals: the fit has no draws.",)
        self._open_words(best)
        self._edge_words(best, roles)
        self._waste_words(best)
        if (reach := self._reach()) > 1.5:
            self.why.append(
                f"The budget is {_times(reach)} the dearest row's: the law is taken that far beyond its rows."
            )
        if self._flat(off):
            most = max(o.share.value for o in off)
            measure = "run noise or 0.1 %" if self.noise > 0 else "0.1 %"
            self.why.append(
                f"The optimum is flat: half or twice the best value of any input costs at most {most:.2%} of the "
                f"response, less than {measure}. Take what is convenient within a factor of 2."
            )

    def _open_words(self, best: Places) -> None:
        """Draws without an optimum inside."""
        for i, name in enumerate(self.law.inputs):
            for sign, way in ((-1, "towards 0"), (1, "without end")):
                share = float(np.mean(best.u[i, 1:] == sign * np.inf)) if self.q.drawn else 0.0
                if share > 0:
                    end = "" if share <= (1 - self.q.level) / 2 else ": its interval is open there"
                    self.why.append(f"In {share:.1%} of the draws the best {name} goes {way} (a term vanishes){end}.")

    def _edge_words(self, best: Places, roles: Sequence[Role]) -> None:
        edges = [i for i, role in enumerate(roles) if role.endswith("limit") and self.task.cost.used[i]]
        if not edges:
            return
        low, high = self.task.low.copy(), self.task.high.copy()
        low[edges], high[edges] = -np.inf, np.inf
        one = Search(replace(self.task, low=low, high=high), self.q.parameters[:1], self.level[:1]).run()
        for i in edges:
            name, end = self.law.inputs[i], "largest" if roles[i] == "upper limit" else "smallest"
            text = f"{name} is at its limit, the {end} value allowed, not at an optimum of the law."
            if np.isfinite(one.u[i, 0]):
                gain = (best.value[0] - one.value[0]) / abs(best.value[0])
                text += f" Without the limit {name} = {np.exp(one.u[i, 0]):.3g} would gain {gain:.2%} of the response."
            self.why.append(text)
        if REPEATED[1] in {self.law.inputs[i] for i in edges} and self.task.cap is None:
            self.why.append("More passes over the same tokens may help: a data_constrained law says how much.")

    def _waste_words(self, best: Places) -> None:
        """Where the budget isn't spent, or better weren't."""
        u = self.task.actual(best.u[:, :1])
        spent = float(np.exp(self.q.cost.value(u)[0])) / self.budget
        if spent < 1 - 1e-6:
            self.why.append(f"All inputs are at their limits: {1 - spent:.1%} of the budget is left over.")
            return
        slopes = self.task.badness_slopes(self.q.parameters[:1], best.u[:, :1, None])[:, 0, 0]
        paid = self.task.free & self.task.cost.used
        if slopes[paid].sum() > 1e-12 * abs(best.value[0]):
            self.why.append("Under this law a smaller budget would do better: its response gets worse with scale here.")


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times"


def _named(name: str, interval: Interval | None) -> dict[str, Any]:
    return {} if interval is None else {name: interval.to_json()}
