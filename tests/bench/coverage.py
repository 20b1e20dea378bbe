"""How often the intervals of a fit hold the truth, over synthetic experiments with a planted law.

    python tests/bench/coverage.py [--sweeps 400] [--design chinchilla_45]

Each design is a set of runs one would really train. Per quantity: the share of the given 95 % intervals that hold the
truth, how often the truth lies below and above them, their median width in % of the truth, and the share of all
experiments whose interval has an open end or is missing. A refused fit gives no interval and covers nothing.

`law at 10x` is what `predict` says of the law at ten times the dearest run's cost, with the law error that rolling
origin finds (there is none here); `draws at 10x` leaves it out; `run at 10x` is one more noisy run there; `N* at 10x`
the compute-optimal size at that cost.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scaling.fits import Fit, Predictions
from scaling.fitting import fit_law
from scaling.laws import Law, law_over
from scaling.objectives import Objective
from scaling.rows import Rows

Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Floats]

NOISE = 0.005  # standard deviation of the log loss of one run
LEVEL = 0.95
FEWEST, MOST = 0.92, 0.98
WORKERS = 2


def gauss(rng: np.random.Generator, n: int) -> Floats:
    """Log-normal runs."""
    return NOISE * rng.standard_normal(n)


def heavy_tails(rng: np.random.Generator, n: int) -> Floats:
    """Student's t with 4 degrees of freedom and the same standard deviation."""
    return np.asarray(NOISE / np.sqrt(2) * rng.standard_t(4, n))


@dataclass(frozen=True)
class Design:
    """Runs at places x [d, n] of a law with known parameters.

    `far` [d] is a place of ten times the dearest run's cost. With `seeds` > 1 a row is the mean of that many runs and
    carries the standard error pooled over all of them. With `checkpoints` > 1 a row is one of the checkpoints of a run:
    half of its noise variance is common to the run, which is the row's cluster.
    """

    law: str
    inputs: tuple[str, ...]
    truth: dict[str, float]
    x: Floats
    far: Floats
    frozen: tuple[str, ...] = ()
    noise: Noise = gauss
    seeds: int = 1
    checkpoints: int = 1
    objective: Objective = field(default_factory=Objective)

    @property
    def free(self) -> Law:
        """The law as it is fitted."""
        return law_over(self.law, self.inputs, {k: self.truth[k] for k in self.frozen})

    def value(self, x: Floats) -> Floats:
        """The planted law."""
        law = law_over(self.law, self.inputs)
        return law.value(np.array([self.truth[n] for n in law.names]), x)

    def rows(self, rng: np.random.Generator) -> Rows:
        n = self.x.shape[1]
        clean = self.value(self.x)
        if self.seeds > 1:
            runs = self.noise(rng, n * self.seeds).reshape(n, self.seeds)
            dof = n * (self.seeds - 1)
            pooled = np.sqrt(runs.var(axis=1, ddof=1).mean() / self.seeds)
            y = clean * np.exp(runs.mean(axis=1))
            return Rows(self.x, y, y * pooled, dof)
        if self.checkpoints > 1:
            run = np.arange(n) // self.checkpoints
            shared = self.noise(rng, run[-1] + 1)[run]
            return Rows(self.x, clean * np.exp((shared + self.noise(rng, n)) / np.sqrt(2)), cluster=run)
        return Rows(self.x, clean * np.exp(self.noise(rng, n)))


def optimal_size(p: dict[str, Floats | float], flops: float) -> Floats | float:
    """N* of the Chinchilla law at C = 6 N D (Hoffmann et al. 2022, equation 4)."""
    total = p["alpha"] + p["beta"]
    return (p["alpha"] * p["A"] / (p["beta"] * p["B"])) ** (1 / total) * (flops / 6) ** (p["beta"] / total)


CHINCHILLA = {"E": 1.8172, "A": 482.01, "B": 2085.43, "alpha": 0.3478, "beta": 0.3658}
REPEATED = {"E": 1.87, "A": 521.0, "B": 1488.0, "alpha": 0.353, "beta": 0.353, "R_D": 15.4, "R_N": 5.3}
FLOOR = {"E": 1.6, "A": 2.5, "alpha": 0.5}
SIZES = ("n_params", "tokens")


def isoflop(budgets: Floats, sizes: int, wide: float = 5.0) -> Floats:
    """`sizes` models from 1/wide to wide times the optimal size of each budget: [2, budgets * sizes]."""
    best = np.array([optimal_size(dict(CHINCHILLA), c) for c in budgets])
    n = (best[:, None] * np.geomspace(1 / wide, wide, sizes)).ravel()
    return np.array([n, np.repeat(budgets, sizes) / (6 * n)])


def on_path(flops: float) -> Floats:
    n = float(optimal_size(dict(CHINCHILLA), flops))
    return np.array([n, flops / (6 * n)])


