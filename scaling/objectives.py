"""What a fit minimises: the sum over rows of a function rho of the residual r = scale * (g(law) - g(y))."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from scaling.arrays import Bools, Floats

Name = Literal["huber", "l2", "lad", "student", "envelope", "censored", "binomial"]
Residual = Literal["log", "linear", "logit"]

STUDENT_NU = 4.0
ENVELOPE_PENALTY = 10.0


@dataclass(frozen=True)
class Objective:
    """Sum over rows of rho(r), with r in the logarithm, the value itself or the logit of the response.

    name       rho(r)                                          constants
    huber      r^2/2 within delta, delta (|r| - delta/2) beyond   delta; None: chosen from the residuals
    l2         r^2/2
    lad        |r|
    student    sigma^2 (nu + 1)/2 log(1 + r^2/(nu sigma^2))    nu; sigma is profiled
    envelope   huber, times `penalty` where the law is above    penalty, delta
    censored   l2 with -sigma^2 log Phi(r/sigma) for rows whose value is only a lower bound; sigma is profiled
    binomial   -trials (y log p + (1 - y) log(1 - p)), p the law
    """

    name: Name = "huber"
    residual: Residual = "log"
    delta: float | None = None
    nu: float = STUDENT_NU
    penalty: float = ENVELOPE_PENALTY
    sigma: float | None = None

    def to_json(self) -> dict[str, float | str]:
        """Name, residual and the constants that this objective has."""
        used = {"huber": ("delta",), "student": ("nu", "sigma"), "envelope": ("delta", "penalty"),
                "censored": ("sigma",)}.get(self.name, ())  # fmt: skip
        constants = {k: getattr(self, k) for k in used}
        return {"name": self.name, "residual": self.residual} | {k: v for k, v in constants.items() if v is not None}


class Parts(NamedTuple):
    """rho, its first two derivatives in r, and the curvature of the parabola that touches rho from above at r."""

    rho: Floats
    psi: Floats
    bend: Floats
    touching: Floats


def parts(objective: Objective, r: Floats, censored: Bools | None = None, y: Floats | None = None) -> Parts:
    """rho and derivatives at residuals r; `y` are the observed shares of a binomial objective, whose r is a logit."""
    if objective.name == "binomial":
        assert y is not None
        return _binomial(r, y)
    found = _symmetric(objective, r)
    if objective.name == "envelope":
        factor = np.where(r > 0, objective.penalty, 1.0)
        steepest = max(1.0, objective.penalty)
        return Parts(found.rho * factor, found.psi * factor, found.bend * factor, found.touching * steepest)
    if objective.name == "censored" and censored is not None:
        bound = _bound(r, objective.sigma or 1.0)
        return Parts(*(np.where(censored, b, f) for b, f in zip(bound, found, strict=True)))
    return found


def _symmetric(objective: Objective, r: Floats) -> Parts:
    size = np.abs(r)
    if objective.name in ("l2", "censored"):
        one = np.ones_like(r)
        return Parts(0.5 * r * r, r, one, one)
    if objective.name == "student":
        assert objective.sigma is not None
        return _student(r, objective.nu, objective.sigma)
    delta = np.inf if objective.delta is None else objective.delta
    inside = size <= delta
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        near = np.minimum(size, delta)
        return Parts(
            near * (size - 0.5 * near),
            np.copysign(near, r),
            inside.astype(float),
            np.where(inside, 1.0, delta / size),
        )


def _student(r: Floats, nu: float, sigma: float) -> Parts:
    with np.errstate(invalid="ignore", over="ignore"):  # an infinite residual is a law outside its domain
        t = r * r / (nu * sigma**2)
        weight = (nu + 1) / nu / (1 + t)
        return Parts(0.5 * (nu + 1) * sigma**2 * np.log1p(t), weight * r, weight * (1 - t) / (1 + t), weight)


def _bound(r: Floats, sigma: float) -> Parts:
    """-sigma^2 log Phi(r/sigma): the truth is above the value that was seen."""
    from scipy.special import log_ndtr

    z = r / sigma
    with np.errstate(invalid="ignore", over="ignore"):
        log_phi = log_ndtr(z)
        mills = np.exp(-0.5 * z * z - 0.5 * np.log(2 * np.pi) - log_phi)
        bend = mills * (z + mills)
    return Parts(-(sigma**2) * log_phi, -sigma * mills, bend, np.ones_like(r))


def _binomial(logit: Floats, y: Floats) -> Parts:
    """Cross entropy of shares y against p = 1/(1 + exp(-logit)), less the entropy of y, per trial."""
    from scipy.special import expit, xlogy

    p = expit(logit)
    entropy = xlogy(y, y) + xlogy(1 - y, 1 - y)
    bend = p * (1 - p)
    with np.errstate(invalid="ignore"):  # an infinite logit is a law outside its domain
        cross = np.logaddexp(0, logit) - y * logit
    return Parts(cross + entropy, p - y, bend, np.full_like(bend, 0.25))


def linked(residual: Residual, value: Floats) -> Floats:
    """g of a response or of a law's value: log, identity or logit; NaN outside its domain."""
    with np.errstate(all="ignore"):
        if residual == "log":
            return np.asarray(np.log(value))
        return np.asarray(np.log(value / (1 - value))) if residual == "logit" else value


def link_slopes(residual: Residual, value: Floats) -> tuple[Floats | float, Floats | float]:
    """First and second derivative of g at `value`."""
    with np.errstate(all="ignore"):
        if residual == "log":
            return 1 / value, -1 / value**2
        if residual == "logit":
            slope = 1 / (value * (1 - value))
            return slope, (2 * value - 1) * slope**2
    return 1.0, 0.0


def unlinked(residual: Residual, eta: Floats) -> Floats:
    """The inverse of g."""
    if residual == "log":
        return np.asarray(np.exp(eta))
    return np.asarray(1 / (1 + np.exp(-eta))) if residual == "logit" else eta
