from __future__ import annotations


class StoreError(Exception):
    """An expected failure of the database: one sentence for a person, never holding a password."""
