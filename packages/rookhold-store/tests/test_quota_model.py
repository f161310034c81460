"""Random lives at the very edge of their limits, beside a model that counts by the contract."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rookhold_store import (
    Append,
    FailAttestation,
    Finalise,
    RetryAttestations,
    StorageLimits,
    Store,
    StoreError,
    WaiveAttestation,
    quota,
)
from rookhold_store.accounting import findings
from rookhold_store.testing import Jobs, TickingClock, anything_binds, tampering_connection
from rookhold_types.canonical import canonical
from rookhold_types.jobs import JobSpec
from rookhold_types.states import JobStatus

MIB = 1024 * 1024
FULL, FLOOR = 32 * MIB, 20 * MIB
DIGEST = 64
PLENTY = 1 << 60
STEPS = 60
CLOCK = TickingClock()


def row(*texts: str | bytes) -> int:
    return 64 + sum(len(text if isinstance(text, bytes) else text.encode()) for text in texts)


class Model:
    """What each job is charged, as numbers."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.tenant: dict[str, str] = {}
        self.retained: dict[str, int] = {}
        self.reserved: dict[str, int] = {}
        self.stage: dict[str, str] = {}

    def charged(self, tenant: str | None = None) -> int:
        mine = [job for job, whose in self.tenant.items() if tenant in (None, whose)]
        return sum(self.retained[job] + self.reserved[job] for job in mine)

    def one(self, *stages: str) -> str | None:
        found = [job for job, stage in self.stage.items() if stage in stages]
        return self.chance.choice(found) if found else None

    def edge(self) -> int:
        return self.chance.choice((-1, 0, 1, MIB, PLENTY))


