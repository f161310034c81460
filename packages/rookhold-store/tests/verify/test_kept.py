"""Evidence that was kept elsewhere finds what the file alone cannot show."""

from __future__ import annotations

import base64
import hashlib
import json
from contextlib import closing
from typing import Any

import apsw
import pytest

from rookhold_store import Append, Store, StoreError
from rookhold_store.testing import Jobs, TickingClock
from rookhold_store.testing.specimen import Made, binding, unguarded
from rookhold_store.verify import Finding, Kept, read_kept, verify
from rookhold_types.canonical import canonical
from rookhold_types.receipts import seal_receipt


def receipt_of(made: Made, job_id: str) -> dict[str, Any]:
    with closing(apsw.Connection(str(made.path))) as db:
        text = db.execute("SELECT receipt_json FROM jobs WHERE job_id = ?", (job_id,)).get
    receipt: dict[str, Any] = json.loads(str(text))
    return receipt


def found(made: Made, *kept: Kept) -> list[Finding]:
    return list(verify(made.path, binding=binding, receipts=kept))


def test_what_was_kept_of_a_sound_file_agrees_with_it(made: Made) -> None:
    receipt = receipt_of(made, made.attested)
    kept = read_kept(json.dumps(receipt, indent=4).encode())
    assert kept.job_id == made.attested
    assert kept.seq == receipt["event_chain"]["events"]
    assert found(made, kept) == []


def test_a_whole_job_that_is_missing_is_found_only_by_its_receipt(made: Made) -> None:
    kept = read_kept(canonical(receipt_of(made, made.pending)))
    with unguarded(made.path) as db:
        charge = db.execute(
            "SELECT retained_bytes + reserved_bytes FROM job_storage_usage WHERE job_id = ?",
            (made.pending,),
        ).get
        for table in ("events", "attestation_outbox", "job_storage_usage", "jobs"):
            db.execute(f"DELETE FROM {table} WHERE job_id = ?", (made.pending,))
        for table, where in (
            ("storage_usage_total", ""),
            ("tenant_storage_usage", "tenant='acme'"),
        ):
            db.execute(
                f"UPDATE {table} SET charged_bytes = charged_bytes - ? WHERE {where or 'true'}",
                (charge,),
            )
    assert found(made) == []
    (missing,) = found(made, kept)
    assert (missing.place, missing.job_id, missing.kept) == ("jobs.job_id", made.pending, True)


def test_a_tail_that_was_cut_from_a_running_job_is_found_only_by_a_later_event(made: Made) -> None:
    clock = TickingClock(10**7)
    with Store.open(made.path, binding=binding, clock=clock) as store:
        events = [("stdout", {"line": str(n), "eol": True}) for n in range(3)]
        *_, last = store.call(Append(job_id=made.running, events=events, now_ms=clock()))
    with unguarded(made.path) as db:
        lost = db.execute(
            "SELECT 64 + octet_length(kind) + octet_length(data_json) + 128 FROM events"
            " WHERE job_id = ? AND seq = ?",
            (made.running, last.seq),
        ).get
        db.execute("DELETE FROM events WHERE job_id = ? AND seq = ?", (made.running, last.seq))
        db.execute(
            "UPDATE job_storage_usage SET retained_bytes = retained_bytes - ? WHERE job_id = ?",
            (lost, made.running),
        )
        db.execute("UPDATE storage_usage_total SET charged_bytes = charged_bytes - ?", (lost,))
        db.execute(
            "UPDATE tenant_storage_usage SET charged_bytes = charged_bytes - ?"
            " WHERE tenant = 'third'",
            (lost,),
        )
    assert found(made) == []
    kept = read_kept(
        json.dumps(
            {"job_id": made.running, "seq": last.seq, "event_hash": last.event_hash}
        ).encode()
    )
    (cut,) = found(made, kept)
    assert (cut.place, cut.job_id, cut.seq) == ("events.seq", made.running, last.seq)


def test_a_history_that_was_rewritten_consistently_is_found_only_by_its_receipt(
    made: Made,
) -> None:
    before = receipt_of(made, made.pending)
    rewrite(made, made.pending)
    assert found(made) == []
    places = {item.place for item in found(made, read_kept(canonical(before)))}
    assert places == {"events.event_hash", "jobs.receipt_json"}


