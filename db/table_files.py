"""Tables as they stand in a file, or as a query on a store gives them: titles and cells, nothing interpreted."""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import polars as pl
from polars.exceptions import PolarsError

from db import connect, frames

PARQUET = b"PAR1"
COMMENT = "#"


@dataclass(frozen=True)
class Raw:
    """A table: cells of a CSV file are text, those of Parquet files and queries have their types.

    `origin` names it for a person; `sha256` is of the file's bytes, or of a query's rows.
    """

    frame: pl.DataFrame
    origin: str
    sha256: str


class UnreadableTable(Exception):
    """A table that can't be read; the text says why, without naming it."""


def read_file(path: Path) -> Raw:
    """A CSV file (commas or tabs; lines that start with # are comments) or a Parquet file, told by its bytes.

    Raises UnreadableTable.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise UnreadableTable(f"there is no file {path}{_similar(path)}") from None
    except IsADirectoryError:
        raise UnreadableTable(f"{path} is a folder, not a table") from None
    except OSError as error:
        raise UnreadableTable(f"{path} can't be read: {error.strerror or error}") from None
    try:
        frame = _parquet(data) if data.startswith(PARQUET) else _csv(data)
    except UnreadableTable as error:
        raise UnreadableTable(f"{path}: {error}") from None
    return Raw(frame, str(path), hashlib.sha256(data).hexdigest())


def _similar(path: Path) -> str:
    if not path.parent.is_dir():
        return f" (nor a folder {path.parent})"
    names = sorted(p.name for p in path.parent.iterdir() if p.suffix in (".csv", ".tsv", ".parquet"))
    found = difflib.get_close_matches(path.name, names, n=1, cutoff=0.5)
    return f"; did you mean {path.with_name(found[0])}?" if found else ""


def _parquet(data: bytes) -> pl.DataFrame:
    try:
        return pl.read_parquet(io.BytesIO(data))
    except PolarsError:
        raise UnreadableTable("not a whole Parquet file; it may have been cut short") from None


def _csv(data: bytes) -> pl.DataFrame:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UnreadableTable(
            f"line {line} is not UTF-8 (byte 0x{data[error.start]:02x}); save the table as CSV in UTF-8, or as Parquet"
        ) from None
    head = next((line for line in io.StringIO(text) if line.strip() and not line.startswith(COMMENT)), None)
    if head is None:
        raise UnreadableTable("empty: expected a line of column titles, then rows")
    separator = "\t" if "\t" in head and "," not in head else ","
    if ";" in head and separator not in head:
        raise UnreadableTable("columns are separated by `;`; expected commas or tabs")
    titles = [title.strip() for title in next(csv.reader([head], delimiter=separator))]
    twice = sorted({title for title in titles if titles.count(title) > 1})
    if twice:
        raise UnreadableTable(f"two columns are called `{twice[0]}`")
    try:
        frame = pl.read_csv(
            io.BytesIO(text.encode()), infer_schema=False, comment_prefix=COMMENT, separator=separator,
            schema=dict.fromkeys(titles, pl.String), has_header=True,
        )  # fmt: skip
    except PolarsError as error:
        raise UnreadableTable(_reason(text, separator, error)) from None
    return frame.filter(pl.any_horizontal(pl.all().is_not_null()))  # blank lines are no rows


def _reason(text: str, separator: str, error: Exception) -> str:
    """What is wrong in a CSV text that can't be read, and where."""
    lines = [(number, line) for number, line in enumerate(io.StringIO(text), 1) if line.strip() and line[0] != COMMENT]
    reader = csv.reader((line for _, line in lines), delimiter=separator, strict=True)
    width, number = 0, 0
    try:
        for row in reader:
            number = lines[reader.line_num - 1][0]
            if width and len(row) > width:
                return f"line {number} has {len(row)} cells where the header has {width}"
            width = width or len(row)
    except csv.Error as problem:
        number = lines[min(reader.line_num, len(lines)) - 1][0]
        return f"line {number}: {'a quote is never closed' if 'end of data' in str(problem) else problem}"
    return str(error).splitlines()[0]


def run_query(url: str, query: str) -> Raw:
    """The rows of one SELECT on a store, in a transaction that can't write.

    Raises UnreadableTable for a statement that isn't a SELECT, and StoreError where the store can't be asked.
    """
    address = connect.parse_url(url)
    text = _one_select(query)
    if address.url.get_backend_name() not in ("sqlite", "postgresql"):
        raise UnreadableTable(f"{address}: expected a sqlite or postgresql store")
    if address.is_sqlite and (address.file is None or not address.file.is_file()):
        raise UnreadableTable(f"{address}: there is no such file")
    engine = connect.make_engine(address)
    lock = "PRAGMA query_only=ON" if address.is_sqlite else "SET TRANSACTION READ ONLY"
    try:
        with connect.reading(engine, address) as connection:
            connection.exec_driver_sql(lock)
            result = connection.exec_driver_sql(text)
            titles, rows = list(result.keys()), [tuple(row) for row in result]
    finally:
        engine.dispose()
    return _of_rows(titles, rows, str(address))


def _one_select(query: str) -> str:
    text = query.strip().rstrip(";").rstrip()
    if ";" in text:
        raise UnreadableTable("expected one SELECT, found a `;` inside the query")
    word = text.split(None, 1)[0].upper() if text else ""
    if word not in ("SELECT", "WITH", "VALUES"):
        raise UnreadableTable(f"expected a SELECT, found `{word or 'nothing'}`")
    return text


def _of_rows(titles: list[str], rows: list[tuple[object, ...]], origin: str) -> Raw:
    twice = sorted({title for title in titles if titles.count(title) > 1})
    if twice:
        raise UnreadableTable(f"two columns of the query are called `{twice[0]}`")
    columns = [frames.series(title, [_plain(row[i]) for row in rows]) for i, title in enumerate(titles)]
    frame = pl.DataFrame(columns)
    return Raw(frame, origin, hashlib.sha256(frame.write_csv().encode()).hexdigest())


def _plain(value: object) -> object:
    """A database's value as JSON would have it."""
    if isinstance(value, bool | int | float | str | None):
        return value
    return float(value) if isinstance(value, Decimal) else str(value)
