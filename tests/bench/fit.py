"""Coverage and time of the fit engine on synthetic sweeps of the shipped size (widths x learning rates x seeds).

    python tests/bench/fit.py --sweeps 400

Each sweep has a known optimum, exponent and loss law; the table says how often the 95 % intervals hold the truth.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import polars as pl

from scaling.analysis import Analysis, analyse
from scaling.intervals import Interval
from sweeps.schema import Spec


@dataclass(frozen=True)
class Truth:
    """A planted sweep: log2 of the best lr at the first width, its exponent, the loss law, the valley's form.

    `skew` bends the valley: its third derivative at the optimum over its second, per octave.
    """

    widths: tuple[int, ...] = (16, 32, 64, 128, 256)
    lrs: tuple[int, ...] = tuple(range(-10, -3))
    seeds: int = 3
    u0: float = -6.6
    exponent: float = -0.3
    floor: float = 1.6
    amplitude: float = 2.5
    alpha: float = 0.5
    curvature: float = 0.03
    skew: float = 0.0
    noise: float = 0.003
    common: float = 0.004

    def best(self, width: float) -> float:
        """log2 of the best learning rate."""
        return self.u0 + self.exponent * float(np.log2(width / self.widths[0]))

    def loss(self, width: float) -> float:
        return float(self.floor + self.amplitude * width**-self.alpha)

    def valley(self, t: float) -> float:
        """Rise of log loss, t octaves from the optimum."""
        if self.skew == 0:
            return 0.5 * self.curvature * t * t
        k = self.skew
        return float(self.curvature * (np.exp(k * t) - 1 - k * t) / k**2)

    def frame(self, rng: np.random.Generator) -> pl.DataFrame:
        rows = []
        for width in self.widths:
            for seed in range(self.seeds):
                common = self.common * rng.standard_normal()
                for k in self.lrs:
                    rise = self.valley(k - self.best(width)) + common + self.noise * rng.standard_normal()
                    rows.append(
                        {"run": f"{width}-{seed}-{k}", "status": "done", "width": width, "lr": 2.0**k, "seed": seed,
                         "val_loss": self.loss(width) * float(np.exp(rise))}
                    )  # fmt: skip
        return pl.DataFrame(rows)

    def spec(self, draws: int) -> Spec:
        return Spec.model_validate(
            {
                "name": "coverage",
                "task": "synthetic:train",
                "axes": {"width": {"values": list(self.widths)}},
                "tune": {"lr": {"log2": [float(self.lrs[0]), float(self.lrs[-1]), 1.0]}},
                "replicates": {"seed": {"values": list(range(self.seeds))}},
                "fit": {
                    "of": "val_loss",
                    "bootstrap": draws,
                    "laws": [
                        {"law": "power_offset", "over": "width"},
                        {"law": "power", "of": "lr.optimum", "over": "width"},
                    ],
                },
                "predict": [{"width": 4 * self.widths[-1]}],
            }
        )


def claims(truth: Truth, found: Analysis) -> dict[str, list[bool | None]]:
    """For each kind of interval: holds the truth, misses it, or (None) was not given."""
    out: dict[str, list[bool | None]] = defaultdict(list)

    def hold(name: str, got: Interval | None, true: float) -> None:
        given = got is not None and got.lo is not None and got.hi is not None
        out[name].append(got.lo <= true <= got.hi if given else None)  # type: ignore[union-attr, operator]

    for item in found.optima:
        width = item.cell.at["width"]
        o = item.optimum
        hold("optimum", None if o.value is None else Interval(o.value, o.lo, o.hi), 2.0 ** truth.best(width))
    loss, lr = found.fits
    for name, true in (("E", truth.floor), ("A", truth.amplitude), ("alpha", truth.alpha)):
        hold(f"loss law {name}", loss.fit.params.get(name), true)
    hold("lr law exponent", lr.fit.params.get("alpha"), -truth.exponent)
    far = 4 * truth.widths[-1]
    for p in found.predictions:
        true = truth.loss(far) if p.fit is loss else 2.0 ** truth.best(far)
        hold(f"{'loss' if p.fit is loss else 'lr'} at 4x width", Interval(p.value, p.lo, p.hi), true)
    first, last = truth.widths[0], truth.widths[-1]
    for t in found.transfers:
        wide = truth.best(last) - truth.best(first)
        hold("drift", t.octaves, wide)
        hold("cost", t.cost, truth.loss(last) * float(np.exp(truth.valley(-wide)) - 1))
        hold("exponent over axis", t.exponent, truth.exponent)
    return out


def coverage(truth: Truth, sweeps: int, draws: int = 400, seed: int = 0) -> dict[str, tuple[float, int, int]]:
    """Share of given intervals that hold the truth, how many were given, how many asked."""
    total: dict[str, list[bool | None]] = defaultdict(list)
    spec = truth.spec(draws)
    for i in range(sweeps):
        frame = truth.frame(np.random.default_rng([seed, i]))
        for name, values in claims(truth, analyse(spec, frame, seed=i)).items():
            total[name] += values
    out = {}
    for name, values in total.items():
        given = [v for v in values if v is not None]
        out[name] = (float(np.mean(given)) if given else float("nan"), len(given), len(values))
    return out


DESIGNS = {
    "parabola": Truth(),
    "shifted grid": Truth(u0=-6.25, exponent=-0.6),
    "no common noise": Truth(common=0.0),
    "lopsided": Truth(skew=0.35),
    "very lopsided": Truth(skew=0.7),
    "one seed": Truth(seeds=1),
    "four widths": Truth(widths=(16, 32, 64, 128)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=400)
    parser.add_argument("--design", choices=[*DESIGNS, "all"], default="all")
    given = parser.parse_args()
    names = list(DESIGNS) if given.design == "all" else [given.design]
    tables = {}
    for name in names:
        start = time.perf_counter()
        tables[name] = coverage(DESIGNS[name], given.sweeps)
        print(f"{name}: {(time.perf_counter() - start) / given.sweeps:.3f} s a sweep")
    rows = list(dict.fromkeys(k for t in tables.values() for k in t))
    print(f"\n95 % intervals, {given.sweeps} sweeps: % holding the truth (% of intervals given)")
    print(f"{'':20}" + "".join(f"{n:>20}" for n in names))
    for row in rows:
        cells = []
        for name in names:
            share, n, asked = tables[name].get(row, (float("nan"), 0, 1))
            cells.append(f"{100 * share:.1f} ({100 * n / asked:.0f})")
        print(f"{row:20}" + "".join(f"{c:>20}" for c in cells))


if __name__ == "__main__":
    main()
