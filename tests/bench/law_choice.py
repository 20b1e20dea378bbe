"""How well the automatic choice of a law extrapolates learning curves, against each law alone.

    python tests/bench/law_choice.py curves.csv --laws power,power_offset,power_shift,bnsl

The table is that of Alabdulmohsin et al. 2022 (arXiv 2209.06640): task, model, examples_seen, error, train_split; the
copy in github.com/IBM/ColPret is aggregated_eval/revisiting_vision.csv. Laws are fitted to the rows of train_split 1;
the error is the root mean squared difference of logarithms over the rows of train_split 0, averaged over curves.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import polars as pl

from scaling.comparison import choose_law
from scaling.errors import AnalysisError
from scaling.fits import Fit
from scaling.fitting import fit_law
from scaling.laws import Law, law_over
from scaling.objectives import Objective
from scaling.rows import Rows

AXIS = "examples_seen"


def rmsle(fit: Fit, x: np.ndarray, y: np.ndarray) -> float:
    """NaN for a refused fit."""
    if not fit.params:
        return np.nan
    return float(np.sqrt(np.mean((np.log(fit.law.value(fit.point, x)) - np.log(y)) ** 2)))


def curve_errors(table: pl.DataFrame, laws: list[Law], objective: Objective) -> tuple[list[float], float, str]:
    """RMSLE of each law, that of the chosen one, and its name."""
    x, y = (table[name].cast(pl.Float64).to_numpy() for name in (AXIS, "error"))
    seen = table["train_split"].to_numpy() == 1
    rows = Rows(x[seen], y[seen])
    alone = [rmsle(fit_law(law, rows, objective=objective, draws=0), x[~seen], y[~seen]) for law in laws]
    try:
        fit, _ = choose_law(laws, rows, objective=objective, draws=0)
    except AnalysisError:
        return alone, np.nan, "none"
    return alone, rmsle(fit, x[~seen], y[~seen]), fit.law.name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("curves")
    parser.add_argument("--laws", default="power,power_offset,power_shift,bnsl")
    parser.add_argument("--objective", default="l2", choices=["l2", "huber"])
    arguments = parser.parse_args()
    laws = [law_over(name, AXIS) for name in arguments.laws.split(",")]
    began = time.process_time()
    found = [
        curve_errors(curve, laws, Objective(arguments.objective))
        for _, curve in pl.read_csv(arguments.curves).group_by("task", "model", maintain_order=True)
    ]
    alone, chosen = np.array([f[0] for f in found]), np.array([f[1] for f in found])
    names = [f[2] for f in found]
    print(f"{len(found)} curves, {time.process_time() - began:.0f} s of CPU; RMSLE, mean and median")
    for law, errors in zip(laws, alone.T, strict=True):
        print(f"{law.name:16} {np.nanmean(errors):.4f} {np.nanmedian(errors):.4f}  refused {np.isnan(errors).sum()}"
              f"  chosen {names.count(law.name)}")  # fmt: skip
    print(f"{'automatic choice':16} {np.nanmean(chosen):.4f} {np.nanmedian(chosen):.4f}"
          f"  without a law {np.isnan(chosen).sum()}")  # fmt: skip
    print(f"{'best of all':16} {np.nanmin(alone, axis=1).mean():.4f}")


if __name__ == "__main__":
    main()
