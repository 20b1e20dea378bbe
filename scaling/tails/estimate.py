"""Fits of tail models to batches of ascending samples [g, m]: likelihood, moments, probability-weighted moments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scaling.arrays import Bools, Floats, Ints
from scaling.tails.models import bend

STEPS = 60  # of a Newton iteration
CLOSE = 1e-9  # expected gain in log likelihood below which a fit has converged
CHUNK = 1 << 17  # values worked on at a time
FLAT = 1e-8  # a bend of 0 is computed as this
END_ROOM = 0.87  # a start puts the end of a bent tail 15 % beyond the last sample
ZS_PRIOR, ZS_WEIGHT = -0.15, 10.0  # shape of a lone GPD tail and its weight in samples

Kernel = Callable[[Floats, Floats], tuple[Floats, Floats, Floats]]
"""(t, shape [f, 1]) -> f(t), f'(t), f''(t)."""


@dataclass(frozen=True)
class Located:
    """Fits of t = h y + d, one a row: eta = log h [f], d [f], log likelihood [f] and whether it converged [f]."""

    eta: Floats
    d: Floats
    loglik: Floats
    converged: Bools


def exceedances(ordered: Floats, count: int) -> tuple[Floats, Floats, Floats]:
    """The top `count` of each row as (x - u) / s with u the smallest of them; y [g, count], u [g], s [g]."""
    top = ordered[:, -count:]
    u = top[:, 0]
    s = top.std(axis=1)
    s = np.where(s > 0, s, 1.0)
    return (top - u[:, None]) / s[:, None], u, s


def _below_normal(z: Floats) -> tuple[Floats, Floats, Floats]:
    """log Phi(z) and its two derivatives."""
    from scipy.special import log_ndtr

    value = log_ndtr(z)
    ratio = np.exp(-0.5 * z * z - 0.5 * np.log(2 * np.pi) - value)
    return value, ratio, -ratio * (z + ratio)


def censored_normal(ordered: Floats, count: int) -> Floats:
    """Mean and standard deviation [g, 2] of the normal whose top `count` of m samples these are (Type-II censored).

    Maximum likelihood in Olsen's form z = h y + d (concave; Olsen 1978): h follows from d in closed form, d by
    Newton. Exact for count = m, too.
    """
    y, u, s = exceedances(ordered, count)
    m = ordered.shape[1]
    censored = m - count
    first, second = y.sum(axis=1), np.maximum((y * y).sum(axis=1), 1e-300)
    if censored == 0:
        mean, variance = first / m, second / m - (first / m) ** 2
        return np.stack([u + s * mean, s * np.sqrt(np.maximum(variance, 0))], axis=1)
    from scipy.special import ndtri

    d = np.full(len(y), float(ndtri(censored / m)))
    h = np.ones_like(d)
    for _ in range(STEPS):
        root = np.sqrt((d * first) ** 2 + 4 * count * second)
        h = (root - d * first) / (2 * second)
        _, ratio, curve = _below_normal(d)
        gradient = -h * first - count * d + censored * ratio
        slope = h * first**2 / root - count + censored * curve
        step = np.clip(-gradient / slope, -2.0, 2.0)
        d = d + step
        if np.abs(step).max(initial=0.0) < 1e-12:
            break
    h = (np.sqrt((d * first) ** 2 + 4 * count * second) - d * first) / (2 * second)
    return np.stack([u - s * d / h, s / h], axis=1)


