"""Tables that exist already as results: read, named, converted, cleaned, and what was done said aloud."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import polars as pl
import sqlalchemy as sa

from db import cells, frames, sanity
from db.table_files import Raw, UnreadableTable, read_file, run_query
from db.table_names import Uses
from sweeps.errors import ExpressionError, NoValue, SpecError, SweeplawError, listed, nearest, shown
from sweeps.expressions import Expression, compile_expression
from sweeps.load import LoadedSpec
from sweeps.schema import FACTS, Count, FitSpec, LawSpec, ResultsSpec
from sweeps.table_checks import RESERVED, derived_order

STATUSES = ("done", "diverged", "failed", "interrupted", "running", "queued")
MISSING_WORDS = ("na", "n/a", "nil", "none", "null", "-", "--", "?", "missing")
ROW = "__row"  # place of a row in the source, from 0


class TableError(SweeplawError):
    """A table holds what can't be a result; the text names the table, the row and the column."""


@dataclass(frozen=True)
class Table:
    """The rows of a table as `scaling.analysis` wants them, and what was done to get there.

    `frame` has run, status, the axes, comparisons, tuned names and replicates, derived names, then every other column
    that has a usable name. Metrics may be null (missing), NaN or infinite (diverged). `counts` says what n_params
    counts, None if it isn't told or differs. `sha256` is of the source, `rows` how many it has, `left_out` how many of
    them were left out by which reason.
    """

    frame: pl.DataFrame
    notes: tuple[str, ...]
    counts: str | None
    sha256: str
    origin: str
    rows: int
    left_out: tuple[tuple[str, int], ...]


def read_table(loaded: LoadedSpec) -> Table:
    """The table of a spec with `results`.

    Raises SpecError where the spec names what the table doesn't have or leaves a unit open, TableError where a cell,
    a row or all rows can't be results, StoreError where a store can't be asked.
    """
    return _Reading(loaded).table()


def source_of(loaded: LoadedSpec) -> str:
    """The table of a spec with `results`, in words and without passwords."""
    given = loaded.spec.results
    assert given is not None
    if given.path is not None:
        return f"results: {given.path}"
    url = sa.make_url(given.store or "").render_as_string(hide_password=True)
    return f"results: a query on {url}"


