"""The newest schema in an empty file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw

from rookhold_store.connection import as_ours, immediate
from rookhold_store.schema.judge import ACCOUNTING_REVISION, check, is_fresh
from rookhold_store.schema.objects import VERSIONS, schema_text

if TYPE_CHECKING:
    from collections.abc import Sequence


def create(db: apsw.Connection, now_ms: int) -> None:
    """Make the newest schema in an empty database, in one transaction.

    Of two that open a new file at once the second finds the first's work, and only checks it.
    """
    try:
        with immediate(db):
            if not is_fresh(db):
                check(db)
                return
            db.execute(schema_text())
            record(db, VERSIONS, now_ms)
            db.execute(
                "INSERT INTO store_meta (id, accounting_revision) VALUES (1, ?)",
                (ACCOUNTING_REVISION,),
            )
            db.execute("INSERT INTO storage_usage_total (id, charged_bytes) VALUES (1, 0)")
    except apsw.Error as exc:
        raise as_ours(exc) from exc


def record(db: apsw.Connection, versions: Sequence[int], now_ms: int) -> None:
    """Write both marks of a version: its row of the history, and the number in the header."""
    db.executemany(
        "INSERT INTO schema_migrations (version, applied_at_ms) VALUES (?, ?)",
        [(version, now_ms) for version in versions],
    )
    db.execute(f"PRAGMA user_version = {versions[-1]}")
