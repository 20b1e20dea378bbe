from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import sqlalchemy as sa

from db import connect, filesystem, migrate, schema
from db.bulk import writer_for
from db.errors import StoreError
from db.ingest import Ingester, IngestReport
from db.records import RunRecord, RunStatus, Selection
from db.register import Registration
from db.targets import Design

if TYPE_CHECKING:
    import polars as pl

    from db.ledger import Observation, Recorded

__all__ = ["Design", "IngestReport", "RunRecord", "RunStatus", "Selection", "Store", "StoreError"]
PLAIN = Design()


class Store:
    """A database of sweeps and runs. Any number of processes may use one database at once.

    Expected failures (no server, an alien file, a full disk, an unknown sweep) raise StoreError. Times are
    seconds since 1970 UTC.

        with Store.open("sqlite:///results/sweeplaw.db") as store:
            store.ingest(Path("results/runs"), run_ids)
            print(store.results("hyperp_width", "val_loss"))

    `notes` holds sentences for the person who opened it.
    """

    def __init__(self, url: str, engine: sa.Engine, address: connect.Address, notes: Sequence[str] = ()) -> None:
        self.url = url
        self.notes = tuple(notes)
        self._engine, self._address = engine, address
        self._writer = writer_for(engine)
        self._ingester = Ingester(engine, address, self._writer)

    def __repr__(self) -> str:
        return f"Store({str(self._address)!r})"

    @classmethod
    def open(cls, url: str, *, create: bool = True) -> Self:
        """Open a database by its SQLAlchemy URL; create its tables or bring them up to date where needed.

        With create=False a missing file or missing tables are an error. Before the tables of an existing
        SQLite file change, the file is copied beside itself.
        """
        address = connect.parse_url(url)
        _check_file(address, create)
        engine = connect.make_engine(address)
        try:
            with connect.translated(address):
                notes = _prepare(engine, address, create)
        except BaseException:
            engine.dispose()
            raise
        return cls(url, engine, address, notes)

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def register(  # noqa: PLR0917
        self,
        name: str,
        spec_text: str,
        question: str | None,
        task: str,
        runs: Sequence[RunRecord],
        selections: Sequence[Selection],
        infeasible: Sequence[tuple[dict[str, Any], str]],
    ) -> int:
        """Make `selections` what sweep `name` looks at, and store the runs that are new.

        Runs that are there keep their configuration; facts that were unknown are filled in. Returns the id of
        the sweep's version: a text launched before has its old id. Raises StoreError if a selection names a
        run that is neither in `runs` nor stored; then nothing is changed.
        """
        registration = Registration(name, spec_text, question, task, runs, selections, infeasible)
        return connect.transact(
            self._engine, self._address, lambda connection: registration.apply(connection, self._writer)
        )

    def ingest(self, runs_dir: Path, run_ids: Iterable[str]) -> IngestReport:
        """Read what is new in `<runs_dir>/<run id>/events.jsonl` of each run, exactly once.

        Runs without a log are passed over. Bad lines never stop it: they are counted and reported.
        """
        return self._ingester.run(runs_dir, run_ids)

    def statuses(self, run_ids: Iterable[str]) -> dict[str, RunStatus]:
        """Status of each registered run, by its latest attempt; ids that are not registered are left out.

        `running` means begun and not ended, as far as the log says: whether its process lives is not known here.
        """
        from db import queries

        ids = list(dict.fromkeys(run_ids))
        with self._reading() as connection:
            return queries.statuses(connection, ids)

    def results(
        self,
        sweep: str,
        metric: str,
        select: Literal["last", "best"] = "last",
        goal: Literal["min", "max"] = "min",
    ) -> pl.DataFrame:
        """One row per cell that the sweep looks at, in the spec's order.

        Columns: run, status, one per coordinate, one per derived value, n_params, flops, tokens (Float64),
        <metric> (Float64: at the last step, or the best one; null if never logged or not finite), seconds
        (Float64: wall time of all attempts). A name that occurs twice is one column: coordinate before
        derived value before fact. Coordinates have the type of their values: Int64, Float64 (also for
        integers mixed with floats), Boolean, String (also for other mixtures).
        """
        from db import queries

        with self._reading() as connection:
            return queries.results(connection, sweep, metric, select, goal)

    def metrics(self, run_ids: Iterable[str], names: Iterable[str] | None = None) -> pl.DataFrame:
        """Every logged value: run, name (String), step (Int64), time, value (Float64, NaN and ±inf as such).

        Grouped by run and name, steps ascending.
        """
        from db import queries

        ids, wanted = list(dict.fromkeys(run_ids)), None if names is None else list(dict.fromkeys(names))
        with self._reading() as connection:
            return queries.metric_rows(connection, ids, wanted)

    def runs(self, sweep: str) -> pl.DataFrame:
        """One row per cell that the sweep looks at: run, status, coordinates, derived values, attempt, reason,
        last_step, last_seen, task, n_params, flops, tokens, bytes, seconds, registered, bad_lines, alien_lines,
        config (JSON)."""
        from db import queries

        with self._reading() as connection:
            return queries.runs_of(connection, sweep)

    def attempts(self, sweep: str) -> pl.DataFrame:
        """One row per attempt of the sweep's runs: run, attempt, status, reason, started, ended, seconds, …"""
        from db import queries

        with self._reading() as connection:
            return queries.attempts_of(connection, sweep)

    def sweeps(self) -> pl.DataFrame:
        """One row per sweep, last launched first: sweep, version, question, task, created, launched, runs and
        how many of them are queued, running, done, diverged, failed, interrupted."""
        from db import queries

        with self._reading() as connection:
            return queries.sweeps(connection)

    def versions(self, sweep: str) -> pl.DataFrame:
        """Every text launched under the sweep's name: version, question, task, created, launched, spec_text."""
        from db import queries

        with self._reading() as connection:
            return queries.versions(connection, sweep)

    def infeasible(self, sweep: str) -> pl.DataFrame:
        """Cells of the current version that can't exist: coordinates and reason."""
        from db import queries

        with self._reading() as connection:
            return queries.infeasible(connection, sweep)

    def summaries(self, run_ids: Iterable[str]) -> pl.DataFrame:
        """Summary values: run, name, kind (int, float, bool, str, json), value (Float64), text (exact)."""
        from db import queries

        ids = list(run_ids)
        with self._reading() as connection:
            return queries.summaries(connection, ids)

    def artifacts(self, run_ids: Iterable[str]) -> pl.DataFrame:
        """Sample files: run, name, file (relative to the run's folder), n, bytes, sha256, time."""
        from db import queries

        ids = list(run_ids)
        with self._reading() as connection:
            return queries.artifacts(connection, ids)

    def metric_names(self, sweep: str) -> list[tuple[str, int]]:
        """(name, number of the sweep's runs that logged it), by name."""
        from db import queries

        with self._reading() as connection:
            return queries.metric_names(connection, sweep)

    def speed(self, task: str) -> pl.DataFrame:
        """What finished runs of a task took: run, flops, tokens, n_params, seconds, threads, device, host.

        Only attempts that went from the first step to the end: a continued one took less than the whole.
        """
        from db import queries

        with self._reading() as connection:
            return queries.speed(connection, task)

    def save_analysis(
        self,
        sweep: str,
        version: int,
        data_hash: str,
        fits: Sequence[Mapping[str, Any]],
        predictions: Sequence[Mapping[str, Any]],
        *,
        design: Design = PLAIN,
        code: Mapping[str, Any] | None = None,
    ) -> None:
        """Store fits and predictions for ever, as one analysis; the same content for the same data adds nothing.

        Every prediction in it enters the ledger, as by `record_predictions`.
        """
        from db.analyses import AnalysisRecord

        record = AnalysisRecord(data_hash, fits, predictions, design, code)
        connect.transact(
            self._engine, self._address, lambda connection: record.apply(connection, self._writer, sweep, version)
        )

    def record_predictions(
        self,
        sweep: str,
        version: int,
        data_hash: str,
        fits: Sequence[Mapping[str, Any]],
        predictions: Sequence[Mapping[str, Any]],
        *,
        design: Design = PLAIN,
        code: Mapping[str, Any] | None = None,
    ) -> Recorded:
        """Enter predictions, with the fits that they are of, into the ledger; returns the ids of both.

        A fit has `name`, `law`, `formula`, `of`, `over`, `group`, `status`, `n`, `objective`, `params` and `rows`; a
        prediction `fit` (the name), `law`, `of`, `at`, `group`, `value`, `lo`, `hi`, `level`, `basis`, `run_noise`
        (whether the interval holds the noise of one new run), `decades` and `beyond` (how far outside the data of the
        fit, and in what), `assumptions`, `held_out` and `observed`; each as far as it is known. `fit_number` says
        which of `fits` it is of where names tie.

        The time of a prediction is that of its first record: what an identical fit says again is not stored again.
        `design` says how the sweep's runs become values, `code` what made the prediction. Raises StoreError for an
        unknown sweep or version.
        """
        from db.ledger import Record

        record = Record(data_hash, fits, predictions, design, code)
        return connect.transact(
            self._engine, self._address, lambda connection: record.apply(connection, self._writer, sweep, version)
        )

    def score_predictions(self, observations: Sequence[Observation] = ()) -> int:
        """Score the open predictions of all sweeps whose runs have all ended; returns how many were scored.

        Runs of any sweep answer a prediction if their task, place and other settings are those it was made for. A
        score is written once and stays. Where hyperparameters are tuned, no single run answers: `observations` are
        the optima that an analysis found.
        """
        from db import ledger

        with self._reading() as connection:
            if not ledger.any_open(connection):
                return 0
        scoring = ledger.Scoring(observations)
        return connect.transact(self._engine, self._address, lambda connection: scoring.apply(connection, self._writer))

    def ledger(self, sweep: str | None = None) -> pl.DataFrame:
        """One row per prediction of a sweep, or of all, oldest first.

        Columns: prediction, sweep, version, fit_id, fit, law, formula, over, objective (JSON), rows_hash, data_hash,
        of, at (JSON), group (JSON), made, value, lo, hi, level, basis, decades, beyond, assumptions, code (JSON),
        held_out, then its fate: status (`open`, `scored`, `made after` the run was known, `held out`, `diverged`),
        observed, stderr, n (runs), diverged (runs), error (observed / value - 1), inside, z, log_score, finished,
        lead (seconds from the prediction to the end of the first run), scored, runs (JSON), superseded (a newer fit
        of that name predicts the same). For open ones what would score them: task, tune (JSON), waits (JSON: status
        of known runs -> their ids), shared (JSON: what their configurations must hold).
        """
        from db import ledger

        with self._reading() as connection:
            return ledger.read(connection, sweep)

    def fits(self, sweep: str) -> pl.DataFrame:
        """Stored fits, newest analysis first (`latest`): analysis, version, data_hash, created, confirmed,
        latest, name, law, of, over, group (JSON), status, n, content (JSON: the whole fit), id."""
        from db import analyses

        with self._reading() as connection:
            return analyses.fits(connection, sweep)

    def predictions(self, sweep: str) -> pl.DataFrame:
        """Stored predictions, newest analysis first (`latest`): analysis, version, data_hash, created, confirmed,
        latest, fit, law, of, at (JSON), group (JSON), value, lo, hi, level, observed, held_out, content, id, fit_id."""
        from db import analyses

        with self._reading() as connection:
            return analyses.predictions(connection, sweep)

    def _reading(self) -> Any:
        return connect.reading(self._engine, self._address)


