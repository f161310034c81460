"""What each job is charged: bytes retained, bytes reserved, and how both follow a job's life."""

# ruff: noqa: S608  # statements are made of constants of this module alone; values are bindings

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rookhold_store.errors import StorageUnavailableError

if TYPE_CHECKING:
    import apsw

MIB: Final = 1024 * 1024
ROW_BYTES: Final = 64  # what a row is charged besides its texts and blobs
RESERVE_ACCEPTED: Final = 32 * MIB
RESERVE_PENDING: Final = 20 * MIB  # the floor while unfinished; exactly this while unsigned

_OPEN: Final = """
INSERT INTO job_storage_usage (job_id, tenant, retained_bytes, reserved_bytes, requested_mem_mb)
VALUES (?, ?, ?, ?, ?)
"""
# Growth eats the reserve down to its floor; what is beyond makes the charge itself grow.
_GROW: Final = f"""
UPDATE job_storage_usage SET retained_bytes = retained_bytes + ?1,
  reserved_bytes = max({RESERVE_PENDING}, reserved_bytes - max(0, ?1)) WHERE job_id = ?2
"""
_SETTLE: Final = """
UPDATE job_storage_usage SET retained_bytes = retained_bytes + ?, reserved_bytes = ?
WHERE job_id = ?
"""


def row_bytes(*texts: str | bytes | None) -> int:
    """Return the charge of one row with these texts and blobs, in UTF-8 bytes."""
    total = ROW_BYTES
    for text in texts:
        if text is not None:
            total += len(text) if isinstance(text, bytes) else len(text.encode())
    return total


def event_bytes(kind: str, data_json: bytes, prev_hash: str, event_hash: str) -> int:
    """Return the charge of one event; hashes are ASCII."""
    kind_bytes = len(kind) if kind.isascii() else len(kind.encode())
    return ROW_BYTES + kind_bytes + len(data_json) + len(prev_hash) + len(event_hash)


def open_account(
    db: apsw.Connection, job_id: str, tenant: str, retained: int, admitted_mem_mb: int
) -> None:
    """Begin the ledger of a job that was just accepted."""
    db.execute(_OPEN, (job_id, tenant, retained, RESERVE_ACCEPTED, admitted_mem_mb))


def grow(db: apsw.Connection, job_id: str, by: int) -> None:
    """Charge `by` more bytes to an unfinished job."""
    db.execute(_GROW, (by, job_id))
    _one_row(db)


def settle(db: apsw.Connection, job_id: str, by: int, *, pending: bool) -> None:
    """Change what a terminal job retains; its reserve is 20 MiB while it waits for a signature."""
    db.execute(_SETTLE, (by, RESERVE_PENDING if pending else 0, job_id))
    _one_row(db)


def _one_row(db: apsw.Connection) -> None:
    if db.changes() != 1:
        raise StorageUnavailableError("the job has no storage account")


# One statement, so that the ledger is judged by what SQLite itself finds in the rows. octet_length
# needs no more than the row's header, so that payloads stay unread.
_RECOUNT: Final = f"""
SELECT j.job_id, j.tenant, j.admitted_mem_mb,
  {ROW_BYTES} + octet_length(j.job_id) + octet_length(j.tenant) + octet_length(j.language)
  + octet_length(j.status) + octet_length(j.spec_json)
  + coalesce(octet_length(j.effective_spec_json), 0) + coalesce(octet_length(j.receipt_json), 0)
  + coalesce((SELECT sum({ROW_BYTES} + octet_length(kind) + octet_length(data_json)
      + octet_length(prev_hash) + octet_length(event_hash)) FROM events e
      WHERE e.job_id = j.job_id), 0)
  + coalesce((SELECT {ROW_BYTES} + octet_length(a.job_id) + octet_length(receipt_sha256)
      + octet_length(result_media_type) + octet_length(result_sha256)
      + octet_length(result_artifact)
      + octet_length(envelope_json) + octet_length(envelope_sha256) + octet_length(key_id)
      FROM job_attestations a WHERE a.job_id = j.job_id), 0)
  + coalesce((SELECT {ROW_BYTES} + octet_length(q.job_id) + octet_length(reason)
      + octet_length(result_artifact) + octet_length(result_sha256)
      + octet_length(envelope_json) + octet_length(envelope_sha256)
      FROM attestation_quarantine q WHERE q.job_id = j.job_id), 0)
  + coalesce((SELECT {ROW_BYTES} + octet_length(o.job_id) + coalesce(octet_length(failure_code), 0)
      FROM attestation_outbox o WHERE o.job_id = j.job_id), 0)
  + coalesce((SELECT sum({ROW_BYTES} + octet_length(k.tenant) + octet_length(idempotency_key)
      + octet_length(request_sha256) + octet_length(k.job_id)) FROM idempotency_keys k
      WHERE k.job_id = j.job_id), 0),
  j.finished_at_ms IS NULL,
  EXISTS (SELECT 1 FROM attestation_outbox o WHERE o.job_id = j.job_id AND o.failed_at_ms IS NULL)
FROM jobs j
"""
# A rebuild cannot know how much of a reserve was eaten: an unfinished job gets all of it again.
_WRITE: Final = f"""
WITH counted (job_id, tenant, memory, retained, unfinished, pending) AS ({_RECOUNT})
INSERT INTO job_storage_usage (job_id, tenant, retained_bytes, reserved_bytes, requested_mem_mb)
SELECT job_id, tenant, retained, CASE WHEN unfinished THEN {RESERVE_ACCEPTED}
  WHEN pending THEN {RESERVE_PENDING} ELSE 0 END, memory FROM counted
"""
_LEDGER: Final = """
SELECT job_id, tenant, retained_bytes, reserved_bytes, requested_mem_mb FROM job_storage_usage
"""


