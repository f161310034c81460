"""Random operations, crashes between them, against a model that is simple enough to be believed."""

import random
import shutil
import struct
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from rookhold_store import (
    Append,
    PersistAttestation,
    RetryAttestations,
    StorageLimits,
    Store,
    StoreError,
    Sweep,
    attestations,
    writer,
)
from rookhold_store.accounting import findings
from rookhold_store.operations import Operation
from rookhold_store.testing import anything_binds, tampering_connection
from rookhold_store.testing.model import MIB, Model, told
from rookhold_store.testing.traffic import Traffic, signed

MEMORY = Path("/dev/shm")
# Room for two unfinished jobs of one tenant and three of all, and some that wait for a signature.
TIGHT = StorageLimits(global_bytes=125 * MIB, tenant_bytes=90 * MIB)


class Log:
    """Where the write-ahead log ends, by what SQLite itself keeps beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._index = Path(f"{path}-shm")
        self._log = Path(f"{path}-wal")

    def frames(self) -> int:
        """Return how many frames are committed."""
        return int(struct.unpack_from("=I", self._index.read_bytes(), 16)[0])

    def frames_in_file(self) -> int:
        """Return how many of them a checkpoint may have written into the file."""
        return int(struct.unpack_from("=I", self._index.read_bytes(), 128)[0])

    def end(self, frames: int) -> int:
        if not frames:
            return 0
        (page,) = struct.unpack_from(">I", self._log.read_bytes()[:32], 8)
        return 32 + frames * (24 + int(page))

    def copy(self, directory: Path) -> bytes:
        """Copy the file; return the log, of which a power cut may leave less."""
        shutil.copyfile(self.path, directory / self.path.name)
        return self._log.read_bytes()

    def leave(self, directory: Path, log: bytes, *, at: int, garbled: bool) -> None:
        """Put beside the copy what a power cut left: all before `at` is on the disk.

        What is behind it is lost, or it was written in part and in the wrong order.
        """
        # Not turned round, since the next cut could turn them back.
        rest = bytes((byte + 1) & 0xFF for byte in log[at:]) if garbled else b""
        (directory / self._log.name).write_bytes(log[:at] + rest)


class Hold:
    """Work that keeps the writer until everything that shall share a commit is there."""

    size = 0

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()

    def run(self, db: apsw.Connection) -> None:
        self.entered.set()
        assert self.open.wait(60)


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        home = MEMORY if MEMORY.is_dir() else None
        self.home = Path(tempfile.mkdtemp(prefix="rookhold-model-", dir=home))
        self.lives = 0
        self.directory = self.home / "0"
        self.store: Store | None = None
        self.long = False

    @initialize(seed=st.integers(0, 2**32), tight=st.booleans())
    def begin(self, seed: int, tight: bool) -> None:
        self.traffic = Traffic(random.Random(seed))
        self.limits = TIGHT if tight else None
        self.model = Model(self.limits)
        self.open()

    def open(self) -> None:
        self.store = Store.open(
            self.directory / "jobs.db",
            binding=anything_binds,
            clock=lambda: self.traffic.now_ms,
            limits=self.limits,
        )
        self.log = Log(self.store.path)

    def teardown(self) -> None:
        if self.store is not None:
            self.store.close()
        shutil.rmtree(self.home)

    def make(self, kind: type[Operation[Any]] | None = None) -> Operation[Any]:
        return signed(self.traffic.operation(list(self.model.jobs), kind), self.store)

    def do(self, op: Operation[Any]) -> None:
        try:
            answer: Any = self.store.call(op)
        except StoreError as error:
            answer = error
        wanted = self.model.apply(op, answer)
        assert told(answer) == wanted, f"{told(answer)}, not {wanted}: {op}"

    @rule(times=st.integers(1, 6))
    def operate(self, times: int) -> None:
        for _ in range(times):
            self.do(self.make())

    @rule(hours=st.sampled_from([-1, 1]))
    def set_the_clock(self, hours: int) -> None:
        self.traffic.now_ms += hours * 3_600_000

    @rule(age_ms=st.sampled_from([0, 100]))
    def sweep(self, age_ms: int) -> None:
        self.do(Sweep(now_ms=self.traffic.now_ms, age_ms=age_ms))

    @rule(events=st.sampled_from([4094, 4200]))
    def write_a_long_history(self, events: int) -> None:
        """Once, for it takes long: more than one pass of a sweep takes away."""
        running = [i for i, job in self.model.jobs.items() if not job.over]
        if not running or self.long:
            return
        self.long = True
        while events:
            batch = [("stdout", {"line": text, "eol": True}) for text in ("",) * min(events, 256)]
            self.do(Append(job_id=running[0], events=batch, now_ms=self.traffic.now_ms))
            events -= len(batch)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.model.reopen()
        self.open()

    @rule(together=st.integers(1, 5), where=st.floats(0, 1), garbled=st.booleans())
    def cut_the_power(self, together: int, where: float, garbled: bool) -> None:
        """Lose the power while a commit of several operations is being written.

        Either all of them are there afterwards or none is, and everything before is.
        """
        before, done = self.model.copy(), self.log.frames()
        self.share_a_commit(together)
        self.lives += 1
        self.directory = self.home / str(self.lives)
        self.directory.mkdir(mode=0o700)
        log, end = self.log.copy(self.directory), self.log.frames()
        last = self.log.end(end)
        at = last
        # Where nothing was written nothing is lost, nor where a checkpoint has synced the log.
        if end != done and self.log.frames_in_file() <= done:
            start = self.log.end(done) if end > done else 0
            at = start + round(where * (last - start))
        self.log.leave(self.directory, log, at=at, garbled=garbled)
        self.store.close()
        if at < last:
            self.model = before
        self.model.reopen()
        self.open()

    def share_a_commit(self, operations: int) -> None:
        hold = Hold()
        held = self.store._writer.submit(hold)
        assert hold.entered.wait(60)
        kinds = [self.traffic.kind() for _ in range(operations)]
        # Apart from what has a commit of its own, and from what must know a receipt before it.
        apart = (Sweep, PersistAttestation)
        made = [self.make(RetryAttestations if kind in apart else kind) for kind in kinds]
        futures = [self.store.submit(op) for op in made]
        hold.open.set()
        held.result(60)
        for op, future in zip(made, futures, strict=True):
            answer = future.exception(60) or future.result()
            assert told(answer) == self.model.apply(op, answer), op

    @invariant()
    def the_store_agrees(self) -> None:
        if self.store is None:
            return
        found = self.model.differences(self.store)
        assert not found, "\n".join(text[:500] for text in found)
        db = tampering_connection(self.store.path)
        try:
            assert findings(db) == []
        finally:
            db.close()


def run(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_any_operations_and_crashes_leave_what_a_simple_model_says() -> None:
    run(examples=15, steps=12)


@pytest.mark.soak
def test_very_many_operations_and_crashes_leave_what_a_simple_model_says() -> None:
    run(examples=1000, steps=40)


def test_the_model_is_tried_on_every_operation_and_every_answer() -> None:
    """Otherwise the test above could pass without having seen the half of it."""
    dice = random.Random(5)
    traffic, model = Traffic(dice), Model(TIGHT)
    seen: set[Any] = set()
    for _ in range(4000):
        op = traffic.operation(list(model.jobs))
        answer = model.apply(op)
        reason = answer[1] if answer[0] == "refused" else answer[0]
        seen.add((type(op).__name__, reason))
    assert {kind for kind, _ in seen} == {
        *("Accept", "Start", "Append", "Finalise", "CancelQueued", "RecoverRunning", "Sweep"),
        *("PersistAttestation", "DeferAttestation", "WaiveAttestation", "FailAttestation"),
        *("RetryAttestations",),
    }
    for reason in (
        *("Accepted", "Replayed", "idempotency_key_reused", "tenant_storage_quota"),
        *("storage_capacity", "Started", "Finalised", "events", "job_not_found", "job_ended"),
        *("created", "existing", "attestation_immutable", "stale_receipt", "retried"),
        *(True, False, None, "Swept"),
    ):
        assert any(reason == told_one for _, told_one in seen), reason


def live(seed: int) -> None:
    """Run the machine by dice: quicker than to have a failure made small that is expected."""
    dice = random.Random(seed)
    machine = StoreMachine()
    try:
        machine.begin(seed=seed, tight=bool(seed % 2))
        for _ in range(15):
            turn = dice.randrange(5)
            if turn < 3:
                machine.operate(dice.randrange(1, 7))
            elif turn == 3:
                machine.reopen()
            else:
                machine.cut_the_power(dice.randrange(2, 6), dice.random(), garbled=False)
            machine.the_store_agrees()
    finally:
        machine.teardown()


def live_often(lives: int) -> None:
    for seed in range(lives):
        live(seed)


def charge_a_byte_more(patch: pytest.MonkeyPatch) -> None:
    settle = attestations.settle
    patch.setattr(
        attestations, "settle", lambda db, job, by, **named: settle(db, job, by + 1, **named)
    )


def commit_one_by_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writer, "BATCH_MAX", 1)


@pytest.mark.parametrize("sabotage", [charge_a_byte_more, commit_one_by_one])
def test_a_store_that_is_a_little_wrong_is_found_out(
    monkeypatch: pytest.MonkeyPatch, sabotage: Callable[[pytest.MonkeyPatch], None]
) -> None:
    sabotage(monkeypatch)
    with pytest.raises(AssertionError):
        live_often(60)
