"""What each schema version consists of, and what a file consists of, in the same terms."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

import apsw
from msgspec import Struct

from rookhold_store.schema import legacy

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA_VERSION: Final = 4
VERSIONS: Final = range(1, SCHEMA_VERSION + 1)

# What SQLite makes by itself, each in its only form. A name alone proves nothing: whoever edits the
# schema table can give a trigger or a view a name of SQLite's own, and SQLite takes it.
OF_SQLITE: Final = """
((type = 'index' AND sql IS NULL AND name LIKE 'sqlite\\_autoindex\\_%' ESCAPE '\\')
OR (type = 'table' AND sql IN (
  'CREATE TABLE sqlite_stat1(tbl,idx,stat)',
  'CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)',
  'CREATE TABLE sqlite_sequence(name,seq)'))) IS TRUE
"""
# Cast, since an edited row may hold a blob where a text belongs.
_OBJECTS: Final = f"""
SELECT coalesce(CAST(name AS TEXT), ''), coalesce(CAST(type AS TEXT), ''),
  coalesce(CAST(tbl_name AS TEXT), ''), CAST(sql AS TEXT) FROM sqlite_schema WHERE NOT {OF_SQLITE}
"""  # noqa: S608  # constants alone


class SchemaObject(Struct, frozen=True):
    """One table, index, trigger or view, with the text that made it."""

    kind: str
    table: str
    sql: str | None


class Column(Struct, frozen=True):
    """One column, as SQLite describes it without running anything of the file."""

    type: str
    not_null: int
    default: str | None
    key: int


def schema_text() -> str:
    """Return the committed text of the newest schema."""
    return resources.files("rookhold_store").joinpath("schema.sql").read_text("utf-8")


def step_text(version: int) -> str:
    """Return the text of the step that leads to a version from the one before."""
    name = f"{version:04}.sql"
    return resources.files("rookhold_store").joinpath("migrations", name).read_text("utf-8")


def expected_objects(version: int = SCHEMA_VERSION) -> Mapping[str, SchemaObject]:
    """Return every object of a version by name, as SQLite itself records it."""
    return _version(version)[0]


def expected_columns(version: int, table: str) -> Mapping[str, Column]:
    """Return the columns of a table of a version by name."""
    return _version(version)[1][table]


@cache
def _version(
    version: int,
) -> tuple[Mapping[str, SchemaObject], Mapping[str, Mapping[str, Column]]]:
    db = apsw.Connection(":memory:")
    try:
        if version == SCHEMA_VERSION:
            db.execute(schema_text())
        else:
            run_steps(db, range(1, version + 1), now_ms=0)
        objects = read_objects(db)
        tables = [name for name, found in objects.items() if found.kind == "table"]
        return objects, {name: read_columns(db, name) for name in tables}
    finally:
        db.close()


def run_steps(db: apsw.Connection, versions: range, *, now_ms: int) -> None:
    """Run the texts of these steps and nothing else; the caller owns settings and transaction."""
    legacy.register(db)
    # The tables of before make way under another name; what refers to a table by its name must go
    # on referring to its successor.
    db.pragma("legacy_alter_table", "ON")
    try:
        for version in versions:
            db.execute(step_text(version), {"now_ms": now_ms})
    finally:
        db.pragma("legacy_alter_table", "OFF")
        legacy.unregister(db)


def read_objects(db: apsw.Connection) -> dict[str, SchemaObject]:
    """Return the objects of an open database by name, SQLite's own left out."""
    return {name: SchemaObject(kind, table, sql) for name, kind, table, sql in db.execute(_OBJECTS)}


def read_columns(db: apsw.Connection, table: str) -> dict[str, Column]:
    """Return the columns of a table by name; runs no text that the file holds."""
    rows = db.execute(
        'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?)', (table,)
    )
    return {name: Column(*described) for name, *described in rows}
