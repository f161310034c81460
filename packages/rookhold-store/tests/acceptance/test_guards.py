"""S30, S32 and S35: keys are kept, and what may never change cannot be changed."""

from contextlib import closing

import apsw
import pytest

from rookhold_store import (
    Accepted,
    AttestationImmutableError,
    AttestationUnboundError,
    IdempotencyConflictError,
    PersistOutcome,
    Replayed,
    Store,
    Sweep,
)
from rookhold_store.testing import Jobs, tampering_connection
from rookhold_types.jobs import JobSpec

OTHER = JobSpec(language="bash", code="true")


def pruned(store: Store) -> int:
    """Remove every job that has ended, and return how many that were."""
    swept = store.call(Sweep(now_ms=store.clock() + 1, age_ms=0))
    assert not swept.more_remaining
    return swept.jobs_deleted


def test_s30_a_key_is_found_again_after_a_reopen_and_free_after_the_job_is_gone(
    store: Store, jobs: Jobs
) -> None:
    job_id = jobs.finished(key="k")
    store.close()
    with Store.open(store.path, clock=store.clock) as again:
        jobs = Jobs(again)
        assert jobs.submit(jobs.acceptance(key="k")) == Replayed(job_id=job_id)
        with pytest.raises(IdempotencyConflictError) as caught:
            jobs.submit(jobs.acceptance(key="k", spec=OTHER))
        assert caught.value.code == "idempotency_key_reused"
        elsewhere = jobs.submit(jobs.acceptance(key="k", tenant="globex", spec=OTHER))
        assert isinstance(elsewhere, Accepted)
        assert pruned(again) == 1
        assert again.read.find_key("acme", "k") is None
        assert isinstance(jobs.submit(jobs.acceptance(key="k", spec=OTHER)), Accepted)


HEX = "a" * 64
FORBIDDEN = {
    "job_id": "UPDATE jobs SET job_id = 'x'",
    "tenant": "UPDATE jobs SET tenant = 'globex'",
    "language": "UPDATE jobs SET language = 'node'",
    "spec": "UPDATE jobs SET spec_json = '{}'",
    "creation time": "UPDATE jobs SET created_at_ms = 0",
    "admitted memory": "UPDATE jobs SET admitted_mem_mb = 4096",
    "a terminal status": "UPDATE jobs SET status = 'failed' WHERE job_id = :one",
    "a receipt": "UPDATE jobs SET receipt_json = '{}' WHERE job_id = :one",
    "a receipt's removal": "UPDATE jobs SET receipt_json = NULL WHERE job_id = :one",
    "an unfinished job's removal": "DELETE FROM jobs WHERE job_id = 'running'",
    "an event": "UPDATE events SET data_json = '{}' WHERE job_id = :one",
    "an event's time": "UPDATE events SET ts_ms = 0 WHERE job_id = :one",
    "an event's removal": "DELETE FROM events WHERE job_id = :one AND seq = 4",
    "a key": f"UPDATE idempotency_keys SET request_sha256 = '{HEX}'",
    "a key's removal": "DELETE FROM idempotency_keys",
    "an attestation": "UPDATE job_attestations SET envelope_json = x'00'",
    "an attestation's removal": "DELETE FROM job_attestations",
    "a charge's job": "UPDATE job_storage_usage SET tenant = 'globex'",
    "a charge's removal": "DELETE FROM job_storage_usage",
    "a time in words": "UPDATE jobs SET status = 'error', finished_at_ms = 'noon' "
    "WHERE job_id = 'running'",
    "a time with a fraction": "UPDATE jobs SET status = 'error', finished_at_ms = 1.5 "
    "WHERE job_id = 'running'",
    "an exit code of 33 bits": "UPDATE jobs SET status = 'error', finished_at_ms = 1, "
    "exit_code = 2147483648 WHERE job_id = 'running'",
    "another tenant's key": "INSERT INTO idempotency_keys "
    f"VALUES ('globex', 'k', '{HEX}', :one, 1)",
    "another tenant's charge": "INSERT INTO job_storage_usage VALUES ('bare', 'globex', 1, 1, 256)",
}


@pytest.mark.parametrize("statement", FORBIDDEN.values(), ids=FORBIDDEN)
def test_s32_ordinary_sql_cannot_change_what_is_immutable(
    store: Store, jobs: Jobs, raw: apsw.Connection, statement: str
) -> None:
    one = jobs.finished(key="k")
    store.call(jobs.attestation(one))
    jobs.running(job_id="running")
    raw.execute(
        "INSERT INTO jobs (job_id, tenant, language, admitted_mem_mb, created_at_ms, spec_json) "
        "VALUES ('bare', 'acme', 'python', 256, 1, '{}')"
    )
    tables = [row[0] for row in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    before = [raw.execute(f"SELECT * FROM {table}").fetchall() for table in tables]
    with pytest.raises(apsw.ConstraintError):
        raw.execute(statement, {"one": one} if ":one" in statement else None)
    assert [raw.execute(f"SELECT * FROM {table}").fetchall() for table in tables] == before


def of_its_tenant(*, tenant: str, envelope: bytes, **_: object) -> bool:
    return envelope.startswith(tenant.encode() + b":")


def test_s35_an_attestation_is_stored_only_bound_only_once_and_goes_with_its_job(
    store: Store, jobs: Jobs
) -> None:
    job_id = jobs.finished()
    store.close()
    with Store.open(store.path, binding=of_its_tenant, clock=store.clock) as bound:
        jobs = Jobs(bound)
        with pytest.raises(AttestationUnboundError) as unbound:
            bound.call(jobs.attestation(job_id, envelope=b"globex: bytes"))
        assert unbound.value.code == "attestation_unbound"
        assert bound.read.attestation("acme", job_id) is None
        assert bound.read.outbox(job_id) is not None

        op = jobs.attestation(job_id, envelope=b"acme: bytes", result_artifact=b"\x00\xff")
        assert bound.call(op) is PersistOutcome.CREATED
        kept = bound.read.attestation("acme", job_id)
        assert kept is not None
        assert (kept.envelope_json, kept.result_artifact) == (b"acme: bytes", b"\x00\xff")
        assert bound.call(op) is PersistOutcome.EXISTING
        with pytest.raises(AttestationImmutableError) as other:
            bound.call(jobs.attestation(job_id, envelope=b"acme: others"))
        assert other.value.code == "attestation_immutable"
        assert bound.read.attestation("acme", job_id) == kept
        assert bound.read.attestation("globex", job_id) is None

        assert pruned(bound) == 1
        with closing(tampering_connection(bound.path)) as db:
            assert db.execute("SELECT count(*) FROM job_attestations").get == 0
        assert bound.read.attestation(None, job_id) is None
        assert bound.read.charged_bytes() == 0
