"""Waiting for results and attestations."""

import anyio
import pytest

from rookhold_server.refusal import Refusal

pytestmark = pytest.mark.anyio
TENANT = "acme"


async def test_a_wait_ends_with_the_job_and_finds_its_output(kit, submit):
    async with kit.running() as engine:
        submitted = await submit(engine)
        run = await kit.executor.next_run()
        assert not await engine.wait_terminal(TENANT, submitted.job_id, 0)
        result = await engine.result(TENANT, submitted.job_id)
        assert (result.status, result.duration_ms) == ("running", None)
        waited = []

        async def wait():
            waited.append(await engine.wait_terminal(TENANT, submitted.job_id, 30))
            waited.append((await engine.result(TENANT, submitted.job_id)).stdout)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert waited == []
            await run.print("done\n")
            run.end()
    assert sorted(map(str, waited)) == ["True"] * 3 + ["done\n"] * 3


async def test_a_wait_that_runs_out_says_so(kit, submit):
    async with kit.running() as engine:
        submitted = await submit(engine)
        await kit.executor.next_run()
        began = anyio.current_time()
        assert not await engine.wait_terminal(TENANT, submitted.job_id, 0.05)
        assert anyio.current_time() - began < 2


async def test_shutdown_ends_a_long_wait_at_once(kit, submit):
    kit.set(workers=1)
    async with kit.running() as engine:
        await submit(engine)
        await kit.executor.next_run()
        queued = await submit(engine)
        answers = []

        async def wait():
            answers.append(await engine.wait_terminal(TENANT, queued.job_id, 300))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            began = anyio.current_time()
            engine.begin_shutdown()
        assert anyio.current_time() - began < 0.5
        assert answers == [False]


async def test_a_job_that_no_notice_tells_of_is_found_by_polling(kit, submit):
    first = kit.engine()
    async with kit.running(first):
        submitted = await submit(first)
        run = await kit.executor.next_run()
        stranger = kit.engine()  # over the same store, without a channel for the job
        answers = []

        async def wait():
            answers.append(await stranger.wait_terminal(TENANT, submitted.job_id, 10))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.sleep(0.05)
            run.end()
            ended = anyio.current_time()
        assert anyio.current_time() - ended < 2.5  # ten times the longest pause between looks
    assert answers == [True]


async def test_a_page_is_complete_only_when_nothing_can_follow(kit, submit, finished):
    async with kit.running() as engine:
        submitted = await submit(engine)
        run = await kit.executor.next_run()
        page = await engine.replay(TENANT, submitted.job_id, 0, 100)
        assert [event.kind for event in page.events] == ["accepted", "started"]
        assert (page.next_cursor, page.complete) == (2, False)
        empty = await engine.replay(TENANT, submitted.job_id, 2, 100)
        assert (empty.events, empty.next_cursor, empty.complete) == ((), None, False)
        run.end()
        await finished(engine, submitted.job_id)
        assert not (await engine.replay(TENANT, submitted.job_id, 0, 2)).complete
        assert (await engine.replay(TENANT, submitted.job_id, 2, 1)).complete
        assert (await engine.replay(TENANT, submitted.job_id, 3, 1)).complete


async def test_a_list_pages_without_overlap_and_shows_only_ours(kit, submit):
    kit.set(workers=1)
    async with kit.running() as engine:
        ours = []
        for language in ("python", "node", "python", "bash", "python"):
            ours.append((await submit(engine, language=language)).job_id)
            kit.clock.advance(1)
        await submit(engine, tenant="other")
        seen, cursor = [], None
        while True:
            page = await engine.list_jobs(
                TENANT, limit=2, cursor=cursor, status=None, language=None
            )
            seen += [item.job_id for item in page.items]
            if page.next_cursor is None:
                break
            created, job_id = page.next_cursor.split(":", 1)
            cursor = (int(created), job_id)
        assert seen == ours[::-1]
        page = await engine.list_jobs(TENANT, limit=3, cursor=None, status=None, language="python")
        assert (len(page.items), page.next_cursor) == (3, None)


