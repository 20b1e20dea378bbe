"""Laws: formulas with named parameters over named inputs, compiled to NumPy with exact derivatives by SymPy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np

from scaling.arrays import Floats
from scaling.errors import AnalysisError, nearest
from scaling.formula import parse_formula
from scaling.registry import REGISTRY, Entry, Nested, Shape

Values = Sequence[Floats | float]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a law.

    `positive` parameters are solved for in their logarithm, others as they are, inside [low, high]. A floor is not:
    where the data show none it must be able to reach 0. An infinite bound of a linear parameter comes from the data.
    `start` bounds the scan of a non-linear one. `unit` is an expression over inputs and parameters, such as
    "x^alpha": what the parameter is multiplied by when the inputs are divided by constants; `low`, `high` and
    `start` are in that unit.
    """

    name: str
    positive: bool
    linear: bool
    low: float = 0.0
    high: float = np.inf
    start: tuple[float, float] = (0.0, 1.0)
    unit: str = ""

    @property
    def signed(self) -> bool:
        """Whether it may be negative."""
        return self.low < 0

    @property
    def cap(self) -> float:
        """Longest useful move of a solver's round: a signed linear parameter has no scale of its own."""
        return 2.0 if self.positive or not self.linear else np.inf


@dataclass(frozen=True)
class Jet:
    """Value [b, n] of a law, its gradient [p][b, n] and the non-zero upper half of its Hessian {(i, j): [b, n]}.

    All in internal coordinates; entries may have any shape that broadcasts to [b, n].
    """

    value: Floats
    gradient: list[Floats]
    hessian: dict[tuple[int, int], Floats]


@dataclass(frozen=True)
class Projection:
    """A law that is linear in the internal coordinates or natural parameters `which`, given the others.

    eta = sum_k columns[k] * parameter[which[k]] + rest, where eta is the law's logarithm (`log`) or its value;
    the parameters marked `signed` may be negative.
    """

    which: tuple[int, ...]
    signed: tuple[bool, ...]
    log: bool
    columns: Callable[..., list[Any]]


