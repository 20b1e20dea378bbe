"""E[max of N] of tail models, exactly: closed forms and one quadrature. N may be real and as large as 1e12."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from scaling.arrays import Floats
from scaling.errors import AnalysisError

NODES = 256
LOST = 50.0  # e^-50 of the maximum's mass may fall below the quadrature
BEYOND = 1e-18  # and this much above it
SHIFT = 32  # N is raised by this much before the asymptotic series of a Gamma ratio
NO_SHAPE = 1e-100  # a shape below this is 0: its exponential would be lost to denormal numbers
NEAR_EXPONENTIAL = 1e-2  # |xi| below which the peaks-over-threshold form is integrated, not subtracted
ROOT_TWO_PI = np.sqrt(2 * np.pi)
EULER = float(np.euler_gamma)


def _draws(n: float | Floats) -> Floats:
    """N as an array of floats >= 1."""
    values = np.asarray(n, dtype=float)
    if values.size and not (np.isfinite(values).all() and values.min() >= 1):
        raise AnalysisError(f"N = {values[~(values >= 1)].flat[0] if (~(values >= 1)).any() else np.inf:g} draws; "
                            "must be a finite number >= 1.")  # fmt: skip
    return values


@lru_cache(maxsize=4)
def _legendre(nodes: int) -> tuple[Floats, Floats]:
    """Gauss–Legendre nodes and weights on [0, 1]."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    return 0.5 * (x + 1), 0.5 * w


def normal_rule(n: float | Floats) -> tuple[Floats, Floats]:
    """Nodes z and weights w [..., 256] with E[h(max of N standard normals)] = sum w h(z), for each N [...].

    The density N phi(z) Phi(z)^(N-1) in logarithms, between the points below which e^-50 and above which 1e-18
    of its mass lies.
    """
    from scipy.special import log_ndtr, ndtri, ndtri_exp

    n = _draws(n)[..., None]
    low = ndtri_exp(-LOST / n)
    high = -ndtri(BEYOND / n)
    x, w = _legendre(NODES)
    z = low + (high - low) * x
    density = n * np.exp((n - 1) * log_ndtr(z) - 0.5 * z * z) / ROOT_TWO_PI
    return z, (high - low) * w * density


def normal_max(n: float | Floats) -> Floats:
    """E[max of N standard normals] [...]; error below 1e-13."""
    z, w = normal_rule(n)
    return np.asarray((z * w).sum(axis=-1))


def normal_max_sd(n: float | Floats) -> Floats:
    """Standard deviation of the maximum of N standard normals [...]."""
    z, w = normal_rule(n)
    centre = (z * w).sum(axis=-1, keepdims=True)
    return np.asarray(np.sqrt((w * (z - centre) ** 2).sum(axis=-1)))


def normal_max_median(n: float | Floats) -> Floats:
    """Median of the maximum of N standard normals [...]: the quantile 2^(-1/N)."""
    from scipy.special import ndtri_exp

    return np.asarray(ndtri_exp(-np.log(2) / _draws(n)))


def bend(g: float | Floats, z: Floats) -> Floats:
    """h_g(z) = (e^(gz) - 1) / g, and z at g = 0: a normal tail made heavier (g > 0) or lighter (g < 0)."""
    g = np.asarray(g, dtype=float)
    none = np.abs(g) < NO_SHAPE
    safe = np.where(none, 1.0, g)
    return np.where(none, z, np.expm1(safe * z) / safe)


def gtail_max(n: float | Floats, g: float | Floats) -> Floats:
    """E[h_g(max of N standard normals)], N and g broadcast together."""
    n, g = np.broadcast_arrays(_draws(n), np.asarray(g, dtype=float))
    z, w = normal_rule(n)
    return np.asarray((bend(g[..., None], z) * w).sum(axis=-1))


def lognormal_max(n: float | Floats, mu: float | Floats, sigma: float | Floats) -> Floats:
    """E[max of N] of exp(mu + sigma Z); shapes broadcast."""
    n, mu, sigma = np.broadcast_arrays(_draws(n), np.asarray(mu, dtype=float), np.asarray(sigma, dtype=float))
    return np.asarray(np.exp(mu) * (1 + sigma * gtail_max(n, sigma)))


def exponential_max(n: float | Floats) -> Floats:
    """E[max of N] of an exponential of mean 1: the harmonic number H_N."""
    from scipy.special import digamma

    return np.asarray(digamma(_draws(n) + 1) + EULER)


def gumbel_max(n: float | Floats) -> Floats:
    """E[max of N] of a standard Gumbel: ln N + gamma."""
    return np.asarray(np.log(_draws(n)) + EULER)


def logistic_max(n: float | Floats) -> Floats:
    """E[max of N] of a standard logistic: H_(N-1)."""
    from scipy.special import digamma

    return np.asarray(digamma(_draws(n)) + EULER)


def uniform_max(n: float | Floats) -> Floats:
    """E[max of N] of a uniform on (0, 1): N / (N + 1)."""
    n = _draws(n)
    return np.asarray(n / (n + 1))


def gpd_max(n: float | Floats, xi: float | Floats) -> Floats:
    """E[max of N] of a generalised Pareto with threshold 0, scale 1 and shape xi < 1 (positive: heavy).

    (Gamma(1-xi) Gamma(N+1) / Gamma(N+1-xi) - 1) / xi, and H_N at 0. Raises AnalysisError for xi >= 1: no mean.
    """
    n, xi = np.broadcast_arrays(_draws(n), np.asarray(xi, dtype=float))
    _has_mean(xi)
    none = np.abs(xi) < NO_SHAPE
    safe = np.where(none, 0.5, xi)
    return np.where(none, exponential_max(n), np.expm1(_log_front(n, safe)) / safe)


