"""Laws that are sums of one power per input, under a cost that is a product of powers: the optimum in closed form.

y = E + sum_j A_j x_j^-g_j, C = k prod_j x_j^p_j. With S = sum_j p_j / g_j, Lagrange's condition
A_j g_j x_j^-g_j = p_j mu holds for all j, so that x_j = (A_j g_j / (p_j mu))^(1 / g_j) and y* = E + S mu with
log mu = (sum_j p_j / g_j log(A_j g_j / p_j) - log(C / k)) / S. For N, D and C = 6 N D these are equations 4 of
Hoffmann et al. 2022 (arXiv 2203.15556).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from scaling.arrays import Bools, Floats
from scaling.formula import parse_formula
from scaling.laws import Law


@dataclass(frozen=True)
class Powers:
    """The terms of a law for b sets of parameters: floor [b], log amplitudes and exponents [d, b] of each input."""

    floor: Floats
    log_amplitude: Floats
    exponent: Floats

    def held(self, u: Floats, free: Bools) -> Floats:
        """The floor [b] that free inputs can reach, the others being at logarithms u [d, b]."""
        terms = np.exp(self.log_amplitude[~free] - self.exponent[~free] * u[~free])
        return np.asarray(self.floor + terms.sum(axis=0))

    @property
    def vanished(self) -> Bools:
        """Which terms are no terms [d, b]."""
        return np.asarray(np.isneginf(self.log_amplitude))

    def lagrange(self, free: Bools, powers: Floats) -> tuple[Floats, Floats]:
        """S [b] and sum_j p_j / g_j log(A_j g_j / p_j) [b] over the free inputs; `powers` [d] are those of the cost."""
        p = powers[free, None]
        with np.errstate(all="ignore"):
            weight = p / self.exponent[free]
            drive = self.log_amplitude[free] + np.log(self.exponent[free] / p)
        return weight.sum(axis=0), (weight * drive).sum(axis=0)

    def place(self, free: Bools, powers: Floats, log_mu: Floats) -> Floats:
        """Logarithms [m, b] of the free inputs at the multiplier mu [b]."""
        with np.errstate(all="ignore"):
            drive = self.log_amplitude[free] + np.log(self.exponent[free] / powers[free, None])
            return np.asarray((drive - log_mu) / self.exponent[free])


@lru_cache(maxsize=64)
def _compiled(text: str, fixed: tuple[tuple[str, float], ...], names: tuple[str, ...], inputs: tuple[str, ...]) -> Any:
    """(floor, amplitude and exponent of each input) as a function of the parameters; None: no such sum."""
    import sympy

    values = {sympy.Symbol(k, real=True): sympy.Float(v, 20) for k, v in fixed}
    expression = sympy.expand(parse_formula(text).subs(values))
    symbols = [sympy.Symbol(name, real=True) for name in inputs]
    parts: dict[Any, tuple[Any, Any]] = {}
    floor = sympy.Integer(0)
    for term in sympy.Add.make_args(expression):
        inside = [s for s in symbols if term.has(s)]
        if not inside:
            floor += term
            continue
        amplitude, power = term.as_independent(*inside, as_Add=False)
        base, exponent = power.as_base_exp()
        if len(inside) > 1 or base != inside[0] or inside[0] in parts or exponent.has(*inside):
            return None
        parts[inside[0]] = (amplitude, -exponent)
    if set(parts) != set(symbols):
        return None
    wanted = [floor, *(parts[s][0] for s in symbols), *(parts[s][1] for s in symbols)]
    return sympy.lambdify([sympy.Symbol(n, real=True) for n in names], wanted, modules="numpy")


def powers_of(law: Law, parameters: Floats) -> Powers | None:
    """The terms of `law` at `parameters` [b, p]; None where it is no sum of falling powers."""
    compiled: Callable[..., list[Any]] | None = _compiled(law.text, law.fixed, law.names, law.inputs)
    if compiled is None:
        return None
    floor, *rest = (np.broadcast_to(part, len(parameters)) for part in compiled(*parameters.T))
    amplitude, exponent = np.array(rest).reshape(2, len(law.inputs), -1)
    if np.any(amplitude < 0) or np.any(exponent < 0):
        return None
    flat = exponent == 0
    with np.errstate(divide="ignore"):
        log_amplitude = np.log(np.where(flat, 0.0, amplitude))
    return Powers(floor + np.where(flat, amplitude, 0.0).sum(axis=0), log_amplitude, exponent)
