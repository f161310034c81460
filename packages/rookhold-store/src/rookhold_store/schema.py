"""Schema v4 and the judgement of a file that claims to have it."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

import apsw
from msgspec import Struct

from rookhold_store.connection import as_ours, immediate
from rookhold_store.errors import (
    ForeignSchemaError,
    SchemaHistoryError,
    SchemaMismatchError,
    SchemaVersionError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SCHEMA_VERSION: Final = 4
ACCOUNTING_REVISION: Final = 2

# Tables of the governance layer live in the same file under their own migration history.
GUEST_PREFIX: Final = "gov_"
GUEST_HISTORY: Final = "gov_migrations"

_OBJECTS: Final = """
SELECT name, type, tbl_name, sql FROM sqlite_schema
WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
"""


class SchemaObject(Struct, frozen=True):
    """One table, index, trigger or view, with the text that made it."""

    kind: str
    table: str
    sql: str | None


def schema_text() -> str:
    """Return the committed text of the schema."""
    return resources.files("rookhold_store").joinpath("schema.sql").read_text("utf-8")


@cache
def expected_objects() -> Mapping[str, SchemaObject]:
    """Return every object of the schema by name, as SQLite itself records it."""
    db = apsw.Connection(":memory:")
    try:
        db.execute(schema_text())
        return read_objects(db)
    finally:
        db.close()


def read_objects(db: apsw.Connection) -> dict[str, SchemaObject]:
    """Return the objects of an open database by name, SQLite's own left out."""
    return {name: SchemaObject(kind, table, sql) for name, kind, table, sql in db.execute(_OBJECTS)}


def user_version(db: apsw.Connection) -> int:
    """Return the version that the file's header claims."""
    return int(db.pragma("user_version"))


def is_fresh(db: apsw.Connection) -> bool:
    """Whether nothing was ever stored in the file.

    What is no database, or one whose texts are not UTF-8, is a ForeignSchemaError: every length
    that is charged here, and every text that is read as bytes, supposes UTF-8.
    """
    with _foreign_or_ours():
        if db.pragma("encoding") != "UTF-8":
            raise ForeignSchemaError("the database keeps its texts in another encoding")
        return user_version(db) == 0 and not db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").get


def create(db: apsw.Connection, now_ms: int) -> None:
    """Make schema v4 in an empty database, in one transaction.

    Of two that open a new file at once the second finds the first's work, and only checks it.
    """
    try:
        with immediate(db):
            if not is_fresh(db):
                check(db)
                return
            db.execute(schema_text())
            db.executemany(
                "INSERT INTO schema_migrations (version, applied_at_ms) VALUES (?, ?)",
                [(version, now_ms) for version in range(1, SCHEMA_VERSION + 1)],
            )
            db.execute(
                "INSERT INTO store_meta (id, accounting_revision) VALUES (1, ?)",
                (ACCOUNTING_REVISION,),
            )
            db.execute("INSERT INTO storage_usage_total (id, charged_bytes) VALUES (1, 0)")
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    except apsw.Error as exc:
        raise as_ours(exc) from exc


def check(db: apsw.Connection) -> None:
    """Refuse a database that is not exactly schema v4; changes nothing and reads no payload."""
    with _foreign_or_ours():
        found = read_objects(db)
        _check_origin(db, found)
        _check_version(db, found)
        _check_objects(found)
        _check_guests(db, found)
        _check_revision(db)


@contextmanager
def _foreign_or_ours() -> Iterator[None]:
    try:
        yield
    except apsw.NotADBError as exc:
        raise ForeignSchemaError("the file is not a database") from exc
    except UnicodeDecodeError as exc:
        raise ForeignSchemaError("the schema is not UTF-8") from exc
    except apsw.Error as exc:
        raise as_ours(exc) from exc


def check_versions(db: apsw.Connection) -> None:
    """The cheap half of `check`: that header and history both say v4."""
    _check_version(db, read_objects(db))


