"""All jobs in the order of their ids, a page at a moment, and what hangs on no job at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import apsw

from rookhold_store.connection import ENGINE_ERRORS
from rookhold_store.source import ELSEWHERE
from rookhold_store.verify import one
from rookhold_store.verify.finding import FILE, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rookhold_store.binding import BindingCheck
    from rookhold_store.moments import View
    from rookhold_store.verify.kept import Kept

PAGE: Final = 64

_FIRST: Final = """
SELECT CAST(job_id AS BLOB) FROM jobs WHERE job_id >= '' AND job_id < x'' ORDER BY job_id LIMIT ?
"""
_NEXT: Final = """
SELECT CAST(job_id AS BLOB) FROM jobs WHERE job_id > CAST(? AS TEXT) AND job_id < x''
ORDER BY job_id LIMIT ?
"""
# Rows whose job id is no text sort before or after all texts, where no page would find them.
_NO_TEXT: Final = (
    "SELECT count(*) FROM {table} WHERE job_id < '' OR job_id >= x'' OR job_id IS NULL"
)
_THERE: Final = "SELECT EXISTS (SELECT 1 FROM jobs WHERE job_id = CAST(? AS TEXT))"
_CHILDREN: Final = (
    "events",
    "job_attestations",
    "attestation_quarantine",
    "attestation_outbox",
    "job_storage_usage",
    "retention_tombstones",
    "idempotency_keys",
)
# Hops from one id to the next: a history of thousands of events is one step.
_ORPHANS: Final = """
WITH RECURSIVE hop(id) AS (
  SELECT (SELECT job_id FROM {table} WHERE job_id {after} ORDER BY job_id LIMIT 1)
  UNION ALL
  SELECT (SELECT job_id FROM {table} WHERE job_id > hop.id {until} ORDER BY job_id LIMIT 1)
  FROM hop WHERE hop.id IS NOT NULL)
SELECT CAST(id AS BLOB) FROM hop WHERE id IS NOT NULL {bound}
AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.job_id = hop.id) LIMIT 100
"""


class Page(NamedTuple):
    """What was found in a stretch of ids; `last` is None after the end."""

    findings: list[Finding]
    jobs: int
    last: bytes | None


def page(view: View, after: bytes | None, *, binding: BindingCheck | None, migrated: bool) -> Page:
    """Check the jobs that follow `after`: a page of them, or as many as the moment has time for."""
    keys = _keys(view.db, after)
    found: list[Finding] = []
    done = 0
    for key in keys:
        if after is not None and key <= after:
            found.append(Finding(place=FILE, problem="the index of job ids is not in order"))
            return Page(found, done, None)
        found += checked(view, key, binding=binding, migrated=migrated)
        done += 1
        if view.due():
            break
    ended = done == len(keys) < PAGE
    last = None if ended else keys[done - 1]
    found += _orphans(view.db, after, last)
    return Page(found, done, last)


def pages(view: View, *, binding: BindingCheck | None, migrated: bool) -> Iterator[Finding]:
    """Check all jobs at one moment."""
    last: bytes | None = None
    while True:
        seen = page(view, last, binding=binding, migrated=migrated)
        yield from seen.findings
        last = seen.last
        if last is None:
            return


def named(
    view: View,
    job_id: str,
    *,
    binding: BindingCheck | None,
    migrated: bool,
    kept: Sequence[Kept] = (),
) -> list[Finding]:
    """Check one job that somebody asks for; that it is not there is a finding."""
    try:
        key = job_id.encode()
        there = view.db.execute(_THERE, (key,)).get
    except ENGINE_ERRORS as exc:
        return [unreadable(exc, job_id=job_id)]
    if there:
        return checked(view, key, binding=binding, migrated=migrated, kept=kept)
    return [
        Finding(
            place="jobs.job_id",
            problem="the job is not in the store: removed, or never there",
            job_id=job_id,
            kept=True,
        )
    ]


def checked(
    view: View,
    key: bytes,
    *,
    binding: BindingCheck | None,
    migrated: bool,
    kept: Sequence[Kept] = (),
) -> list[Finding]:
    """Check one job; rows that cannot be read are a finding too."""
    try:
        return one.check(view, key, binding=binding, migrated=migrated, kept=kept)
    except ENGINE_ERRORS as exc:
        return [unreadable(exc, job_id=one.name_of(key))]


def unreadable(exc: BaseException, *, job_id: str | None = None, place: str = FILE) -> Finding:
    """Return the finding for pages that SQLite cannot make sense of.

    What is not of the file's making is raised again: somebody else's lock is no damage.
    """
    if isinstance(exc, (*ELSEWHERE, apsw.InterruptError)):
        raise exc
    said = str(exc).removesuffix(".") if isinstance(exc, apsw.Error) else "a text is not UTF-8"
    return Finding(
        place=place,
        problem=f"cannot be read: {type(exc).__name__}: {said}",
        job_id=job_id,
        disk=isinstance(exc, apsw.IOError),
    )


def not_texts(db: apsw.Connection) -> list[Finding]:
    """Find the rows that no page shows."""
    found = []
    for table in ("jobs", *_CHILDREN):
        try:
            rows = db.execute(_NO_TEXT.format(table=table)).get
        except ENGINE_ERRORS as exc:
            found.append(unreadable(exc, place=table))
            continue
        if rows:
            found.append(Finding(place=f"{table}.job_id", problem=f"is no text in {rows} rows"))
    return found


def _keys(db: apsw.Connection, after: bytes | None) -> list[bytes]:
    rows = db.execute(_FIRST, (PAGE,)) if after is None else db.execute(_NEXT, (after, PAGE))
    return [row[0] for row in rows if row[0] is not None]


def _orphans(db: apsw.Connection, after: bytes | None, last: bytes | None) -> list[Finding]:
    found: list[Finding] = []
    bindings = {"after": after, "last": last}
    for table in _CHILDREN:
        statement = _ORPHANS.format(
            table=table,
            after=">= ''" if after is None else "> CAST(:after AS TEXT)",
            until="AND job_id < x''" if last is None else "AND job_id <= CAST(:last AS TEXT)",
            bound="AND id < x''" if last is None else "AND id <= CAST(:last AS TEXT)",
        )
        try:
            for (key,) in db.execute(statement, bindings):
                found.append(
                    Finding(
                        place=f"{table}.job_id",
                        problem="names no job that there is",
                        job_id=one.name_of(key),
                    )
                )
        except ENGINE_ERRORS as exc:
            found.append(unreadable(exc, place=table))
    return found
