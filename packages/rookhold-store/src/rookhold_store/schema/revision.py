"""The accounting repair, from revision 1 to 2: once, in its caller's transaction.

Revision 1 did not charge idempotency keys, held no reserve for what waits for a signature, and took
attestations that did not name the tenant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rookhold_store import accounting
from rookhold_store.errors import BindingRequiredError
from rookhold_store.schema.judge import ACCOUNTING_REVISION
from rookhold_store.schema.objects import expected_objects

if TYPE_CHECKING:
    import apsw

    from rookhold_store.binding import BindingCheck

UNBOUND: Final = "tenant_not_bound"  # the reason that the quarantine gives

# An attestation under a tombstone is on its way out: nobody sees it, and its receipt is gone.
_STORED: Final = """
SELECT a.job_id, j.tenant, j.receipt_json ->> '$.receipt_sha256', a.receipt_sha256, a.result_sha256,
  a.result_media_type, a.result_artifact, a.envelope_json
FROM job_attestations a JOIN jobs j ON j.job_id = a.job_id
WHERE NOT EXISTS (SELECT 1 FROM retention_tombstones t WHERE t.job_id = a.job_id)
"""
_MOVE: Final = """
INSERT INTO attestation_quarantine (job_id, at_ms, reason, result_sha256, envelope_sha256,
  result_artifact, envelope_json)
SELECT job_id, ?, ?, result_sha256, envelope_sha256, result_artifact, envelope_json
FROM job_attestations WHERE job_id = ?
"""
_REMOVE: Final = "DELETE FROM job_attestations WHERE job_id = ?"
_QUEUE: Final = """
INSERT INTO attestation_outbox (job_id, pending_since_ms, attempt_count, next_attempt_ms)
SELECT job_id, finished_at_ms, 0, finished_at_ms FROM jobs
WHERE job_id = ? AND receipt_json IS NOT NULL
"""
_LEDGER: Final = "job_storage_usage"
_SUMS: Final = """
DELETE FROM tenant_storage_usage;
INSERT INTO tenant_storage_usage (tenant, charged_bytes)
SELECT tenant, sum(retained_bytes + reserved_bytes) FROM job_storage_usage GROUP BY tenant;
INSERT INTO storage_usage_total (id, charged_bytes)
SELECT 1, 0 WHERE NOT EXISTS (SELECT 1 FROM storage_usage_total);
UPDATE storage_usage_total SET charged_bytes =
  (SELECT coalesce(sum(charged_bytes), 0) FROM tenant_storage_usage);
"""


def repair(db: apsw.Connection, *, binding: BindingCheck | None, now_ms: int) -> tuple[str, ...]:
    """Repair what revision 1 left, and mark the file; return the jobs whose attestation was moved.

    Without a binding test a file that holds attestations is refused, not guessed at.
    """
    unbound = _unbound(db, binding)
    for job_id in unbound:
        db.execute(_MOVE, (now_ms, UNBOUND, job_id))
        db.execute(_REMOVE, (job_id,))
        db.execute(_QUEUE, (job_id,))
    rebuild_ledger(db)
    db.execute("UPDATE store_meta SET accounting_revision = ?", (ACCOUNTING_REVISION,))
    return unbound


def _unbound(db: apsw.Connection, binding: BindingCheck | None) -> tuple[str, ...]:
    unbound: list[str] = []
    for row in db.execute(_STORED):
        job_id, tenant, receipt_sha256, signed_sha256, result_sha256, media_type, *blobs = row
        if binding is None:
            raise BindingRequiredError(
                "attestations of an older accounting have to be tested before they are served; "
                "open the database once with the server"
            )
        artifact, envelope = blobs
        if receipt_sha256 != signed_sha256 or not binding(
            envelope=envelope,
            artifact=artifact,
            job_id=job_id,
            tenant=tenant,
            receipt_sha256=receipt_sha256,
            result_sha256=result_sha256,
            media_type=media_type,
        ):
            unbound.append(job_id)
    return tuple(unbound)


def rebuild_ledger(db: apsw.Connection) -> None:
    """Write the ledger and its sums anew from the retained rows.

    Its triggers stand aside meanwhile: they keep the sums right by differences, which is no use
    where what they would differ from is wrong.
    """
    triggers = [
        (name, made.sql or "")
        for name, made in expected_objects().items()
        if made.kind == "trigger" and made.table == _LEDGER
    ]
    for name, _ in triggers:
        db.execute(f"DROP TRIGGER {name}")
    db.execute(f"DELETE FROM {_LEDGER}")  # noqa: S608  # a constant
    accounting.write_ledger(db)
    db.execute(_SUMS)
    for _, sql in triggers:
        db.execute(sql)