def rounded_normal(ordered: Floats, count: int, step: float) -> Floats:
    """As censored_normal [g, 2], for rewards on a grid: each x stands for [x - step/2, x + step/2]."""
    y, u, s = exceedances(ordered, count)
    half = (step / 2 / s)[:, None]
    low, high = y - half, y + half
    first = (y == 0).sum(axis=1)  # the threshold's own value: those below it are known to lie under its upper end
    tied = (ordered == u[:, None]).sum(axis=1) - first
    censored = (ordered.shape[1] - count) - tied
    start = censored_normal(ordered, count)
    eta, d = np.log(s / start[:, 1]), (u - start[:, 0]) / start[:, 1]

    def score(eta: Floats, d: Floats, rows: Ints) -> tuple[Floats, Floats, Floats]:
        h = np.exp(eta)[:, None]
        a, b = h * low[rows] + d[:, None], h * high[rows] + d[:, None]
        inside, fa, fb = _log_between(a, b)
        edge = h[:, 0] * low[rows, 0] + d
        value, ratio, curve = _below_normal(edge)
        weight = np.ones_like(a)
        weight[:, 0] += tied[rows]
        r = censored[rows]
        # With p = phi(b)/P, q = phi(a)/P: the gradient of log P in (a, b) is (-q, p).
        qa, qb = weight * -fa, weight * fb
        da, db = h * low[rows], h * high[rows]
        aa = weight * (fa * a - fa * fa)
        bb = weight * (-fb * b - fb * fb)
        ab = weight * fa * fb
        cut = h[:, 0] * low[rows, 0]
        loglik = (weight * inside).sum(axis=1) + r * value
        slope_eta = (qa * da + qb * db).sum(axis=1)
        gradient = np.stack([slope_eta + r * ratio * cut, (qa + qb).sum(axis=1) + r * ratio], axis=1)
        ee = slope_eta + (aa * da * da + bb * db * db + 2 * ab * da * db).sum(axis=1) + r * (curve * cut + ratio) * cut
        ed = (aa * da + bb * db + ab * (da + db)).sum(axis=1) + r * curve * cut
        dd = (aa + bb + 2 * ab).sum(axis=1) + r * curve
        return loglik, gradient, np.stack([ee, ed, dd], axis=1)

    found = _ascend(eta, d, score)
    sigma = s * np.exp(-found.eta)
    return np.stack([u - found.d * sigma, sigma], axis=1)


def _log_between(a: Floats, b: Floats) -> tuple[Floats, Floats, Floats]:
    """log(Phi(b) - Phi(a)), phi(a) and phi(b) over that difference; stable in the upper tail."""
    from scipy.special import log_ndtr

    upper = a + b > 0
    low, high = np.where(upper, -b, a), np.where(upper, -a, b)
    top = log_ndtr(high)
    value = top + np.log(-np.expm1(np.minimum(log_ndtr(low) - top, -1e-300)))
    root = 0.5 * np.log(2 * np.pi)
    return value, np.exp(-0.5 * a * a - root - value), np.exp(-0.5 * b * b - root - value)


def top_moments(ordered: Floats, q: float = 0.2) -> Floats:
    """Mean and standard deviation [g, 2] of the normal whose top share q these samples have (Li, Qian, Mou 2026).

    From mean and variance of the samples not below the empirical (1-q)-quantile: arXiv 2602.01485, Algorithm 1.
    """
    from scipy.special import ndtri

    m = ordered.shape[1]
    count = m - int(np.ceil((1 - q) * (m - 1) - 1e-9))
    top = ordered[:, -count:]
    z = float(ndtri(1 - q))
    shift = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) / q
    sigma = np.sqrt(top.var(axis=1, ddof=1) / (1 + z * shift - shift**2))
    return np.stack([top.mean(axis=1) - sigma * shift, sigma], axis=1)


def gtail_profile(ordered: Floats, count: int, shapes: Floats) -> tuple[Floats, Floats]:
    """Log likelihood [s, g] and (a, b) [s, g, 2] of x = a + b h_g(z), z standard normal, at each shape g [s].

    The top `count` of m samples, the rest known to lie below (Type-II censored).
    """
    m = ordered.shape[1]
    shapes = np.where(np.abs(shapes) < FLAT, FLAT, shapes)
    loglik = np.empty((len(shapes), len(ordered)))
    params = np.empty((*loglik.shape, 2))
    z = _plotting(m, count)
    for rows in _chunks(len(ordered), count * len(shapes)):
        y, u, s = exceedances(ordered[rows], count)
        group = np.tile(np.arange(len(y)), len(shapes))
        g = np.repeat(shapes, len(y))
        start = _start(y[group], z, g)
        found = located(y, m - count, group, start, (_bent, _bent_below), shape=g)
        b = s[group] * np.exp(-found.eta)
        shape = (len(shapes), len(y))
        loglik[:, rows] = (found.loglik - count * np.log(s[group])).reshape(shape)
        params[:, rows, 0] = (u[group] - found.d * b).reshape(shape)
        params[:, rows, 1] = b.reshape(shape)
    return loglik, params


def _plotting(m: int, count: int) -> Floats:
    """Expected normal scores [count] of the top order statistics (Blom)."""
    from scipy.special import ndtri

    return np.asarray(ndtri((np.arange(m - count + 1, m + 1) - 0.375) / (m + 0.25)))


