"""Compute in an analysis: profiles at equal FLOP beside the fitted surfaces, and whether N is the N of the FLOPs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from scaling.budgets import Agreement, against_surface, surface_exponent
from scaling.counts import constant_product
from scaling.errors import AnalysisError, nearest
from scaling.findings import BudgetProfiles, LawFit, Point, point_text
from scaling.isoflop import IsoFlop, Options, Runs, isoflop
from sweeps.schema import FitSpec

COUNTED = ("flops", "n_params", "tokens")


def groups(runs: pl.DataFrame, compare: Sequence[str]) -> Iterator[tuple[Point, pl.DataFrame]]:
    """The runs of each alternative."""
    if not compare:
        yield {}, runs
        return
    for key, part in runs.group_by(list(compare), maintain_order=True):
        yield dict(zip(compare, key, strict=True)), part


def budget_profiles(
    want: FitSpec, runs: pl.DataFrame, compare: Sequence[str], fits: Sequence[LawFit], seed: int
) -> list[BudgetProfiles]:
    """The profiles that a spec asks for, one set for each alternative.

    Raises AnalysisError for a column that the results lack.
    """
    asked = want.isoflop
    if asked is None:
        return []
    for name in (asked.n, asked.tokens, asked.budget):
        if name not in runs.columns:
            raise AnalysisError(f"fit.isoflop: no result has {name!r}.{nearest(name, runs.columns)}")
    options = Options(degree=asked.degree, draws=want.bootstrap, level=want.level, seed=seed)
    made = []
    for group, part in groups(runs.filter(pl.col("outcome").is_in(["done", "diverged"])), compare):
        flops, sizes, loss, tokens = (_numbers(part, c) for c in (asked.budget, asked.n, want.of, asked.tokens))
        found = isoflop(Runs(flops, sizes, loss, tokens), within=asked.within, options=options)
        made.append(BudgetProfiles(group, found, _against(found, group, fits, want.of)))
    return made


def _numbers(frame: pl.DataFrame, name: str) -> Any:
    return frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy()


def _against(found: IsoFlop, group: Point, fits: Sequence[LawFit], of: str) -> tuple[tuple[str, Agreement], ...]:
    """The exponent by profiles beside that of every surface that was fitted to the same alternative."""
    surfaces = [f for f in fits if f.of == of and f.group == group and f.fit.params]
    able = [f for f in surfaces if {"alpha", "beta"} <= set(f.fit.law.names)]
    if found.n_params.exponent is None:
        return ()
    return tuple((f.name, against_surface(found.n_params, surface_exponent(f.fit))) for f in able)


def count_notes(runs: pl.DataFrame, compare: Sequence[str]) -> list[str]:
    """What is wrong with how n_params was counted, as far as FLOPs and tokens tell; one sentence an alternative."""
    if not set(COUNTED) <= set(runs.columns):
        return []
    said = []
    for group, part in groups(runs.filter(pl.col("outcome") == "done"), compare):
        whole = part.select(pl.col(list(COUNTED)).cast(pl.Float64)).drop_nulls()
        whole = whole.filter(pl.all_horizontal(pl.all() > 0) & pl.all_horizontal(pl.all().is_finite()))
        if len(whole) < 3:
            continue
        where = f"{point_text(group)}: " if group else ""
        said += [f"{where}{f.text}" for f in constant_product(*(whole[c].to_numpy() for c in COUNTED))]
    return said