@dataclass(frozen=True)
class Law:
    """A law over its inputs: y = formula(inputs; parameters). Arrays of inputs have the inputs first: [d, ..., n]."""

    name: str
    inputs: tuple[str, ...]
    text: str
    parameters: tuple[Parameter, ...]
    fixed: tuple[tuple[str, float], ...] = ()
    nested: Nested | None = None
    scales: tuple[int, ...] | None = None  # inputs with the same number may be divided by one constant

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters)

    @property
    def over(self) -> str:
        """The inputs in words."""
        return ", ".join(self.inputs)

    @property
    def axis(self) -> str:
        """The input of a law that has one."""
        return self.inputs[0]

    @property
    def formula(self) -> str:
        return self.text

    @property
    def latex(self) -> str:
        """The formula in LaTeX."""
        import sympy

        shown = {sympy.Symbol(a, real=True): sympy.Symbol(rf"\mathrm{{{a}}}".replace("_", r"\_"), positive=True)
                 for a in self.inputs}  # fmt: skip
        return str(sympy.latex(parse_formula(self.text).subs(shown)))

    @cached_property
    def _expression(self) -> Any:
        import sympy

        fixed = {sympy.Symbol(k, real=True): sympy.Float(v, 20) for k, v in self.fixed}
        return parse_formula(self.text).subs(fixed)

    @cached_property
    def _symbols(self) -> tuple[list[Any], list[Any]]:
        """Symbols of the parameters and of the inputs."""
        import sympy

        parameters, inputs = ([sympy.Symbol(n, real=True) for n in names] for names in (self.names, self.inputs))
        return parameters, inputs

    @cached_property
    def _inside(self) -> Any:
        """The formula in internal coordinates, over the logarithms of the inputs."""
        import sympy

        parameters, inputs = self._symbols
        change = {s: sympy.exp(s) for s, p in zip(parameters, self.parameters, strict=True) if p.positive}
        return self._expression.subs(change | {s: sympy.exp(s) for s in inputs}, simultaneous=True)

    def _compile(self, expressions: Sequence[Any]) -> Callable[..., list[Any]]:
        import sympy

        from scaling.special import numbers

        if any(e.has(sympy.Derivative, sympy.Subs) for e in expressions):
            raise AnalysisError(f"law {self.name!r}: a function of a number of draws takes inputs, not parameters.")
        symbols = [*self._symbols[0], *self._symbols[1]]
        modules = [numbers(), "scipy", "numpy"]
        return sympy.lambdify(symbols, list(expressions), modules=modules, cse=True)  # type: ignore[no-any-return]

    @cached_property
    def _value(self) -> Callable[..., list[Any]]:
        return self._compile([self._expression])

    @cached_property
    def _inside_value(self) -> Callable[..., list[Any]]:
        return self._compile([self._inside])

    @cached_property
    def _jet(self) -> tuple[list[tuple[int, int]], Callable[..., list[Any]]]:
        """Where the Hessian isn't zero; formula, gradient and these entries."""
        import sympy

        symbols = self._symbols[0]
        gradient = [sympy.diff(self._inside, s) for s in symbols]
        upper = {(i, j): sympy.diff(g, symbols[j]) for i, g in enumerate(gradient) for j in range(i, len(symbols))}
        upper = {k: e for k, e in upper.items() if e != 0}
        return list(upper), self._compile([self._inside, *gradient, *upper.values()])

    @cached_property
    def _slopes(self) -> Callable[..., list[Any]]:
        """Derivatives by the parameters, then by the inputs, all natural."""
        return self._compile([self._expression.diff(s) for part in self._symbols for s in part])

    def value(self, parameters: Floats, x: Floats) -> Floats:
        """y at `x` [d, ..., n] for natural `parameters` [..., p]; shapes broadcast to [..., n]."""
        parameters, x = np.asarray(parameters, dtype=float), self.shaped(x)
        with np.errstate(all="ignore"):
            (y,) = self._value(*_split(parameters), *x)
        return np.asarray(y + np.zeros(np.broadcast_shapes(parameters[..., :1].shape, x.shape[1:])))

    def gradient(self, parameters: Floats, x: Floats) -> Floats:
        """d y / d parameter [p, n] at `x` [d, n] for natural `parameters` [p]."""
        parts = self._all_slopes(parameters, x)
        return np.array(parts[: len(self.parameters)])

    def partial(self, parameters: Floats, x: Floats, i: int) -> Floats:
        """d y / d (input i) [..., n]."""
        return self._all_slopes(parameters, x)[len(self.parameters) + i]

    def _all_slopes(self, parameters: Floats, x: Floats) -> list[Floats]:
        parameters, x = np.asarray(parameters, dtype=float), self.shaped(x)
        shape = np.broadcast_shapes(parameters[..., :1].shape, x.shape[1:])
        with np.errstate(all="ignore"):
            return [np.broadcast_to(part, shape) for part in self._slopes(*_split(parameters), *x)]

    def inside(self, theta: Floats, logs: Floats) -> Floats:
        """y [b, n] at internal coordinates `theta` [b, p] over the logarithms `logs` [d, b or 1, n] of the inputs."""
        with np.errstate(all="ignore"):
            (y,) = self._inside_value(*_split(theta), *logs)
        return np.asarray(y + np.zeros(np.broadcast_shapes(theta[..., :1].shape, logs.shape[1:])))

    def jet(self, theta: Floats, logs: Floats) -> Jet:
        """Derivatives at internal coordinates `theta` [b, p] over the logarithms `logs` [d, b or 1, n]."""
        places, compiled = self._jet
        with np.errstate(all="ignore"):
            parts = compiled(*_split(theta), *logs)
        shape = np.broadcast_shapes(theta[..., :1].shape, logs.shape[1:])
        count = len(self.parameters)
        hessian = dict(zip(places, (np.asarray(h) for h in parts[1 + count :]), strict=True))
        return Jet(np.broadcast_to(parts[0], shape), [np.asarray(g) for g in parts[1 : 1 + count]], hessian)

    @cached_property
    def natural_projection(self) -> Projection:
        """The parameters in which the law itself is linear."""
        symbols = self._symbols[0]
        which = tuple(i for i, p in enumerate(self.parameters) if p.linear)
        rest = self._expression.subs(dict.fromkeys([symbols[i] for i in which], 0))
        columns = self._compile([*(self._expression.diff(symbols[i]) for i in which), rest])
        return Projection(which, tuple(self.parameters[i].signed for i in which), False, columns)

    @cached_property
    def log_projection(self) -> Projection | None:
        """The internal coordinates in which the law's logarithm is linear, if there are more of them."""
        import sympy

        parameters, inputs = self._symbols
        logarithm = sympy.expand(sympy.expand_log(sympy.log(self._inside), force=True))
        chosen = [s for s in parameters if logarithm.diff(s) != 0 and not logarithm.diff(s).free_symbols & {s}]
        chosen = _jointly_linear(logarithm, chosen)
        if len(chosen) <= len(self.natural_projection.which):
            return None
        back = {s: sympy.log(s) for s in inputs}
        rest = logarithm.subs(dict.fromkeys(chosen, 0))
        columns = self._compile([e.subs(back) for e in (*(logarithm.diff(s) for s in chosen), rest)])
        which = tuple(parameters.index(s) for s in chosen)
        return Projection(which, (True,) * len(which), True, columns)

    def encode(self, parameters: Floats) -> Floats:
        """Natural parameters [..., p] to internal coordinates."""
        theta = np.array(parameters, dtype=float)
        for i, p in enumerate(self.parameters):
            if p.positive:
                with np.errstate(divide="ignore", invalid="ignore"):
                    theta[..., i] = np.log(theta[..., i])
        return theta

    def decode(self, theta: Floats) -> Floats:
        """Internal coordinates [..., p] to natural parameters."""
        parameters = np.array(theta, dtype=float)
        for i, p in enumerate(self.parameters):
            if p.positive:
                with np.errstate(over="ignore"):
                    parameters[..., i] = np.exp(parameters[..., i])
        return parameters

    @cached_property
    def _units(self) -> list[tuple[int, Callable[..., list[Any]]]]:
        expressions = [(i, parse_formula(p.unit)) for i, p in enumerate(self.parameters) if p.unit]
        return [(i, self._compile([e])) for i, e in expressions]

    def restore(self, parameters: Floats, scale: Floats | float) -> Floats:
        """Parameters [..., p] fitted over inputs / scale [d], as parameters over the inputs themselves."""
        out = np.array(parameters, dtype=float)
        scales = np.broadcast_to(np.asarray(scale, dtype=float), (len(self.inputs),))
        for i, unit in self._units:
            out[..., i] = out[..., i] * unit(*np.moveaxis(np.asarray(parameters, dtype=float), -1, 0), *scales)[0]
        return out

    def scaled(self, parameters: Floats, scale: Floats | float) -> Floats:
        """The inverse of `restore`: units hold exponents and inputs, which scaling does not move, in any order."""
        scales = np.broadcast_to(np.asarray(scale, dtype=float), (len(self.inputs),))
        return self.restore(parameters, 1 / scales)

    def shaped(self, x: Floats) -> Floats:
        """`x` with the inputs first; a law of one input takes [n] as well."""
        x = np.asarray(x, dtype=float)
        if len(self.inputs) == 1 and (x.ndim < 2 or x.shape[0] != 1):
            x = x[None]
        if x.shape[0] != len(self.inputs):
            raise AnalysisError(f"{self.name} has the inputs {self.over}: {x.shape[0]} were given.")
        return x


