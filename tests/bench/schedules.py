"""Time of one objective with its gradient over three training curves, beside a plain Python loop over steps.

    python tests/bench/schedules.py

CPU milliseconds of this process. The bar: <= 20 ms. The loop computes the value only.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from scaling.schedules import MPL, Schedule, Trace

PUBLISHED = np.array([3.04045406, 0.52468604, 0.50786857, 363.78751622, 2.06560812, 0.58279013, 0.64142257])
STEPS = np.arange(2176, 24000, 128)


def cost(work: Callable[[], object], repeats: int) -> float:
    """CPU milliseconds of a call."""
    work()
    start = time.process_time()
    for _ in range(repeats):
        work()
    return 1e3 * (time.process_time() - start) / repeats


def loop(schedule: Schedule, steps: np.ndarray, every: int) -> float:
    """CPU milliseconds of all rows one step after the other, from each `every`-th row."""
    low, a, alpha, b, c, beta, gamma = PUBLISHED.tolist()
    eta, summed = schedule.eta.tolist(), schedule.summed.tolist()
    start, done = time.process_time(), 0
    for t in steps[::every].tolist():
        fall = 0.0
        for k in range(1, t + 1):
            if eta[k] != eta[k - 1]:
                grown = 1 + c * eta[k] ** -gamma * (summed[t] - summed[k - 1])
                fall += (eta[k - 1] - eta[k]) * (1 - grown**-beta)
        done += low + a * summed[t] ** -alpha - b * fall > 0
    return 1e3 * (time.process_time() - start) * len(steps) / done


def main() -> None:
    curves = [
        (Schedule.cosine(24000, 3e-4, 3e-5, 2160), STEPS),
        (Schedule.constant(24000, 3e-4, 2160), STEPS),
        (Schedule.two_step(16000, 3e-4, 9e-5, start=8000, warmup=2160), STEPS[STEPS < 16000]),
    ]
    law, theta = MPL(), MPL().encode(PUBLISHED[None])
    start = time.process_time()
    trace = Trace.join([Trace.of(*c) for c in curves])
    print(
        f"rows {len(trace.s1)}, summands {len(trace.weight)}, prepared in {1e3 * (time.process_time() - start):.0f} ms"
    )
    plain = sum(loop(*c, every=16) for c in curves)
    print(f"{'plain loop over steps, value only':42s} {plain:9.1f} ms")
    for name, order in (("value", 0), ("value and gradient", 1), ("value, gradient and Hessian", 2)):
        ours = cost(lambda order=order: law.jet(theta, trace, order), 20)  # type: ignore[misc]
        print(f"{name:42s} {ours:9.1f} ms  1 : {plain / ours:.0f}")


if __name__ == "__main__":
    main()
