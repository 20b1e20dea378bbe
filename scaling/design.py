"""Whether a design can tell the parameters of a law apart, before any run of it, and which runs would cure it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np

from scaling.arrays import Bools, Floats
from scaling.errors import AnalysisError, nearest
from scaling.formula import parse_formula
from scaling.identify import REFUSED_CONDITION, WEAK_CONDITION, collinear, condition
from scaling.laws import Law
from scaling.objectives import Residual, link_slopes
from scaling.rows import cost_of
from scaling.wording import joined, number, plain

Status = Literal["ok", "weak", "refused"]

MIXED = 0.3  # of the largest entry of the weak direction
ON_A_LINE = 1e-3  # of the longest direction of the inputs' logarithms
AFFORDABLE = 0.1  # of what the design costs
OFFERED, MOST_SIDE = 64, 16  # places in all, and values of each input
NARROWEST = 100.0  # ratio of the largest offered value to the smallest
USUAL_EXPONENT = 0.3
COMPUTE = {"n_params", "tokens"}
REPEATED = ("unique_tokens", "tokens")  # no more of the first than of the second


@dataclass(frozen=True)
class Cure:
    """Runs that make a design identifiable, the condition number with them, and their cost over that of the design."""

    places: tuple[dict[str, float], ...]
    condition: float
    share: float | None = None

    @property
    def text(self) -> str:
        """`n_params=5e7 tokens=4e10 and n_params=2e9 tokens=1.2e9 (6 % of the present cost)`."""
        shown = [" ".join(f"{name}={plain(value)}" for name, value in at.items()) for at in self.places]
        share = "" if self.share is None else f"{100 * self.share:.2g} % of the present cost; "
        return f"{joined(shown)} ({share}condition then {self.condition:.3g})"


@dataclass(frozen=True)
class Check:
    """What a design of `rows` runs can tell about a law.

    `condition` is of the Jacobian in logarithms of the parameters, amplitudes taken at the geometric middle of the
    inputs, columns of unit length. `mixed` are the parameters that trade off and `fixed` what the runs tell of them;
    `together` says which inputs move together, `instead` which law fits such runs.
    """

    law: str
    over: str
    rows: int
    status: Status
    condition: float
    parameters: int
    mixed: tuple[str, ...] = ()
    fixed: str | None = None
    together: str | None = None
    instead: str | None = None
    cure: Cure | None = None

    @property
    def text(self) -> str:
        """One to four sentences."""
        head = f"{self.law} over {self.over}: {self.rows} distinct places"
        if self.rows <= self.parameters:
            return f"{head}, {self.parameters} parameters: no freedom left. Needs >= {self.parameters + 2}."
        size = f"condition {self.condition:.2g}"
        if self.status == "ok":
            return f"{head} tell its parameters apart ({size})."
        verb = "can't be told apart" if self.status == "refused" else "trade off"
        said = [f"{head}, but {self.together}." if self.together else f"{head}."]
        return " ".join([*said, f"{joined(list(self.mixed))} {verb} ({size}).", self.advice])

    @property
    def advice(self) -> str:
        """What the runs do tell, which law fits them, and what would cure the design."""
        said = [f"The data fix only {self.fixed}."] if self.fixed else []
        said += [f"Fits: {self.instead}."] if self.instead else []
        said += [f"To separate them add e.g. {self.cure.text}."] if self.cure else []
        return " ".join(said)

    def to_json(self) -> dict[str, Any]:
        """Plain values; what is infinite or was not found is absent."""
        rest = {"fixed": self.fixed, "together": self.together, "instead": self.instead,
                "condition": self.condition if np.isfinite(self.condition) else None}  # fmt: skip
        made: dict[str, Any] = {"law": self.law, "over": self.over, "rows": self.rows, "status": self.status,
                                "mixed": list(self.mixed), "text": self.text}  # fmt: skip
        made |= {k: v for k, v in rest.items() if v is not None}
        if self.cure is not None:
            share = {} if self.cure.share is None else {"share": self.cure.share}
            made["cure"] = {"places": list(self.cure.places), "condition": self.cure.condition} | share
        return made


def design_check(
    law: Law,
    x: Floats,
    guess: Mapping[str, float] | Floats | None = None,
    *,
    residual: Residual = "log",
    scale: Floats | None = None,
    cost: Floats | None = None,
) -> Check:
    """Whether runs at x [d, n] can tell the parameters of `law` apart, and two runs that would cure it.

    `guess` are natural parameters, by name or as [p]; without one every term weighs the same and exponents are
    0.3. `scale` [n] weighs residuals (1 over their standard deviations), `cost` [n] is what the runs cost.

    >>> from scaling.laws import law_over
    >>> sizes = 10.0 ** np.arange(7, 10)
    >>> check = design_check(law_over("chinchilla", ("n_params", "tokens")), np.array([sizes, 20 * sizes]).repeat(2, 1))
    >>> check.status, check.rows
    ('refused', 3)

    Raises AnalysisError for inputs that aren't positive, or a guess that misses a parameter.
    """
    x = law.shaped(x)
    if not (np.isfinite(x) & (x > 0)).all():
        raise AnalysisError(f"design for {law.name}: {law.over} must be finite numbers > 0.")
    parameters, rows = guessed(law, x, guess), len(np.unique(x, axis=1).T)
    columns = sensitivity(law, parameters, x, residual, scale=scale)
    if not np.isfinite(columns).all():
        raise AnalysisError(f"design for {law.name}: the guess gives no finite response at every place.")
    kappa, mixed = condition(columns, law.names)[0], _mixed(columns, law.names)
    status: Status = "ok" if kappa < WEAK_CONDITION else "weak" if kappa < REFUSED_CONDITION else "refused"
    if rows <= len(law.names):
        status = "refused"
    head = Check(law.name, law.over, rows, status, kappa, len(law.names))
    if status == "ok":
        return head
    found = cure(law, x, parameters, residual=residual, scale=scale, cost=cost)
    return Check(
        law.name, law.over, rows, status, kappa, len(law.names), mixed, _fixed(law, mixed, x),
        collinear(x, law.inputs), _instead(law, x), found,
    )  # fmt: skip


def guessed(law: Law, x: Floats, guess: Mapping[str, float] | Floats | None) -> Floats:
    """The natural parameters [p] of a guess, or those under which no term of the law stands out at x [d, n]."""
    if guess is None:
        return law.restore(_usual(law), middle_of(law, x))
    if isinstance(guess, Mapping):
        for name in guess:
            if name not in law.names:
                raise AnalysisError(f"guess for {law.name}: no parameter {name!r}.{nearest(name, law.names)}")
        missing = [n for n in law.names if n not in guess]
        if missing:
            raise AnalysisError(f"guess for {law.name}: {missing[0]} is missing; name every parameter.")
        return np.array([float(guess[n]) for n in law.names])
    return np.asarray(guess, dtype=float)


def _usual(law: Law) -> Floats:
    """Amplitudes of 1, levels of 1, 2, …, and exponents in the usual range [p], over inputs divided by their middle."""
    made = np.ones(len(law.names))
    levels = [i for i, p in enumerate(law.parameters) if p.linear and not p.unit]
    made[levels] = 1.0 + np.arange(len(levels))
    for i, p in enumerate(law.parameters):
        low, high = p.start
        if p.positive and not p.linear:
            made[i] = np.sqrt(low * high)
        elif not p.linear:
            made[i] = USUAL_EXPONENT if low <= USUAL_EXPONENT <= high else 0.5 * (low + high)
    return made


def middle_of(law: Law, x: Floats) -> Floats:
    """What inputs x [d, n] are divided by [d]: geometric means, shared by inputs that scale together."""
    if law.scales is None:
        return np.ones(len(x))
    groups, means = np.array(law.scales), np.log(x).mean(axis=1)
    return np.asarray(np.exp([means[groups == g].mean() for g in groups]))


def sensitivity(
    law: Law,
    parameters: Floats,
    x: Floats,
    residual: Residual = "log",
    *,
    middle: Floats | None = None,
    scale: Floats | None = None,
) -> Floats:
    """Jacobian [n, p] of the residuals at x [d, n] in internal coordinates, inputs divided by `middle` [d]."""
    unit = middle_of(law, x) if middle is None else middle
    theta = law.encode(law.scaled(parameters, unit))
    jet = law.jet(theta[None, :], np.log(x / unit[:, None])[:, None, :])
    slope = np.broadcast_to(link_slopes(residual, jet.value)[0], jet.value.shape)[0]
    with np.errstate(invalid="ignore", over="ignore"):
        made = np.array([np.broadcast_to(g, jet.value.shape)[0] * slope for g in jet.gradient]).T
    return np.asarray(made if scale is None else made * scale[:, None])


def weak_direction(columns: Floats) -> Floats:
    """The combination [p] of the columns' own parameters that the rows [n, p] tell least of, per unit of each column.

    A change of the parameters by it moves the residuals least, of all changes that move them alike column by column.
    """
    size = np.linalg.norm(columns, axis=0)
    unit = columns / np.where(size > 0, size, 1.0)
    padded = np.vstack([unit, np.zeros((max(0, columns.shape[1] - len(unit)), columns.shape[1]))])
    return np.asarray(np.linalg.svd(padded, full_matrices=False)[2][-1] * size)


def _mixed(columns: Floats, names: Sequence[str]) -> tuple[str, ...]:
    size = np.linalg.norm(columns, axis=0)
    weight = np.abs(weak_direction(columns) / np.where(size > 0, size, 1.0))
    return tuple(n for n, w in zip(names, weight, strict=True) if w > MIXED * weight.max())


def _fixed(law: Law, mixed: Sequence[str], x: Floats) -> str | None:
    """What stays known where parameters trade off: the sum of the terms that hold them, in the middle of the inputs."""
    import sympy

    terms = [t for t in sympy.Add.make_args(parse_formula(law.formula)) if {s.name for s in t.free_symbols} & {*mixed}]
    found = {s.name for t in terms for s in t.free_symbols}
    inputs = [n for n in law.inputs if n in found]
    if not inputs or len(terms) == len(law.inputs) == 1:
        return None
    middle = np.exp(np.log(x).mean(axis=1))
    near = joined([f"{n} = {number(float(f'{middle[law.inputs.index(n)]:.2g}'))}" for n in inputs])
    terms.sort(key=lambda t: min(law.formula.find(s.name) for s in t.free_symbols))
    return f"{' + '.join(map(_written, terms))} near {near}"


def _written(term: Any) -> str:
    """A term of a formula for people: `A·n_params^-alpha`."""
    text = re.sub(r"\*\*\(-(\w+)\)", r"^-\1", str(term))
    return text.replace("**", "^").replace("*", "·")


def _instead(law: Law, x: Floats) -> str | None:
    """The law of one input that fits runs along a line."""
    if len(law.inputs) == 1:
        return None
    logs = np.log(x) - np.log(x).mean(axis=1, keepdims=True)
    lengths = np.linalg.svd(logs, compute_uv=False)
    moving = [n for n, spread in zip(law.inputs, np.ptp(logs, axis=1), strict=True) if spread > 1e-9]
    if not moving or (lengths > ON_A_LINE * lengths[0]).sum() != 1:
        return None
    return f"power_offset over {'flops' if set(moving) >= COMPUTE else moving[0]}"


# -- cures -------------------------------------------------------------------------------------------


def around(law: Law, x: Floats) -> Floats:
    """A grid of places [d, m] over the ranges of x [d, n], each at least a factor of 100 wide, of two digits each.

    Tokens are at least as many as unique tokens.
    """
    axes, side = [], int(np.clip(OFFERED ** (1 / len(x)) + 1e-9, 2, MOST_SIDE))
    for low, high in zip(x.min(axis=1), x.max(axis=1), strict=True):
        more = max(1.0, np.sqrt(NARROWEST * low / high))
        axes.append([float(f"{v:.1e}") for v in np.geomspace(low / more, high * more, side)])
    grid = np.array(np.meshgrid(*axes, indexing="ij")).reshape(len(x), -1)
    return grid[:, possible(law, grid)]


def possible(law: Law, x: Floats) -> Bools:
    """Which places [m] of x [d, m] can be run: those with no more unique tokens than tokens."""
    if not set(REPEATED) <= set(law.inputs):
        return np.ones(x.shape[1], dtype=bool)
    unique, seen = (x[law.inputs.index(name)] for name in REPEATED)
    return np.asarray(unique <= seen)


def cure(
    law: Law,
    x: Floats,
    guess: Floats,
    offered: Floats | None = None,
    *,
    runs: int = 2,
    residual: Residual = "log",
    scale: Floats | None = None,
    cost: Floats | None = None,
) -> Cure | None:
    """The `runs` of the `offered` places [d, m] (`around` x) that condition a design x [d, n] best, under a guess [p].

    They cost at most a tenth of the design where that is enough for a condition number below 1e3, else at most as
    much as it. `cost` [n] is of the design; where places have no known cost, all may be taken. None where too few
    places are offered at which the guess has a response.
    """
    offered = around(law, x) if offered is None else law.shaped(offered)
    middle, weight = middle_of(law, x), 1.0 if scale is None else float(np.sqrt(np.mean(scale**2)))
    columns = sensitivity(law, guess, x, residual, middle=middle, scale=scale)
    new = weight * sensitivity(law, guess, offered, residual, middle=middle)
    known = np.isfinite(new).all(axis=1)
    offered, new = offered[:, known], new[known]
    if offered.shape[1] < runs:
        return None
    sets = np.array(list(combinations(range(offered.shape[1]), runs)))
    gram = columns.T @ columns + np.einsum("ski,skj->sij", new[sets], new[sets])
    size = np.sqrt(np.einsum("sii->si", gram))
    size = np.where(size > 0, size, 1.0)
    values = np.linalg.eigvalsh(gram / (size[:, :, None] * size[:, None, :]))
    kappa = np.sqrt(values[:, -1] / np.maximum(values[:, 0], 1e-300))
    share = _shares(law, x, offered, cost)
    prices = None if share is None else share[sets].sum(axis=1)
    best = int(np.argmin(_within_means(kappa, prices)))
    places = offered[:, sets[best]]
    weights = None if scale is None else np.append(scale, np.full(runs, weight))
    exact = condition(sensitivity(law, guess, np.hstack([x, places]), residual, scale=weights), law.names)[0]
    return Cure(
        tuple(dict(zip(law.inputs, map(float, place), strict=True)) for place in places.T), exact,
        None if prices is None else float(prices[best]),
    )  # fmt: skip


def _shares(law: Law, x: Floats, offered: Floats, cost: Floats | None) -> Floats | None:
    """What each offered place costs over the whole design [m]; None where that isn't known."""
    seen, asked = cost_of(law, x), cost_of(law, offered)
    if seen is None or asked is None:
        return None
    # costs of another unit or with more in them are as many times what the inputs say, place by place
    factor = 1.0 if cost is None else float(np.exp(np.mean(np.log(cost) - np.log(seen))))
    return np.asarray(factor * asked / (seen.sum() if cost is None else cost.sum()))


def _within_means(kappa: Floats, prices: Floats | None) -> Floats:
    """The condition numbers, infinite where the runs cost more than is sensible."""
    if prices is None:
        return kappa
    cheap = np.where(prices <= AFFORDABLE, kappa, np.inf)
    return cheap if cheap.min() < WEAK_CONDITION else np.where(prices <= max(1.0, prices.min()), kappa, np.inf)