def _split(parameters: Floats) -> list[Floats]:
    return [parameters[..., i, None] for i in range(parameters.shape[-1])]


def _jointly_linear(expression: Any, symbols: Sequence[Any]) -> list[Any]:
    chosen: list[Any] = []
    for s in symbols:
        slope = expression.diff(s)
        if slope != 0 and not slope.free_symbols & {s, *chosen}:
            chosen.append(s)
    return chosen


def check_name(text: str) -> None:
    """Raises AnalysisError for a single word that is no registered law."""
    if text not in REGISTRY and re.fullmatch(r"\s*[A-Za-z_]\w*\s*", text):
        raise AnalysisError(f"law {text!r} is not known.{nearest(text.strip(), REGISTRY)}")


def law_over(
    text: str,
    inputs: str | Sequence[str],
    freeze: Mapping[str, float] | None = None,
    tie: Mapping[str, str] | None = None,
    bounds: Mapping[str, Sequence[float]] | None = None,
) -> Law:
    """The law `text`, a registered name or a formula over `inputs`, as a function of these columns.

    `freeze` holds parameters at values, `tie` replaces a parameter by another, `bounds` replaces ranges. A
    registered law takes its inputs in its own order.

    Raises AnalysisError for an unknown name, a formula that can't be read, one that doesn't use an input, or a
    parameter that it doesn't have.
    """
    names = (inputs,) if isinstance(inputs, str) else tuple(inputs)
    return _law(text.strip(), names, _items(freeze), _items(tie), _items(bounds))


