"""The signer over a real store: signed, deferred, waived, and never twice."""

import base64
import hashlib

import anyio
import msgspec
import pytest

from rookhold_attestation import (
    AttestationError,
    Policy,
    profile,
    verify_envelope,
    waiver_code,
)
from rookhold_server.signing.item import sign_job
from rookhold_server.signing.signer import PAGE, Signer
from rookhold_server.storage import Storage
from rookhold_store import (
    Accept,
    CancelQueued,
    DeferAttestation,
    FailAttestation,
    Finalise,
    PersistAttestation,
    RecoverRunning,
    RetryAttestations,
    Start,
    StorageUnavailableError,
    Store,
)
from rookhold_types import canonical_sha256, fingerprint, new_job_id

pytestmark = pytest.mark.anyio
TENANT = "acme"


@pytest.fixture
def accepted(kit, job):
    def put(spec=None):
        job_id = new_job_id()
        stored = job().stored() if spec is None else spec
        kit.store.call(
            Accept(
                job_id=job_id,
                tenant=TENANT,
                language="python",
                spec=stored,
                admitted_mem_mb=256,
                now_ms=kit.clock(),
                fingerprint=canonical_sha256(stored),
            )
        )
        return job_id

    return put


@pytest.fixture
def ended(kit, accepted):
    def put(receipt=None, spec=None):
        job_id = accepted(spec)
        kit.store.call(Start(job_id=job_id, now_ms=kit.clock()))
        kit.store.call(
            Finalise(
                job_id=job_id,
                status="succeeded",
                exit_code=0,
                now_ms=kit.clock(),
                duration_ms=1,
                receipt=receipt or {},
            )
        )
        return job_id

    return put


@pytest.fixture
def signer(kit, signing_key):
    def make(*, key=signing_key, store=None):
        settled = []
        signer = Signer(
            store=Storage(store or kit.store), key=key, clock=kit.clock, settled=settled.append
        )
        signer.settled_ids = settled
        return signer

    return make


def verified(kit, key, job_id):
    row = kit.store.read.attestation(TENANT, job_id)
    return verify_envelope(
        row.envelope_json,
        artifact=row.result_artifact,
        keys=[key.public_key],
        policy=Policy(
            tenant=TENANT,
            subject_name=profile.result_subject_name(job_id),
            media_type=profile.RESULT_MEDIA_TYPE,
        ),
    )


def counts(report):
    return msgspec.structs.astuple(report)


async def test_a_run_is_signed_and_its_parts_agree(kit, submit, finished, signing_key):
    kit.key = signing_key

    async def script(run):
        await run.print("hello\n")
        run.end()

    kit.executor.script = script
    async with kit.running() as engine:
        submitted = await submit(engine)
        await engine.wait_attestation(TENANT, submitted.job_id, 30)
        detail = await engine.detail(TENANT, submitted.job_id)
        stored = await engine.attestation(TENANT, submitted.job_id)
    assert detail.attestation.available
    proof = verified(kit, signing_key, submitted.job_id)
    assert (proof.outcome, proof.event_chain_complete) == ("succeeded", True)
    artifact = msgspec.json.decode(stored.result_artifact)
    assert (artifact["stdout"], artifact["tenant"]) == ("hello\n", TENANT)
    assert artifact["receipt_sha256"] == detail.receipt_sha256
    assert stored.result_artifact.startswith(b'{"_type":')


async def test_a_job_is_signed_when_it_ends_and_not_at_the_next_look(
    kit, submit, signing_key, monkeypatch
):
    monkeypatch.setattr("rookhold_server.signing.signer.IDLE_SECONDS", 50)
    kit.key = signing_key
    async with kit.running() as engine:
        submitted = await submit(engine)
        run = await kit.executor.next_run()
        await anyio.sleep(0.05)  # the signer has looked and rests
        run.end()
        await engine.wait_attestation(TENANT, submitted.job_id, 30)
        assert (await engine.attestation(TENANT, submitted.job_id)).envelope


async def test_a_queued_cancel_and_a_recovery_are_signed_after_a_reopen(
    kit, accepted, signer, signing_key
):
    cancelled, interrupted = accepted(), accepted()
    kit.store.call(CancelQueued(tenant=TENANT, job_id=cancelled, now_ms=kit.clock()))
    kit.store.call(Start(job_id=interrupted, now_ms=kit.clock()))
    kit.store.call(RecoverRunning(job_id=interrupted, now_ms=kit.clock()))
    kit.reopen()
    one = signer()
    assert counts(await one.sign_due()) == (2, 2, 0, 0)
    assert sorted(one.settled_ids) == sorted([cancelled, interrupted])
    assert verified(kit, signing_key, cancelled).outcome == "cancelled"
    assert verified(kit, signing_key, interrupted).outcome == "error"
    assert counts(await one.sign_due()) == (0, 0, 0, 0)


