"""The engine over the real executors: what a job prints, leaves and proves, and how it is stopped.

No hostile code here: `off` runs these programs as they are.
"""

import base64
import hashlib
import os
import shutil
import time

import anyio
import pytest

from rookhold_attestation import Policy, profile, verify_envelope
from rookhold_exec.select import choose_backend
from rookhold_exec.settings import ExecSettings
from rookhold_types import check_chain, receipt_digest

TENANT = "acme"

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["off", pytest.param("namespaces-dev", marks=pytest.mark.linux_ns)])
async def real(request, kit, tmp_path):
    """The kit with a real backend in place of the scripted one."""
    jobs_root = tmp_path / "jobs"
    jobs_root.mkdir(mode=0o700)
    settings = ExecSettings(workers=2, jobs_root=str(jobs_root), path=os.environ.get("PATH", ""))
    executor = choose_backend(request.param, settings)
    await executor.open()
    executor.forget = lambda: None
    kit.executor = executor
    yield kit
    await executor.close()


def whole(kit, detail):
    """Everything that must hold of any finished job."""
    events = kit.events(detail.job_id)
    assert check_chain(detail.job_id, events).complete
    assert [event.kind for event in events].count("finished") == 1
    assert events[-1].kind == "finished"
    assert detail.receipt_sha256 == receipt_digest(detail.receipt)
    return detail


async def test_a_job_prints_and_its_receipt_claims_what_the_backend_observed(
    real, submit, finished
):
    backend = real.executor.posture.backend
    async with real.running() as engine:
        submitted = await submit(engine, code="print('hello')")
        detail = whole(real, await finished(engine, submitted.job_id))
        result = await engine.result(TENANT, submitted.job_id)
    assert (result.stdout, result.stderr, detail.exit_code) == ("hello\n", "", 0)
    receipt = detail.receipt
    assert receipt["backend"] == backend
    assert (receipt["isolation_class"], receipt["isolated"]) == ("none", False)
    assert receipt["bootstrap_ready"] is True
    assert receipt["effective_limits"]["wall_seconds"] == 15
    if backend == "off":
        assert (receipt["networking"], receipt["network_allowed"]) == ("host", True)
        assert receipt["effective_limits"]["cpu_seconds"] is None
    else:
        assert (receipt["networking"], receipt["network_allowed"]) == ("disabled", False)
        assert {"network-namespace", "pid-namespace", "mount-namespace"} <= set(receipt["controls"])
    digest = hashlib.sha256(b"hello\n").hexdigest()
    assert receipt["output"]["stdout_sha256"] == receipt["output"]["stdout_seen_sha256"] == digest
    assert receipt["executor_output"]["stdout"]["raw_sha256"] == digest


async def test_ten_thousand_lines_come_back_byte_exact_with_matching_digests(
    real, submit, finished
):
    printed = "".join(f"line {n}\n" for n in range(10_000))
    async with real.running() as engine:
        submitted = await submit(
            engine, code="print('\\n'.join(f'line {n}' for n in range(10000)))"
        )
        detail = whole(real, await finished(engine, submitted.job_id))
        result = await engine.result(TENANT, submitted.job_id)
    assert result.stdout == printed
    assert not result.truncated
    digest = hashlib.sha256(printed.encode()).hexdigest()
    assert detail.receipt["output"]["stdout_sha256"] == digest
    assert detail.receipt["evidence_complete"] is True


async def test_a_mebibyte_in_one_record_comes_back_whole(real, submit, finished):
    async with real.running() as engine:
        submitted = await submit(engine, code="import sys; sys.stdout.write('é' * (512 * 1024))")
        detail = whole(real, await finished(engine, submitted.job_id))
        result = await engine.result(TENANT, submitted.job_id)
    assert result.stdout == "é" * (512 * 1024)
    assert not result.truncated
    assert detail.receipt["output"]["stdout_bytes"] == 1024 * 1024


async def test_files_go_in_and_come_out(real, submit, finished):
    code = (
        "data = open('input/in.txt').read()\n"
        "import sys; open('output/deep/out.txt', 'w').write(data.upper() + sys.stdin.read())"
    )
    async with real.running() as engine:
        submitted = await submit(
            engine,
            code=code,
            stdin="!",
            files=[{"path": "input/in.txt", "content_base64": base64.b64encode(b"abc").decode()}],
            outputs=["output/deep/out.txt", "output/never.txt"],
        )
        detail = whole(real, await finished(engine, submitted.job_id))
        result = await engine.result(TENANT, submitted.job_id)
    assert (detail.status, detail.exit_code) == ("error", 0)
    assert detail.receipt["killed_by"] == "requested_output_unavailable"
    (artifact,) = result.artifacts
    assert base64.b64decode(artifact.content_base64) == b"ABC!"
    assert result.violations[0].detail["outputs"] == [
        {"path": "output/never.txt", "reason": "missing"}
    ]


