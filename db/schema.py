"""The tables. Times are seconds since 1970 UTC, as double precision, in every column.

FLOPs, tokens and bytes are doubles: 6e21 fits no integer column. JSON is kept as ASCII text, so that any
string, NaN and integers of any size come back unchanged from every database.
"""

from __future__ import annotations

from enum import IntEnum

import sqlalchemy as sa

HEAD = "0002"  # newest migration in migrations/versions; integers, so that "newer" has a meaning
VERSION_TABLE = "sweeplaw_version"
NAME_LIMIT = 500  # characters of a metric, summary or artifact name (fits every index)


class Kind(IntEnum):
    """What a metric value is. Only finite values are stored as numbers: SQLite turns NaN into NULL."""

    FINITE = 0
    NAN = 1
    POSITIVE_INFINITY = 2
    NEGATIVE_INFINITY = 3


metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Big = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite autonumbers INTEGER only
Label = sa.Text().with_variant(sa.String(NAME_LIMIT), "mysql", "mariadb")  # text that is indexed


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, Big, primary_key=True, autoincrement=True)


def _run_key(*, primary_key: bool = True) -> sa.Column[int]:
    return sa.Column("run_key", sa.Integer, sa.ForeignKey("runs.key", ondelete="CASCADE"), primary_key=primary_key)


sweeps = sa.Table(
    "sweeps",
    metadata,
    _number("id"),
    sa.Column("name", Label, nullable=False, unique=True),
    sa.Column("version_id", sa.BigInteger),  # the version launched last
    sa.Column("created", sa.Double, nullable=False),
)

