from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import sqlalchemy as sa

from db import frames, schema
from db.errors import StoreError
from db.events import integer, real, words
from db.queries import sweep_id
from db.records import to_json

Row = dict[str, Any]


class AnalysisRecord:
    """The fits and predictions of one analysis, as rows."""

    def __init__(
        self, data_hash: str, found: Sequence[Mapping[str, Any]], predicted: Sequence[Mapping[str, Any]]
    ) -> None:
        self.now = time.time()
        self.data_hash = data_hash
        self.fits = [_fit_row(position, fit) for position, fit in enumerate(found)]
        self.predictions = [_prediction_row(position, item) for position, item in enumerate(predicted)]
        content = to_json([data_hash, list(map(dict, found)), list(map(dict, predicted))], sort_keys=True)
        self.digest = hashlib.sha256(content.encode()).hexdigest()

    def apply(self, connection: sa.Connection, sweep: str, version: int) -> None:
        """Add the rows, or only note the time if the same content is there."""
        table, sweeps = schema.analyses, schema.sweeps
        owner = sweep_id(connection, sweep)
        connection.execute(sa.select(sweeps.c.id).where(sweeps.c.id == owner).with_for_update())  # one at a time
        same = (table.c.sweep_id == owner) & (table.c.digest == self.digest)
        if connection.scalar(sa.select(table.c.id).where(same)) is not None:
            connection.execute(sa.update(table).where(same).values(confirmed=self.now))
            return
        self._check_version(connection, sweep, owner, version)
        head = {"sweep_id": owner, "version_id": version, "data_hash": self.data_hash, "digest": self.digest}
        connection.execute(sa.insert(table), {**head, "created": self.now, "confirmed": self.now})
        key = connection.execute(sa.select(table.c.id).where(same)).scalar_one()
        for part, rows in ((schema.fits, self.fits), (schema.predictions, self.predictions)):
            if rows:
                connection.execute(sa.insert(part), [{**row, "analysis_id": key} for row in rows])

    def _check_version(self, connection: sa.Connection, sweep: str, owner: int, version: int) -> None:
        table = schema.sweep_versions
        known = sa.select(table.c.id).where(table.c.id == version, table.c.sweep_id == owner)
        if connection.scalar(known) is None:
            raise StoreError(f"sweep '{sweep}' has no version {version}")


def _fit_row(position: int, fit: Mapping[str, Any]) -> Row:
    return {
        "position": position,
        **{name: words(fit.get(name)) for name in ("name", "law", "over", "status")},
        "metric": words(fit.get("of")),
        "groups": _object(fit.get("group")),
        "n": integer(fit.get("n")),
        "content": to_json(dict(fit)),
    }


def _prediction_row(position: int, item: Mapping[str, Any]) -> Row:
    held_out = item.get("held_out")
    return {
        "position": position,
        **{name: words(item.get(name)) for name in ("fit", "law")},
        "metric": words(item.get("of")),
        "place": _object(item.get("at")),
        "groups": _object(item.get("group")),
        **{name: real(item.get(name)) for name in ("value", "lo", "hi", "level", "observed")},
        "held_out": held_out if isinstance(held_out, bool) else None,
        "content": to_json(dict(item)),
    }


def _object(value: Any) -> str | None:
    return None if value is None else to_json(value)


def fits(connection: sa.Connection, sweep: str) -> pl.DataFrame:
    """One row per stored fit, newest analysis first."""
    return _rows(connection, sweep, schema.fits, FITS)


def predictions(connection: sa.Connection, sweep: str) -> pl.DataFrame:
    """One row per stored prediction, newest analysis first."""
    return _rows(connection, sweep, schema.predictions, PREDICTIONS)


HEAD: dict[str, Any] = {
    "analysis": pl.Int64,
    "version": pl.Int64,
    "data_hash": pl.String,
    "created": pl.Float64,
    "confirmed": pl.Float64,
    "latest": pl.Boolean,
}
FITS: dict[str, tuple[str, Any]] = {
    "name": ("name", pl.String),
    "law": ("law", pl.String),
    "metric": ("of", pl.String),
    "over": ("over", pl.String),
    "groups": ("group", pl.String),
    "status": ("status", pl.String),
    "n": ("n", pl.Int64),
    "content": ("content", pl.String),
}
PREDICTIONS: dict[str, tuple[str, Any]] = {
    "fit": ("fit", pl.String),
    "law": ("law", pl.String),
    "metric": ("of", pl.String),
    "place": ("at", pl.String),
    "groups": ("group", pl.String),
    "value": ("value", pl.Float64),
    "lo": ("lo", pl.Float64),
    "hi": ("hi", pl.Float64),
    "level": ("level", pl.Float64),
    "observed": ("observed", pl.Float64),
    "held_out": ("held_out", pl.Boolean),
    "content": ("content", pl.String),
}


def _rows(connection: sa.Connection, sweep: str, table: sa.Table, columns: dict[str, tuple[str, Any]]) -> pl.DataFrame:
    heads = schema.analyses
    owner = sweep_id(connection, sweep)
    # `confirmed` may tie on a coarse clock; the id decides then.
    newest = sa.select(heads.c.id).where(heads.c.sweep_id == owner)
    latest = connection.scalar(newest.order_by(heads.c.confirmed.desc(), heads.c.id.desc()).limit(1))
    query = (
        sa.select(
            *(heads.c[name] for name in ("id", "version_id", "data_hash", "created", "confirmed")),
            (heads.c.id == latest).label("latest"),
            *(table.c[name] for name in columns),
        )
        .join_from(table, heads)
        .where(heads.c.sweep_id == owner)
        .order_by(heads.c.confirmed.desc(), heads.c.id.desc(), table.c.position)
    )
    types = HEAD | dict(columns.values())
    return frames.from_rows(connection.execute(query), types)