# Attestations.


async def test_one_wait_covers_the_run_and_the_signing(kit, submit, signing_key):
    kit.key = signing_key
    async with kit.running() as engine:
        submitted = await submit(engine)
        run = await kit.executor.next_run()
        with pytest.raises(Refusal) as refused:
            await engine.attestation(TENANT, submitted.job_id)
        assert refused.value.code == "attestation_unavailable"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.wait_attestation, TENANT, submitted.job_id, 30)
            await anyio.wait_all_tasks_blocked()
            run.end()
        stored = await engine.attestation(TENANT, submitted.job_id)
        assert stored.key_id == signing_key.key_id
        detail = await engine.detail(TENANT, submitted.job_id)
        assert detail.attestation.available
        assert detail.attestation.result_size_bytes == len(stored.result_artifact)
        assert detail.attestation.envelope_sha256 == stored.envelope_sha256
        with pytest.raises(Refusal):
            await engine.attestation("other", submitted.job_id)


async def test_a_pending_signature_is_told_from_one_that_never_comes(kit, submit, finished):
    kit.executor.script = _end
    async with kit.running() as engine:  # signing off
        submitted = await submit(engine)
        detail = await finished(engine, submitted.job_id)
        with anyio.fail_after(5):
            await engine.wait_attestation(TENANT, submitted.job_id, 30)
        assert detail.attestation.state == "unavailable"
        with pytest.raises(Refusal) as refused:
            await engine.attestation(TENANT, submitted.job_id)
        assert refused.value.code == "attestation_unavailable"
        assert not refused.value.retryable


async def test_a_terminal_job_that_is_not_signed_yet_is_pending(kit, submit, finished, signing_key):
    kit.key = signing_key
    kit.executor.script = _end
    engine = kit.engine()
    engine._signer.stop()
    async with kit.running(engine):
        submitted = await submit(engine)
        detail = await finished(engine, submitted.job_id)
        assert detail.attestation.state == "pending"
        with pytest.raises(Refusal) as refused:
            await engine.attestation(TENANT, submitted.job_id)
        assert (refused.value.code, refused.value.retryable, refused.value.fact.retry_after) == (
            "attestation_pending",
            True,
            1,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.wait_attestation, TENANT, submitted.job_id, 30)
            await anyio.wait_all_tasks_blocked()
            await engine._signer.__class__.sign_due(_awake(engine._signer))
        assert (await engine.attestation(TENANT, submitted.job_id)).envelope


async def test_a_signature_that_comes_between_two_looks_is_found(
    kit, submit, finished, signing_key, monkeypatch
):
    kit.key = signing_key
    kit.executor.script = _end
    engine = kit.engine()
    engine._signer.stop()
    look = engine._waits._state

    async def look_late(tenant, job_id):
        await engine._signer.__class__.sign_due(_awake(engine._signer))
        return await look(tenant, job_id)

    async with kit.running(engine):
        submitted = await submit(engine)
        await finished(engine, submitted.job_id)
        monkeypatch.setattr(engine._waits, "_state", look_late)
        assert (await engine.attestation(TENANT, submitted.job_id)).envelope


async def test_a_waiter_that_gives_up_does_not_set_the_others_spinning(
    kit, submit, finished, signing_key
):
    kit.key = signing_key
    kit.executor.script = _end
    engine = kit.engine()
    engine._signer.stop()
    async with kit.running(engine):
        submitted = await submit(engine)
        await finished(engine, submitted.job_id)
        looks = []
        whole = engine._storage.read

        async def read(query, **hints):
            looks.append(query)
            return await whole(query, **hints)

        engine._storage.read = read
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.wait_attestation, TENANT, submitted.job_id, 30)
            await engine.wait_attestation(TENANT, submitted.job_id, 0.05)
            looks.clear()
            await anyio.sleep(0.2)
            assert len(looks) < 5
            await engine._signer.__class__.sign_due(_awake(engine._signer))
        assert engine._signatures._channels == {}


def _awake(signer):
    signer._stopped = False
    return signer


async def _end(run):
    run.end()