def rewrite(made: Made, job_id: str) -> None:
    """Do what somebody does who knows the format: new output, new hashes, a new receipt."""
    from rookhold_types.events import event_hash

    with unguarded(made.path) as db:
        previous = ""
        rows = db.execute(
            "SELECT seq, ts_ms, kind, data_json FROM events WHERE job_id = ? ORDER BY seq",
            (job_id,),
        ).fetchall()
        for seq, ts_ms, kind, text in rows:
            data = str(text).replace('"line":"42"', '"line":"43"')
            digest = event_hash(job_id, previous, seq, ts_ms, kind, data.encode())
            db.execute(
                "UPDATE events SET data_json = ?, prev_hash = ?, event_hash = ?"
                " WHERE job_id = ? AND seq = ?",
                (data, previous, digest, job_id, seq),
            )
            previous = digest
        receipt = receipt_of(made, job_id)
        receipt["event_chain"]["head"] = previous
        sealed = seal_receipt(receipt)
        db.execute(
            "UPDATE jobs SET receipt_json = ? WHERE job_id = ?", (sealed.text.decode(), job_id)
        )


def envelope_of(receipt: dict[str, Any], result: bytes) -> bytes:
    statement = {
        "predicate": {
            "receipt": receipt,
            "result": {"sha256": hashlib.sha256(result).hexdigest()},
        }
    }
    payload = base64.b64encode(json.dumps(statement).encode()).decode()
    return json.dumps({"payload": payload, "payloadType": "x", "signatures": []}).encode()


def test_an_envelope_and_a_result_that_were_kept_are_compared_byte_for_byte(made: Made) -> None:
    receipt = receipt_of(made, made.attested)
    artifact = b"artifact of " + made.attested.encode()
    kept = read_kept(envelope_of(receipt, artifact))
    assert kept.result_sha256 == hashlib.sha256(artifact).hexdigest()
    (other,) = found(made, kept)  # the stored envelope is another one
    assert other.place == "job_attestations.envelope_sha256"
    result = canonical(
        {
            "schema_version": 1,
            "job_id": made.attested,
            "receipt_sha256": receipt["receipt_sha256"],
        }
    )
    (other,) = found(made, read_kept(result))
    assert other.place == "job_attestations.result_sha256"


def test_a_job_as_the_api_shows_it_is_evidence_too(made: Made) -> None:
    receipt = receipt_of(made, made.waived)
    assert read_kept(canonical({"job_id": made.waived, "receipt": receipt})) == read_kept(
        canonical(receipt)
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"job_id":"x"}',
        b'{"job_id":"x","receipt_sha256":"00"}',
        b'{"job_id":"x","receipt_sha256":"00","n":1.5}',
        b'{"payload":"!","payloadType":"x"}',
        b'{"payload":"e30=","payloadType":"x"}',
        b'{"job_id":"x","seq":0,"event_hash":"00"}',
        b'{"job_id":"x","seq":"1","event_hash":"00"}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_evidence_is_refused(content: bytes) -> None:
    with pytest.raises(StoreError) as refused:
        read_kept(content)
    assert refused.value.code == "evidence_unreadable"


def test_only_the_jobs_that_are_asked_for_are_checked(made: Made) -> None:
    with unguarded(made.path) as db:
        db.execute("UPDATE jobs SET exit_code = 9 WHERE job_id = ?", (made.waived,))
    assert list(verify(made.path, binding=binding, job_ids=[made.attested])) == []
    wrong = list(verify(made.path, binding=binding, job_ids=[made.attested, made.waived]))
    assert {item.job_id for item in wrong} == {made.waived}
    (absent,) = verify(made.path, binding=binding, job_ids=["absent"])
    assert absent.job_id == "absent"


def test_a_job_that_is_being_removed_and_was_kept_is_told_of(made: Made) -> None:
    sealed = seal_receipt({"job_id": made.hidden, "event_chain": {"head": "0" * 64, "events": 3}})
    places = {item.place for item in found(made, read_kept(sealed.text))}
    assert places == {"events.seq", "jobs.receipt_json"}


def test_a_store_that_goes_on_still_agrees_with_what_was_kept_before(made: Made) -> None:
    with Store.open(made.path, binding=binding, clock=TickingClock(10**7)) as store:
        (first, *_) = store.read.events_after(made.running)
        Jobs(store).append(made.running, "more")
    kept = Kept(job_id=made.running, seq=first.seq, head=first.event_hash)
    assert found(made, kept) == []
