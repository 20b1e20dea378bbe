"""Run a sweep: `python -m launchers.sweep sweeps/hyperp_width.yaml`."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import orjson
import polars as pl
import typer
from rich.console import Console
from rich.text import Text
from sqlalchemy.engine import make_url

from db.errors import StoreError
from db.store import Store
from launchers import dryrun
from launchers.errors import Exit
from launchers.launch import Launched, launch, speed_of
from launchers.local import pool_size
from launchers.plan import Plan, plan_sweep
from launchers.provenance import code_version, packages
from sweeps.errors import SweeplawError, listed, nearest
from sweeps.load import LoadedSpec, load

EPILOG = """Examples:

python -m launchers.sweep sweeps/hyperp_width.yaml --dry-run

python -m launchers.sweep sweeps/hyperp_width.yaml 'axes.width.values=[16,32]' replicates.seed=1

Exit codes: 0 all done, 1 some runs failed, 2 the spec or the arguments are wrong, 130 interrupted (the same command
continues)."""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Places:
    """Where results are kept: run folders and reports under `home`, everything known in the store at `url`."""

    home: Path
    url: str

    @classmethod
    def of(cls, home: Path, url: str | None) -> Places:
        return cls(home, url or f"sqlite:///{home / 'sweeplaw.db'}")

    def open(self) -> Store:
        self.home.mkdir(parents=True, exist_ok=True)
        return Store.open(self.url)

    def peek(self) -> Store | None:
        """The store if it is there and usable as it is; never creates or changes one."""
        try:
            return Store.open(self.url, create=False)
        except StoreError:
            return None


@app.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
def sweep(  # noqa: PLR0917 - typer reads the command line from this signature
    spec: Annotated[Path, typer.Argument(help="The YAML file that declares the sweep.", show_default=False)],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Values to override, as key=value with dotted keys.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show cells and costs; run nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try failed runs again.")] = False,
    home: Annotated[
        Path, typer.Option(envvar="SWEEPLAW_HOME", help="Folder for runs, reports and the default store.")
    ] = Path("results"),
    db: Annotated[
        str | None,
        typer.Option(
            envvar="SWEEPLAW_DB",
            help="SQLAlchemy URL of the store. [default: HOME/sweeplaw.db]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run every experiment of SPEC that has no result yet, fit its laws, predict, and write a report.

    A spec with `results` runs nothing: its table is read, fitted and reported.
    """
    console = Console(stderr=True)
    places = Places.of(home, db)
    try:
        loaded = load(spec, overrides or ())
        if loaded.spec.results is not None:
            code = _read_table(loaded, places, dry_run, as_json, console)
        else:
            plan = plan_sweep(loaded)
            code = _dry_run(plan, places, as_json) if dry_run else _run(plan, places, retry_failed, as_json, console)
    except (SweeplawError, StoreError, OSError) as error:
        _fail(console, str(error), as_json)
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    raise typer.Exit(code)


def _fail(console: Console, message: str, as_json: bool) -> NoReturn:
    if as_json:
        _print_json({"schema": 1, "error": message})
    console.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)
    raise typer.Exit(Exit.USAGE)


def _dry_run(plan: Plan, places: Places, as_json: bool) -> Exit:
    _check_laws(plan.loaded)
    settings = plan.loaded.spec.launcher
    workers, threads = pool_size(settings.workers, settings.threads, len(plan.runs))
    store = places.peek()
    statuses = store.statuses(plan.runs) if store else {}
    data = dryrun.preview(plan, statuses, speed_of(plan, store, threads) if store else None, workers)
    if as_json:
        _print_json(data)
    else:
        dryrun.render(Console(), plan, data)
    return Exit.OK


def _check_laws(loaded: LoadedSpec, *, read: bool = False) -> None:
    """Raises SpecError for a law that can't be fitted: better now than after the last run.

    Names are light to check; formulas are read only when something is fitted.
    """
    from scaling.laws import check_name, law_over

    for index, law in enumerate(loaded.spec.fit.laws if loaded.spec.fit else ()):
        try:
            if read:
                law_over(law.law, law.over, law.freeze, law.tie, law.ranges)
            else:
                check_name(law.law)
        except SweeplawError as error:
            raise loaded.error(f"fit.laws.{index}.law", str(error)) from None


def _run(plan: Plan, places: Places, retry_failed: bool, as_json: bool, console: Console) -> Exit:
    _check_laws(plan.loaded, read=True)
    with places.open() as store:
        _say(store.notes, console)
        launched = launch(plan, store, places.home, retry_failed=retry_failed, console=console)
        console.print(_outcome(launched), highlight=False)
        code = _exit_code(launched)
        output: dict[str, Any] = {"schema": 1, "sweep": plan.name}
        if (fit := plan.loaded.spec.fit) and launched.count("done") and not launched.interrupted:
            _check_metric(fit.of, store.metric_names(plan.name), plan)
            frame = store.results(plan.name, fit.of, fit.select, fit.goal)
            facts = {"infeasible": [(cell.coords, cell.reason) for cell in plan.infeasible]}
            results = Results(plan.loaded, launched.version, frame, facts)
            output = _analyse(results, store, places, None if as_json else Console())
    if as_json:
        _print_json({**output, "exit": int(code)})
    return code


