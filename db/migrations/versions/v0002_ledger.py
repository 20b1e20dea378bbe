"""The ledger: fits and predictions stored once each, apart from the analyses that they are part of, and scores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
LABEL = sa.Text().with_variant(sa.String(length=500), "mysql", "mariadb")
CHUNK = 500  # rows of an old table held at a time
OLD = ("fits", "predictions")


def upgrade() -> None:
    connection = op.get_bind()
    for table in OLD:
        op.execute(f"CREATE TEMPORARY TABLE old_{table} AS SELECT * FROM {table}")
        op.drop_table(table)
    fits = Kind(connection, "fits", _create_fits(), _create_members("analysis_fits", "fit_id", "fits"))
    members = _create_predictions(), _create_members("analysis_predictions", "prediction_id", "predictions")
    predictions = Kind(connection, "predictions", *members)
    _create_scores()
    for analysis in connection.execute(sa.text("SELECT * FROM analyses ORDER BY id")).mappings().all():
        _move(analysis, fits, predictions)
    for table in OLD:
        op.execute(f"DROP TABLE old_{table}")


def _create_fits() -> sa.Table:
    return op.create_table(
        "fits",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("sweep_id", BIG, nullable=False),
        sa.Column("version_id", BIG, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("data_hash", LABEL, nullable=False),
        sa.Column("rows_hash", sa.String(length=64), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("law", sa.Text(), nullable=True),
        sa.Column("formula", sa.Text(), nullable=True),
        sa.Column("metric", sa.Text(), nullable=True),
        sa.Column("over", sa.Text(), nullable=True),
        sa.Column("groups", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=True),
        sa.Column("n", sa.BigInteger(), nullable=True),
        sa.Column("objective", sa.Text(), nullable=True),
        sa.Column("setting", sa.Text(), nullable=True),
        sa.Column("content", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_fits_sweep_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["version_id"], ["sweep_versions.id"], name="fk_fits_version_id"),
        sa.PrimaryKeyConstraint("id", name="pk_fits"),
        sa.UniqueConstraint("sweep_id", "digest", name="uq_fits_sweep_id_digest"),
    )


def _create_predictions() -> sa.Table:
    table = op.create_table(
        "predictions",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("sweep_id", BIG, nullable=False),
        sa.Column("fit_id", BIG, nullable=True),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("made", sa.Double(), nullable=False),
        sa.Column("known", sa.Boolean(), nullable=False),
        sa.Column("fit", sa.Text(), nullable=True),
        sa.Column("law", sa.Text(), nullable=True),
        sa.Column("metric", sa.Text(), nullable=True),
        sa.Column("place", sa.Text(), nullable=True),
        sa.Column("groups", sa.Text(), nullable=True),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("lo", sa.Double(), nullable=True),
        sa.Column("hi", sa.Double(), nullable=True),
        sa.Column("level", sa.Double(), nullable=True),
        sa.Column("observed", sa.Double(), nullable=True),
        sa.Column("held_out", sa.Boolean(), nullable=True),
        sa.Column("basis", sa.Text(), nullable=True),
        sa.Column("run_noise", sa.Boolean(), nullable=True),
        sa.Column("decades", sa.Double(), nullable=True),
        sa.Column("beyond", sa.Text(), nullable=True),
        sa.Column("assumptions", sa.Text(), nullable=True),
        sa.Column("code", sa.Text(), nullable=True),
        sa.Column("content", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_predictions_sweep_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["fit_id"], ["fits.id"], name="fk_predictions_fit_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_predictions"),
        sa.UniqueConstraint("sweep_id", "digest", name="uq_predictions_sweep_id_digest"),
    )
    op.create_index("ix_predictions_fit_id", "predictions", ["fit_id"], unique=False)
    return table


def _create_members(table: str, member: str, target: str) -> sa.Table:
    return op.create_table(
        table,
        sa.Column("analysis_id", BIG, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column(member, BIG, nullable=False),
        sa.ForeignKeyConstraint(["analysis_id"], ["analyses.id"], name=f"fk_{table}_analysis_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint([member], [f"{target}.id"], name=f"fk_{table}_{member}", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("analysis_id", "position", name=f"pk_{table}"),
    )


def _create_scores() -> None:
    op.create_table(
        "scores",
        sa.Column("prediction_id", BIG, autoincrement=False, nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("observed", sa.Double(), nullable=True),
        sa.Column("stderr", sa.Double(), nullable=True),
        sa.Column("n", sa.BigInteger(), nullable=True),
        sa.Column("diverged", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.Double(), nullable=True),
        sa.Column("inside", sa.Boolean(), nullable=True),
        sa.Column("z", sa.Double(), nullable=True),
        sa.Column("log_score", sa.Double(), nullable=True),
        sa.Column("finished", sa.Double(), nullable=True),
        sa.Column("lead", sa.Double(), nullable=True),
        sa.Column("runs", sa.Text(), nullable=True),
        sa.Column("scored", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["prediction_id"], ["predictions.id"], name="fk_scores_prediction_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("prediction_id", name="pk_scores"),
    )


# -- rows ------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """Fits or predictions: the old rows, the table of new ones, and the table that says which an analysis has."""

    connection: sa.Connection
    name: str
    table: sa.Table
    members: sa.Table

    def old(self, analysis: int) -> Iterator[dict[str, Any]]:
        """The rows of an analysis, in its order."""
        query = sa.text(
            f"SELECT * FROM old_{self.name} WHERE analysis_id = :analysis AND position >= :first "
            f"ORDER BY position LIMIT {CHUNK}"
        )
        first = 0
        while rows := self.connection.execute(query, {"analysis": analysis, "first": first}).mappings().all():
            yield from map(dict, rows)
            first = rows[-1]["position"] + 1

    def keep(self, old: dict[str, Any], more: dict[str, Any]) -> int:
        """Bring one row over, unless an equal one is there, and note that its analysis has it. Returns its id."""
        row = {name: value for name, value in old.items() if name not in ("analysis_id", "position")} | more
        same = (self.table.c.sweep_id == row["sweep_id"]) & (self.table.c.digest == row["digest"])
        query = sa.select(self.table.c.id).where(same)
        if self.connection.scalar(query) is None:
            self.connection.execute(sa.insert(self.table), row)
        key = int(self.connection.execute(query).scalar_one())
        self.connection.execute(sa.insert(self.members).values((old["analysis_id"], old["position"], key)))
        return key


def _move(analysis: Mapping[Any, Any], fits: Kind, predictions: Kind) -> None:
    head = {"sweep_id": analysis["sweep_id"]}
    of_fits = head | {name: analysis[name] for name in ("version_id", "data_hash", "created")}
    found: list[tuple[dict[str, Any], int]] = []
    for row in fits.old(analysis["id"]):
        fit = json.loads(row["content"])
        found.append((fit, fits.keep(row, of_fits | _of_fit(fit))))
    for row in predictions.old(analysis["id"]):
        item = json.loads(row["content"])
        owner = next((pair for pair in found if _belongs(item, pair[0])), (None, None))
        more = {
            "made": analysis["created"],
            "known": False,
            "fit_id": owner[1],
            "digest": _identity(item, owner[0]),
            "basis": item.get("basis"),
            "run_noise": "run noise" in item["basis"] if item.get("basis") else None,
            "held_out": None if row["held_out"] is None else bool(row["held_out"]),
        }
        predictions.keep(row, head | more)


def _of_fit(fit: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "digest": _hash(fit),
        "rows_hash": None if fit.get("rows") is None else _hash(_some(fit["rows"], ROWS_IDENTITY)),
        "formula": fit.get("formula"),
        "objective": None if fit.get("objective") is None else _text(fit["objective"]),
    }


def _belongs(item: Mapping[str, Any], fit: Mapping[str, Any]) -> bool:
    return bool(fit.get("name") == item.get("fit") and (fit.get("group") or {}) == (item.get("group") or {}))


# Digests as version 2 makes them, so that what is analysed again after this migration is known again.

FIT_IDENTITY = ("name", "law", "formula", "of", "over", "group", "objective", "params", "frozen")
ROWS_IDENTITY = ("x", "y", "stderr")
PREDICTION_IDENTITY = ("of", "at", "group", "value", "lo", "hi", "level", "held_out", "observed")


def _identity(item: Mapping[str, Any], fit: Mapping[str, Any] | None) -> str:
    of_fit = None if fit is None else [_some(fit, FIT_IDENTITY), _some(fit.get("rows") or {}, ROWS_IDENTITY)]
    return _hash(_rounded([of_fit, _some(item, PREDICTION_IDENTITY)]))


def _some(item: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: item[name] for name in names if item.get(name) is not None}


def _hash(value: Any) -> str:
    return hashlib.sha256(_text(value, sort_keys=True).encode()).hexdigest()


def _text(value: Any, *, sort_keys: bool = False) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=sort_keys)


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:.7g}"
    return value
