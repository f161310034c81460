"""One whole job: its history, its row, its receipt, what hangs on it, its account."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from rookhold_store.verify import jobs, ledger, receipts
from rookhold_store.verify.attestations import Hanging, charge
from rookhold_store.verify.finding import Finding
from rookhold_store.verify.history import History
from rookhold_store.verify.jobs import Job
from rookhold_store.verify.tables import EVENTS, JOBS, KEYS, TOMBSTONES
from rookhold_types.events import EventKind
from rookhold_types.receipts import DIGEST_MEMBER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import apsw

    from rookhold_store.binding import BindingCheck
    from rookhold_store.moments import View
    from rookhold_store.verify.kept import Kept

_OF_JOB = "WHERE job_id = CAST(? AS TEXT)"
_LAST = "SELECT coalesce(max(seq), 0) FROM events WHERE job_id = CAST(? AS TEXT)"
_PLACE = "SELECT rowid FROM jobs WHERE job_id = CAST(? AS TEXT)"


def name_of(key: bytes) -> str:
    """Return a job id for people; a stored one may hold anything."""
    return key.decode(errors="backslashreplace")


def check(
    view: View,
    key: bytes,
    *,
    binding: BindingCheck | None,
    migrated: bool,
    kept: Sequence[Kept] = (),
) -> list[Finding]:
    """Return what is wrong with one job; nothing if it has gone meanwhile.

    A long history is followed through several moments, which its being only ever added to allows;
    one that was shortened meanwhile is being removed, and followed anew. All else is of the moment
    in which its end was reached.
    """
    while True:
        history = History(name_of(key), migrated=migrated)
        for item in kept:
            item.watch(history)
        if _follow(view, key, history):
            break
    found = _at_one_moment(view.db, key, history, binding=binding, migrated=migrated, kept=kept)
    return [] if found is None else found


def _follow(view: View, key: bytes, history: History) -> bool:
    """Follow the events to their end; False if what was followed is no longer all there."""
    going, renewed = True, False
    while going:
        going = False
        rows = EVENTS.rows(view.db, f"{_OF_JOB} AND seq > ? ORDER BY seq", (key, history.seq))
        with closing(rows):
            for row in rows:
                if not history.add(row):
                    return True
                if view.due():
                    going = True
                    break
        if going:
            view.renew()
            renewed = True
    return not renewed or view.db.execute(_LAST, (key,)).get == history.seq


def _at_one_moment(
    db: apsw.Connection,
    key: bytes,
    history: History,
    *,
    binding: BindingCheck | None,
    migrated: bool,
    kept: Sequence[Kept],
) -> list[Finding] | None:
    place = db.execute(_PLACE, (key,)).get
    # By its place in the table and not through an index, which has copies of some columns.
    row = next(JOBS.rows(db, "NOT INDEXED WHERE rowid = ?", (place,)), None)
    if row is None:
        return None
    job, job_id = Job(*row), history.job_id
    hidden = next(TOMBSTONES.rows(db, _OF_JOB, (key,)), None)
    found: list[Finding] = []

    def find(place: str, problem: str) -> None:
        found.append(Finding(place=place, problem=problem, job_id=job_id))

    if job.job_id != job_id:
        find("jobs.job_id", "is not the one that the index leads to")
    found += history.findings  # first: what an event hides or says wrongly, the row seems to lack
    for column, problem in jobs.complaints(
        job, history, hidden=hidden is not None, migrated=migrated
    ):
        find(f"jobs.{column}", problem)
    for problem in receipts.problems(job, history, hidden=hidden is not None):
        find("jobs.receipt_json", problem)
    if hidden is not None:
        for column, problem in TOMBSTONES.complaints(hidden):
            find(f"retention_tombstones.{column}", problem)
        if not job.terminal:
            find("retention_tombstones.job_id", "is of a job that has not ended")
        last = history.told.get(EventKind.FINISHED.value)
        if last is not None and last.hashed:  # a removal takes that one with its first step
            find("retention_tombstones.job_id", "hides a job of which nothing was removed")
    receipt = receipts.read(job) or {}
    hanging = Hanging(db, job, job_id, key)
    found += hanging.findings(
        receipt.get(DIGEST_MEMBER), hidden=hidden is not None, binding=binding
    )
    retained = hanging.retained_bytes + history.retained_bytes + _charge(job)
    for key_row in KEYS.rows(db, _OF_JOB, (key,)):
        retained += charge(*key_row[:4])
        if hidden is not None:
            find("idempotency_keys.job_id", "is of a job whose removal has begun")
        for column, problem in _key(key_row, job):
            find(f"idempotency_keys.{column}", problem)
    found += ledger.of_job(db, job, job_id, key, retained=retained, pending=hanging.pending)
    for item in kept:
        found += item.compare(job, history, receipt, hanging)
    return found


def _charge(job: Job) -> int:
    return charge(
        job.job_id,
        job.tenant,
        job.language,
        job.status,
        job.spec_json,
        job.effective_spec_json,
        job.receipt_json,
    )


def _key(row: tuple[Any, ...], job: Job) -> Iterator[tuple[str, str]]:
    broken = KEYS.complaints(row)
    yield from broken
    wrong = {column for column, _ in broken}
    tenant, _, digest, _, created = row
    if tenant != job.tenant:
        yield "tenant", "is not the tenant of its job"
    if digest != jobs.sha256(job.spec_json) and "request_sha256" not in wrong:
        yield "request_sha256", "is not the digest of the job's spec"
    if created != job.created_at_ms and "created_at_ms" not in wrong:
        yield "created_at_ms", "is not when the job was accepted"