class Usage(Struct, frozen=True, kw_only=True):
    """What a job's rows say it must be charged.

    The reserve of an unfinished job is a range: how much of it is eaten depends on when its ledger
    was last rebuilt, which no row tells.
    """

    tenant: str
    admitted_mem_mb: int
    retained_bytes: int
    reserved_min: int
    reserved_max: int


class LedgerFinding(Struct, frozen=True, kw_only=True):
    """A ledger entry that the rows do not bear out; a sum names a tenant or nobody, not a job."""

    place: str
    stored: int | str | None
    expected: str
    job_id: str | None = None
    tenant: str | None = None


def recount(db: apsw.Connection) -> dict[str, Usage]:
    """Compute every job's charge anew from the retained rows."""
    usage: dict[str, Usage] = {}
    for job_id, tenant, memory, retained, unfinished, pending in db.execute(_RECOUNT):
        low = RESERVE_PENDING if unfinished or pending else 0
        usage[job_id] = Usage(
            tenant=tenant,
            admitted_mem_mb=memory,
            retained_bytes=retained,
            reserved_min=low,
            reserved_max=RESERVE_ACCEPTED if unfinished else low,
        )
    return usage


def write_ledger(db: apsw.Connection) -> None:
    """Write every job's ledger row anew; the caller emptied the ledger and owns the transaction."""
    db.execute(_WRITE)


def findings(db: apsw.Connection) -> list[LedgerFinding]:
    """Compare ledger and totals with a recount; an empty list means that all of it is exact.

    The caller owns the transaction, which must be one snapshot for the answer to mean anything.
    """
    expected = recount(db)
    found: list[LedgerFinding] = []
    tenants: dict[str, int] = {}
    for job_id, tenant, retained, reserved, memory in db.execute(_LEDGER):
        tenants[tenant] = tenants.get(tenant, 0) + retained + reserved
        found.extend(
            _compare(job_id, expected.pop(job_id, None), tenant, retained, reserved, memory)
        )
    found.extend(
        LedgerFinding(place="job_storage_usage", job_id=job_id, stored=None, expected="a row")
        for job_id in expected
    )
    return found + _compare_sums(db, tenants)


def _compare(
    job_id: str, usage: Usage | None, tenant: str, retained: int, reserved: int, memory: int
) -> list[LedgerFinding]:
    if usage is None:
        return [
            LedgerFinding(
                place="job_storage_usage", job_id=job_id, stored=tenant, expected="no row"
            )
        ]
    checks: tuple[tuple[str, int | str, bool, str], ...] = (
        ("tenant", tenant, tenant == usage.tenant, usage.tenant),
        ("requested_mem_mb", memory, memory == usage.admitted_mem_mb, str(usage.admitted_mem_mb)),
        (
            "retained_bytes",
            retained,
            retained == usage.retained_bytes,
            str(usage.retained_bytes),
        ),
        (
            "reserved_bytes",
            reserved,
            usage.reserved_min <= reserved <= usage.reserved_max,
            f"{usage.reserved_min}..{usage.reserved_max}",
        ),
    )
    return [
        LedgerFinding(
            place=f"job_storage_usage.{name}", job_id=job_id, stored=stored, expected=wanted
        )
        for name, stored, right, wanted in checks
        if not right
    ]


def _compare_sums(db: apsw.Connection, tenants: dict[str, int]) -> list[LedgerFinding]:
    found: list[LedgerFinding] = []
    total = db.execute("SELECT charged_bytes FROM storage_usage_total").get
    if total != sum(tenants.values()):
        found.append(
            LedgerFinding(
                place="storage_usage_total.charged_bytes",
                stored=total,
                expected=str(sum(tenants.values())),
            )
        )
    rows = db.execute("SELECT tenant, charged_bytes FROM tenant_storage_usage")
    stored: dict[str, int] = dict(rows)
    found.extend(
        LedgerFinding(
            place="tenant_storage_usage.charged_bytes",
            tenant=tenant,
            stored=stored.get(tenant),
            expected=str(tenants.get(tenant, "no row")),
        )
        for tenant in sorted(stored.keys() | tenants.keys())
        if stored.get(tenant) != tenants.get(tenant)
    )
    return found
