"""Random sequences of operations against a model that is simple enough to be believed."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from rookhold_store import (
    Accepted,
    CancelQueued,
    DeferAttestation,
    FailAttestation,
    IdempotencyConflictError,
    JobEndedError,
    JobNotFoundError,
    PersistOutcome,
    RecoverRunning,
    Replayed,
    RetryAttestations,
    Store,
    WaiveAttestation,
)
from rookhold_store.accounting import findings
from rookhold_store.testing import Jobs, TickingClock, anything_binds, tampering_connection
from rookhold_types.events import check_chain
from rookhold_types.jobs import JobSpec
from rookhold_types.states import TERMINAL, JobStatus

SPECS = [JobSpec(language="python", code="1"), JobSpec(language="bash", code="é")]
TENANTS = st.sampled_from(["acme", "globex"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


class Model:
    """What should be true of one job."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.status: str = "queued"
        self.kinds = ["accepted"]
        self.signing = "none"  # none, pending, failed, waived, signed

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL

    def end(self, status: str) -> None:
        self.status = status
        self.kinds.append("finished")
        self.signing = "pending"


class StoreMachine(RuleBasedStateMachine):
    ids: Bundle[str] = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="rookhold-model-"))
        self.clock = TickingClock()
        self.model: dict[str, Model] = {}
        self.keys: dict[tuple[str, str], tuple[int, str]] = {}
        self.open()

    def open(self) -> None:
        self.store = Store.open(
            self.directory / "state" / "jobs.db", binding=anything_binds, clock=self.clock
        )
        self.jobs = Jobs(self.store)

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.directory)

    @rule(
        target=ids,
        tenant=TENANTS,
        key=st.sampled_from([None, "k1", "k2"]),
        spec=st.integers(0, 1),
    )
    def accept(self, tenant: str, key: str | None, spec: int) -> Any:
        op = self.jobs.acceptance(tenant=tenant, key=key, spec=SPECS[spec])
        known = None if key is None else self.keys.get((tenant, key))
        if known is not None:
            if known[0] == spec:
                assert self.store.call(op) == Replayed(job_id=known[1])
            else:
                with pytest.raises(IdempotencyConflictError):
                    self.store.call(op)
            return multiple()
        assert isinstance(self.store.call(op), Accepted)
        self.model[op.job_id] = Model(tenant)
        if key is not None:
            self.keys[tenant, key] = (spec, op.job_id)
        return op.job_id

    @rule(job_id=ids)
    def start(self, job_id: str) -> None:
        job = self.model[job_id]
        assert (self.jobs.start(job_id) is not None) == (job.status == "queued")
        if job.status == "queued":
            job.status = "running"
            job.kinds.append("started")

    @rule(job_id=ids, lines=st.lists(TEXTS, max_size=4))
    def append(self, job_id: str, lines: list[str]) -> None:
        job = self.model[job_id]
        if job.terminal and lines:
            with pytest.raises(JobEndedError):
                self.jobs.append(job_id, *lines)
        else:
            assert len(self.jobs.append(job_id, *lines)) == len(lines)
            job.kinds += ["stdout"] * len(lines)

    @rule(lines=st.lists(TEXTS, min_size=1, max_size=2))
    def append_to_nobody(self, lines: list[str]) -> None:
        with pytest.raises(JobNotFoundError):
            self.jobs.append("nobody", *lines)

    @rule(
        job_id=ids,
        status=st.sampled_from(sorted(TERMINAL)),
        spec=st.sampled_from([None, {"a": 1}]),
        text=TEXTS,
    )
    def finalise(self, job_id: str, status: JobStatus, spec: Any, text: str) -> None:
        job = self.model[job_id]
        answer = self.jobs.finalise(
            job_id, status=status, receipt={"note": text}, effective_spec=spec
        )
        assert (answer is None) == job.terminal
        if answer is not None:
            job.end(status)

    @rule(job_id=ids, tenant=TENANTS)
    def cancel(self, job_id: str, tenant: str) -> None:
        job = self.model[job_id]
        answer = self.store.call(CancelQueued(tenant=tenant, job_id=job_id, now_ms=self.clock()))
        assert (answer is not None) == (job.status == "queued" and job.tenant == tenant)
        if answer is not None:
            job.end("cancelled")

    @rule(job_id=ids)
    def recover(self, job_id: str) -> None:
        job = self.model[job_id]
        answer = self.store.call(RecoverRunning(job_id=job_id, now_ms=self.clock()))
        assert (answer is not None) == (job.status == "running")
        if answer is not None:
            job.end("error")

    @rule(job_id=ids)
    def sign(self, job_id: str) -> None:
        job = self.model[job_id]
        if job.terminal:
            wanted = PersistOutcome.EXISTING if job.signing == "signed" else PersistOutcome.CREATED
            assert self.store.call(self.jobs.attestation(job_id)) is wanted
            job.signing = "signed"

    @rule(job_id=ids)
    def give_up(self, job_id: str) -> None:
        job = self.model[job_id]
        op = FailAttestation(job_id=job_id, code="too_large", now_ms=self.clock(), profile="1")
        assert self.store.call(op) is (job.signing == "pending")
        if job.signing == "pending":
            job.signing = "failed"

    @rule(job_id=ids)
    def waive(self, job_id: str) -> None:
        job = self.model[job_id]
        assert self.store.call(WaiveAttestation(job_id=job_id)) is (job.signing == "pending")
        if job.signing == "pending":
            job.signing = "waived"

    @rule(job_id=ids)
    def defer(self, job_id: str) -> None:
        op = DeferAttestation(job_id=job_id, now_ms=self.clock(), delay_ms=100)
        assert self.store.call(op) is (self.model[job_id].signing == "pending")

    @rule()
    def retry(self) -> None:
        failed = {i for i, job in self.model.items() if job.signing == "failed"}
        retried = self.store.call(RetryAttestations(job_ids=None, now_ms=self.clock()))
        assert set(retried) == failed
        for job_id in failed:
            self.model[job_id].signing = "pending"

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.open()
        for job in self.model.values():
            if job.signing == "waived":
                job.signing = "pending"

    @invariant()
    def the_store_agrees(self) -> None:
        read = self.store.read
        for tenant in ("acme", "globex"):
            mine = {i: job.status for i, job in self.model.items() if job.tenant == tenant}
            assert {row.job_id: row.status for row in read.list_jobs(tenant, 501)} == mine
        for job_id, job in self.model.items():
            events = read.events_after(job_id, 0, 5000)
            assert [event.kind for event in events] == job.kinds
            assert check_chain(job_id, events).complete
            outbox = read.outbox(job_id)
            state = "none" if outbox is None else "failed" if outbox.failed else "pending"
            assert state == (job.signing if job.signing in ("pending", "failed") else "none")
            assert (read.attestation(job.tenant, job_id) is not None) == (job.signing == "signed")
        db = tampering_connection(self.store.path)
        try:
            assert findings(db) == []
        finally:
            db.close()


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=30,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