async def test_a_failing_job_and_one_over_its_time_say_so(real, submit, finished):
    async with real.running() as engine:
        failing = await submit(engine, code="import sys; sys.exit(3)")
        slow = await submit(engine, code="sleep 30", language="bash", limits={"wall_seconds": 1})
        first = whole(real, await finished(engine, failing.job_id))
        second = whole(real, await finished(engine, slow.job_id))
        violations = (await engine.result(TENANT, slow.job_id)).violations
    assert (first.status, first.exit_code) == ("failed", 3)
    assert (second.status, second.receipt["killed_by"]) == ("timed_out", "wall-clock")
    assert [(one.rule, one.detail) for one in violations] == [
        ("wall_clock_exceeded", {"wall_seconds": 1})
    ]


async def test_a_running_job_is_cancelled_well_before_its_time(real, submit, finished):
    async with real.running() as engine:
        submitted = await submit(
            engine, code="echo begun; sleep 60", language="bash", limits={"wall_seconds": 60}
        )
        while "stdout" not in real.kinds(submitted.job_id):
            await anyio.sleep(0.01)
        began = time.monotonic()
        await engine.cancel(TENANT, submitted.job_id)
        detail = whole(real, await finished(engine, submitted.job_id))
        assert time.monotonic() - began < 20
        result = await engine.result(TENANT, submitted.job_id)
    assert (detail.status, detail.receipt["killed_by"]) == ("cancelled", "cancelled")
    assert result.stdout == "begun\n"


async def test_a_queued_job_that_was_cancelled_never_runs(real, submit, finished, tmp_path):
    real.set(workers=1)
    async with real.running() as engine:
        busy = await submit(engine, code="sleep 60", language="bash")
        while real.row(busy.job_id).status != "running":
            await anyio.sleep(0.01)
        waiting = await submit(engine, code="open('output/m', 'w')", outputs=["output/m"])
        await engine.cancel(TENANT, waiting.job_id)
        await engine.cancel(TENANT, busy.job_id)
        after = await submit(engine, code="print(1)")
        await finished(engine, after.job_id)
        detail = whole(real, await engine.detail(TENANT, waiting.job_id))
    assert detail.status == "cancelled"
    assert detail.started_at_ms is None
    assert real.kinds(waiting.job_id) == ["accepted", "finished"]


async def test_shutdown_ends_running_jobs_in_time_and_leaves_queued_ones(real, submit):
    real.set(workers=1)
    async with real.running() as engine:
        running = await submit(engine, code="sleep 60", language="bash")
        while real.row(running.job_id).status != "running":
            await anyio.sleep(0.01)
        queued = await submit(engine)
        began = time.monotonic()
        engine.begin_shutdown()
    assert time.monotonic() - began < 20
    assert engine.fatal is None
    assert real.row(running.job_id).status == "cancelled"
    assert real.row(queued.job_id).status == "queued"


async def test_each_language_runs_and_is_signed(real, submit, signing_key):
    real.key = signing_key
    programs = {"python": "print(6*7)", "bash": "echo $((6*7))", "node": "console.log(6*7)"}
    available = [one for one in programs if one in real.executor.posture.languages]
    assert {"python", "bash"} <= set(available)
    if shutil.which("node", path="/usr/local/bin:/usr/bin:/bin"):
        assert "node" in available
    async with real.running() as engine:
        for language in available:
            submitted = await submit(engine, code=programs[language], language=language)
            await engine.wait_attestation(TENANT, submitted.job_id, 30)
            stored = await engine.attestation(TENANT, submitted.job_id)
            proof = verify_envelope(
                stored.envelope,
                artifact=stored.result_artifact,
                keys=[signing_key.public_key],
                policy=Policy(
                    tenant=TENANT,
                    subject_name=profile.result_subject_name(submitted.job_id),
                    media_type=profile.RESULT_MEDIA_TYPE,
                ),
            )
            assert (proof.outcome, proof.event_chain_complete) == ("succeeded", True)
            assert (await engine.result(TENANT, submitted.job_id)).stdout == "42\n"