def _say(notes: Iterable[str], console: Console) -> None:
    for note in notes:
        console.print(Text(f"note: {note}"), soft_wrap=True)


def _read_table(loaded: LoadedSpec, places: Places, dry_run: bool, as_json: bool, console: Console) -> Exit:
    """Analyse the table of a spec; nothing is run."""
    from db.tables import read_table, source_of
    from launchers import table as tables

    _check_laws(loaded, read=not dry_run)
    table = read_table(loaded)
    spec = loaded.spec
    if dry_run or spec.fit is None:
        data = tables.preview(loaded, table)
        if as_json:
            _print_json(data)
        else:
            tables.render(Console(), loaded, data)
    if dry_run:
        return Exit.OK
    with places.open() as store:
        _say(store.notes, console)
        version = store.register(spec.name, loaded.text, spec.question, source_of(loaded), [], [], [])
        if spec.fit is not None:
            facts = {"results": f"{table.origin} (sha256 {table.sha256})"}
            results = Results(loaded, version, table.frame, facts, table.notes)
            output = _analyse(results, store, places, None if as_json else Console())
            if as_json:
                _print_json({**output, "exit": int(Exit.OK)})
    return Exit.OK


def _outcome(launched: Launched) -> str:
    parts = [f"{launched.count('done')} of {len(launched.statuses)} runs done"]
    parts += [f"{launched.count(s)} {s}" for s in ("diverged", "failed") if launched.count(s)]
    left = launched.count("queued", "running", "interrupted")
    if left:
        parts.append(f"{left} left; the same command continues")
    if launched.count("failed"):
        parts.append("--retry-failed tries the failed ones again")
    if not launched.trained:
        parts.append("nothing to train")
    return ", ".join(parts)


def _exit_code(launched: Launched) -> Exit:
    if launched.interrupted:
        return Exit.INTERRUPTED
    return Exit.FAILED if launched.count("failed") else Exit.OK


@dataclass(frozen=True)
class Results:
    """What is analysed: one row per run, `facts` and `notes` of where they come from."""

    loaded: LoadedSpec
    version: int
    frame: pl.DataFrame
    facts: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def _analyse(results: Results, store: Store, places: Places, console: Console | None) -> dict[str, Any]:
    """Hand over to the engine: fit, store fits and predictions, write the report, print the tables."""
    from scaling import ledger
    from scaling.analysis import analyse
    from scaling.report import write_report

    spec = results.loaded.spec
    analysis = analyse(spec, results.frame)
    analysis = replace(analysis, notes=[*results.notes, *analysis.notes])
    output = analysis.to_json()
    code = {**code_version(Path.cwd()), "packages": packages()}
    scored = ledger.keep(
        store, spec, results.version, analysis, results.frame, data_hash=_data_hash(results), code=code
    )
    report = write_report(
        analysis, spec, results.frame, places.home / "reports" / f"{spec.name}.html", _provenance(results, store)
    )
    if console is not None:
        from scaling.console import summary

        for part in summary(analysis, spec):
            console.print(part)
        if scored:
            console.print(f"{scored} earlier predictions scored: python -m scaling.ledger", highlight=False)
        console.print(Text(f"report: {report}"), soft_wrap=True)
    return {**output, "report": str(report)}


def _check_metric(metric: str, logged: list[tuple[str, int]], plan: Plan) -> None:
    """Raises SpecError for a metric that no run has logged."""
    names = [name for name, _ in logged]
    if metric not in names:
        hint = nearest(metric, names) or f"; they logged {listed(names)}"
        raise plan.loaded.error("fit.of", f"no run has logged `{metric}`{hint}")


def _data_hash(results: Results) -> str:
    fit = results.loaded.spec.fit
    assert fit is not None
    data = results.frame.sort("run").write_csv().encode() + fit.model_dump_json().encode()
    return hashlib.sha256(data).hexdigest()


def _provenance(results: Results, store: Store) -> dict[str, Any]:
    loaded = results.loaded
    return {
        "spec_path": str(loaded.path),
        "spec_text": loaded.text,
        "command": shlex.join(["python", "-m", "launchers.sweep", str(loaded.path), *loaded.overrides]),
        "store": make_url(store.url).render_as_string(hide_password=True),
        "code": code_version(Path.cwd()),
        "packages": packages(),
        **results.facts,
    }


def _print_json(data: dict[str, Any]) -> None:
    print(orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode())


def main() -> None:
    app(prog_name="python -m launchers.sweep")


if __name__ == "__main__":
    main()
