"""The engine as its callers see it: submit, watch, read, cancel."""

import pytest

from rookhold_server.refusal import Refusal
from rookhold_types import check_chain, receipt_digest

pytestmark = pytest.mark.anyio
TENANT = "acme"


async def test_a_job_runs_and_leaves_a_receipt_that_binds_its_history(kit, submit, finished):
    async with kit.running() as engine:
        submitted = await submit(engine)
        run = await kit.executor.next_run()
        await run.print("hello\n")
        await run.print("oops\n", stream="stderr")
        run.end()
        detail = await finished(engine, submitted.job_id)
        result = await engine.result(TENANT, submitted.job_id)

    assert (detail.status, detail.exit_code, submitted.replayed) == ("succeeded", 0, False)
    assert (result.stdout, result.stderr, result.truncated) == ("hello\n", "oops\n", False)
    kinds = kit.kinds(submitted.job_id)
    assert kinds == ["accepted", "started", "stdout", "stderr", "finished"]
    chain = check_chain(submitted.job_id, kit.events(submitted.job_id))
    assert chain.complete
    assert detail.receipt["event_chain"] == chain.receipt_member()
    assert detail.receipt_sha256 == receipt_digest(detail.receipt)
    assert detail.receipt["evidence_complete"] is True
    assert detail.effective_spec.limits.wall_seconds == 15
    assert detail.effective_spec.limits.cpu_seconds is None
    assert detail.execution_policy.networking == "host"


async def test_an_unknown_job_is_the_same_as_a_foreign_one(kit, submit):
    async with kit.running() as engine:
        submitted = await submit(engine)
        for tenant, job_id in (("other", submitted.job_id), (TENANT, "no-such-job")):
            assert await engine.summary(tenant, job_id) is None
            for call in (
                engine.detail(tenant, job_id),
                engine.result(tenant, job_id),
                engine.replay(tenant, job_id, 0, 10),
                engine.cancel(tenant, job_id),
                engine.attestation(tenant, job_id),
            ):
                with pytest.raises(Refusal) as refused:
                    await call
                assert refused.value.code == "job_not_found"
            assert not await engine.wait_terminal(tenant, job_id, 5)
