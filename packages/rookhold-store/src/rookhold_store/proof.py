"""A commit that changes nothing: whether the disk would take one can only be known by trying."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rookhold_store.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    import apsw

    from rookhold_store.operations import ProveWritable

# Writes the file's first page again, with what it holds already.
_REWRITE: Final = f"PRAGMA user_version = {SCHEMA_VERSION}"


class PreparedProof:
    size = 4096

    def __init__(self, op: ProveWritable) -> None:
        del op  # it says nothing beyond its kind

    def run(self, db: apsw.Connection) -> None:
        db.execute(_REWRITE)
