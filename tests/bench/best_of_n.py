"""Times of the best-of-N engine beside the usual ways, and coverage of its intervals.

    python tests/bench/best_of_n.py [--coverage 400]

CPU seconds of this process (all threads). The bar: the curve of 100,000 prompts x 256 samples in <= 2 s.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

import numpy as np

from scaling.tails.estimate import censored_normal, gpd_moments, gtail_profile, top_moments
from scaling.tails.models import normal_max
from scaling.tails.order import best_of_curve, pass_at_k
from scaling.tails.tail import fit_tail


def cost(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def show(name: str, work: Callable[[], object], count: int) -> float:
    wall, cpu = cost(work)
    print(f"{name:58s} {wall:8.3f} s wall {cpu:8.3f} s CPU {1e6 * cpu / count:10.2f} us each")
    return cpu / count


def peer_pass_at_k(n: np.ndarray, c: np.ndarray, k: int) -> np.ndarray:
    """The usual loop over problems, a product of 1 - k/i each (Chen et al. 2021)."""

    def one(n: int, c: int) -> float:
        return 1.0 if n - c < k else float(1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1)))

    return np.array([one(int(a), int(b)) for a, b in zip(n, c, strict=True)])


def speed() -> None:
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((100_000, 256))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    every = np.arange(1, 257)
    show("curve, 100,000 x 256, all 256 k", lambda: best_of_curve(samples, every), len(samples))
    show("curve, 100,000 x 256, 9 k", lambda: best_of_curve(samples), len(samples))
    show("curve with jackknife errors, 9 k", lambda: best_of_curve(samples, stderr=True), len(samples))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{'memory above the samples (the curve itself is 205 MB)':58s} {(after - before) / 1024:8.0f} MB")
    ordered = np.sort(samples, axis=1)
    show("normal tail, top fifth by moments, 100,000 x 256", lambda: top_moments(ordered), len(ordered))
    show("normal tail, top half by likelihood, 100,000 x 256", lambda: censored_normal(ordered, 128), len(ordered))
    ours = show("GPD, probability-weighted moments, top quarter", lambda: gpd_moments(ordered, 64), len(ordered))
    show(
        "g-tail, 17 shapes, 10,000 x 64",
        lambda: gtail_profile(ordered[:10_000, -64:], 32, np.linspace(-0.9, 0.9, 17)),
        10_000,
    )
    show("whole fit with back-test, 10,000 x 64, shape pooled", lambda: fit_tail(samples[:10_000, :64]), 10_000)
    show("E[max of N] of a normal, 1000 N up to 1e12", lambda: normal_max(np.geomspace(1, 1e12, 1000)), 1000)
    n = np.full(2000, 10_000)
    c = rng.binomial(10_000, rng.beta(0.3, 3, 2000))
    fast = show("pass@100, 2000 problems of n = 10,000", lambda: pass_at_k(n, c, 100), 2000)
    slow = show("the same by the usual loop over problems", lambda: peer_pass_at_k(n, c, 100), 2000)
    print(f"{'':58s} {slow / fast:8.0f} times")
    from scipy.stats import genpareto

    tails = [row[-64:] - row[-65] for row in ordered[:20]]
    slow = show("scipy genpareto.fit of a tail of 64", lambda: [genpareto.fit(t, floc=0) for t in tails], 20)
    print(f"{'':58s} {slow / ours:8.0f} times")


def coverage(repeats: int) -> None:
    print("\nnominal 95 % intervals, 64 samples -> N = 1024: share that hold the truth")
    laws: dict[str, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]] = {
        "normal": lambda rng, size: rng.standard_normal(size),
        "logistic": lambda rng, size: rng.logistic(size=size),
        "Gumbel": lambda rng, size: rng.gumbel(size=size),
        "exponential": lambda rng, size: rng.exponential(size=size),
        "logit-normal": lambda rng, size: 1 / (1 + np.exp(-1 - rng.standard_normal(size))),
    }
    for name, draw in laws.items():
        rng = np.random.default_rng(5)
        truth = np.mean([draw(rng, (100, 1024)).max(axis=1).mean() for _ in range(200)])
        fit = fit_tail(draw(rng, (repeats, 64)), family="normal", gate="report")
        _, lo, hi = fit.predict_groups(1024)
        assert lo is not None
        assert hi is not None
        one = np.mean((lo <= truth) & (truth <= hi))
        held = refused = 0
        for _ in range(repeats // 4):
            pooled = fit_tail(draw(rng, (50, 64)), draws=400)
            if pooled.status == "refused":
                refused += 1
                continue
            found = pooled.predict(1024)
            assert found.lo is not None
            assert found.hi is not None
            held += bool(found.lo[0] <= truth <= found.hi[0])
        given = repeats // 4 - refused
        rate = f"{held / given:.2f}" if given else "none given"
        mean = f"mean of 50 groups {rate} ({refused} of {repeats // 4} refused)"
        print(f"{name:14s} one group, union of families {one:.2f}; {mean}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--coverage", type=int, default=0, help="synthetic groups for the coverage table")
    options = parser.parse_args()
    speed()
    if options.coverage:
        coverage(options.coverage)
