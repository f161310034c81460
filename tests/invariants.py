"""What must hold in every database this product ever wrote, whatever died when."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import apsw

from rookhold_types.states import TERMINAL

if TYPE_CHECKING:
    from pathlib import Path

TERMINAL_NAMES = {str(status) for status in TERMINAL}
ROW_OVERHEAD = 64
PENDING_RESERVE = 20 * 1024 * 1024
UNFINISHED_RESERVE = 32 * 1024 * 1024


def _field(data: bytes) -> bytes:
    return len(data).to_bytes(8, "big") + data


def chain_link(job_id: str, prev: str, seq: int, ts_ms: int, kind: str, data: str) -> str:
    """Recompute one event's hash; written apart from the product so that both must agree."""
    return hashlib.sha256(
        b"coop:event-chain:v1\0"
        + _field(job_id.encode())
        + _field(prev.encode())
        + seq.to_bytes(8, "big", signed=True)
        + ts_ms.to_bytes(8, "big", signed=True)
        + _field(kind.encode())
        + _field(data.encode())
    ).hexdigest()


def problems_with_job(db: apsw.Connection, job_id: str) -> list[str]:
    """Return what is wrong with one job that should be over: its state, history and receipt."""
    found = []
    row = db.execute("SELECT status, receipt_json FROM jobs WHERE job_id = ?", (job_id,)).fetchone()
    if row is None:
        return [f"{job_id}: the accepted job is gone"]
    status, receipt_text = row
    if status not in TERMINAL_NAMES:
        found.append(f"{job_id}: still {status}")
    events = db.execute(
        "SELECT seq, ts_ms, kind, data_json, prev_hash, event_hash FROM events"
        " WHERE job_id = ? ORDER BY seq",
        (job_id,),
    ).fetchall()
    prev = ""
    for index, (seq, ts_ms, kind, data, said_prev, said_hash) in enumerate(events, start=1):
        if seq != index:
            found.append(f"{job_id}: event {seq} where {index} was expected")
        if said_prev != prev or said_hash != chain_link(job_id, prev, seq, ts_ms, kind, data):
            found.append(f"{job_id}: the chain breaks at event {seq}")
        prev = said_hash
    kinds = [event[2] for event in events]
    if kinds[:1] != ["accepted"] or kinds.count("finished") != 1 or kinds[-1] != "finished":
        found.append(f"{job_id}: events are {kinds}")
    if receipt_text is None:
        return [*found, f"{job_id}: no receipt"]
    receipt = json.loads(receipt_text)
    said = receipt.pop("receipt_sha256")
    text = json.dumps(receipt, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if hashlib.sha256(text.encode()).hexdigest() != said:
        found.append(f"{job_id}: the receipt's digest does not recompute")
    if receipt["outcome"] != status or receipt["job_id"] != job_id:
        found.append(f"{job_id}: receipt says {receipt['outcome']}, row says {status}")
    if receipt["event_chain"]["head"] != prev or receipt["event_chain"]["events"] != len(events):
        found.append(f"{job_id}: the receipt does not bind the end of its history")
    return found


def _size(*values: object) -> int:
    return ROW_OVERHEAD + sum(
        len(value) if isinstance(value, bytes) else len(str(value).encode())
        for value in values
        if value is not None
    )


def recount(db: apsw.Connection, job_id: str) -> tuple[int, int]:
    """Return (retained, reserved) bytes of one job as the rows themselves say."""
    columns = "job_id, tenant, language, status, spec_json, effective_spec_json, receipt_json"
    job = db.execute(f"SELECT {columns} FROM jobs WHERE job_id = ?", (job_id,)).fetchone()
    retained = _size(*job)
    parts = {
        "events": "kind, data_json, prev_hash, event_hash",
        "job_attestations": "job_id, receipt_sha256, result_media_type, result_artifact,"
        " result_sha256, envelope_json, envelope_sha256, key_id",
        "attestation_outbox": "job_id, failure_code",
        "idempotency_keys": "tenant, idempotency_key, request_sha256, job_id",
    }
    for table, names in parts.items():
        for row in db.execute(f"SELECT {names} FROM {table} WHERE job_id = ?", (job_id,)):
            retained += _size(*row)
    pending = db.execute(
        "SELECT count(*) FROM attestation_outbox WHERE job_id = ? AND failed_at_ms IS NULL",
        (job_id,),
    ).get
    if job[3] not in TERMINAL_NAMES:
        return retained, UNFINISHED_RESERVE
    return retained, PENDING_RESERVE if pending else 0


def problems(database: Path, accepted: list[str]) -> list[str]:
    """Return every broken invariant of a database whose jobs should all be over."""
    db = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        stored = [row[0] for row in db.execute("SELECT job_id FROM jobs ORDER BY job_id")]
        found = [
            f"{job}: acknowledged, but not stored" for job in sorted(set(accepted) - set(stored))
        ]
        for job_id in stored:
            found += problems_with_job(db, job_id)
            ledger = db.execute(
                "SELECT retained_bytes, reserved_bytes FROM job_storage_usage WHERE job_id = ?",
                (job_id,),
            ).fetchone()
            if ledger != (counted := recount(db, job_id)):
                found.append(f"{job_id}: the ledger says {ledger}, the rows say {counted}")
        total = (
            db.execute("SELECT sum(retained_bytes + reserved_bytes) FROM job_storage_usage").get
            or 0
        )
        if (said := db.execute("SELECT charged_bytes FROM storage_usage_total").get) != total:
            found.append(f"total: the ledger says {said}, its rows say {total}")
        check = db.execute("PRAGMA integrity_check").get
        return found if check == "ok" else [*found, f"sqlite: {check}"]
    finally:
        db.close()
