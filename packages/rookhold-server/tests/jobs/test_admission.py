"""Queue leases: who may join, what a lease holds, what closing does."""

import anyio
import pytest

from rookhold_server.jobs.admission import AdmissionClosedError, QueueAdmission
from rookhold_server.refusal import Refusal


def refusal(admission, tenant):
    with pytest.raises(Refusal) as refused:
        admission.reserve(tenant)
    return refused.value


def test_tenant_and_global_limit_are_told_apart():
    admission = QueueAdmission(capacity=3, tenant_capacity=2)
    leases = [admission.reserve("a"), admission.reserve("a")]
    assert refusal(admission, "a").code == "tenant_queue_saturated"
    leases.append(admission.reserve("b"))
    full = refusal(admission, "b")
    assert (full.code, full.fact.status, full.retryable, full.fact.retry_after) == (
        "queue_saturated",
        503,
        True,
        1,
    )
    # The tenant is told first, also while the whole queue is full.
    assert refusal(admission, "a").code == "tenant_queue_saturated"


def test_dropping_a_lease_frees_both_counters_once():
    admission = QueueAdmission(capacity=2, tenant_capacity=1)
    lease = admission.reserve("a")
    lease.release()
    lease.release()
    assert (admission.total, admission.depth("a")) == (0, 0)
    with admission.reserve("a"):
        assert (admission.total, admission.depth("a")) == (1, 1)
    assert (admission.total, admission.depth("a")) == (0, 0)


def test_never_more_than_the_capacity_is_accepted_and_one_out_frees_exactly_one():
    admission = QueueAdmission(capacity=1024, tenant_capacity=1024)
    leases = [admission.reserve(f"t{index % 7}") for index in range(1024)]
    assert refusal(admission, "t0").code == "queue_saturated"
    leases.pop().release()
    leases.append(admission.reserve("t0"))
    assert refusal(admission, "t1").code == "queue_saturated"


@pytest.mark.anyio
async def test_readmitted_work_may_exceed_its_tenant_and_then_blocks_only_that_tenant():
    admission = QueueAdmission(capacity=10, tenant_capacity=1)
    leases = [await admission.readmit("a") for _ in range(3)]
    assert refusal(admission, "a").code == "tenant_queue_saturated"
    admission.reserve("b")
    for lease in leases[:2]:
        lease.release()
        assert refusal(admission, "a").code == "tenant_queue_saturated"
    leases[2].release()
    admission.reserve("a")


@pytest.mark.anyio
async def test_readmission_waits_for_a_global_slot():
    admission = QueueAdmission(capacity=1, tenant_capacity=1)
    first = await admission.readmit("a")
    got = []

    async def wait():
        got.append(await admission.readmit("b"))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert got == []
            first.release()
    assert admission.depth("b") == 1


@pytest.mark.anyio
async def test_a_waiter_that_gives_up_passes_its_wake_up_on():
    admission = QueueAdmission(capacity=1, tenant_capacity=1)
    first = await admission.readmit("a")
    got = []

    async def wait(tenant, scope):
        with scope, await admission.readmit(tenant) as lease:
            got.append(lease.tenant)

    scopes = [anyio.CancelScope(), anyio.CancelScope()]
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for tenant, scope in zip("bc", scopes, strict=True):
                tasks.start_soon(wait, tenant, scope)
                await anyio.wait_all_tasks_blocked()
            first.release()
            scopes[0].cancel()
    assert "c" in got
    assert admission.total == 0


@pytest.mark.anyio
async def test_closing_tells_waiters_at_once_and_refuses_everybody():
    admission = QueueAdmission(capacity=1, tenant_capacity=1)
    await admission.readmit("a")
    told = []

    async def wait():
        with pytest.raises(AdmissionClosedError):
            await admission.readmit("b")
        told.append(anyio.current_time())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        closed = anyio.current_time()
        admission.close()
    assert told[0] - closed < 0.25
    assert refusal(admission, "c").code == "scheduler_unavailable"
