"""Laws: formulas with named parameters, compiled to NumPy with exact derivatives by SymPy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from scaling.arrays import Floats
from scaling.errors import AnalysisError, nearest
from scaling.formula import parse_formula


@dataclass(frozen=True)
class Parameter:
    """One parameter of a law.

    `positive` parameters are solved for in their logarithm, others as they are, inside [low, high]. The bounds of
    a linear parameter come from the data. `start` bounds the scan of a non-linear one; where `unit` is "x",
    `low`, `high` and `start` are multiples of the geometric mean of the axis.
    """

    name: str
    positive: bool
    linear: bool
    low: float = 0.0
    high: float = np.inf
    start: tuple[float, float] = (0.0, 1.0)
    unit: str = ""


@dataclass(frozen=True)
class Jet:
    """Value, gradient and Hessian of a law in its internal coordinates; shapes [b, n], [p, b, n], [p, p, b, n]."""

    value: Floats
    gradient: Floats
    hessian: Floats


@dataclass(frozen=True)
class Law:
    """A law over one axis: y = formula(axis; parameters)."""

    name: str
    axis: str
    text: str
    symbol: str
    parameters: tuple[Parameter, ...]
    amplitudes: tuple[tuple[int, int, int], ...] = ()  # (A, alpha, sign): A multiplies axis^(sign * alpha)
    scalable: bool = False  # the axis may be divided by a constant, `restore` undoes it

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters)

    @property
    def formula(self) -> str:
        """The text with the axis' own name."""
        return re.sub(rf"\b{self.symbol}\b", self.axis, self.text)

    @property
    def latex(self) -> str:
        """The formula in LaTeX."""
        import sympy

        axis = sympy.Symbol(rf"\mathrm{{{self.axis}}}".replace("_", r"\_"), positive=True)
        shown = self._expression.subs(sympy.Symbol(self.symbol, real=True), axis)
        return str(sympy.latex(shown))

    @cached_property
    def _expression(self) -> Any:
        return parse_formula(self.text)

    @cached_property
    def _symbols(self) -> list[Any]:
        import sympy

        return [sympy.Symbol(name, real=True) for name in (*self.names, self.symbol)]

    def _compile(self, expressions: Sequence[Any]) -> Callable[..., list[Any]]:
        import sympy

        return sympy.lambdify(self._symbols, list(expressions), modules="numpy", cse=True)  # type: ignore[no-any-return]

    @cached_property
    def _value(self) -> Callable[..., list[Any]]:
        return self._compile([self._expression])

    @cached_property
    def _jet(self) -> Callable[..., list[Any]]:
        """Formula, gradient and upper half of the Hessian, in internal coordinates."""
        import sympy

        symbols = self._symbols[:-1]
        inside = self._expression.subs(
            {s: sympy.exp(s) for s, p in zip(symbols, self.parameters, strict=True) if p.positive}
        )
        gradient = [sympy.diff(inside, s) for s in symbols]
        hessian = [sympy.diff(g, s) for i, g in enumerate(gradient) for s in symbols[i:]]
        return self._compile([inside, *gradient, *hessian])

    @cached_property
    def _columns(self) -> Callable[..., list[Any]]:
        """What each linear parameter multiplies, then the rest of the formula."""
        linear = [s for s, p in zip(self._symbols, self.parameters, strict=False) if p.linear]
        rest = self._expression.subs(dict.fromkeys(linear, 0))
        return self._compile([*(self._expression.diff(s) for s in linear), rest])

    def value(self, parameters: Floats, x: Floats) -> Floats:
        """y at `x` [..., n] for natural `parameters` [..., p]; shapes broadcast to [..., n]."""
        with np.errstate(all="ignore"):
            (y,) = self._value(*(parameters[..., i, None] for i in range(parameters.shape[-1])), x)
        return np.asarray(y + np.zeros(np.broadcast_shapes(parameters[..., :1].shape, x.shape)))

    def jet(self, theta: Floats, x: Floats) -> Jet:
        """Derivatives at internal coordinates `theta` [b, p] over `x` [b, n]."""
        count = theta.shape[1]
        with np.errstate(all="ignore"):
            parts = self._jet(*(theta[:, i, None] for i in range(count)), x)
        hessian = np.empty((count, count, *x.shape))
        upper = iter(parts[1 + count :])
        for i in range(count):
            for j in range(i, count):
                hessian[i, j] = hessian[j, i] = next(upper)
        gradient = np.empty((count, *x.shape))
        for i in range(count):
            gradient[i] = parts[1 + i]
        return Jet(np.broadcast_to(parts[0], x.shape), gradient, hessian)

    def columns(self, parameters: Floats, x: Floats) -> tuple[Floats, Floats]:
        """Coefficients of the linear parameters [k, ..., n] and the rest [..., n]; linear entries are ignored."""
        shape = np.broadcast_shapes(parameters[..., :1].shape, x.shape)
        with np.errstate(all="ignore"):
            parts = self._columns(*(parameters[..., i, None] for i in range(parameters.shape[-1])), x)
        full = np.empty((len(parts), *shape))
        for i, part in enumerate(parts):
            full[i] = part
        return full[:-1], full[-1]

    def encode(self, parameters: Floats) -> Floats:
        """Natural parameters [..., p] to internal coordinates."""
        theta = np.array(parameters, dtype=float)
        for i, p in enumerate(self.parameters):
            if p.positive:
                with np.errstate(divide="ignore"):
                    theta[..., i] = np.log(theta[..., i])
        return theta

    def decode(self, theta: Floats) -> Floats:
        """Internal coordinates [..., p] to natural parameters."""
        parameters = np.array(theta, dtype=float)
        for i, p in enumerate(self.parameters):
            if p.positive:
                parameters[..., i] = np.exp(parameters[..., i])
        return parameters

    def restore(self, parameters: Floats, scale: float) -> Floats:
        """Parameters [..., p] fitted over axis/scale, as parameters over the axis itself."""
        out = np.array(parameters, dtype=float)
        for amplitude, exponent, sign in self.amplitudes:
            out[..., amplitude] = out[..., amplitude] * scale ** (-sign * parameters[..., exponent])
        for i, p in enumerate(self.parameters):
            if p.unit == "x":
                out[..., i] = out[..., i] * scale
        return out