def _check_origin(db: apsw.Connection, found: Mapping[str, SchemaObject]) -> None:
    """Tell ours, known by its history table, from another program's; and both from remains."""
    if "schema_migrations" in found and found["schema_migrations"].kind == "table":
        if _history_columns(db) == _expected_history():
            return
        raise ForeignSchemaError("the migration history is another program's")
    ours = expected_objects()
    if any(name in ours and found[name].sql == ours[name].sql for name in found):
        raise SchemaHistoryError("the migration history is missing")
    raise ForeignSchemaError("the tables are another program's")


def _history_columns(db: apsw.Connection) -> list[tuple[object, ...]]:
    """Return names, types and keys of the history's columns; runs no text that the file holds."""
    return [tuple(row[1:6]) for row in db.execute("PRAGMA table_info(schema_migrations)")]


@cache
def _expected_history() -> list[tuple[object, ...]]:
    db = apsw.Connection(":memory:")
    try:
        db.execute(schema_text())
        return _history_columns(db)
    finally:
        db.close()


def _check_version(db: apsw.Connection, found: Mapping[str, SchemaObject]) -> None:
    claimed = user_version(db)
    if claimed < 0:
        raise SchemaVersionError("the schema version is negative", version=claimed)
    if claimed > SCHEMA_VERSION:
        raise SchemaVersionError("the schema is newer than this build", version=claimed)
    if "schema_migrations" not in found:
        raise SchemaHistoryError("the migration history is missing")
    history = [
        row[0] for row in db.execute("SELECT version FROM schema_migrations ORDER BY version")
    ]
    if history and history[-1] > SCHEMA_VERSION:
        raise SchemaVersionError("the schema is newer than this build", version=history[-1])
    if history != list(range(1, claimed + 1)):
        raise SchemaHistoryError("history and user_version disagree", version=claimed)
    if claimed < SCHEMA_VERSION:
        raise SchemaVersionError("this build does not upgrade so old a schema", version=claimed)


def _check_objects(found: Mapping[str, SchemaObject]) -> None:
    expected = expected_objects()
    for name, wanted in expected.items():
        have = found.get(name)
        if have is None:
            raise SchemaMismatchError(
                f"the {wanted.kind} {name} is missing", object=name, problem="missing"
            )
        if have != wanted:
            raise SchemaMismatchError(
                f"the {wanted.kind} {name} is not the one of this version",
                object=name,
                problem="different",
            )
    for name, have in found.items():
        guest = name.startswith(GUEST_PREFIX) and have.table.startswith(GUEST_PREFIX)
        if name not in expected and not guest:
            raise SchemaMismatchError(
                f"the schema has a {have.kind} that is not of this version",
                kind=have.kind,
                problem="extra",
            )


def _check_guests(db: apsw.Connection, found: Mapping[str, SchemaObject]) -> None:
    guests = [name for name in found if name.startswith(GUEST_PREFIX)]
    if not guests:
        return
    if GUEST_HISTORY not in found or found[GUEST_HISTORY].kind != "table":
        raise SchemaMismatchError(
            "governance tables without their history", object=GUEST_HISTORY, problem="missing"
        )
    columns = {row[1] for row in db.execute(f"PRAGMA table_info({GUEST_HISTORY})")}
    if not {"version", "applied_at_ms"} <= columns:
        raise SchemaMismatchError(
            "the governance history is of another shape", object=GUEST_HISTORY, problem="different"
        )
    rows = db.execute("SELECT version FROM gov_migrations ORDER BY version")
    history = [row[0] for row in rows]
    if not history or history != list(range(1, len(history) + 1)):
        raise SchemaHistoryError("the governance history has gaps", object=GUEST_HISTORY)


def _check_revision(db: apsw.Connection) -> None:
    revision = db.execute("SELECT accounting_revision FROM store_meta").get
    if revision != ACCOUNTING_REVISION:
        raise SchemaVersionError(
            "this build does not repair so old an accounting",
            accounting_revision=revision if isinstance(revision, int) else -1,
        )
