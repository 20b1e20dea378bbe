from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import sqlalchemy as sa

from db import frames, schema
from db.bulk import Writer
from db.ledger import Record, lock_sweep
from db.queries import sweep_id
from db.records import to_json
from db.targets import Design

Item = Mapping[str, Any]


class AnalysisRecord:
    """The fits and predictions of one analysis, as rows."""

    def __init__(
        self, data_hash: str, found: Sequence[Item], predicted: Sequence[Item], design: Design, code: Item | None
    ) -> None:
        self.record = Record(data_hash, found, predicted, design, code)
        content = to_json([data_hash, list(map(dict, found)), list(map(dict, predicted))], sort_keys=True)
        self.digest = hashlib.sha256(content.encode()).hexdigest()

    def apply(self, connection: sa.Connection, writer: Writer, sweep: str, version: int) -> None:
        """Add the rows, or only note the time if the same content is there."""
        table, now = schema.analyses, self.record.now
        owner = lock_sweep(connection, sweep)
        same = (table.c.sweep_id == owner) & (table.c.digest == self.digest)
        if connection.scalar(sa.select(table.c.id).where(same)) is not None:
            connection.execute(sa.update(table).where(same).values(confirmed=now))
            return
        recorded = self.record.apply(connection, writer, sweep, version)
        head = {"sweep_id": owner, "version_id": version, "data_hash": self.record.data_hash, "digest": self.digest}
        connection.execute(sa.insert(table), {**head, "created": now, "confirmed": now})
        key = connection.execute(sa.select(table.c.id).where(same)).scalar_one()
        for part, name, ids in (
            (schema.analysis_fits, "fit_id", recorded.fits),
            (schema.analysis_predictions, "prediction_id", recorded.predictions),
        ):
            if ids:
                rows = [{"analysis_id": key, "position": position, name: item} for position, item in enumerate(ids)]
                connection.execute(sa.insert(part), rows)


def fits(connection: sa.Connection, sweep: str) -> pl.DataFrame:
    """One row per stored fit, newest analysis first."""
    return _rows(connection, sweep, schema.fits, schema.analysis_fits.c.fit_id, FITS)


def predictions(connection: sa.Connection, sweep: str) -> pl.DataFrame:
    """One row per stored prediction, newest analysis first."""
    return _rows(connection, sweep, schema.predictions, schema.analysis_predictions.c.prediction_id, PREDICTIONS)


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
    "id": ("id", pl.Int64),
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
    "id": ("id", pl.Int64),
    "fit_id": ("fit_id", pl.Int64),
}


def _rows(
    connection: sa.Connection,
    sweep: str,
    table: sa.Table,
    member: sa.Column[int],
    columns: dict[str, tuple[str, Any]],
) -> pl.DataFrame:
    heads, members = schema.analyses, member.table
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
        .join_from(members, heads, members.c.analysis_id == heads.c.id)
        .join(table, table.c.id == member)
        .where(heads.c.sweep_id == owner)
        .order_by(heads.c.confirmed.desc(), heads.c.id.desc(), members.c.position)
    )
    types = HEAD | dict(columns.values())
    return frames.from_rows(connection.execute(query), types)
