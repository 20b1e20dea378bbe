"""Fit a law to a table: `fit("chinchilla", frame)`, or the laws of a spec: `python -m scaling.fit SPEC`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
import typer
from rich.console import Console

from scaling.arrays import Floats, Ints
from scaling.errors import AnalysisError, nearest
from scaling.fits import Fit
from scaling.fitting import AUTO, Search, fit_law
from scaling.formula import parse_formula
from scaling.laws import Law, check_name, law_over
from scaling.objectives import Objective
from scaling.registry import REGISTRY
from scaling.rows import Rows
from scaling.sources import AsJson, Database, Home, Overrides, analysis_of, chosen_fits, failing, print_json

EPILOG = """Example:

python -m scaling.fit sweeps/published/chinchilla.yaml --json

Exit codes: 0 done (a refusal is an answer), 2 the spec or the arguments are wrong."""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Columns:
    """Columns of a table beside response and inputs: see `scaling.rows.Rows` for what each holds."""

    stderr: str | None = None
    cluster: str | None = None
    cost: str | None = None
    censored: str | None = None
    trials: str | None = None


def fit(
    law: str | Law,
    frame: pl.DataFrame,
    of: str = "val_loss",
    over: str | Sequence[str] | None = None,
    *,
    stderr: str | None = None,
    cluster: str | None = None,
    cost: str | None = None,
    censored: str | None = None,
    trials: str | None = None,
    objective: Objective = AUTO,
    freeze: Mapping[str, float] | None = None,
    tie: Mapping[str, str] | None = None,
    start: Mapping[str, float] | None = None,
    search: Search = "global",
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Fit:
    """Fits `law`, a registered name or a formula, to the column `of` of `frame`, one row per observation.

    `over` names the columns of the law's inputs: by default the law's own names, for a formula those of its names
    that are columns. Other columns: standard errors (never variances or weights), clusters of rows that are not
    independent, costs in FLOP, rows whose response is only a lower bound, trials behind a share. Rows whose response
    or input is null are left out.

    >>> import polars as pl
    >>> widths = [16, 32, 64, 128, 256, 512]
    >>> table = pl.DataFrame({"width": widths, "val_loss": [1.6 + 2.5 * w**-0.5 for w in widths]})
    >>> round(fit("power_offset", table, over="width").params["alpha"].value, 6)
    0.5

    Raises AnalysisError for an unknown law or column, a column without numbers, or a row that can't enter.
    """
    form = law if isinstance(law, Law) else law_over(law, _inputs(law, frame, over), freeze, tie)
    rows = rows_of(frame, of, form.inputs, Columns(stderr, cluster, cost, censored, trials))
    return fit_law(form, rows, objective=objective, draws=draws, level=level, seed=seed, start=start, search=search)


def _inputs(law: str, frame: pl.DataFrame, over: str | Sequence[str] | None) -> tuple[str, ...]:
    if over is not None:
        return (over,) if isinstance(over, str) else tuple(over)
    check_name(law)
    if law in REGISTRY:
        own = REGISTRY[law].inputs
        if not own or (len(own) == 1 and own[0] not in frame.columns):
            raise AnalysisError(f"law {law!r}: say what it is over, such as over={frame.columns[0]!r}.")
        return own
    names = sorted(s.name for s in parse_formula(law).free_symbols)
    found = tuple(n for n in names if n in frame.columns)
    if not found:
        raise AnalysisError(f"law {law!r}: none of its names ({', '.join(names)}) is a column.")
    return found


def rows_of(frame: pl.DataFrame, of: str, inputs: Sequence[str], columns: Columns = Columns()) -> Rows:
    """The rows of `frame` as a fit sees them; rows without response or input are left out."""
    for name in (of, *inputs, *(c for c in vars(columns).values() if c is not None)):
        if name not in frame.columns:
            raise AnalysisError(f"no column {name!r}.{nearest(name, frame.columns)}")
    numbers = {name: _numbers(frame, name) for name in (of, *inputs)}
    whole = np.all([~np.isnan(v) for v in numbers.values()], axis=0) if len(frame) else np.zeros(0, dtype=bool)
    kept = frame.filter(pl.Series(whole))
    if not len(kept):
        raise AnalysisError(f"no row has numbers for {', '.join((of, *inputs))}; the table has {len(frame)} rows.")
    given = {k: None if v is None else _numbers(kept, v) for k, v in vars(columns).items() if k != "cluster"}
    censored = given.pop("censored")
    return Rows(
        np.array([numbers[name][whole] for name in inputs]), numbers[of][whole],
        dof=np.inf if given["stderr"] is not None else 0.0,
        ids=tuple(f"row {i + 1}" for i in np.flatnonzero(whole)),
        cluster=None if columns.cluster is None else _codes(kept[columns.cluster]),
        censored=None if censored is None else censored != 0, **given,
    )  # fmt: skip


def _numbers(frame: pl.DataFrame, name: str) -> Floats:
    """A column as float64, nulls as NaN; raises AnalysisError naming the first row that is no number."""
    column = frame[name]
    if not (column.dtype.is_numeric() or column.dtype == pl.Boolean):
        made = column.cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False)
        bad = (made.is_null() & column.is_not_null()).arg_true()
        if len(bad):
            raise AnalysisError(f"row {bad[0] + 1}: {name} = {column[bad[0]]!r} is not a number.")
        column = made
    return column.cast(pl.Float64).fill_null(np.nan).to_numpy().copy()


def _codes(column: pl.Series) -> Ints:
    return np.unique(column.cast(pl.String).fill_null("").to_numpy(), return_inverse=True)[1]


@app.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
def main(  # noqa: PLR0917 - typer reads the command line from this signature
    spec: Annotated[Path, typer.Argument(help="The YAML file whose laws are fitted.", show_default=False)],
    overrides: Overrides = None,
    law: Annotated[str | None, typer.Option(help="Fit only the laws of this name.", show_default=False)] = None,
    as_json: AsJson = False,
    home: Home = Path("results"),
    db: Database = None,
) -> None:
    """Fit the laws of SPEC to the results that exist; nothing is run or stored."""
    from scaling.console import summary

    with failing(as_json):
        found = analysis_of(spec, overrides or (), home, db, [law] if law else ())
        chosen = chosen_fits(found.fits, law) if law else found.fits
        shown = replace(found, fits=chosen, predictions=[p for p in found.predictions if p.fit in chosen])
        if as_json:
            print_json(shown.to_json())
        else:
            console = Console()
            for part in summary(shown):
                console.print(part)


if __name__ == "__main__":
    app()
