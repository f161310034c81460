"""The judgement of a file: whose it is, which version, what of it is missing or altered."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import apsw
from msgspec import Struct

from rookhold_store.connection import ENGINE_ERRORS, as_ours
from rookhold_store.errors import (
    DatabaseDamagedError,
    ForeignSchemaError,
    SchemaHistoryError,
    SchemaMismatchError,
    SchemaVersionError,
)
from rookhold_store.schema.objects import (
    SCHEMA_VERSION,
    VERSIONS,
    SchemaObject,
    expected_columns,
    expected_objects,
    read_columns,
    read_objects,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

ACCOUNTING_REVISION: Final = 2
HISTORY: Final = "schema_migrations"
_ACCOUNTED: Final = 3  # the first version with an accounting revision

# Tables of the governance layer live in the same file under their own migration history.
GUEST_PREFIX: Final = "gov_"
GUEST_HISTORY: Final = "gov_migrations"

_ORDINARY: Final = "CREATE TABLE "  # so SQLite records it; a virtual table's code would run
_TABLES: Final = "SELECT CAST(name AS TEXT) FROM sqlite_schema WHERE type = 'table'"
_REBUILT: Final = frozenset({"index", "trigger"})  # hold no rows: made anew where need be
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_]{1,64}")

_RESTORE: Final = "restore a backup of this database, or give another path"
_FOREIGN: Final = "give a path of its own to this server; the file was left as it is"
_NEWER: Final = "upgrade this program to the one that wrote it, or restore an older backup"


class Verdict(Struct, frozen=True, kw_only=True):
    """What a file that may be opened still needs before it is used."""

    version: int
    rebuild: tuple[str, ...] = ()  # names of indexes and triggers that are missing or altered
    accounting_revision: int | None = None  # None: of a version without

    @property
    def ready(self) -> bool:
        """Whether it needs nothing."""
        return (
            self.version == SCHEMA_VERSION
            and not self.rebuild
            and self.accounting_revision == ACCOUNTING_REVISION
        )


@contextmanager
def reading(db: apsw.Connection) -> Iterator[None]:
    """See one moment of the file, and tell what is no database of ours from what went wrong."""
    alone = not db.in_transaction
    try:
        if alone:
            db.execute("BEGIN")
        yield
    except apsw.NotADBError as exc:
        raise ForeignSchemaError(f"the file is not a database; {_FOREIGN}") from exc
    except UnicodeDecodeError as exc:
        raise ForeignSchemaError(f"the schema is not UTF-8; {_FOREIGN}") from exc
    except apsw.CorruptError as exc:
        raise DatabaseDamagedError(f"SQLite finds the file damaged; {_RESTORE}") from exc
    except apsw.Error as exc:
        raise as_ours(exc) from exc
    finally:
        if alone and db.in_transaction:
            db.execute("ROLLBACK")


def user_version(db: apsw.Connection) -> int:
    """Return the version that the file's header claims."""
    return int(db.pragma("user_version"))


def refuse_before_rollback(path: Path) -> None:
    """Refuse another program's file while its journal is still beside it.

    The first read of a file that has a journal lets SQLite roll that back, which changes the file.
    So the names of its tables are read as they stand. Where they cannot be, the judgement follows.
    """
    try:
        if not path.with_name(path.name + "-journal").stat().st_size:
            return
    except OSError:
        return
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    db = apsw.Connection(f"{path.as_uri()}?mode=ro&immutable=1", flags=flags)
    try:
        names = {name for (name,) in db.execute(_TABLES)}
    except ENGINE_ERRORS:
        return
    finally:
        db.close()
    if names and not names & {name for version in VERSIONS for name in expected_objects(version)}:
        raise ForeignSchemaError(f"the tables are another program's; {_FOREIGN}")


def is_fresh(db: apsw.Connection) -> bool:
    """Whether nothing was ever stored in the file.

    What is no database, or one whose texts are not UTF-8, is a ForeignSchemaError: every length
    that is charged here, and every text that is read as bytes, supposes UTF-8.
    """
    with reading(db):
        if db.pragma("encoding") != "UTF-8":
            raise ForeignSchemaError(
                f"the database keeps its texts in another encoding; {_FOREIGN}"
            )
        return user_version(db) == 0 and not db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").get


def judge(db: apsw.Connection) -> Verdict:
    """Return what the file needs, or raise why it is refused; reads no payload, changes nothing."""
    with reading(db):
        found = read_objects(db)
        _check_origin(found)
        version = _check_version(db)
        rebuild = _compare(db, found, version)
        _check_guests(db, found)
        revision = _revision(db) if version >= _ACCOUNTED else None
    return Verdict(version=version, rebuild=rebuild, accounting_revision=revision)


def check(db: apsw.Connection) -> None:
    """Refuse a database that is not exactly the newest schema."""
    verdict = judge(db)
    if verdict.version != SCHEMA_VERSION:
        raise SchemaVersionError("the schema is of an older version", version=verdict.version)
    for name in verdict.rebuild:
        kind = expected_objects()[name].kind
        raise SchemaMismatchError(f"the {kind} {name} is missing or altered", object=name)
    if not verdict.ready:
        raise SchemaVersionError("the accounting is of an older revision")