async def test_signing_off_waives_and_signing_on_later_signs_it_all_the_same(
    kit, ended, signer, signing_key
):
    plain, bare = ended(), ended(spec={})
    assert counts(await signer(key=None).sign_due()) == (2, 2, 0, 0)
    for job_id in (plain, bare):
        assert kit.store.read.outbox(job_id) is None
        assert kit.store.read.attestation(TENANT, job_id) is None
    kit.reopen()
    assert counts(await signer().sign_due()) == (2, 2, 0, 0)
    assert verified(kit, signing_key, plain).execution_id == plain
    assert verified(kit, signing_key, bare).execution_id == bare


async def test_the_same_job_gives_the_same_bytes(kit, ended, signing_key):
    job_id = ended()
    first = sign_job(kit.store.read, TENANT, job_id, signing_key)
    again = sign_job(kit.store.read, TENANT, job_id, signing_key)
    assert first == again


class Faulty:
    """Refuses some operations; anything else goes to the store."""

    def __init__(self, store, fault):
        self._store, self._fault = store, fault
        self.read = store.read

    def submit(self, op):
        if (error := self._fault(op)) is None:
            return self._store.submit(op)
        from concurrent.futures import Future

        failed = Future()
        failed.set_exception(error)
        return failed


async def test_a_passing_failure_is_spaced_out_and_starves_nobody(kit, ended, signer):
    stuck = ended()

    def fault(op):
        if isinstance(op, PersistAttestation) and op.job_id == stuck:
            return StorageUnavailableError("not now")
        return None

    one = signer(store=Faulty(kit.store, fault))
    waits = []
    for attempt in range(9):
        other = ended()
        report = await one.sign_due()
        assert counts(report) == (2, 1, 1, 0)
        assert kit.store.read.attestation(TENANT, other) is not None
        row = kit.store.read.outbox(stuck)
        assert row.attempt_count == attempt + 1
        waits.append(row.next_attempt_ms - kit.clock())
        assert counts(await one.sign_due()) == (0, 0, 0, 0)
        kit.clock.advance(waits[-1])
    assert waits == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000]


async def test_a_deferral_that_fails_is_only_logged_and_the_item_stays_due(kit, ended, signer):
    ended()

    def fault(op):
        if isinstance(op, PersistAttestation | DeferAttestation):
            return StorageUnavailableError("no")
        return None

    one = signer(store=Faulty(kit.store, fault))
    assert counts(await one.sign_due()) == (1, 0, 1, 0)
    assert counts(await one.sign_due()) == (1, 0, 1, 0)


@pytest.mark.parametrize(
    ("receipt", "code"),
    [
        ({"note": "x" * 200_000}, "receipt_too_complex"),
        ({"deep": None}, "receipt_too_complex"),
    ],
)
async def test_what_can_never_be_signed_is_waived_with_its_code(
    kit, ended, signer, receipt, code, submit
):
    if "deep" in receipt:
        nested = {}
        for _ in range(70):
            nested = {"n": nested}
        receipt = {"deep": nested}
    job_id = ended(receipt)
    charged = kit.store.read.charged_bytes(TENANT)
    one = signer()
    assert counts(await one.sign_due()) == (1, 0, 0, 1)
    assert one.settled_ids == [job_id]
    row = kit.store.read.outbox(job_id)
    assert (row.failure_code, row.failure_profile) == (code, "1")
    assert row.failed_at_ms == kit.clock()
    released = charged - kit.store.read.charged_bytes(TENANT)
    assert 0 < 20 * 1024 * 1024 - released < 100
    assert kit.store.read.attestation(TENANT, job_id) is None
    detail = await kit.engine().detail(TENANT, job_id)
    assert (detail.attestation.state, detail.attestation.failure) != ("pending", None)
    kit.clock.advance(10**9)
    assert counts(await one.sign_due()) == (0, 0, 0, 0)
    kit.reopen()
    assert counts(await signer().sign_due()) == (0, 0, 0, 0)
    kit.store.call(RetryAttestations(job_ids=[job_id], now_ms=kit.clock()))
    assert counts(await signer().sign_due()) == (1, 0, 0, 1)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda receipt: receipt["event_chain"].update(head=None), "chain_head_missing"),
        (lambda receipt: receipt.update(note=2**60), "number_out_of_range"),
        (lambda receipt: receipt.update(note=1.5), "number_out_of_range"),
        (lambda receipt: receipt.update(receipt_sha256="0" * 64), "receipt_digest_mismatch"),
        (lambda receipt: receipt.pop("outcome"), "receipt_invalid"),
        (None, "receipt_invalid"),
    ],
    ids=["no-head", "large-integer", "fraction", "wrong-digest", "no-outcome", "twice-a-member"],
)
async def test_a_stored_receipt_that_no_verifier_would_take_is_waived(
    kit, ended, signing_key, change, code
):
    """Such a receipt cannot be stored by us; an older or foreign writer may have left one."""
    job_id = ended()
    row = kit.row(job_id)
    receipt = msgspec.json.decode(row.receipt_json)
    if change is not None:
        change(receipt)
        if code != "receipt_digest_mismatch":
            receipt["receipt_sha256"] = _any_digest(receipt)
    text = msgspec.json.encode(receipt).decode() if change else '{"version":1,"version":1}'

    class Reads:
        def get(self, tenant, job_id):
            return msgspec.structs.replace(row, receipt_json=text)

        events_after = kit.store.read.events_after

    with pytest.raises(AttestationError) as refused:
        sign_job(Reads(), TENANT, job_id, signing_key)
    assert waiver_code(refused.value) == code