def _start(y: Floats, z: Floats, g: Floats) -> tuple[Floats, Floats]:
    """Least squares of y on h_g(z), pulled in until every sample lies inside the tail's end."""
    t = bend(g[:, None], z[None, :])
    centred = t - t.mean(axis=1, keepdims=True)
    scale = (centred * y).sum(axis=1) / (centred**2).sum(axis=1)
    h = 1 / np.maximum(scale, 1e-12)
    centre, middle = t.mean(axis=1), y.mean(axis=1)
    # t = h (y - middle) + centre must keep 1 + g t > 0 at both ends.
    room = np.where(g < 0, (-1 / g - centre) / np.maximum(y[:, -1] - middle, 1e-12),
                    (centre + 1 / g) / np.maximum(middle - y[:, 0], 1e-12))  # fmt: skip
    h = np.minimum(h, END_ROOM * np.maximum(room, 1e-12))
    return np.log(h), centre - h * middle


def _bent(t: Floats, g: Floats) -> tuple[Floats, Floats, Floats]:
    """log density of h_g(Z) at t, without its constant, and its derivatives."""
    w = 1 + g * t
    outside = w <= 0
    w = np.where(outside, 1.0, w)
    z = np.log(w) / g if np.abs(g).min() > 0.01 else np.log1p(g * np.where(outside, 0.0, t)) / g
    inverse = 1 / w
    lean = z + g
    value = np.where(outside, -np.inf, -0.5 * z * (z + 2 * g))
    return value, -lean * inverse, (g * lean - 1) * inverse * inverse


def _bent_below(t: Floats, g: Floats) -> tuple[Floats, Floats, Floats]:
    """log of the chance that h_g(Z) lies below t, and its derivatives."""
    w = 1 + g * t
    outside = w <= 0
    w = np.where(outside, 1.0, w)
    z = np.log1p(g * np.where(outside, 0.0, t)) / g
    value, first, second = _below_normal(z)
    return np.where(outside, -np.inf, value), first / w, (second - g * first) / (w * w)


def censored_weibull(ordered: Floats, count: int) -> Floats:
    """Scale and shape [g, 2] of the Weibull whose top `count` of m positive samples these are."""
    y, u, s = exceedances(np.log(ordered[:, -count:]), count)
    m = ordered.shape[1]
    z = np.log(-np.log1p(-(np.arange(m - count + 1, m + 1) - 0.375) / (m + 0.25)))
    centred = z - z.mean()
    h = (centred**2).sum() / np.maximum((y * centred).sum(axis=1), 1e-12)
    group = np.arange(len(y))
    d = z.mean() - h * y.mean(axis=1)
    found = located(y, m - count, group, (np.log(h), d), (_gumbel_low, _gumbel_low_below), shape=np.zeros(len(y)))
    shape = np.exp(found.eta) / s
    return np.stack([np.exp(u - found.d / shape), shape], axis=1)


def _gumbel_low(t: Floats, _: Floats) -> tuple[Floats, Floats, Floats]:
    """log density of the log of an exponential at t, and its derivatives."""
    rate = np.exp(np.minimum(t, 700.0))
    return t - rate, 1 - rate, -rate


def _gumbel_low_below(t: Floats, _: Floats) -> tuple[Floats, Floats, Floats]:
    rate = np.clip(np.exp(np.minimum(t, 6.0)), 1e-300, 400.0)
    odds = np.expm1(rate)
    first = rate / odds
    return np.log(-np.expm1(-rate)), first, first * (1 - rate - first)


def located(
    y: Floats,
    censored: int,
    group: Ints,
    start: tuple[Floats, Floats],
    kernels: tuple[Kernel, Kernel],
    *,
    shape: Floats,
) -> Located:
    """Maximises sum f(h y + d) + k log h + censored F(d) over eta = log h and d, one fit for each entry of `group`.

    `kernels` are f and F with their derivatives, `start` is (eta, d), both [f].
    y [g, k] with y[:, 0] = 0; `group` [f] names the row of y a fit is of, `shape` [f] its fixed shape.
    """
    count = y.shape[1]
    kernel, below = kernels

    def score(eta: Floats, d: Floats, rows: Ints) -> tuple[Floats, Floats, Floats]:
        lifted = np.exp(eta)[:, None] * y[group[rows]]
        value, first, second = kernel(lifted + d[:, None], shape[rows, None])
        under, pull, curve = below(d, shape[rows])
        slope = first * lifted
        bent = second * lifted
        loglik = value.sum(axis=1) + count * eta + censored * under
        total = slope.sum(axis=1)
        gradient = np.stack([total + count, first.sum(axis=1) + censored * pull], axis=1)
        hessian = np.stack(
            [total + (bent * lifted).sum(axis=1), bent.sum(axis=1), second.sum(axis=1) + censored * curve], axis=1
        )
        return loglik, gradient, hessian

    return _ascend(*start, score)