def pareto_max(n: float | Floats, alpha: float | Floats, smallest: float | Floats = 1.0) -> Floats:
    """E[max of N] of a Pareto with exponent alpha > 1 above `smallest`."""
    xi = 1 / np.asarray(alpha, dtype=float)
    return np.asarray(smallest * (1 + xi * gpd_max(n, xi)))


def weibull_max(n: float | Floats, shape: float | Floats) -> Floats:
    """E[max of N] of a Weibull of scale 1 and `shape` c > 0: E[(max of N exponentials)^(1/c)].

    Integrated over y = -log of the exceedance share s, s = e^-y: N (1 - e^-y)^(N-1) e^-y y^(1/c).
    """
    n, shape = np.broadcast_arrays(_draws(n), np.asarray(shape, dtype=float))
    return _exponential_integral(n, np.ones(n.shape), lambda y: y ** (1 / shape[..., None]))


def gpd_median(n: float | Floats, xi: float | Floats, share: float | Floats = 1.0) -> Floats:
    """Median of the max of N where a share lies above the threshold 0 and follows a GPD of scale 1; any xi."""
    n, xi, share = np.broadcast_arrays(_draws(n), np.asarray(xi, dtype=float), np.asarray(share, dtype=float))
    y = np.log(share / -np.expm1(-np.log(2) / n))
    return np.asarray(bend(xi, y))


def peaks_max(n: float | Floats, xi: float | Floats, share: float | Floats) -> Floats:
    """E[(max of N - u)+] where a share p of the mass lies above u and follows a GPD of scale 1 and shape xi < 1.

    (p^xi N B(1-xi, N) I_p(1-xi, N) - (1 - (1-p)^N)) / xi, near xi = 0 by quadrature. Add u and the loss below it
    (`loss_below`) for E[max of N].
    """
    from scipy.special import betainc

    n, xi, share = np.broadcast_arrays(_draws(n), np.asarray(xi, dtype=float), np.asarray(share, dtype=float))
    _has_mean(xi)
    near = np.abs(xi) < NEAR_EXPONENTIAL
    out = np.empty(xi.shape)
    m, x, p = n[~near], xi[~near], share[~near]
    whole = np.where(p == 1, 1.0, betainc(1 - x, m, p))
    with np.errstate(divide="ignore"):
        hit = -np.expm1(m * np.log1p(-p))
    out[~near] = (np.exp(x * np.log(p) + _log_front(m, x)) * whole - hit) / x
    if near.any():
        shape = xi[near][..., None]
        out[near] = _exponential_integral(n[near], share[near], lambda y: bend(shape, y))
    return out


def loss_below(ordered: Floats, count: int, n: Floats) -> Floats:
    """E[(u - max of N)+] [g, m] for N [m] under the empirical distribution below u.

    `ordered` [g, n] ascending samples; u = x_(count), the largest that does not exceed the threshold.
    """
    share = np.arange(1, count) / ordered.shape[1]
    with np.errstate(under="ignore"):
        return np.asarray(np.diff(ordered[:, :count], axis=1) @ share[:, None] ** np.asarray(n, dtype=float))


def _exponential_integral(n: Floats, share: Floats, value: Callable[[Floats], Floats]) -> Floats:
    """Integral of value(y) N (1 - p e^-y)^(N-1) p e^-y over y >= 0; n and share of one shape."""
    x, w = _legendre(2 * NODES)
    n, share = n[..., None], share[..., None]
    top = np.log(np.maximum(n * share, 1.0)) + 45.0
    # Square spacing: y^(1/c) has a root at 0.
    y = top * x * x
    chance = share * np.exp(-y)
    with np.errstate(divide="ignore", under="ignore"):
        missed = np.where(n == 1, 0.0, (n - 1) * np.log1p(-chance))
    density = n * chance * np.exp(missed)
    return np.asarray((value(y) * density * w * 2 * x * top).sum(axis=-1))


def _has_mean(xi: Floats) -> None:
    if xi.size and xi.max() >= 1:
        raise AnalysisError(f"The fitted tail (xi = {xi.max():.3g}) has no mean; ask for the median of the maximum.")


def _log_front(n: Floats, xi: Floats) -> Floats:
    """log of Gamma(1-xi) Gamma(N+1) / Gamma(N+1-xi), to a relative error even where xi is tiny."""
    from scipy.special import gammaln, zeta

    small = np.abs(xi) < 1e-2
    series = EULER * xi + sum(zeta(j) * xi**j / j for j in range(2, 10))
    front = np.where(small, series, gammaln(1 - np.where(small, 0.0, xi)))
    return np.asarray(front + _log_gamma_ratio(n, xi))


def _log_gamma_ratio(n: Floats, xi: Floats) -> Floats:
    """log Gamma(N+1) / Gamma(N+1-xi) without the cancellation of two log-Gammas.

    Stirling's series around the middle w of both arguments, where even powers of 1/w cancel, from N + 32 on;
    the way there by the recurrence.
    """
    s = xi / 2
    w = n + SHIFT + 0.5 - s
    odd3 = s**3 - s / 4
    odd5 = s**5 - 5 * s**3 / 6 + 7 * s / 48
    odd7 = s**7 - 7 * s**5 / 4 + 49 * s**3 / 48 - 31 * s / 192
    out = xi * np.log(w) - odd3 / (3 * w**2) - odd5 / (10 * w**4) - odd7 / (21 * w**6)
    for i in range(1, SHIFT + 1):
        out = out + np.log1p(-xi / (n + i))
    return np.asarray(out)
