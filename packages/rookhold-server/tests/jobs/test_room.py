"""A quota or the disk has no room: for a job, for its output, for its ending."""

import logging

import anyio
import pytest

from rookhold_exec.executor import CollectedOutput, Violation
from rookhold_server.jobs.room import foretell_refusals, no_room
from rookhold_server.refusal import Refusal
from rookhold_store import (
    Append,
    IdempotencyConflictError,
    StorageFullError,
    StorageLimits,
    StorageUnavailableError,
    quota,
)
from rookhold_store.accounting import RESERVE_PENDING, findings
from rookhold_store.testing import tampering_connection
from rookhold_types import JobStatus

pytestmark = pytest.mark.anyio
TENANT = "acme"
MIB = 1024 * 1024
PLENTY = 1 << 50


def limits(*, tenant=PLENTY, overall=PLENTY, free=0):
    return StorageLimits(
        global_bytes=overall, tenant_bytes=min(tenant, overall), free_reserve_bytes=free
    )


@pytest.fixture
def limited(kit):
    def set_(**values):
        kit.limits = limits(**values)
        kit.reopen()

    return set_


async def refused(call):
    with pytest.raises(Refusal) as caught:
        await call
    return caught.value


def sound(kit):
    db = tampering_connection(kit.path)
    found = findings(db)
    db.close()
    return found == []


async def test_each_refusal_has_its_code_and_leaves_the_key_free(kit, limited, submit):
    limited(tenant=64 * MIB, overall=128 * MIB)
    async with kit.running() as engine:
        await submit(engine)
        own = await refused(submit(engine, key="k"))
        assert (own.code, own.fact.status, own.fact.retry_after) == ("tenant_storage_quota", 429, 1)
        assert "of your 64.0 MiB" in str(own)
        for tenant in ("b", "c"):
            await submit(engine, tenant=tenant)
        overall = await refused(submit(engine, tenant="d", key="k"))
        assert (overall.code, overall.fact.status) == ("storage_capacity", 503)
        assert "MiB" not in str(overall), "the figures of all tenants are nobody's business"
        assert engine.tenant_status("d").queue_depth == 0
        assert kit.store.read.find_key("d", "k") is None
        assert kit.store.read.find_key(TENANT, "k") is None
    assert len(kit.store.read.list_jobs(None)) == 3
    assert sound(kit)


async def test_a_short_disk_is_said_once_in_the_log_with_figures_and_once_when_it_is_over(
    kit, limited, submit, monkeypatch, caplog
):
    caplog.set_level(logging.INFO)
    limited(free=MIB)
    async with kit.running() as engine:
        monkeypatch.setattr(quota, "free_bytes", lambda directory: 2 * MIB)
        for _ in range(3):
            refusal = await refused(submit(engine))
            assert (refusal.code, refusal.fact.status) == ("storage_reserve", 507)
            assert refusal.fact.retryable
            assert "ROOKHOLD_STORAGE_FREE_RESERVE_MB" in str(refusal)
            assert "2.0" not in str(refusal)
        assert await engine.storage_probe(), "the store can be written: it is the disk that is kept"
        monkeypatch.setattr(quota, "free_bytes", lambda directory: PLENTY)
        await submit(engine)
        await submit(engine)
    said = [record for record in caplog.records if "accept jobs" in record.message]
    assert [record.levelname for record in said] == ["ERROR", "INFO"]
    assert said[0].available == "2.0 MiB"


def test_a_full_disk_is_the_same_refusal_and_other_failures_are_none():
    assert no_room(StorageFullError("full")).code == "storage_reserve"
    assert no_room(StorageUnavailableError("no")) is None
    assert no_room(IdempotencyConflictError("no")) is None


async def test_output_beyond_the_quota_is_cut_and_the_job_ends_and_says_so(
    kit, limited, submit, finished
):
    limited(tenant=33 * MIB)
    async with kit.running() as engine:
        submitted = await submit(engine)
        run = await kit.executor.next_run()
        await run.print("kept\n")
        while "stdout" not in kit.kinds(submitted.job_id):
            await anyio.sleep(0.001)
        fill_up(kit, submitted.job_id)
        await run.print("lost\n")
        await run.emit(Violation("cpu_limit_exceeded", {}))
        run.end(JobStatus.FAILED, 3)
        detail = await finished(engine, submitted.job_id)
    assert detail.status == "failed"
    kinds = ["accepted", "started", "stdout", "padding", "truncated"]
    kinds += ["violation", "finished"]
    assert kit.kinds(submitted.job_id) == kinds
    receipt = kit.receipt(submitted.job_id)
    assert receipt["evidence_complete"] is False
    assert receipt["output"]["truncated"] is True
    assert receipt["output"]["stdout_bytes"] == len("kept\n")
    assert receipt["executor_output"]["stdout"]["bytes_seen"] == len("kept\nlost\n")
    assert sound(kit)


def fill_up(kit, job_id):
    """Have the job take what its reserve and its tenant's quota still have, to the byte."""
    usage = kit.store.read.storage_usage(TENANT)
    room = kit.limits.tenant_bytes - usage.charged_bytes + usage.reserved_bytes - RESERVE_PENDING
    empty = 64 + len("padding") + len('{"":""}') + 2 * 64
    events = [("padding", {"": "x" * (room - empty)})]
    kit.store.call(Append(job_id=job_id, events=events, now_ms=kit.clock()))
    assert kit.store.read.charged_bytes(TENANT) == kit.limits.tenant_bytes


async def test_outputs_beyond_the_quota_make_an_error_and_never_a_job_without_end(
    kit, limited, submit, finished
):
    limited(tenant=33 * MIB)
    async with kit.running() as engine:
        submitted = await submit(engine, outputs=["output/a"])
        run = await kit.executor.next_run()
        while "started" not in kit.kinds(submitted.job_id):
            await anyio.sleep(0.001)
        fill_up(kit, submitted.job_id)
        run.end(collected=(CollectedOutput("output/a", b"x"),))
        detail = await finished(engine, submitted.job_id)
    assert detail.status == "error"
    assert kit.receipt(submitted.job_id)["killed_by"] == "requested_output_unavailable"
    assert kit.receipt(submitted.job_id)["evidence_complete"] is False
    assert kit.kinds(submitted.job_id) == ["accepted", "started", "padding", "finished"]
    assert sound(kit)


async def test_recovery_cancel_and_start_take_no_notice_of_a_quota(kit, limited, submit, finished):
    kit.set(workers=1)
    async with kit.running() as engine:
        running = await submit(engine)
        queued = [await submit(engine) for _ in range(2)]
        await kit.executor.next_run()
    kit.executor.script = _end
    limited(overall=1, free=PLENTY)
    async with kit.running() as engine:
        await engine.cancel(TENANT, queued[1].job_id)
        for job in (running, *queued):
            await finished(engine, job.job_id)
        assert (await refused(submit(engine))).code == "storage_reserve"
    assert sound(kit)


async def _end(run):
    run.end()


def test_a_start_on_a_short_disk_foretells_the_refusals(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("rookhold_server.jobs.room.free_bytes", lambda directory: 900 * MIB)
    foretell_refusals(limits(free=0), tmp_path)
    foretell_refusals(limits(free=868 * MIB), tmp_path)
    assert caplog.records == []
    foretell_refusals(limits(free=1024 * MIB), tmp_path)
    (said,) = caplog.records
    assert (said.levelname, said.available, said.needed) == (
        "WARNING",
        "900.0 MiB",
        "1056.0 MiB",
    )
    assert "ROOKHOLD_STORAGE_FREE_RESERVE_MB" in said.message