def surface(runs: tuple[int, int], top: float, **more: object) -> Design:
    """Chinchilla over `runs` = (budgets, sizes), budgets from 6e18 FLOP to `top`."""
    x = isoflop(np.geomspace(6e18, top, runs[0]), runs[1])
    return Design("chinchilla", SIZES, CHINCHILLA, x, on_path(10 * top), **more)  # type: ignore[arg-type]


def checkpointed(runs: int, checkpoints: int) -> Design:
    """`runs` models of five sizes and several lengths, each seen at `checkpoints` points up to its end."""
    sizes = np.geomspace(5e7, 2e9, 5)[np.arange(runs) % 5]
    lengths = 20 * sizes * np.geomspace(0.5, 8, -(-runs // 5))[np.arange(runs) // 5]
    seen = np.geomspace(0.2, 1, checkpoints)
    x = np.array([np.repeat(sizes, checkpoints), (lengths[:, None] * seen).ravel()])
    top = float(6 * (x[0] * x[1]).max())
    return Design("chinchilla", SIZES, CHINCHILLA, x, on_path(10 * top), checkpoints=checkpoints)


def repeated(frozen: tuple[str, ...] = ()) -> Design:
    """60 runs: four sizes, three amounts of unique tokens, five numbers of epochs."""
    sizes, unique, epochs = np.geomspace(1e8, 3e9, 4), np.geomspace(1e9, 2e10, 3), np.array([1.0, 4, 10, 25, 60])
    n, u, e = (a.ravel() for a in np.meshgrid(sizes, unique, epochs, indexing="ij"))
    x = np.array([n, u * e, u])
    far = np.array([3e9 * np.sqrt(10), 2e10 * 60 * np.sqrt(10), 2e10])
    return Design("data_constrained", (*SIZES, "unique_tokens"), REPEATED, x, far, frozen)


def scales(law: str, truth: dict[str, float], count: int, **more: object) -> Design:
    """`count` widths, each double the last; 10 times the cost is 10^(1/2) times the width."""
    x = np.geomspace(16, 16 * 2.0 ** (count - 1), count)
    return Design(law, ("width",), truth, x[None], np.array([x[-1] * np.sqrt(10)]), **more)  # type: ignore[arg-type]


def valley() -> Design:
    """The loss over nine learning rates around the best one."""
    x = np.geomspace(1e-3 / 16, 1e-3 * 16, 9)
    truth = {"L0": 3.0, "h": 0.03, "x0": 1.3e-3}
    return Design("optimum_quadratic", ("lr",), truth, x[None], np.array([1e-3]))


BASE = ("E", "A", "B", "alpha", "beta")

DESIGNS: dict[str, Callable[[], Design]] = {
    "chinchilla_45": lambda: surface((5, 9), 6e20),
    "chinchilla_120": lambda: surface((8, 15), 3e21),
    "chinchilla_45_t4": lambda: surface((5, 9), 6e20, noise=heavy_tails),
    "chinchilla_120_t4": lambda: surface((8, 15), 3e21, noise=heavy_tails),
    "chinchilla_45_huber1e-3": lambda: surface((5, 9), 6e20, objective=Objective(delta=1e-3)),
    "checkpoints_25x6": lambda: checkpointed(25, 6),
    "checkpoints_15x6": lambda: checkpointed(15, 6),
    "offset_6": lambda: scales("power_offset", FLOOR, 6),
    "offset_6_seeds": lambda: scales("power_offset", FLOOR, 6, seeds=3),
    "offset_10": lambda: scales("power_offset", FLOOR, 10),
    "offset_10_seeds": lambda: scales("power_offset", FLOOR, 10, seeds=3),
    "offset_10_t4": lambda: scales("power_offset", FLOOR, 10, noise=heavy_tails),
    "power_7": lambda: scales("power", {"A": 2.5, "alpha": 0.1}, 7),
    "power_7_seeds": lambda: scales("power", {"A": 2.5, "alpha": 0.1}, 7, seeds=3),
    "repeated_60": repeated,
    "repeated_60_frozen": lambda: repeated(BASE),
    "valley_9": valley,
}


@dataclass(frozen=True)
class Claim:
    """One interval of one experiment: its ends (infinite: open; NaN: none was given) and the truth."""

    lo: float
    hi: float
    truth: float

    @property
    def side(self) -> int:
        """Where the truth is: -1 below the interval, 0 inside, 1 above."""
        return -1 if self.truth < self.lo else int(self.truth > self.hi)


def _open(lo: float | None, hi: float | None, truth: float) -> Claim:
    if lo is None and hi is None:
        return Claim(np.nan, np.nan, truth)
    return Claim(-np.inf if lo is None else lo, np.inf if hi is None else hi, truth)


def _at(told: Predictions, truth: float) -> Claim:
    lo, hi = (None if end is None else float(end[0]) for end in (told.lo, told.hi))
    return _open(lo, hi, truth)


def _central(draws: Floats | None, truth: float) -> Claim:
    if draws is None:
        return Claim(np.nan, np.nan, truth)
    lo, hi = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Claim(float(lo), float(hi), truth)


def claims(design: Design, fit: Fit, rng: np.random.Generator) -> Iterator[tuple[str, Claim]]:
    """Every interval that a user of the fit would read."""
    for name in fit.law.names:
        found = fit.params[name]
        yield name, _open(found.lo, found.hi, design.truth[name])
    far = design.far[:, None]
    clean = float(design.value(far)[0])
    told = fit.predict(far)
    yield "law at 10x", _at(told, clean)
    around = fit.spread(far)
    yield "draws at 10x", _central(None if around is None else around[:, 0], clean)
    told = fit.predict(far, noise=NOISE)
    run = clean * float(np.exp(design.noise(rng, 1)[0]))
    yield "run at 10x", _at(told, run)
    if design.law == "chinchilla":
        flops = float(6 * design.far.prod())
        natural = None if fit.draws is None else dict(zip(fit.law.names, fit.draws.T, strict=True))
        best = None if natural is None else np.asarray(optimal_size(natural, flops))
        yield "N* at 10x", _central(best, float(optimal_size(dict(design.truth), flops)))


@dataclass(frozen=True)
class Outcome:
    """One experiment: the status of its fit, its claims by quantity, and the draws that did not converge."""

    status: str
    method: str
    claims: tuple[tuple[str, Claim], ...]
    lost: int


def experiment(task: tuple[str, int, int]) -> Outcome:
    """Experiment number `task[1]` of a design, with `task[2]` draws."""
    name, number, draws = task
    design = DESIGNS[name]()
    rng = np.random.default_rng([number, len(name), *name.encode()])
    rows = design.rows(rng)
    fit = fit_law(design.free, rows, objective=design.objective, draws=draws, level=LEVEL, seed=number)
    found = () if fit.status == "refused" else tuple(claims(design, fit, rng))
    return Outcome(fit.status, fit.diagnostics.method, found, fit.diagnostics.unconverged_draws)


def table(name: str, outcomes: list[Outcome], seconds: float) -> str:
    """The design's part of the report."""
    total = len(outcomes)
    status = Counter(o.status for o in outcomes)
    methods = ", ".join(m for m, _ in Counter(o.method for o in outcomes if o.claims).most_common())
    shares = ", ".join(f"{status[s] / total:.1%} {s}" for s in ("weak", "refused"))
    lost = sum(o.lost for o in outcomes)
    out = [f"{name}: {methods}; {shares}; {lost} draws unconverged; {seconds / total:.2f} s each"]
    by: dict[str, list[Claim]] = defaultdict(list)
    for outcome in outcomes:
        for quantity, claim in outcome.claims:
            by[quantity].append(claim)
    for quantity, made in by.items():
        given = [c for c in made if not np.isnan(c.lo)]
        side = np.array([c.side for c in given])
        width = np.median([100 * (c.hi - c.lo) / abs(c.truth) for c in given]) if given else np.nan
        wide = sum(np.isinf(c.lo) or np.isinf(c.hi) for c in given)
        held = float(np.mean(side == 0)) if given else np.nan
        mark = " " if FEWEST <= held <= MOST else "*"
        out.append(
            f"  {quantity:14}{100 * held:7.1f}{mark}{100 * np.mean(side < 0):7.1f}{100 * np.mean(side > 0):7.1f}"
            f"{width:11.3g}{100 * wide / total:8.1f}{100 * (total - len(given)) / total:8.1f}"
        )
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=400, help="experiments per design")
    parser.add_argument("--draws", type=int, default=400, help="draws per fit")
    parser.add_argument("--design", nargs="+", choices=list(DESIGNS), default=list(DESIGNS), metavar="NAME")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # read by the workers when they load numpy
    began = time.perf_counter()
    error = 100 * np.sqrt(LEVEL * (1 - LEVEL) / given.sweeps)
    print(f"{given.sweeps} experiments per design, {given.draws} draws each; standard error of a share {error:.1f} %")
    print(f"  {'quantity':14}{'holds':>7} {'below':>7}{'above':>7}{'width %':>11}{'open':>8}{'none':>8}", end="")
    print("   (* outside 92-98)")
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        for name in given.design:
            start = time.perf_counter()
            tasks = [(name, i, given.draws) for i in range(given.sweeps)]
            outcomes = pool.map(experiment, tasks, chunksize=5)
            print(table(name, outcomes, time.perf_counter() - start), flush=True)
    print(f"{(time.perf_counter() - began) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