def _items(mapping: Mapping[str, Any] | None) -> tuple[tuple[str, Any], ...]:
    items = sorted((mapping or {}).items())
    return tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in items)


@lru_cache(maxsize=256)
def _law(
    text: str,
    inputs: tuple[str, ...],
    freeze: tuple[tuple[str, float], ...],
    tie: tuple[tuple[str, str], ...],
    bounds: tuple[tuple[str, tuple[float, float]], ...],
) -> Law:
    check_name(text)
    entry = REGISTRY.get(text)
    formula, shapes = (text, {}) if entry is None else _named(text, entry, inputs)
    known = {s.name for s in parse_formula(formula).free_symbols} - set(inputs)
    for key in (*(k for k, _ in freeze), *(k for pair in tie for k in pair), *(k for k, _ in bounds)):
        if key not in known:
            raise AnalysisError(f"law {text!r} has no parameter {key!r}.{nearest(key, known)}")
    for old, new in tie:
        formula = re.sub(rf"\b{old}\b", new, formula)
    nested = entry.nested if entry is not None and not freeze and not tie else None
    return _analysed(Law(text, inputs, formula, (), freeze, nested), shapes, dict(bounds))


def _named(name: str, entry: Entry, inputs: tuple[str, ...]) -> tuple[str, dict[str, Shape]]:
    """Formula and shapes of a registered law with the columns' own names."""
    formula, shapes = entry.over(inputs) if entry.over else (entry.formula, entry.shapes)
    own = inputs if entry.over else entry.inputs
    if len(own) != len(inputs):
        raise AnalysisError(f"law {name!r} is over {', '.join(own)}: {len(inputs)} names were given.")
    swap = {a: b for a, b in zip(own, inputs, strict=True) if a != b}
    return _renamed(formula, swap), {k: replace(s, unit=_renamed(s.unit, swap)) for k, s in shapes.items()}


def _renamed(text: str, swap: Mapping[str, str]) -> str:
    if not swap:
        return text
    return re.sub(r"\b(" + "|".join(map(re.escape, swap)) + r")\b", lambda m: swap[m[1]], text)


def _analysed(law: Law, shapes: Mapping[str, Shape], bounds: Mapping[str, tuple[float, float]]) -> Law:
    """`law` with its parameters: which are linear, their units, and which inputs may be scaled."""
    import sympy

    name, inputs, text = law.name, law.inputs, law.text
    expression = parse_formula(text)
    found = {s.name: s for s in expression.free_symbols}
    for axis in inputs:
        if axis not in found:
            raise AnalysisError(
                f"law {name!r} does not use {axis!r}, the axis it is over; its names are {', '.join(sorted(found))}."
            )
    expression = expression.subs({found[k]: sympy.Float(v, 20) for k, v in law.fixed})
    order = [s for s in expression.free_symbols if s.name not in inputs]
    order.sort(key=lambda s: _first_use(s.name, text))
    if not order:
        raise AnalysisError(f"law {name!r} has no parameters to fit.")
    linear = _jointly_linear(expression, order)
    floor = any(expression.diff(s) == 1 for s in linear)
    parameters = tuple(
        _linear(s, expression.diff(s), inputs, shapes.get(s.name), bounds.get(s.name))
        if s in linear
        else _shape(s.name, shapes.get(s.name), floor, bounds.get(s.name))
        for s in order
    )
    return _with_units(replace(law, parameters=parameters), shapes)


def _first_use(name: str, text: str) -> int:
    found = re.search(rf"\b{re.escape(name)}\b", text)
    return found.start() if found else len(text)


