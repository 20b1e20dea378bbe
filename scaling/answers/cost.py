"""What a place costs: an expression over the inputs of a law, as a function of their logarithms."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from scaling.arrays import Bools, Floats
from scaling.errors import AnalysisError, nearest
from scaling.formula import parse_formula
from scaling.laws import Law

TRAINING = "6*n_params*tokens"  # Kaplan et al. 2020 (arXiv 2001.08361), section 2.1


@dataclass(frozen=True)
class Cost:
    """A cost over the inputs of a law: `text`, such as "6*n_params*tokens + 2*n_params*1e12", in a unit of its own."""

    text: str
    inputs: tuple[str, ...]

    @cached_property
    def _expression(self) -> Any:
        return parse_formula(self.text)

    @cached_property
    def used(self) -> Bools:
        """Which inputs the cost depends on [d]."""
        names = {s.name for s in self._expression.free_symbols}
        return np.array([name in names for name in self.inputs])

    @cached_property
    def powers(self) -> tuple[float, Floats] | None:
        """(log k, exponents [d]) of a cost k prod x_i^p_i; None for any other."""
        factor, rest = self._expression.as_coeff_Mul()
        powers = {base: power for base, power in rest.as_powers_dict().items() if base != 1}
        plain = all(base.is_Symbol and power.is_number for base, power in powers.items())
        if not plain or not factor > 0:
            return None
        named = {base.name: float(power) for base, power in powers.items()}
        return float(np.log(float(factor))), np.array([named.get(name, 0.0) for name in self.inputs])

    @cached_property
    def _compiled(self) -> Callable[..., list[Any]]:
        import sympy

        from scaling.special import numbers

        symbols = [sympy.Symbol(name, real=True) for name in self.inputs]
        parts = [self._expression, *(self._expression.diff(s) for s in symbols)]
        made: Callable[..., list[Any]] = sympy.lambdify(symbols, parts, modules=[numbers(), "scipy", "numpy"], cse=True)
        return made

    def at(self, x: Floats) -> Floats:
        """The cost [...] of places x [d, ...]."""
        x = np.asarray(x, dtype=float)
        with np.errstate(all="ignore"):
            return np.asarray(self._compiled(*x)[0] + np.zeros(x.shape[1:]))

    def value(self, u: Floats) -> Floats:
        """log cost [...] at logarithms u [d, ...]; -inf where it isn't positive."""
        with np.errstate(all="ignore"):
            cost = self.at(np.exp(u))
            return np.asarray(np.where(cost > 0, np.log(cost), -np.inf))

    def slopes(self, u: Floats) -> Floats:
        """d log cost / d log x_i [d, ...]."""
        x = np.exp(u)
        with np.errstate(all="ignore"):
            cost, *slopes = self._compiled(*x)
            return np.array([np.broadcast_to(x[i] * s / cost, u.shape[1:]) for i, s in enumerate(slopes)])


def cost_over(law: Law, text: str | None) -> Cost:
    """The cost `text` over the inputs of `law`; by default 6 N D, or the one input of a law that has one.

    Raises AnalysisError for an expression that can't be read, names no input or something else, and where there is
    no default.
    """
    if text is None:
        if {"n_params", "tokens"} <= set(law.inputs):
            text = TRAINING
        elif len(law.inputs) == 1:
            text = law.axis
        else:
            raise AnalysisError(
                f"{law.name} over {law.over}: give a cost over these inputs, such as {_example(law)!r}."
            )
    return _cost(text, law.inputs)


def _example(law: Law) -> str:
    return "*".join(law.inputs[:2])


@lru_cache(maxsize=64)
def _cost(text: str, inputs: Sequence[str]) -> Cost:
    try:
        names = {s.name for s in parse_formula(text).free_symbols}
    except AnalysisError as error:
        raise AnalysisError(re.sub(r"\blaw\b", "cost", str(error))) from None
    for name in sorted(names - set(inputs)):
        raise AnalysisError(f"cost {text!r}: {name!r} is no input of the law.{nearest(name, inputs)}")
    if not names:
        raise AnalysisError(f"cost {text!r} uses none of the inputs {', '.join(inputs)}.")
    return Cost(text, tuple(inputs))