# Every text ever launched under the sweep's name. Launching an old text again makes it the current one.
sweep_versions = sa.Table(
    "sweep_versions",
    metadata,
    _number("id"),
    sa.Column("sweep_id", Big, sa.ForeignKey("sweeps.id", ondelete="CASCADE"), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("spec_text", sa.Text, nullable=False),
    sa.Column("question", sa.Text),
    sa.Column("task", sa.Text, nullable=False),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("launched", sa.Double, nullable=False),  # the last time
    sa.UniqueConstraint("sweep_id", "digest"),
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("key", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("id", sa.String(64), nullable=False, unique=True),
    sa.Column("identity_version", sa.Integer, nullable=False),
    sa.Column("task", Label, nullable=False, index=True),
    sa.Column("config", sa.Text, nullable=False),  # JSON, resolved
    sa.Column("n_params", sa.Double),
    sa.Column("flops", sa.Double),
    sa.Column("tokens", sa.Double),
    sa.Column("bytes", sa.Double),
    sa.Column("registered", sa.Double, nullable=False),
)

# Which runs a sweep looks at, and where in its grid. Rows of earlier launches stay, with is_current false.
selections = sa.Table(
    "selections",
    metadata,
    sa.Column("sweep_id", Big, sa.ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True),
    _run_key(),
    sa.Column("cell", sa.String(32), primary_key=True),  # digest of coords: two cells may share a run
    sa.Column("version_id", Big, sa.ForeignKey("sweep_versions.id"), nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("coords", sa.Text, nullable=False),  # JSON object
    sa.Column("derived", sa.Text, nullable=False),  # JSON object
    sa.Column("is_current", sa.Boolean, nullable=False),
)

infeasible = sa.Table(
    "infeasible",
    metadata,
    sa.Column("sweep_id", Big, sa.ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("coords", sa.Text, nullable=False),  # JSON object
    sa.Column("reason", sa.Text, nullable=False),
)

attempts = sa.Table(
    "attempts",
    metadata,
    _run_key(),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("status", sa.String(16), nullable=False),  # running done diverged failed interrupted
    sa.Column("reason", sa.Text),
    sa.Column("started", sa.Double),
    sa.Column("ended", sa.Double),
    sa.Column("seconds", sa.Double),
    sa.Column("peak_bytes", sa.Double),
    sa.Column("from_step", sa.BigInteger),
    sa.Column("last_step", sa.BigInteger),
    sa.Column("last_seen", sa.Double),
    sa.Column("checkpoint_step", sa.BigInteger),
    sa.Column("checkpoint_bytes", sa.Double),
    sa.Column("host", sa.Text),
    sa.Column("pid", sa.BigInteger),
    sa.Column("device", sa.Text),
    sa.Column("threads", sa.Integer),
    sa.Column("seed", sa.BigInteger),
    sa.Column("code_commit", sa.Text),
    sa.Column("code_dirty", sa.Boolean),
    sa.Column("packages", sa.Text),  # JSON object: name -> version
    sa.Column("error_type", sa.Text),
    sa.Column("error_message", sa.Text),
    sa.Column("traceback", sa.Text),
)

# How far a run's log is read. The row is the lock of everything that comes from that log.
positions = sa.Table(
    "positions",
    metadata,
    _run_key(),
    sa.Column("byte_offset", sa.BigInteger, nullable=False),
    sa.Column("tail", sa.String(16), nullable=False),  # digest of the bytes before the offset
    sa.Column("rereads", sa.Integer, nullable=False),  # how often the log was replaced and read anew
    sa.Column("lines", sa.BigInteger, nullable=False),
    sa.Column("bad_lines", sa.BigInteger, nullable=False),
    sa.Column("alien_lines", sa.BigInteger, nullable=False),  # valid events of a kind not known here
    sa.Column("open_attempt", sa.Integer, nullable=False),  # the attempt that the next line belongs to
    sa.Column("last_attempt", sa.Integer, nullable=False),  # the highest attempt: it gives the run's status
)

metric_names = sa.Table(
    "metric_names",
    metadata,
    sa.Column("key", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("name", Label, nullable=False, unique=True),
)

# No foreign keys here: a check per row would double the cost of a bulk load, and every row is written
# under the lock of a positions row that has them.
metrics = sa.Table(
    "metrics",
    metadata,
    sa.Column("run_key", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("name_key", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("step", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("time", sa.Double),
    sa.Column("value", sa.Double),  # NULL unless kind is FINITE
    sa.Column("kind", sa.SmallInteger, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sqlite_with_rowid=False,
)

summaries = sa.Table(
    "summaries",
    metadata,
    _run_key(),
    sa.Column("name", Label, primary_key=True),
    sa.Column("kind", sa.String(8), nullable=False),  # int float bool str json
    sa.Column("number", sa.Double),  # NULL for text and for what isn't finite
    sa.Column("text", sa.Text, nullable=False),  # the exact value
    sa.Column("attempt", sa.Integer, nullable=False),
)

artifacts = sa.Table(
    "artifacts",
    metadata,
    _run_key(),
    sa.Column("name", Label, primary_key=True),
    sa.Column("file", sa.Text, nullable=False),  # relative to the run's folder
    sa.Column("n", sa.BigInteger),
    sa.Column("bytes", sa.Double),
    sa.Column("sha256", sa.String(64)),
    sa.Column("time", sa.Double),
    sa.Column("attempt", sa.Integer, nullable=False),
)

# One row per different result of an analysis; the same result again only moves `confirmed`.
analyses = sa.Table(
    "analyses",
    metadata,
    _number("id"),
    sa.Column("sweep_id", Big, sa.ForeignKey("sweeps.id", ondelete="CASCADE"), nullable=False),
    sa.Column("version_id", Big, sa.ForeignKey("sweep_versions.id"), nullable=False),
    sa.Column("data_hash", Label, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),  # of data_hash, fits and predictions
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("confirmed", sa.Double, nullable=False),
    sa.UniqueConstraint("sweep_id", "digest"),
)

# Rows never change: constants live here once, and predictions refer to them by id.
fits = sa.Table(
    "fits",
    metadata,
    _number("id"),
    sa.Column("sweep_id", Big, sa.ForeignKey("sweeps.id", ondelete="CASCADE"), nullable=False),
    sa.Column("version_id", Big, sa.ForeignKey("sweep_versions.id"), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),  # of content
    sa.Column("data_hash", Label, nullable=False),  # of the results that the analysis saw
    sa.Column("rows_hash", sa.String(64)),  # of the rows that this fit saw
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("name", sa.Text),
    sa.Column("law", sa.Text),
    sa.Column("formula", sa.Text),
    sa.Column("metric", sa.Text),
    sa.Column("over", sa.Text),
    sa.Column("groups", sa.Text),  # JSON object
    sa.Column("status", sa.Text),
    sa.Column("n", sa.BigInteger),
    sa.Column("objective", sa.Text),  # JSON object: name and constants
    sa.Column("setting", sa.Text),  # JSON: what the runs behind the fit share, and how a run's value is read
    sa.Column("content", sa.Text, nullable=False),  # JSON: the whole fit at full precision
    sa.UniqueConstraint("sweep_id", "digest"),
)

# Rows never change either; what became of a prediction is its row in `scores`.
predictions = sa.Table(
    "predictions",
    metadata,
    _number("id"),
    sa.Column("sweep_id", Big, sa.ForeignKey("sweeps.id", ondelete="CASCADE"), nullable=False),
    sa.Column("fit_id", Big, sa.ForeignKey("fits.id", ondelete="CASCADE"), index=True),
    sa.Column("digest", sa.String(64), nullable=False),  # of what the fit and the prediction say
    sa.Column("made", sa.Double, nullable=False),
    sa.Column("known", sa.Boolean, nullable=False),  # a run that answers it had ended when it was made
    sa.Column("fit", sa.Text),
    sa.Column("law", sa.Text),
    sa.Column("metric", sa.Text),
    sa.Column("place", sa.Text),  # JSON object: where on the axes
    sa.Column("groups", sa.Text),  # JSON object
    sa.Column("value", sa.Double),
    sa.Column("lo", sa.Double),
    sa.Column("hi", sa.Double),
    sa.Column("level", sa.Double),
    sa.Column("observed", sa.Double),  # of a held-out value, which was there already
    sa.Column("held_out", sa.Boolean),
    sa.Column("basis", sa.Text),
    sa.Column("run_noise", sa.Boolean),  # whether the interval holds the noise of one new run
    sa.Column("decades", sa.Double),  # beyond the data of the fit
    sa.Column("beyond", sa.Text),  # what the decades are of: cost, or one of the law's inputs
    sa.Column("assumptions", sa.Text),
    sa.Column("code", sa.Text),  # JSON object: commit, and versions of packages
    sa.Column("content", sa.Text, nullable=False),  # JSON: the whole prediction at full precision
    sa.UniqueConstraint("sweep_id", "digest"),
)


def _of_analysis(name: str, target: str) -> list[sa.Column[int]]:
    """Columns that say which rows an analysis consists of, in its order."""
    return [
        sa.Column("analysis_id", Big, sa.ForeignKey("analyses.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column(name, Big, sa.ForeignKey(target, ondelete="CASCADE"), nullable=False),
    ]


analysis_fits = sa.Table("analysis_fits", metadata, *_of_analysis("fit_id", "fits.id"))
analysis_predictions = sa.Table("analysis_predictions", metadata, *_of_analysis("prediction_id", "predictions.id"))

# Written once for a prediction, when all runs at its place have ended. The primary key is what makes it once.
scores = sa.Table(
    "scores",
    metadata,
    sa.Column(
        "prediction_id",
        Big,
        sa.ForeignKey("predictions.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("status", sa.String(16), nullable=False),  # scored, made after, held out, diverged
    sa.Column("observed", sa.Double),  # mean over replicates
    sa.Column("stderr", sa.Double),  # of that mean
    sa.Column("n", sa.BigInteger),  # runs behind it
    sa.Column("diverged", sa.BigInteger),
    sa.Column("error", sa.Double),  # observed / value - 1
    sa.Column("inside", sa.Boolean),
    sa.Column("z", sa.Double),
    sa.Column("log_score", sa.Double),
    sa.Column("finished", sa.Double),  # end of the first run
    sa.Column("lead", sa.Double),  # seconds from the prediction to that end
    sa.Column("runs", sa.Text),  # JSON list of run ids
    sa.Column("scored", sa.Double, nullable=False),
)
