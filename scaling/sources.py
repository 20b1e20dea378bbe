"""Where the commands of this room get their fits: a spec, and the table or the store that holds its results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import orjson
import polars as pl
import typer
from rich.console import Console
from rich.text import Text

from db.errors import StoreError
from scaling.analysis import analyse
from scaling.errors import AnalysisError, nearest
from scaling.findings import SCHEMA, Analysis, LawFit
from sweeps.errors import SweeplawError
from sweeps.load import LoadedSpec, load
from sweeps.schema import Spec

USAGE_ERROR = 2
Overrides = Annotated[
    list[str] | None,
    typer.Argument(help="Values to override, as key=value with dotted keys.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Home = Annotated[Path, typer.Option(envvar="SWEEPLAW_HOME", help="Folder of the default store.")]
Database = Annotated[
    str | None,
    typer.Option(envvar="SWEEPLAW_DB", help="SQLAlchemy URL of the store. [default: HOME/sweeplaw.db]",
                 show_default=False),
]  # fmt: skip


def analysis_of(
    path: Path,
    overrides: Sequence[str] = (),
    home: Path = Path("results"),
    db: str | None = None,
    only: Sequence[str] = (),
) -> Analysis:
    """What the results of a spec say: those of its table, or those of its runs in the store.

    With `only`, laws of other names are not fitted. Raises SpecError or AnalysisError where the spec can't be read
    or nothing has finished.
    """
    loaded = load(path, overrides)
    if loaded.spec.fit is None:
        raise loaded.error("fit", "this spec fits nothing; add `fit: {of: …, laws: […]}`")
    frame, notes = results_of(loaded, home, db)
    found = analyse(_only(loaded.spec, only), frame)
    return replace(found, notes=[*notes, *found.notes])


def _only(spec: Spec, names: Sequence[str]) -> Spec:
    """`spec` with the laws of these names; whole where a name is none of them, so that an error can list them."""
    assert spec.fit is not None
    known = [{law.title(spec.fit.of), law.law} for law in spec.fit.laws]
    if not names or not all(any(n in k for k in known) for n in names):
        return spec
    laws = [law for law, own in zip(spec.fit.laws, known, strict=True) if own & set(names)]
    return spec.model_copy(update={"fit": spec.fit.model_copy(update={"laws": laws})})


def results_of(loaded: LoadedSpec, home: Path, db: str | None) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """One row per run, as `analyse` wants them, and what was done to a table to get there."""
    if loaded.spec.results is not None:
        from db.tables import read_table

        table = read_table(loaded)
        return table.frame, table.notes
    from db.store import Store

    fit = loaded.spec.fit
    assert fit is not None
    url = db or f"sqlite:///{home / 'sweeplaw.db'}"
    with Store.open(url, create=False) as store:
        return store.results(loaded.spec.name, fit.of, fit.select, fit.goal), ()


def fits_of(
    path: Path, overrides: Sequence[str] = (), home: Path = Path("results"), db: str | None = None
) -> list[LawFit]:
    """The fits of a spec's laws to the results that exist."""
    return analysis_of(path, overrides, home, db).fits


def chosen_fits(fits: Sequence[LawFit], law: str) -> list[LawFit]:
    """The fits named `law`, or whose law is `law`; raises AnalysisError with the nearest name."""
    found = [f for f in fits if law in (f.name, f.fit.law.name)]
    if not found:
        names = {f.name for f in fits} | {f.fit.law.name for f in fits}
        raise AnalysisError(f"no fit is named {law!r}.{nearest(law, names)}")
    return found


@contextmanager
def failing(as_json: bool) -> Iterator[None]:
    """An expected failure ends in one line on standard error, and as JSON where that was asked for."""
    try:
        yield
    except (SweeplawError, StoreError, OSError) as error:
        if as_json:
            print_json({"schema": SCHEMA, "error": str(error)})
        Console(stderr=True).print(Text.assemble(("error: ", "bold red"), str(error)), soft_wrap=True)
        raise typer.Exit(USAGE_ERROR) from None


def print_json(data: Any) -> None:
    """One JSON object at full precision."""
    print(orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode())