class _Reading:
    def __init__(self, loaded: LoadedSpec) -> None:
        assert loaded.spec.results is not None
        self.loaded, self.spec = loaded, loaded.spec
        self.given: ResultsSpec = loaded.spec.results
        self.want = loaded.spec.fit or FitSpec()
        self.uses = Uses(loaded.spec)
        self.notes: list[str] = []
        self.left: list[tuple[str, int]] = []
        self.raw = self._read()
        self.titles = self._titles()
        self.bad: dict[str, dict[int, str]] = {}

    def table(self) -> Table:
        if not len(self.raw.frame):
            raise TableError(f"{self.raw.origin}: no rows below the titles.")
        self.frame = self._columns()
        self._known()
        self._keep(self.given.where, "results.where")
        self._refuse_words()
        self._ask_units()
        self._derive()
        self._keep(self.spec.where, "where")
        if self.given.schedule is not None:
            self._keep([self.given.schedule], "results.schedule", "whose learning-rate schedule was not at its end")
        self._finite()
        self._refuse_nothing()
        self._identify()
        self._refuse_mixed_counts()
        self._refuse_checkpoints()
        self._collapse()
        self._look_at_units()
        return Table(
            self._ordered(), (*self._first_note(), *self.notes), self._counts(), self.raw.sha256,
            self.raw.origin, len(self.raw.frame), tuple(self.left),
        )  # fmt: skip

    # source

    def _read(self) -> Raw:
        key = "path" if self.given.path is not None else "query"
        try:
            if self.given.path is not None:
                return read_file(self._beside(Path(self.given.path), "path"))
            return run_query(self._store(), self.given.query or "")
        except UnreadableTable as error:
            raise self._error(f"results.{key}", str(error)) from None

    def _store(self) -> str:
        """The store's URL, the file of a SQLite one beside the spec."""
        text = self.given.store or ""
        try:
            url = sa.make_url(text)
        except (sa.exc.ArgumentError, ValueError):
            return text
        if url.get_backend_name() != "sqlite" or not url.database:
            return text
        return url.set(database=str(self._beside(Path(url.database), "store"))).render_as_string(hide_password=False)

    def _beside(self, path: Path, key: str) -> Path:
        """A relative path counts from the spec's folder, or from here if it was typed as an override."""
        typed = any(text.lstrip("+").startswith(f"results.{key}=") for text in self.loaded.overrides)
        return path if typed else self.loaded.path.parent / path

    def _error(self, key: str, text: str) -> SpecError:
        return self.loaded.error(key, text)

    # columns

    def _titles(self) -> dict[str, str]:
        """Name -> title of the column: as `results.columns` says, else the titles that are names."""
        there = self.raw.frame.columns
        found = {}
        for name, column in self.given.columns.items():
            title = column.column or name
            if title not in there:
                hint = nearest(title, there) or f"; there are {listed(there, 30)}"
                raise self._error(f"results.columns.{name}", f"no column `{title}` in {self.raw.origin}{hint}")
            found[name] = title
        moved = set(found.values())
        own = {t: t for t in there if t.isidentifier() and t not in RESERVED and t not in moved and t not in found}
        return found | own

    def _columns(self) -> pl.DataFrame:
        columns = [self._column(name, title) for name, title in self.titles.items() if name not in self.spec.derive]
        return pl.DataFrame([pl.int_range(len(self.raw.frame), eager=True).alias(ROW), *columns])

    def _column(self, name: str, title: str) -> pl.Series:
        column = self.raw.frame[title]
        mapped = self.given.columns.get(name)
        unit = mapped.unit if mapped is not None else None
        if not self._must_be_number(name) and unit is None:
            return cells.as_it_is(column, self.given.missing).alias(name)
        found = cells.numbers(column, self.given.missing)
        if found.bad:
            self.bad[name] = found.bad
        values = found.values if unit in (None, 1) else found.values.cast(pl.Float64) * unit
        return values.alias(name)

    def _must_be_number(self, name: str) -> bool:
        return name in FACTS or any(w.name == name and w.number for w in self.uses.wanted)

    def _known(self) -> None:
        """Raises SpecError for a name that is neither a column nor derived."""
        known = [name for name in self.frame.columns if name != ROW] + list(self.spec.derive)
        uses = [(w.key, w.name) for w in self.uses.wanted]
        uses += [(key, name) for key, rule in self.uses.rules for name in sorted(rule.names)]
        for key, name in uses:
            if name not in known:
                raise self._error(key, f"no column `{name}` in {self.raw.origin}{self._hint(name, known)}")
        for key, rule in self.uses.rules:
            early = sorted(rule.names & self.spec.derive.keys()) if key.startswith("results.where") else []
            if early:
                raise self._error(key, f"`{early[0]}` is derived, and comes later: put the condition under `where`")

    def _hint(self, name: str, known: Sequence[str]) -> str:
        titles = [t for t in self.raw.frame.columns if t not in self.titles.values()]
        if (near := nearest(name, known)) or not (title := nearest(name, titles)):
            return near or f"; there are {listed(known, 30)}"
        return f"{title} (give it the name under `results.columns`)"

    def _refuse_words(self) -> None:
        """Raises TableError for words in columns that must hold numbers, of the rows that are read."""
        kept = set(self.frame[ROW].to_list())
        for name, found in self.bad.items():
            rows = [row for row in found if row in kept]
            if not rows:
                continue
            word = found[rows[0]]
            more = f" (and {len(rows) - 1} more of that column)" if len(rows) > 1 else ""
            hint = f"; if it means a missing number, write results.missing: [{word}]"
            raise TableError(
                f"{self.raw.origin}: {self._row(rows[0])}: {self.titles[name]} = '{shown(word, 40)}' is not a number"
                f"{more}{hint if word.lower() in MISSING_WORDS else ''}."
            )

    def _ask_units(self) -> None:
        """Raises SpecError for a column whose title names a unit that the spec doesn't."""
        for name, title in self.titles.items():
            mapped = self.given.columns.get(name)
            key = self.uses.place_of(name) if mapped is None else f"results.columns.{name}"
            if key is None or (mapped is not None and mapped.unit is not None):
                continue
            unit = sanity.unit_of_title(title)
            if unit is None or not self.frame[name].dtype.is_numeric():
                continue
            called = sanity.NAMES.get(unit, f"units of {sanity.short(unit)}")
            raise self._error(
                key,
                f"column {title}: {sanity.span(self.frame[name])}. If these are {called}, write "
                f"{name}: {{column: {title}, unit: {sanity.short(unit)}}} under results.columns; if not, unit: 1",
            )

    def _row(self, index: int) -> str:
        """`row 11 (run a41f)`, as a person counts rows below the titles."""
        title = self._run_title
        label = None if title is None else self.raw.frame[title][index]
        return f"row {index + 1}" + (f" (run {shown(label, 30)})" if label is not None else "")

    # derived columns and conditions

    def _derive(self) -> None:
        for name in derived_order(self.spec):
            rule = compile_expression(self.spec.derive[name].expr)
            values = [self._value(f"derive.{name}.expr", rule, row, index) for index, row in self._rows(rule)]
            self.frame = self.frame.with_columns(frames.series(name, values))

    def _rows(self, rule: Expression) -> Iterator[tuple[int, dict[str, Any]]]:
        """Place in the source and the values that `rule` reads, of every row."""
        rows = self.frame.select(sorted(rule.names)).rows(named=True) if rule.names else [{}] * len(self.frame)
        yield from zip(self.frame[ROW].to_list(), rows, strict=True)

    def _value(self, key: str, rule: Expression, row: Mapping[str, Any], index: int) -> float | None:
        try:
            return rule.number(row)
        except NoValue:
            diverged = any(isinstance(value, float) and not math.isfinite(value) for value in row.values())
            return math.nan if diverged else None
        except ExpressionError as error:
            if None in row.values():
                return None
            raise self._error(key, f"{self._row(index)}: {error}") from None

    def _keep(self, conditions: Sequence[str], key: str, reason: str | None = None) -> None:
        for number, text in enumerate(conditions):
            rule = compile_expression(text)
            place = key if reason else f"{key}.{number}"
            held = [self._holds(place, rule, row, index) for index, row in self._rows(rule)]
            self._drop(pl.Series(held, dtype=pl.Boolean), reason or f"by `{text}`")

    def _holds(self, key: str, rule: Expression, row: Mapping[str, Any], index: int) -> bool:
        try:
            value = rule(row)
        except NoValue:
            return False
        except ExpressionError as error:
            if None in row.values():
                return False
            raise self._error(key, f"{self._row(index)}: {error}") from None
        if not isinstance(value, bool) and value not in (0, 1):
            raise self._error(key, f"`{shown(rule.text)}` must give true or false, but gives {value!r}")
        return bool(value)

    def _drop(self, kept: pl.Series, reason: str) -> None:
        lost = len(kept) - int(kept.sum())
        if lost:
            self.left.append((reason, lost))
            self.frame = self.frame.filter(kept)
        if not len(self.frame):
            why = ", ".join(f"{count} {reason}" for reason, count in self.left)
            raise TableError(f"{self.raw.origin}: none of its {_rows(len(self.raw.frame))} is left: {why}.")

    # rows

    def _finite(self) -> None:
        """NaN and infinities are kept in metrics and missing elsewhere; rows without a place are left out."""
        places = [*self.spec.axes, *self.spec.tune]
        plain = [c for c in self.frame.columns if self.frame[c].dtype == pl.Float64 and c not in self.uses.metrics]
        self.frame = self.frame.with_columns(pl.when(pl.col(c).is_finite()).then(pl.col(c)).alias(c) for c in plain)
        for name in places:
            self._drop(self.frame[name].is_not_null(), f"without {name}")

    def _refuse_nothing(self) -> None:
        """Raises TableError where nothing was measured."""
        of = self.want.of
        if self.spec.fit is not None and self.frame[of].null_count() == len(self.frame):
            raise TableError(f"{self.raw.origin}: no row that enters ({len(self.frame)}) has a {of}.")

    @cached_property
    def _run_title(self) -> str | None:
        """The title of the column that names runs."""
        if self.given.run is None:
            return "run" if "run" in self.raw.frame.columns else None
        return self._title_of(self.given.run, "results.run")

    def _title_of(self, word: str, key: str) -> str:
        """The title meant by a name of the spec or a title."""
        known = [*self.titles, *self.raw.frame.columns]
        if word not in known:
            hint = nearest(word, known) or f"; there are {listed(dict.fromkeys(known), 30)}"
            raise self._error(key, f"no column `{word}` in {self.raw.origin}{hint}")
        return self.titles.get(word, word)

    def _cells_of(self, title: str) -> pl.Series:
        """A column of the source at the rows that are left."""
        return self.raw.frame[title].gather(self.frame[ROW])

    def _identify(self) -> None:
        """The columns run and status."""
        numbered = pl.Series([f"row {index + 1}" for index in self.frame[ROW]])
        self.labels = None if self._run_title is None else cells.words(self._cells_of(self._run_title))
        unique = self.labels is not None and not self.labels.null_count() and self.labels.is_unique().all()
        run = self.labels if unique and self.labels is not None else numbered
        self.frame = self.frame.with_columns(run.alias("run"), self._status().alias("status"))

    def _status(self) -> pl.Series:
        status = pl.Series(["done"] * len(self.frame))
        if "status" in self.raw.frame.columns:
            said = cells.words(self._cells_of("status"))
            status = said if bool(said.is_in(STATUSES).all()) else status
        diverged = self._flag()
        if self.spec.fit is not None:
            value = self.frame[self.want.of].cast(pl.Float64)
            diverged = diverged | (value.is_not_null() & ~value.is_finite()).fill_null(value=False)
        return pl.select(pl.when(diverged).then(pl.lit("diverged")).otherwise(status)).to_series()

    def _flag(self) -> pl.Series:
        """Whether each row's run is marked as diverged."""
        nothing = pl.Series([False] * len(self.frame))
        if self.given.diverged is None and "diverged" not in self.raw.frame.columns:
            return nothing
        title = self._title_of(self.given.diverged or "diverged", "results.diverged")
        found = cells.numbers(self._cells_of(title))
        if found.bad or not bool(found.values.drop_nulls().is_in([0, 1]).all()):
            word = next(iter(found.bad.values()), sanity.span(found.values))
            raise TableError(f"{self.raw.origin}: {title} = '{word}': expected true or false, or 1 or 0.")
        return found.values.fill_null(0).cast(pl.Boolean)

    def _refuse_checkpoints(self) -> None:
        """Raises SpecError where rows of one run, at different places, are about to be taken for independent."""
        if self.labels is None or self.want.cluster is not None or self.spec.fit is None or not self._coordinates:
            return
        rows = self.frame.select(*self._coordinates, self.labels.alias("__label")).drop_nulls("__label")
        places = rows.group_by("__label").agg(pl.struct(self._coordinates).n_unique().alias("places"))
        runs = int((places["places"] > 1).sum())
        if not runs:
            return
        name = next((n for n, t in self.titles.items() if t == self._run_title), None)
        cure = f"`cluster: {name or 'run_name'}`"
        if name is None:
            cure += f", with `columns: {{run_name: {self._run_title}}}` and `run: run_name` under results"
        raise self._error(
            "fit",
            f"{_rows(len(rows))} belong to {_several(len(places), 'run')} (column {self._run_title}), "
            f"{runs} of them at several places: rows of one run are not independent, so write {cure}",
        )

    @property
    def _coordinates(self) -> list[str]:
        spec = self.spec
        return [*spec.axes, *spec.compare, *spec.tune, *spec.replicates]

    def _collapse(self) -> None:
        """Leaves out rows that are there twice, and says which rows will be averaged as replicates."""
        place = self._coordinates
        if not place or not self.uses.metrics:
            return
        if self.labels is not None:
            self.frame = self.frame.with_columns(self.labels.alias("__label"))
            place = [*place, "__label"]
        twice = sanity.repeated(self.frame, place, self.uses.metrics)
        if twice.any():
            rows = self.frame.filter(twice)[ROW].to_list()
            said = ", ".join(str(row + 1) for row in rows[:5]) + (", …" if len(rows) > 5 else "")
            self.notes.append(
                f"{_rows(len(rows))} of the same place and value as an earlier one, counted once: {said}."
            )
            self._drop(~twice, "that repeat another")
        self.frame = self.frame.drop("__label", strict=False)
        self._say_replicates()

    def _say_replicates(self) -> None:
        places = self.frame.group_by(self._coordinates).len().filter(pl.col("len") > 1)
        if not len(places):
            return
        several, rows = len(places), int(places["len"].sum())
        where = "1 place has" if several == 1 else f"{several} places have"
        if self.spec.replicates:
            text = f"{where} several rows of the same {', '.join(self.spec.replicates)} ({rows} rows)"
        else:
            text = f"{where} several rows ({rows} in all), and no column of seeds is named: taken as replicates"
        self.notes.append(f"{text}.")

    # units and counts

    def _look_at_units(self) -> None:
        for name in sanity.WINDOWS:
            if name in self.frame.columns and self.frame[name].dtype.is_numeric():
                warned = sanity.window(name, self.frame[name])
                if warned is not None and warned.fatal:
                    raise TableError(f"{self.raw.origin}: {warned.text}")
                if warned is not None:
                    self.notes.append(warned.text)

    @cached_property
    def _counted(self) -> pl.Series | None:
        """What n_params counts in each row of the source; None if the spec doesn't say."""
        given = self.given.counts
        if given is None:
            return None
        if given.column is None:
            return pl.Series([given.all_rows] * len(self.raw.frame))
        title = self._title_of(given.column, "results.counts.column")
        said = cells.words(self.raw.frame[title], self.given.missing)
        meaning = {word: word for word in get_args(Count)} | given.values
        for word in said.drop_nulls().unique(maintain_order=True):
            if word not in meaning:
                raise self._error(
                    "results.counts",
                    f"`{word}` in column {title} is none of {listed(get_args(Count))}; say what it means, such as "
                    f"values: {{{word}: all}}",
                )
        return said.replace_strict(meaning, default=None, return_dtype=pl.String)

    def _counts(self) -> str | None:
        if self._counted is None:
            return None
        kinds = self._counted.gather(self.frame[ROW]).unique()
        return str(kinds[0]) if len(kinds) == 1 and kinds[0] is not None else None

    def _refuse_mixed_counts(self) -> None:
        """Raises SpecError for a law of n_params that sees two ways to count them."""
        if self._counted is None:
            return
        frame = self.frame.with_columns(self._counted.gather(self.frame[ROW]).alias("__counts"))
        for index, law in enumerate(self.want.laws):
            if "n_params" not in (*law.inputs, law.of or self.want.of):
                continue
            rows = self._entering(frame, law)
            by = list(self.spec.compare)
            for group in rows.partition_by(by) if by else [rows]:
                kinds = group.group_by("__counts", maintain_order=True).len().rows()
                if len(kinds) > 1:
                    said = " and ".join(f"{_rows(count)} of {kind}" for kind, count in kinds)
                    raise self._error(
                        f"fit.laws.{index}",
                        f"n_params counts different things in one fit: {said}; choose with `where`, or compare them",
                    )

    def _entering(self, frame: pl.DataFrame, law: LawSpec) -> pl.DataFrame:
        if law.where is None:
            return frame
        rule = compile_expression(law.where)
        return frame.filter(pl.Series([self._holds("fit", rule, row, i) for i, row in self._rows(rule)]))

    # result

    def _first_note(self) -> list[str]:
        why = ", ".join(f"{count} {reason}" for reason, count in self.left)
        if not why:
            return []
        return [
            f"{len(self.frame)} of {len(self.raw.frame)} rows of {Path(self.raw.origin).name} enter; left out: {why}."
        ]

    def _ordered(self) -> pl.DataFrame:
        first = list(dict.fromkeys(["run", "status", *self._coordinates, *self.spec.derive]))
        rest = [name for name in self.frame.columns if name not in first and name != ROW]
        return self.frame.select([*first, *rest])


def _rows(count: int) -> str:
    return _several(count, "row")


def _several(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
