"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
LABEL = sa.Text().with_variant(sa.String(length=500), "mysql", "mariadb")


def upgrade() -> None:
    op.create_table(
        "metric_names",
        sa.Column("key", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("name", LABEL, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_metric_names"),
        sa.UniqueConstraint("name", name="uq_metric_names_name"),
    )
    op.create_table(
        "metrics",
        sa.Column("run_key", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name_key", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("time", sa.Double(), nullable=True),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("kind", sa.SmallInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("run_key", "name_key", "step", name="pk_metrics"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "runs",
        sa.Column("key", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("identity_version", sa.Integer(), nullable=False),
        sa.Column("task", LABEL, nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("n_params", sa.Double(), nullable=True),
        sa.Column("flops", sa.Double(), nullable=True),
        sa.Column("tokens", sa.Double(), nullable=True),
        sa.Column("bytes", sa.Double(), nullable=True),
        sa.Column("registered", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_runs"),
        sa.UniqueConstraint("id", name="uq_runs_id"),
    )
    op.create_index("ix_runs_task", "runs", ["task"], unique=False)
    op.create_table(
        "sweeps",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("name", LABEL, nullable=False),
        sa.Column("version_id", sa.BigInteger(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sweeps"),
        sa.UniqueConstraint("name", name="uq_sweeps_name"),
    )
    op.create_table(
        "artifacts",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("name", LABEL, nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=True),
        sa.Column("bytes", sa.Double(), nullable=True),
        sa.Column("sha256", sa.String(length=64), nullable=True),
        sa.Column("time", sa.Double(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.key"], name="fk_artifacts_run_key", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "name", name="pk_artifacts"),
    )
    op.create_table(
        "attempts",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("started", sa.Double(), nullable=True),
        sa.Column("ended", sa.Double(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("peak_bytes", sa.Double(), nullable=True),
        sa.Column("from_step", sa.BigInteger(), nullable=True),
        sa.Column("last_step", sa.BigInteger(), nullable=True),
        sa.Column("last_seen", sa.Double(), nullable=True),
        sa.Column("checkpoint_step", sa.BigInteger(), nullable=True),
        sa.Column("checkpoint_bytes", sa.Double(), nullable=True),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("pid", sa.BigInteger(), nullable=True),
        sa.Column("device", sa.Text(), nullable=True),
        sa.Column("threads", sa.Integer(), nullable=True),
        sa.Column("seed", sa.BigInteger(), nullable=True),
        sa.Column("code_commit", sa.Text(), nullable=True),
        sa.Column("code_dirty", sa.Boolean(), nullable=True),
        sa.Column("packages", sa.Text(), nullable=True),
        sa.Column("error_type", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("traceback", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["run_key"], ["runs.key"], name="fk_attempts_run_key", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "number", name="pk_attempts"),
    )
    op.create_table(
        "infeasible",
        sa.Column("sweep_id", BIG, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("coords", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_infeasible_sweep_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sweep_id", "position", name="pk_infeasible"),
    )
    op.create_table(
        "positions",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("byte_offset", sa.BigInteger(), nullable=False),
        sa.Column("tail", sa.String(length=16), nullable=False),
        sa.Column("rereads", sa.Integer(), nullable=False),
        sa.Column("lines", sa.BigInteger(), nullable=False),
        sa.Column("bad_lines", sa.BigInteger(), nullable=False),
        sa.Column("alien_lines", sa.BigInteger(), nullable=False),
        sa.Column("open_attempt", sa.Integer(), nullable=False),
        sa.Column("last_attempt", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.key"], name="fk_positions_run_key", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", name="pk_positions"),
    )
    op.create_table(
        "summaries",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("name", LABEL, nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("number", sa.Double(), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.key"], name="fk_summaries_run_key", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "name", name="pk_summaries"),
    )
    op.create_table(
        "sweep_versions",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("sweep_id", BIG, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("spec_text", sa.Text(), nullable=False),
        sa.Column("question", sa.Text(), nullable=True),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("launched", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_sweep_versions_sweep_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_sweep_versions"),
        sa.UniqueConstraint("sweep_id", "digest", name="uq_sweep_versions_sweep_id_digest"),
    )
    op.create_table(
        "analyses",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("sweep_id", BIG, nullable=False),
        sa.Column("version_id", BIG, nullable=False),
        sa.Column("data_hash", LABEL, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("confirmed", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_analyses_sweep_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["version_id"], ["sweep_versions.id"], name="fk_analyses_version_id"),
        sa.PrimaryKeyConstraint("id", name="pk_analyses"),
        sa.UniqueConstraint("sweep_id", "digest", name="uq_analyses_sweep_id_digest"),
    )
    op.create_table(
        "selections",
        sa.Column("sweep_id", BIG, nullable=False),
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("cell", sa.String(length=32), nullable=False),
        sa.Column("version_id", BIG, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("coords", sa.Text(), nullable=False),
        sa.Column("derived", sa.Text(), nullable=False),
        sa.Column("is_current", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.key"], name="fk_selections_run_key", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_selections_sweep_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["version_id"], ["sweep_versions.id"], name="fk_selections_version_id"),
        sa.PrimaryKeyConstraint("sweep_id", "run_key", "cell", name="pk_selections"),
    )
    op.create_table(
        "fits",
        sa.Column("analysis_id", BIG, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("law", sa.Text(), nullable=True),
        sa.Column("metric", sa.Text(), nullable=True),
        sa.Column("over", sa.Text(), nullable=True),
        sa.Column("groups", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=True),
        sa.Column("n", sa.BigInteger(), nullable=True),
        sa.Column("content", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["analysis_id"], ["analyses.id"], name="fk_fits_analysis_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("analysis_id", "position", name="pk_fits"),
    )
    op.create_table(
        "predictions",
        sa.Column("analysis_id", BIG, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
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
        sa.Column("content", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["analysis_id"], ["analyses.id"], name="fk_predictions_analysis_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("analysis_id", "position", name="pk_predictions"),
    )