def _any_digest(receipt):
    """The digest over numbers that our own canonical form refuses, as a v1 verifier spells them."""
    from rookhold_attestation.canonical import canonical

    rest = {name: value for name, value in receipt.items() if name != "receipt_sha256"}
    return hashlib.sha256(canonical(rest, "Rookhold receipt")).hexdigest()


async def test_a_changed_profile_version_makes_a_waiver_due_again(kit, ended, signer):
    from rookhold_attestation import binds

    ended({"note": "x" * 200_000})
    await signer().sign_due()
    kit.store.close()
    kit.store = Store.open(kit.path, binding=binds, profile="2", clock=kit.clock)
    assert (await signer().sign_due()).observed == 1


async def test_an_artifact_over_the_profiles_limit_is_waived(kit, ended, signer, monkeypatch):
    monkeypatch.setattr(profile, "ARTIFACT_BYTES_MAX", 100)
    job_id = ended()
    assert counts(await signer().sign_due()) == (1, 0, 0, 1)
    assert kit.store.read.outbox(job_id).failure_code == "artifact_too_large"


async def test_a_waiver_that_cannot_be_recorded_stays_due(kit, ended, signer):
    ended({"note": "x" * 200_000})

    def fault(op):
        return StorageUnavailableError("no") if isinstance(op, FailAttestation) else None

    assert counts(await signer(store=Faulty(kit.store, fault)).sign_due()) == (1, 0, 1, 0)
    assert counts(await signer().sign_due()) == (1, 0, 0, 1)


async def test_a_full_page_causes_no_pause_and_a_wake_ends_one(kit, ended, signer):
    ids = [ended() for _ in range(2 * PAGE + 1)]
    one = signer()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.run)
            while kit.store.read.attestation(TENANT, ids[-1]) is None:
                await anyio.sleep(0.005)
            late = ended()
            one.wake()
            while kit.store.read.attestation(TENANT, late) is None:
                await anyio.sleep(0.005)
            one.stop()
    assert len(one.settled_ids) == 2 * PAGE + 2


async def test_a_page_of_nothing_but_failures_waits_before_the_next(kit, ended, signer):
    for _ in range(PAGE):
        ended()
    attempts = []

    def fault(op):
        attempts.append(op)
        return StorageUnavailableError("no")

    one = signer(store=Faulty(kit.store, fault))
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.run)
            while len(attempts) < 2 * PAGE:
                await anyio.sleep(0.005)
            await anyio.sleep(0.3)  # a second look would come at once if it did not wait
            one.stop()
    assert len(attempts) == 2 * PAGE  # each persisted in vain and deferred in vain, once


async def test_a_look_that_fails_does_not_end_the_signer(kit, ended, signer):
    job_id = ended()
    one = signer()
    looked = []
    whole = one.sign_due

    async def sign_due():
        looked.append(1)
        if len(looked) == 1:
            raise StorageUnavailableError("no")
        return await whole()

    one.sign_due = sign_due
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.run)
            while not looked:
                await anyio.sleep(0.001)
            one.wake()
            while kit.store.read.attestation(TENANT, job_id) is None:
                await anyio.sleep(0.005)
            one.stop()


async def test_output_that_is_not_text_is_signed_as_bytes(kit, submit, signing_key):
    from rookhold_exec.executor import OutputRecord

    kit.key = signing_key

    async def script(run):
        await run.emit(OutputRecord("stdout", "�", True, b"\xff"))
        run.end()

    kit.executor.script = script
    async with kit.running() as engine:
        submitted = await submit(engine)
        await engine.wait_attestation(TENANT, submitted.job_id, 30)
        artifact = msgspec.json.decode(
            (await engine.attestation(TENANT, submitted.job_id)).result_artifact
        )
    assert base64.b64decode(artifact["stdout_base64"]) == b"\xff\n"
    assert "stderr_base64" not in artifact


def test_the_fixture_spec_has_a_fingerprint_the_store_accepts(job):
    assert fingerprint(job()) == canonical_sha256(job().stored())
