"""The schema itself, word by word, and the few rows that say what the file is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookhold_store import schema
from rookhold_store.verify.finding import Finding
from rookhold_store.verify.tables import HISTORY, META

if TYPE_CHECKING:
    from collections.abc import Iterator

    import apsw

_OBJECTS = f"""
SELECT CAST(name AS BLOB), CAST(type AS BLOB), CAST(tbl_name AS BLOB), CAST(sql AS BLOB)
FROM sqlite_schema WHERE NOT {schema.OF_SQLITE}
"""  # noqa: S608  # constants alone


def findings(db: apsw.Connection) -> Iterator[Finding]:
    """Yield each table, index or trigger that is missing, extra or not as this version has it."""
    found = {
        _text(name): (_text(kind), _text(table), None if sql is None else _text(sql))
        for name, kind, table, sql in db.execute(_OBJECTS)
    }
    expected = schema.expected_objects()
    for name, wanted in expected.items():
        have = found.get(name)
        if have is None:
            yield Finding(place=f"schema.{name}", problem=f"the {wanted.kind} is missing")
        elif have != (wanted.kind, wanted.table, wanted.sql):
            yield Finding(
                place=f"schema.{name}", problem=f"the {wanted.kind} is not the one of this version"
            )
    for name, (kind, table, _) in found.items():
        guest = name.startswith(schema.GUEST_PREFIX) and table.startswith(schema.GUEST_PREFIX)
        if name not in expected and not guest:
            yield Finding(place=f"schema.{name}", problem=f"this version has no such {kind}")


def tables_stand(db: apsw.Connection) -> bool:
    """Whether every table has its columns, so that its rows can be read at all."""
    found = dict(db.execute("SELECT CAST(name AS BLOB), CAST(sql AS BLOB) FROM sqlite_schema"))
    return all(
        found.get(name.encode()) == (wanted.sql or "").encode()
        for name, wanted in schema.expected_objects().items()
        if wanted.kind == "table"
    )


def facts(db: apsw.Connection) -> Iterator[Finding]:
    """Yield what is wrong with the version, the history of migrations and the accounting."""
    version = schema.user_version(db)
    if version != schema.SCHEMA_VERSION:
        yield Finding(
            place="file.user_version", problem=f"is {version}, not {schema.SCHEMA_VERSION}"
        )
    history = list(HISTORY.rows(db, "ORDER BY version"))
    for row in history:
        for column, problem in HISTORY.complaints(row):
            yield Finding(place=f"schema_migrations.{column}", problem=problem)
    if [row[0] for row in history] != list(range(1, schema.SCHEMA_VERSION + 1)):
        yield Finding(
            place="schema_migrations.version",
            problem=f"are not 1 to {schema.SCHEMA_VERSION}, each once",
        )
    meta = list(META.rows(db, ""))
    if len(meta) != 1:
        yield Finding(place="store_meta", problem=f"has {len(meta)} rows, not one")
    for row in meta:
        for column, problem in META.complaints(row):
            yield Finding(place=f"store_meta.{column}", problem=problem)
        if row[1] != schema.ACCOUNTING_REVISION:
            yield Finding(
                place="store_meta.accounting_revision",
                problem=f"is not {schema.ACCOUNTING_REVISION}",
            )


def migrated(db: apsw.Connection) -> bool:
    """Whether an older store made the file: a new one gets all its versions at one moment."""
    times = {row[1] for row in HISTORY.rows(db, "")}
    return len(times) != 1


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode(errors="backslashreplace")
