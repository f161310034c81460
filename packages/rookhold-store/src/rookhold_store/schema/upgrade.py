"""Bringing a file to the newest schema: missing rules made anew, steps run, accounts repaired."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import apsw
from msgspec import Struct

from rookhold_store.connection import as_ours, immediate
from rookhold_store.errors import (
    DatabaseDamagedError,
    MigrationRefusedError,
    StorageUnavailableError,
)
from rookhold_store.schema.fresh import record
from rookhold_store.schema.judge import ACCOUNTING_REVISION, check, judge
from rookhold_store.schema.objects import (
    SCHEMA_VERSION,
    expected_objects,
    read_objects,
    run_steps,
)
from rookhold_store.schema.revision import repair
from rookhold_types.canonical import INTEGER_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rookhold_store.binding import BindingCheck
    from rookhold_store.schema.judge import Verdict

logger = logging.getLogger(__name__)

_BEYOND: Final = """
SELECT job_id FROM jobs
WHERE max(created_at_ms, coalesce(started_at_ms, 0), coalesce(finished_at_ms, 0)) > ? LIMIT 1
"""

# Up to this many pages stay in memory until the commit, so that the log of a file that is refused
# after all is not even touched: 64 MiB of the usual pages.
_SPILL_PAGES: Final = 16 * 1024
_SETTINGS: Final = (
    ("foreign_keys", "OFF"),  # tables are replaced under their children; checked at the end
    ("synchronous", "FULL"),
    ("secure_delete", "FAST"),
    ("trusted_schema", "OFF"),
    ("cell_size_check", "ON"),
    ("temp_store", "MEMORY"),
    ("cache_spill", _SPILL_PAGES),
)
_SETTINGS_AFTER: Final = (("foreign_keys", "ON"), ("cache_spill", 1))


class Opening(Struct, frozen=True, kw_only=True):
    """What an open had to do to the file before it could be used."""

    upgraded_from: int | None = None
    rebuilt: tuple[str, ...] = ()  # names of indexes and triggers
    accounts_repaired: bool = False
    quarantined: tuple[str, ...] = ()  # jobs whose attestation did not bind their tenant


def upgrade(db: apsw.Connection, *, binding: BindingCheck | None, now_ms: int) -> Opening:
    """Do all that the file needs, in one transaction, or change nothing and say why.

    Judges again once it is alone: of two that open an old file at once the second finds it new.
    """
    try:
        with _settings(db), immediate(db):
            verdict = judge(db)
            if verdict.ready:
                return Opening()
            done = _bring_up(db, verdict, binding, now_ms)
    except apsw.Error as exc:
        raise as_ours(exc) from exc
    _tell(done)
    return done


def _bring_up(
    db: apsw.Connection, verdict: Verdict, binding: BindingCheck | None, now_ms: int
) -> Opening:
    _rebuild(db, verdict)
    old = verdict.version < SCHEMA_VERSION
    if old:
        _step_up(db, verdict.version, now_ms)
    outdated = verdict.accounting_revision != ACCOUNTING_REVISION
    quarantined: tuple[str, ...] = ()
    if old or outdated:
        quarantined = repair(db, binding=binding, now_ms=now_ms)
    check(db)
    if verdict.rebuild:
        _check_everything(db, binding)
    return Opening(
        upgraded_from=verdict.version if old else None,
        rebuilt=verdict.rebuild,
        accounts_repaired=outdated,
        quarantined=quarantined,
    )


def _rebuild(db: apsw.Connection, verdict: Verdict) -> None:
    """Make indexes and triggers of the file's own version what that version's text says."""
    found, expected = read_objects(db), expected_objects(verdict.version)
    for name in verdict.rebuild:
        wanted, have = expected[name], found.get(name)
        state = "missing" if have is None else "altered"
        logger.warning(
            "the %s %s is %s: making it anew, then checking all of the database",
            wanted.kind,
            name,
            state,
            extra={"object": name},
        )
        if have is not None:
            db.execute(f"DROP {have.kind} {name}")
        db.execute(wanted.sql or "")


def _step_up(db: apsw.Connection, version: int, now_ms: int) -> None:
    for step in range(version + 1, SCHEMA_VERSION + 1):
        try:
            run_steps(db, range(step, step + 1), now_ms=now_ms)
        except apsw.ConstraintError as exc:
            # SQLite names rule, table and column here, and never a value.
            raise MigrationRefusedError(
                f"a row breaks a rule of version {step}: {exc}; nothing was changed", version=step
            ) from exc
    _check_references(db)
    _check_times(db)
    record(db, range(version + 1, SCHEMA_VERSION + 1), now_ms)


def _check_times(db: apsw.Connection) -> None:
    """Refuse what no receipt could be made of later: the end of such a job would fail for ever."""
    found = db.execute(_BEYOND, (INTEGER_MAX,)).get
    if found is not None:
        raise MigrationRefusedError(
            "a job has a time that no receipt can hold; nothing was changed", job_id=str(found)
        )


def _check_references(db: apsw.Connection) -> None:
    for table in (name for name, made in expected_objects().items() if made.kind == "table"):
        stray = db.execute(f"PRAGMA foreign_key_check({table})").fetchone()
        if stray is not None:
            raise MigrationRefusedError(
                f"a row of {table} belongs to no row of {stray[2]}; nothing was changed",
                table=table,
            )


def _check_everything(db: apsw.Connection, binding: BindingCheck | None) -> None:
    from rookhold_store.verify import check_all  # reads much of the store, and is seldom needed

    finding = check_all(db, binding=binding)
    if finding is None:
        return
    if finding.disk:
        raise StorageUnavailableError("the disk failed while the database was checked")
    detail: dict[str, str | int] = {"place": finding.place}
    if finding.job_id is not None:
        detail["job_id"] = finding.job_id
    if finding.seq is not None:
        detail["seq"] = finding.seq
    raise DatabaseDamagedError(
        f"a rule was missing or altered, and {finding.place} is not sound: {finding.problem}; "
        "restore a backup of this database (nothing was changed)",
        **detail,
    )


def _tell(done: Opening) -> None:
    if done.upgraded_from is not None:
        logger.info(
            "the database was upgraded from schema version %d to %d",
            done.upgraded_from,
            SCHEMA_VERSION,
        )
    elif done.accounts_repaired:
        logger.info("the storage accounts were repaired to revision %d", ACCOUNTING_REVISION)
    for job_id in done.quarantined:
        logger.warning(
            "an attestation does not bind its tenant: moved to the quarantine, to be made anew",
            extra={"job_id": job_id},
        )


@contextmanager
def _settings(db: apsw.Connection) -> Iterator[None]:
    for name, value in _SETTINGS:
        db.pragma(name, value)
    try:
        yield
    finally:
        for name, value in _SETTINGS_AFTER:
            db.pragma(name, value)
