"""Functions of law formulas that SymPy lacks, with their derivatives and their numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from scaling.arrays import Floats


def function(name: str) -> Callable[..., Any]:
    """The SymPy function of one of the names `softplus`, `harmonic`, `normal_max`, `log_rising`."""
    plain: dict[str, Callable[..., Any]] = {"harmonic": _harmonic, "log_rising": _log_rising}
    return plain[name] if name in plain else _classes()[name]


def _harmonic(n: Any) -> Any:
    import sympy

    return sympy.digamma(n + 1) + sympy.EulerGamma


def _log_rising(n: Any, a: Any) -> Any:
    import sympy

    return sympy.loggamma(n + 1) + sympy.loggamma(1 - a) - sympy.loggamma(n + 1 - a)


@cache
def _classes() -> dict[str, Any]:
    import sympy

    class expit(sympy.Function):  # type: ignore[misc]
        nargs = 1

        def fdiff(self, argindex: int = 1) -> Any:
            assert argindex == 1
            return self * (1 - self)

    class softplus(sympy.Function):  # type: ignore[misc]
        nargs = 1

        def fdiff(self, argindex: int = 1) -> Any:
            assert argindex == 1
            return expit(self.args[0])

    class normal_max_slope(sympy.Function):  # type: ignore[misc]
        nargs = 1

    class normal_max(sympy.Function):  # type: ignore[misc]
        nargs = 1

        def fdiff(self, argindex: int = 1) -> Any:
            assert argindex == 1
            return normal_max_slope(self.args[0])

    for made in (softplus, normal_max):
        made.is_real = True
    return {"softplus": softplus, "normal_max": normal_max}


def _normal_max(n: Floats) -> Floats:
    from scaling.tails.models import normal_max

    return _from_one_draw(normal_max, n)


def _normal_max_slope(n: Floats) -> Floats:
    """d E[max of n standard normals] / dn."""
    from scipy.special import log_ndtr

    from scaling.tails.models import normal_rule

    def slope(count: Floats) -> Floats:
        z, w = normal_rule(count)
        return np.asarray((w * z * (1 / count[..., None] + log_ndtr(z))).sum(-1))

    return _from_one_draw(slope, n)


def _from_one_draw(function: Callable[[Floats], Floats], n: Floats) -> Floats:
    """NaN below one draw; exp(log 1) counts as 1."""
    return np.asarray(np.where(n > 1 - 1e-9, function(np.maximum(np.asarray(n, dtype=float), 1.0)), np.nan))


def numbers() -> dict[str, Callable[..., Any]]:
    """What the functions' names stand for in compiled code."""
    from scipy.special import expit

    return {
        "softplus": lambda x: np.logaddexp(0, x),
        "expit": expit,
        "normal_max": _normal_max,
        "normal_max_slope": _normal_max_slope,
    }