def _linear(
    symbol: Any, column: Any, inputs: tuple[str, ...], shape: Shape | None, bounds: tuple[float, float] | None
) -> Parameter:
    """A floor and the amplitude of a power are positive; what multiplies anything else may have either sign."""
    unit = shape.unit if shape and shape.unit else _power(column, inputs)
    if shape is None:
        low = 0.0 if column == 1 or unit else -np.inf
        shape = Shape(low, positive=low == 0 and column != 1)
    low, high = bounds or (shape.low, shape.high)
    return Parameter(symbol.name, shape.positive and low >= 0, True, low, high, unit=unit or "")


def _power(column: Any, inputs: tuple[str, ...]) -> str | None:
    """The inverse of a column that is a product of powers of inputs: the unit of its amplitude."""
    factors = []
    for base, power in column.as_powers_dict().items():
        if base.free_symbols and (not base.is_Symbol or base.name not in inputs):
            return None
        if {s.name for s in power.free_symbols} & set(inputs):
            return None
        if base.is_Symbol:
            factors.append(f"({base.name})^(-({power}))")
    return "*".join(factors)


def _shape(name: str, shape: Shape | None, floor: bool, bounds: tuple[float, float] | None) -> Parameter:
    """A non-linear parameter; unknown ones are exponents, positive where the law falls to a floor."""
    if shape is None and bounds is not None:
        return Parameter(name, bounds[0] > 0, False, bounds[0], bounds[1], bounds)
    if shape is None:
        shape = Shape(1e-3, 3, (0.02, 2.5)) if floor else Shape(-5, 5, (-3, 3))
    low, high, start = shape.low, shape.high, shape.start
    if bounds is not None:
        low, high = bounds
        start = (max(low, start[0]), min(high, start[1]))
        if start[0] >= start[1]:
            start = (low, high)
    return Parameter(name, shape.positive and low > 0, False, low, high, start, shape.unit)


def _with_units(law: Law, shapes: Mapping[str, Shape]) -> Law:
    """`law` with units that survive scaling: those it has, or a non-linear parameter measured in an input."""
    if found := _scales(law):
        return replace(law, scales=found)
    unknown = [i for i, p in enumerate(law.parameters) if not p.linear and p.name not in shapes]
    if len(unknown) > 4 or not unknown:
        return law
    choices = ["", *(f"{s}{a}" for a in law.inputs for s in ("", "1/"))]
    for units in sorted(product(choices, repeat=len(unknown)), key=lambda u: sum(map(bool, u))):
        parameters = list(law.parameters)
        for i, unit in zip(unknown, units, strict=True):
            if unit:
                parameters[i] = Parameter(parameters[i].name, True, False, 1e-6, 1e6, (0.02, 50.0), unit)
        made = replace(law, parameters=tuple(parameters))
        if _survives_scaling(made, tuple(range(len(law.inputs)))):
            return replace(made, scales=tuple(range(len(law.inputs))))
    return law


def _scales(law: Law) -> tuple[int, ...] | None:
    """The finest grouping of the inputs whose scaling can be undone: each alone, pairs, all together."""
    count = len(law.inputs)
    alone = tuple(range(count))
    pairs = [tuple(i if k == j else k for k in alone) for i in alone for j in alone if i < j]
    return next((g for g in (alone, *pairs) if _survives_scaling(law, g)), None)


def _survives_scaling(law: Law, scales: tuple[int, ...]) -> bool:
    """Whether `restore` turns a fit over x/s into one over x (checked at arbitrary places)."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.7, 3.1, (len(law.inputs), 5))
    for _ in range(2):
        scale = rng.uniform(0.3, 2.5, len(law.inputs))[list(scales)]
        inner = np.array([_typical(p, rng) for p in law.parameters])
        with np.errstate(all="ignore"):
            outer = law.value(law.restore(inner, scale), x)
        inside = law.value(inner, x / scale[:, None])
        if not (np.isfinite(inside).all() and np.allclose(outer, inside, rtol=1e-9)):
            return False
    return True


def _typical(p: Parameter, rng: np.random.Generator) -> float:
    if p.linear:
        return float(rng.uniform(0.3, 0.9))
    share = float(rng.uniform(0.3, 0.7))
    low, high = p.start
    return low * (high / low) ** share if p.positive else low + (high - low) * share