def _ascend(eta: Floats, d: Floats, score: Callable[[Floats, Floats, Ints], tuple[Floats, Floats, Floats]]) -> Located:
    """Damped Newton on two parameters a fit: a step counts when it raises the log likelihood.

    `score` gives log likelihood [f], gradient [f, 2] and Hessian (ee, ed, dd) [f, 3] of the given rows.
    """
    eta, d = eta.copy(), d.copy()
    rows = np.arange(len(eta))
    best, converged = np.full(len(eta), -np.inf), np.zeros(len(eta), dtype=bool)
    damping = np.full(len(eta), 1e-3)
    value, gradient, hessian = score(eta, d, rows)
    best[rows] = value
    for _ in range(STEPS):
        step, gain = _newton(gradient, hessian, damping[rows])
        done = (gain >= 0) & (gain < CLOSE)
        converged[rows[done]] = True
        keep = ~done
        rows, step, gradient, hessian, gain = rows[keep], step[keep], gradient[keep], hessian[keep], gain[keep]
        if not len(rows):
            break
        e, c = eta[rows] + step[:, 0], d[rows] + step[:, 1]
        with np.errstate(all="ignore"):
            value, slope, curve = score(e, c, rows)
        better = (gain >= 0) & (value >= best[rows])
        moved = rows[better]
        eta[moved], d[moved], best[moved] = e[better], c[better], value[better]
        gradient[better], hessian[better] = slope[better], curve[better]
        damping[rows] = np.where(better, damping[rows] * 0.1, np.maximum(damping[rows] * 10, 1e-2))
        stuck = damping[rows] > 1e12
        converged[rows[stuck]] = gain[stuck] < 1e-6
        if stuck.any():
            rows, gradient, hessian = rows[~stuck], gradient[~stuck], hessian[~stuck]
    return Located(eta, d, best, converged)


def _newton(gradient: Floats, hessian: Floats, damping: Floats) -> tuple[Floats, Floats]:
    """Steps [f, 2] and the gain they promise [f]; -1 where the damped curvature is not that of a maximum."""
    ee, ed, dd = -hessian.T
    ee, dd = ee + damping * np.abs(ee) + 1e-300, dd + damping * np.abs(dd) + 1e-300
    determinant = ee * dd - ed * ed
    good = (determinant > 0) & (ee > 0)
    safe = np.where(good, determinant, 1.0)
    a, b = gradient.T
    step = np.stack([(dd * a - ed * b) / safe, (ee * b - ed * a) / safe], axis=1)
    step[:, 0] = np.clip(step[:, 0], -1.5, 1.5)
    gain = (step * gradient).sum(axis=1)
    return np.where(good[:, None], step, 0.0), np.where(good, gain, -1.0)


def over_threshold(ordered: Floats, count: int) -> tuple[Floats, Floats]:
    """Excesses [g, count] over u [g], the largest sample below them (the smallest itself at count = m)."""
    m = ordered.shape[1]
    u = ordered[:, m - count - 1] if count < m else ordered[:, 0]
    return ordered[:, -count:] - u[:, None], u


def mean_excess(ordered: Floats, count: int) -> Floats:
    """Threshold and scale [g, 2] of an exponential tail by likelihood."""
    y, u = over_threshold(ordered, count)
    return np.stack([u, y.mean(axis=1)], axis=1)


