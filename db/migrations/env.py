from __future__ import annotations

from alembic import context

from db.schema import VERSION_TABLE, metadata

# Only ever run on a connection whose transaction the caller has begun and will commit.
connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("migrations run when a store is opened: python -c 'from db.store import Store; Store.open(URL)'")
context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