def _check_file(address: connect.Address, create: bool) -> None:
    file = address.file
    if file is None:
        return
    if file.is_dir():
        raise StoreError(f"{address}: '{file}' is a folder, expected a file such as '{file / 'sweeplaw.db'}'")
    if not file.exists() and not create:
        raise StoreError(f"{address}: there is no database file '{file}' yet")
    if create:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{address}: can't make folder '{file.parent}': {error.strerror}") from None


def _prepare(engine: sa.Engine, address: connect.Address, create: bool) -> list[str]:
    """Bring the schema and SQLite's journal into order; returns notes for the user."""
    notes: list[str] = []
    with connect.reading(engine, address) as connection:
        version = migrate.read_version(connection)
        if version != schema.HEAD:
            migrate.check(connection, address, version)
    if version is None and not create:
        raise StoreError(f"{address}: the database holds no sweeplaw tables yet")
    if version != schema.HEAD:
        copy = migrate.upgrade(engine, address)
        if copy is not None:
            notes.append(f"the database had schema version {version}; a copy of it is '{copy}'")
    if address.file is not None:
        notes.extend(_choose_journal(engine, address.file))
    return notes


def _choose_journal(engine: sa.Engine, file: Path) -> list[str]:
    kind = filesystem.file_system(file)
    if not filesystem.is_shared(kind):
        connect.set_journal(engine, "wal")
        return []
    mode = connect.set_journal(engine, "delete")
    return [
        f"'{file}' is on a {kind} file system, so SQLite uses journal mode '{mode}' and should be used from one "
        "machine at a time; for several machines give a postgresql:// URL"
    ]
