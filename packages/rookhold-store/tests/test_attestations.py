import pytest

from rookhold_store import (
    AttestationImmutableError,
    AttestationUnboundError,
    FailAttestation,
    InvalidOperationError,
    PersistAttestation,
    PersistOutcome,
    Store,
    WaiveAttestation,
)
from rookhold_store.testing import Jobs

CREATED, EXISTING, STALE = PersistOutcome


def test_exact_bytes_come_back_and_the_outbox_is_cleared(store: Store, jobs: Jobs) -> None:
    job_id = jobs.finished()
    assert store.read.outbox(job_id) is not None
    op = jobs.attestation(job_id, result_artifact=b"\x00\xff", envelope=b"{ }\r\n")
    assert store.call(op) is CREATED
    stored = store.read.attestation("acme", job_id)
    assert stored is not None
    assert (stored.result_artifact, stored.envelope_json) == (b"\x00\xff", b"{ }\r\n")
    assert store.read.outbox(job_id) is None
    assert store.read.pending_attestations(10**15) == ()
    status = store.read.attestation_status("acme", job_id)
    assert status is not None
    assert (status.result_size_bytes, status.envelope_size_bytes) == (2, 5)
    assert status.envelope_sha256 == stored.envelope_sha256


def test_another_tenant_sees_no_attestation(store: Store, jobs: Jobs) -> None:
    job_id = jobs.finished()
    store.call(jobs.attestation(job_id))
    assert store.read.attestation("globex", job_id) is None
    assert store.read.attestation_status("globex", job_id) is None


def test_the_same_bytes_again_are_existing(store: Store, jobs: Jobs) -> None:
    job_id = jobs.finished()
    op = jobs.attestation(job_id)
    assert [store.call(op), store.call(op)] == [CREATED, EXISTING]


@pytest.mark.parametrize(
    "changes", [{"result_artifact": b"x"}, {"envelope": b"x"}, {"key_id": "key-2"}], ids=str
)
def test_other_bytes_are_refused_as_immutable(
    store: Store, jobs: Jobs, changes: dict[str, object]
) -> None:
    job_id = jobs.finished()
    store.call(jobs.attestation(job_id))
    before = store.read.attestation("acme", job_id)
    with pytest.raises(AttestationImmutableError) as caught:
        store.call(jobs.attestation(job_id, **changes))
    assert caught.value.code == "attestation_immutable"
    assert store.read.attestation("acme", job_id) == before


def test_a_receipt_that_is_not_the_stored_one_is_stale(store: Store, jobs: Jobs) -> None:
    signed, other = jobs.finished(), jobs.finished()
    receipt = store.read.get("acme", other)
    assert receipt is not None
    assert store.call(jobs.attestation(signed, receipt_json=receipt.receipt_json)) is STALE
    assert store.call(jobs.attestation(signed, tenant="globex")) is STALE
    assert store.read.attestation("acme", signed) is None
    assert store.read.outbox(signed) is not None


@pytest.mark.parametrize("receipt", [b"", b"[]", b"{}", b'{"receipt_sha256":"00"}', b"\xff"])
def test_a_receipt_without_its_own_digest_binds_nothing(
    store: Store, jobs: Jobs, receipt: bytes
) -> None:
    job_id = jobs.finished()
    with pytest.raises(AttestationUnboundError):
        store.call(jobs.attestation(job_id, receipt_json=receipt))


def test_what_does_not_bind_is_refused(store: Store, jobs: Jobs) -> None:
    job_id = jobs.finished()
    asked: list[dict[str, object]] = []

    def check(**values: object) -> bool:
        asked.append(values)
        return values["artifact"] == b"bound"

    store.close()
    with Store.open(store.path, binding=check) as again:
        with pytest.raises(AttestationUnboundError) as caught:
            again.call(Jobs(again).attestation(job_id, result_artifact=b"loose"))
        assert caught.value.code == "attestation_unbound"
        assert again.read.attestation("acme", job_id) is None
        assert again.call(Jobs(again).attestation(job_id, result_artifact=b"bound")) is CREATED
        stored = again.read.attestation("acme", job_id)
    assert stored is not None
    assert asked[-1] == {
        "envelope": stored.envelope_json,
        "artifact": b"bound",
        "job_id": job_id,
        "tenant": "acme",
        "receipt_sha256": stored.receipt_sha256,
        "result_sha256": stored.result_sha256,
        "media_type": "application/json",
    }


def test_without_a_binding_check_nothing_is_stored(store: Store, jobs: Jobs) -> None:
    job_id = jobs.finished()
    store.close()
    with Store.open(store.path) as again, pytest.raises(AttestationUnboundError):
        again.call(Jobs(again).attestation(job_id))


@pytest.mark.parametrize(
    "changes",
    [
        {"result_artifact": b""},
        {"result_artifact": bytes(16 * 1024 * 1024 + 1)},
        {"envelope": b""},
        {"envelope": bytes(2 * 1024 * 1024 + 1)},
        {"result_media_type": "x" * 256},
        {"key_id": ""},
        {"now_ms": -1},
    ],
    ids=lambda changes: "-".join((*changes, str(len(str(*changes.values()))))),
)
def test_sizes_out_of_range_are_refused(
    store: Store, jobs: Jobs, changes: dict[str, object]
) -> None:
    job_id = jobs.finished()
    with pytest.raises(InvalidOperationError):
        store.call(jobs.attestation(job_id, **changes))


def test_the_largest_allowed_bytes_are_stored(store: Store, jobs: Jobs) -> None:
    job_id = jobs.finished()
    op = jobs.attestation(
        job_id, result_artifact=bytes(16 * 1024 * 1024), envelope=b"e" * (2 * 1024 * 1024)
    )
    assert store.call(op) is CREATED


def test_an_unfinished_job_has_no_attestation(store: Store, jobs: Jobs) -> None:
    done, running = jobs.finished(), jobs.running()
    op = jobs.attestation(done)
    values = {name: getattr(op, name) for name in op.__struct_fields__}
    assert store.call(PersistAttestation(**{**values, "job_id": running})) is STALE


@pytest.mark.parametrize("given_up", ["waived", "failed"])
def test_a_job_that_was_given_up_can_still_be_signed(
    store: Store, jobs: Jobs, given_up: str
) -> None:
    job_id = jobs.finished()
    if given_up == "waived":
        store.call(WaiveAttestation(job_id=job_id))
    else:
        store.call(FailAttestation(job_id=job_id, code="artifact_too_large", now_ms=1, profile="1"))
    assert store.call(jobs.attestation(job_id)) is CREATED
    assert store.read.outbox(job_id) is None