class Life:
    """Does each step in the store and in the model, and holds the one to the other."""

    def __init__(self, store: Store, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = store
        self.model = model
        self.monkeypatch = monkeypatch
        self.refusals: set[str] = set()

    def limit(self, tenant: str, more: int, *, disk: int = 0) -> str | None:
        """Set limits about where `more` for `tenant` meets them; return the code to expect."""
        model = self.model
        own, overall = model.charged(tenant) + more, model.charged() + more
        tenant_bytes = max(1, own + model.edge())
        global_bytes = max(tenant_bytes, overall + model.edge())
        available = model.chance.randrange(1, MIB) + sum(model.reserved.values()) + disk
        free = max(1, available - sum(model.reserved.values()) - disk - model.edge())
        self.monkeypatch.setattr(quota, "free_bytes", lambda directory: available)
        self.store._quota.limits = StorageLimits(
            global_bytes=global_bytes, tenant_bytes=tenant_bytes, free_reserve_bytes=free
        )
        if disk and available < free + sum(model.reserved.values()) + disk:
            return "storage_reserve"
        if own > tenant_bytes:
            return "tenant_storage_quota"
        return "storage_capacity" if overall > global_bytes else None

    def call(self, op: Any, expected: str | None) -> bool:
        """Return whether it was taken, which must be as expected."""
        code = None
        try:
            self.store.call(op)
        except StoreError as refused:
            code = refused.code
            self.refusals.add(code)
        assert code == expected
        return code is None

    def accept(self) -> None:
        chance, model = self.model.chance, self.model
        tenant, key = chance.choice("aéb"), chance.choice((None, f"k{chance.random()}"))
        spec = JobSpec(language="bash", code="é" * chance.randrange(1, 3000))
        op = Jobs(self.store).acceptance(tenant=tenant, spec=spec, key=key)
        said = {
            "status": "queued",
            "tenant": tenant,
            "language": "bash",
            "requested_spec_sha256": "0" * DIGEST,
        }
        retained = row(op.job_id, tenant, "bash", "queued", canonical(spec.stored()))
        retained += row("accepted", canonical(said)) + DIGEST
        retained += row(tenant, key, op.job_id) + DIGEST if key else 0
        charge = retained + FULL
        if self.call(op, self.limit(tenant, charge, disk=charge)):
            model.tenant[op.job_id], model.stage[op.job_id] = tenant, "queued"
            model.retained[op.job_id], model.reserved[op.job_id] = retained, FULL

    def start(self) -> None:
        if (job := self.model.one("queued")) is not None:
            self.limit(self.model.tenant[job], 0)
            Jobs(self.store).start(job)
            self.model.stage[job] = "running"
            self.grown(job)

    def append(self) -> None:
        if (job := self.model.one("queued", "running")) is None:
            return
        model = self.model
        size = model.chance.choice((1, 5000, 3 * MIB, model.reserved[job] - FLOOR))
        data = {"line": "x" * size, "eol": True}
        growth = row("stderr", canonical(data)) + 2 * DIGEST
        reserved = model.reserved[job]
        more = growth + max(FLOOR, reserved - growth) - reserved
        expected = self.limit(model.tenant[job], more)
        op = Append(job_id=job, events=[("stderr", data)], now_ms=CLOCK())
        if self.call(op, expected if more else None):
            model.retained[job] += growth
            model.reserved[job] = max(FLOOR, reserved - growth)

    def finalise(self) -> None:
        if (job := self.model.one("running")) is None:
            return
        self.limit(self.model.tenant[job], -MIB)
        op = Finalise(
            job_id=job,
            status=JobStatus.FAILED,
            exit_code=1,
            now_ms=CLOCK(),
            duration_ms=1,
            receipt={"é": "ü"},
            events=[("violation", {"rule": "wall_clock_exceeded"})],
        )
        self.call(op, None)
        self.model.stage[job], self.model.reserved[job] = "pending", FLOOR
        self.grown(job)

    def sign(self) -> None:
        if (job := self.model.one("pending")) is not None:
            self.settle(job, Jobs(self.store).attestation(job), "signed")

    def waive(self) -> None:
        if (job := self.model.one("pending")) is not None:
            self.settle(job, WaiveAttestation(job_id=job), "waived")

    def fail(self) -> None:
        if (job := self.model.one("pending")) is not None:
            op = FailAttestation(job_id=job, code="too_large", now_ms=1, profile="1")
            self.settle(job, op, "failed")

    def retry(self) -> None:
        if (job := self.model.one("failed")) is not None:
            self.settle(job, RetryAttestations(job_ids=[job], now_ms=1), "pending")

    def settle(self, job: str, op: Any, stage: str) -> None:
        self.limit(self.model.tenant[job], -MIB)
        self.call(op, None)
        self.model.stage[job] = stage
        self.model.reserved[job] = FLOOR if stage == "pending" else 0
        self.grown(job)

    def grown(self, job: str) -> None:
        """Take over what it retains; where it is unfinished, its reserve has become less by it."""
        retained = self.store.read.retained_bytes(job)
        if self.model.stage[job] == "running":
            by = retained - self.model.retained[job]
            self.model.reserved[job] = max(FLOOR, self.model.reserved[job] - by)
        self.model.retained[job] = retained

    def compare(self) -> None:
        usage = self.store.read.storage_usage()
        assert usage.charged_bytes == self.model.charged()
        assert usage.reserved_bytes == sum(self.model.reserved.values())
        for tenant in "aéb":
            assert self.store.read.charged_bytes(tenant) == self.model.charged(tenant)

    def reopened(self) -> None:
        """Those waived without a code are pending again."""
        for job in [job for job, stage in self.model.stage.items() if stage == "waived"]:
            self.model.stage[job], self.model.reserved[job] = "pending", FLOOR
            self.grown(job)


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[[], Store]]:
    last: list[Store] = []

    def again() -> Store:
        for store in last:
            store.close()
        limits = StorageLimits(global_bytes=1, tenant_bytes=1, free_reserve_bytes=1)
        last[:] = [Store.open(path, binding=anything_binds, clock=CLOCK, limits=limits)]
        return last[0]

    yield again
    for store in last:
        store.close()


@pytest.mark.parametrize("seed", range(3))
def test_random_lives_at_the_edge_of_their_limits_are_refused_exactly_there(
    opened: Callable[[], Store], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    model = Model(seed)
    life = Life(opened(), model, monkeypatch)
    steps = [life.accept] * 4 + [life.start, life.append, life.append, life.finalise]
    steps += [life.sign, life.waive, life.fail, life.retry]
    for number in range(STEPS):
        model.chance.choice(steps)()
        life.compare()
        if number % 20 == 19:
            life.store = opened()
            life.reopened()
            life.compare()
    assert {"storage_reserve", "tenant_storage_quota"} <= life.refusals
    assert len(model.tenant) > 5
    db = tampering_connection(life.store.path)
    assert findings(db) == []
    db.close()