@dataclass(frozen=True)
class _Entry:
    """A registered law: its formula over `x` and what is known of its parameters."""

    formula: str
    hints: Mapping[str, Parameter]


def _shape(name: str, low: float, high: float, start: tuple[float, float], **more: Any) -> Parameter:
    return Parameter(name, positive=bool(more.pop("positive", False)), linear=False, low=low, high=high,
                     start=start, **more)  # fmt: skip


REGISTRY: dict[str, _Entry] = {
    "power": _Entry("A*x^-alpha", {"alpha": _shape("alpha", -5, 5, (-3, 3))}),
    "power_offset": _Entry("E + A*x^-alpha", {"alpha": _shape("alpha", 1e-3, 3, (0.02, 2.5))}),
    "optimum_quadratic": _Entry(
        "L0*exp(h/2*log(x/x0)^2)",
        {
            "h": _shape("h", 1e-12, 1e4, (1e-4, 3.0), positive=True),
            "x0": _shape("x0", 1e-6, 1e6, (0.2, 5.0), positive=True, unit="x"),
        },
    ),
}


def check_name(text: str) -> None:
    """Raises AnalysisError for a single word that is no registered law."""
    if text not in REGISTRY and re.fullmatch(r"\s*[A-Za-z_]\w*\s*", text):
        raise AnalysisError(f"law {text!r} is not known.{nearest(text.strip(), REGISTRY)}")


@lru_cache(maxsize=128)
def law_over(text: str, axis: str) -> Law:
    """The law `text`, a registered name or a formula over `axis`, as a function of `axis`.

    Raises AnalysisError for an unknown name, a formula that can't be read or one that doesn't use the axis.
    """
    check_name(text)
    entry = REGISTRY.get(text)
    if entry is not None:
        return _analysed(text, axis, entry.formula, "x", entry.hints)
    return _analysed(text, axis, text, axis, {})


def _analysed(name: str, axis: str, text: str, symbol: str, hints: Mapping[str, Parameter]) -> Law:
    """Finds the linear parameters and those amplitudes that a change of the axis' unit moves."""
    expression = parse_formula(text)
    order = sorted(expression.free_symbols, key=lambda s: text.find(s.name))
    x = next((s for s in order if s.name == symbol), None)
    if x is None:
        names = ", ".join(sorted(s.name for s in order))
        raise AnalysisError(f"law {name!r} does not use {axis!r}, the axis it is over; its names are {names}.")
    order = sorted((s for s in order if s is not x), key=lambda s: _first_use(s.name, text))
    if not order:
        raise AnalysisError(f"law {name!r} has no parameters to fit.")
    linear = _linear(expression, order)
    floor = any(expression.diff(s) == 1 for s in linear)
    parameters = tuple(
        Parameter(s.name, positive=True, linear=True) if s in linear else hints.get(s.name) or _guess(s.name, floor)
        for s in order
    )
    amplitudes = _amplitudes(expression, order, linear, x)
    law = Law(name, axis, text, symbol, parameters, amplitudes)
    return Law(name, axis, text, symbol, parameters, amplitudes, scalable=_survives_scaling(law))


def _first_use(name: str, text: str) -> int:
    found = re.search(rf"\b{re.escape(name)}\b", text)
    return found.start() if found else len(text)


def _guess(name: str, floor: bool) -> Parameter:
    """A non-linear parameter of a user's formula: an exponent, positive where the law falls to a floor."""
    return _shape(name, 1e-3, 3, (0.02, 2.5)) if floor else _shape(name, -5, 5, (-3, 3))


def _linear(expression: Any, symbols: Sequence[Any]) -> list[Any]:
    chosen: list[Any] = []
    for s in symbols:
        slope = expression.diff(s)
        if slope != 0 and not slope.free_symbols & {s, *chosen}:
            chosen.append(s)
    return chosen


def _amplitudes(expression: Any, order: list[Any], linear: list[Any], x: Any) -> tuple[tuple[int, int, int], ...]:
    found = []
    for s in linear:
        base, power = expression.diff(s).as_base_exp()
        if base == 1 / x:
            base, power = x, -power
        for sign in (1, -1):
            if base == x and (sign * power) in order:
                found.append((order.index(s), order.index(sign * power), sign))
    return tuple(found)


def _survives_scaling(law: Law) -> bool:
    """Whether `restore` turns a fit over x/s into one over x (checked at arbitrary places)."""
    rng = np.random.default_rng(0)
    x = np.array([0.7, 1.9, 3.1])
    for scale in (1.7, 0.3):
        inner = rng.uniform(0.3, 0.9, len(law.parameters))
        outer = law.value(law.restore(inner, scale), x)
        if not np.allclose(outer, law.value(inner, x / scale), rtol=1e-9):
            return False
    return True