def gpd_profile(ordered: Floats, count: int, shapes: Floats) -> tuple[Floats, Floats]:
    """Log likelihood [s, g] and (u, sigma) [s, g, 2] of a generalised Pareto tail at each shape xi > -1 [s].

    Concave in log sigma at fixed xi; Newton. The likelihood is unbounded for xi < -1, which is not offered.
    """
    y, u = over_threshold(ordered, count)
    loglik = np.empty((len(shapes), len(y)))
    params = np.empty((*loglik.shape, 2))
    params[..., 0] = u
    for i, xi in enumerate(np.where(np.abs(shapes) < FLAT, FLAT, shapes)):
        for rows in _chunks(len(y), count):
            beta = _gpd_scale(y[rows], float(xi))
            loglik[i, rows] = -count * beta - (1 + 1 / xi) * np.log1p(xi * y[rows] * np.exp(-beta)[:, None]).sum(axis=1)
            params[i, rows, 1] = np.exp(beta)
    return loglik, params


def _gpd_scale(y: Floats, xi: float) -> Floats:
    """log sigma [g] of most likelihood at fixed xi."""
    count = y.shape[1]
    mean = np.maximum(y.mean(axis=1), 1e-300)
    beta = np.log(mean * max(1 - xi, 0.1))
    floor = np.log(np.maximum(-xi * y[:, -1], 1e-300))
    beta = np.maximum(beta, floor + 0.14)
    for _ in range(STEPS):
        q = y * np.exp(-beta)[:, None]
        w = 1 + xi * q
        share = q / w
        gradient = -count + (1 + xi) * share.sum(axis=1)
        curve = (1 + xi) * (share / w).sum(axis=1)
        step = np.clip(gradient / np.maximum(curve, 1e-300), -1.0, 1.0)
        # Never past the point where the last sample meets the end of the tail.
        nearest = np.where(xi < 0, 0.5 * (beta + floor), -np.inf)
        new = np.maximum(beta + step, nearest)
        step, beta = new - beta, new
        if np.abs(step).max(initial=0.0) < 1e-12:
            break
    return np.asarray(beta)


def gpd_moments(ordered: Floats, count: int) -> Floats:
    """(u, sigma, xi) [g, 3] by probability-weighted moments (Hosking and Wallis 1987), kept feasible.

    Where the implied end lies inside the data, sigma is raised until it does not.
    """
    y, u = over_threshold(ordered, count)
    n = y.shape[1]
    first = y.mean(axis=1)
    second = (y * ((n - np.arange(1, n + 1)) / (n - 1))).mean(axis=1)
    spread = first - 2 * second
    spread = np.where(np.abs(spread) < 1e-12 * first, 1e-12 * first, spread)
    xi = np.clip(2 - first / spread, -5.0, 5.0)
    sigma = np.maximum(2 * first * second / spread, 1e-300)
    sigma = np.maximum(sigma, -xi * y[:, -1])
    return np.stack([u, sigma, xi], axis=1)


def gpd_lone(ordered: Floats, count: int, prior: bool = True) -> Floats:
    """(u, sigma, xi) [g, 3] of lone tails: posterior mean of Zhang and Stephens (2009).

    With `prior`, xi is drawn to -0.15 with the weight of 10 samples and sigma refitted: a free shape from few
    samples errs by several standard deviations once extrapolated.
    """
    y, u = over_threshold(ordered, count)
    n = y.shape[1]
    grid = 20 + int(np.sqrt(n))
    quarter = np.maximum(y[:, max(0, int(np.floor(n / 4 + 0.5)) - 1)], 1e-12 * y[:, -1])[:, None]
    theta = 1 / y[:, -1:] + (1 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))) / (3 * quarter)
    theta = np.where(theta == 0, 1e-12, theta)
    k = np.empty_like(theta)
    for rows in _chunks(len(y), n * grid):
        k[rows] = -np.log1p(-theta[rows, :, None] * y[rows, None, :]).mean(axis=2)
    profile = n * (np.log(theta / k) + k - 1)
    weight = np.exp(profile - profile.max(axis=1, keepdims=True))
    centre = (theta * weight).sum(axis=1) / weight.sum(axis=1)
    shape = -np.log1p(-centre[:, None] * y).mean(axis=1)
    xi, sigma = -shape, shape / centre
    if prior:
        xi = np.clip((n * xi + ZS_WEIGHT * ZS_PRIOR) / (n + ZS_WEIGHT), -0.95, 0.95)
        sigma = np.array([np.exp(_gpd_scale(row[None], float(x))[0]) for row, x in zip(y, xi, strict=True)])
    return np.stack([u, sigma, xi], axis=1)


def _chunks(total: int, width: int) -> list[slice]:
    size = max(1, CHUNK // width)
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]
