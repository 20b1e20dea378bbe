"""Automatic choice of a law, judged by extrapolation: of each curve one part is fitted, the rest is scored.

    python tests/bench/law_choice.py curves.csv --laws power,power_offset,bnsl

The table has the columns task, model, examples_seen, error, train_split (1: fit, 0: extrapolate), as the vision
curves of Alabdulmohsin et al. 2022 (arXiv 2209.06640) have. Printed is the mean and median over curves of the root mean
squared error of log error, for every law alone and for the law that `compare_laws` chooses.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator

import numpy as np
import polars as pl

from scaling.comparison import compare_laws
from scaling.errors import AnalysisError
from scaling.fitting import fit_law
from scaling.laws import Law, law_over
from scaling.rows import Rows


def curves(path: str) -> Iterator[tuple[str, Rows, Rows]]:
    """Name, rows to fit and rows to extrapolate to."""
    table = pl.read_csv(path, infer_schema_length=None)
    for key, part in table.group_by("task", "model", maintain_order=True):
        rows = {
            split: Rows(p["examples_seen"].cast(pl.Float64).to_numpy(), p["error"].to_numpy())
            for split in (0, 1)
            if len(p := part.filter(pl.col("train_split") == split))
        }
        if len(rows) == 2:
            yield " ".join(map(str, key)), rows[1], rows[0]


def rmsle(law: Law, train: Rows, test: Rows) -> float:
    """Of the law fitted to `train`; infinite where it was refused."""
    fit = fit_law(law, train, draws=0)
    if not fit.params:
        return np.inf
    return float(np.sqrt(np.mean(np.log(law.value(fit.point, test.x) / test.y) ** 2)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Which law extrapolates learning curves best, and is it chosen?")
    parser.add_argument("table")
    parser.add_argument("--laws", default="power,power_offset,bnsl")
    given = parser.parse_args()
    laws = [law_over(name, "x") for name in given.laws.split(",")]
    errors: dict[str, list[float]] = {law.name: [] for law in laws} | {"chosen": []}
    picks: Counter[str] = Counter()
    for _, train, test in curves(given.table):
        own = {law.name: rmsle(law, train, test) for law in laws}
        try:
            best = compare_laws(laws, train, draws=100).best or laws[0].name
        except AnalysisError:
            best = laws[0].name
        picks[best] += 1
        for name, value in own.items():
            errors[name].append(value)
        errors["chosen"].append(own[best])
    for name, values in errors.items():
        found = np.array(values)
        fitted = found[np.isfinite(found)]
        print(
            f"{name:16} mean {fitted.mean():.4f}  median {np.median(fitted):.4f}  refused {int(np.isinf(found).sum())}"
        )
    print("chosen:", ", ".join(f"{name} {count}" for name, count in picks.most_common()))