def check_versions(db: apsw.Connection) -> None:
    """The cheap half of `check`: that header and history both say the newest version."""
    found = read_objects(db)
    if HISTORY not in found:
        raise SchemaHistoryError("the migration history is missing")
    version = _check_version(db)
    if version != SCHEMA_VERSION:
        raise SchemaVersionError("the schema is of an older version", version=version)


def _check_origin(found: Mapping[str, SchemaObject]) -> None:
    """Tell ours, known by its history table, from another program's; and both from remains."""
    if found.get(HISTORY) == expected_objects(1)[HISTORY]:
        return
    ours = any(
        found[name] == known
        for version in VERSIONS
        for name, known in expected_objects(version).items()
        if known.kind == "table" and name in found
    )
    if not ours:
        raise ForeignSchemaError(f"the tables are another program's; {_FOREIGN}")
    if HISTORY not in found:
        raise SchemaHistoryError(f"the migration history is missing; {_RESTORE}")
    raise SchemaMismatchError(
        f"the migration history is not the one of this program; {_RESTORE}",
        object=HISTORY,
        problem="different",
    )


def _check_version(db: apsw.Connection) -> int:
    claimed = user_version(db)
    if claimed < 0:
        raise SchemaVersionError(f"the schema version is negative; {_RESTORE}", version=claimed)
    rows = db.execute(f"SELECT version FROM {HISTORY} ORDER BY version")  # noqa: S608  # a constant
    history = [row[0] for row in rows]
    newest = max([claimed, *history])
    if newest > SCHEMA_VERSION:
        raise SchemaVersionError(
            f"the schema is newer than this program knows; {_NEWER}", version=newest
        )
    if claimed == 0 or history != list(range(1, claimed + 1)):
        raise SchemaHistoryError(f"history and user_version disagree; {_RESTORE}", version=claimed)
    return claimed


def _compare(
    db: apsw.Connection, found: Mapping[str, SchemaObject], version: int
) -> tuple[str, ...]:
    """Return what can be made anew; refuse any other difference from the version."""
    expected = expected_objects(version)
    rebuild: list[str] = []
    for name, wanted in expected.items():
        have = found.get(name)
        if have == wanted:
            continue
        if wanted.kind in _REBUILT and (have is None or have.kind in _REBUILT):
            rebuild.append(name)
        elif have is None:
            raise _mismatch(f"the table {name}", "missing", version, object=name)
        else:
            raise _different(db, name, have, version)
    for name, have in found.items():
        guest = name.startswith(GUEST_PREFIX) and have.table.startswith(GUEST_PREFIX)
        if name not in expected and not guest:
            named = f" {name}" if _PLAIN_NAME.fullmatch(name) else ""
            raise _mismatch(f"the {have.kind}{named}", "extra", version, kind=have.kind)
    return tuple(rebuild)


def _different(
    db: apsw.Connection, name: str, have: SchemaObject, version: int
) -> SchemaMismatchError:
    """Name the first column that is not the version's, or the table for its rules."""
    if have.kind != "table":
        return _mismatch(f"the {have.kind} {name}", "different", version, object=name)
    wanted, columns = expected_columns(version, name), read_columns(db, name)
    for column in wanted:
        if columns.get(column) != wanted[column]:
            problem = "different" if column in columns else "missing"
            what = f"the column {name}.{column}"
            return _mismatch(what, problem, version, object=name, column=column)
    for column in columns:
        if column not in wanted:
            named = f" {name}.{column}" if _PLAIN_NAME.fullmatch(column) else f" of {name}"
            return _mismatch(f"the column{named}", "extra", version, object=name)
    return _mismatch(f"the table {name}", "different", version, object=name)


def _mismatch(what: str, problem: str, version: int, **detail: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"{what} is {problem} in a database of version {version}; {_RESTORE}",
        problem=problem,
        version=version,
        **detail,
    )


def _check_guests(db: apsw.Connection, found: Mapping[str, SchemaObject]) -> None:
    guests = [name for name in found if name.startswith(GUEST_PREFIX)]
    if not guests:
        return
    if GUEST_HISTORY not in found or found[GUEST_HISTORY].kind != "table":
        raise SchemaMismatchError(
            f"governance tables without their history; {_RESTORE}",
            object=GUEST_HISTORY,
            problem="missing",
        )
    for name in guests:
        if found[name].kind == "table" and not (found[name].sql or "").startswith(_ORDINARY):
            raise SchemaMismatchError(
                f"a governance table is run by a module of SQLite; {_RESTORE}",
                object=GUEST_PREFIX,
                problem="different",
            )
    if not {"version", "applied_at_ms"} <= read_columns(db, GUEST_HISTORY).keys():
        raise SchemaMismatchError(
            f"the governance history is of another shape; {_RESTORE}",
            object=GUEST_HISTORY,
            problem="different",
        )
    rows = db.execute("SELECT version FROM gov_migrations ORDER BY version")
    history = [row[0] for row in rows]
    if not history or history != list(range(1, len(history) + 1)):
        raise SchemaHistoryError(
            f"the governance history has gaps; {_RESTORE}", object=GUEST_HISTORY
        )


def _revision(db: apsw.Connection) -> int:
    revision = db.execute("SELECT accounting_revision FROM store_meta").get
    if not isinstance(revision, int):
        raise SchemaMismatchError(
            f"the accounting revision is missing; {_RESTORE}",
            object="store_meta",
            problem="missing",
        )
    return revision
