"""A worker's steps: guards, stops before anything ran, outputs, contradictions, faults."""

import base64
import hashlib
from concurrent.futures import Future

import anyio
import msgspec
import pytest

from rookhold_exec.errors import (
    CapabilityUnavailableError,
    LauncherLostError,
    RuntimeUnavailableError,
    SandboxStartError,
)
from rookhold_exec.executor import (
    CollectedOutput,
    KillReason,
    Mount,
    Provenance,
    UncollectedOutput,
    Violation,
)
from rookhold_store import Start
from rookhold_types import IsolationClass, JobStatus, fingerprint

pytestmark = pytest.mark.anyio
TENANT = "acme"


def posture(kit, **changes):
    kit.executor.posture = msgspec.structs.replace(kit.executor.posture, **changes)


def provenance(kit, **changes):
    return msgspec.structs.replace(kit.executor.provenance, **changes)


async def run_one(kit, submit, finished, script, **members):
    """One job played by `script`; its detail."""
    kit.executor.script = script
    async with kit.running() as engine:
        submitted = await submit(engine, **members)
        return await finished(engine, submitted.job_id)


# What was accepted may no longer be what can be run.


@pytest.mark.parametrize(
    ("then", "killed_by"),
    [
        ({"isolation_class": IsolationClass.NONE}, "minimum_isolation_unsatisfied"),
        ({"languages": ("node",)}, "runtime_unavailable"),
    ],
)
async def test_a_guard_ends_a_job_unrun_when_the_server_has_changed(
    kit, submit, finished, then, killed_by
):
    posture(kit, isolation_class=IsolationClass.LINUX_SHARED_KERNEL)
    kit.set(workers=1)
    async with kit.running() as engine:
        await submit(engine)
        run = await kit.executor.next_run()
        waiting = await submit(engine, requirements={"minimum_isolation": "linux-shared-kernel"})
        posture(kit, **then)
        run.end(provenance=provenance(kit, isolation_class=IsolationClass.LINUX_SHARED_KERNEL))
        detail = await finished(engine, waiting.job_id)
    assert (detail.status, detail.receipt["killed_by"]) == ("error", killed_by)
    assert kit.kinds(waiting.job_id) == ["accepted", "finished"]
    assert detail.receipt["resource_usage"] is None
    assert "backend" not in detail.receipt
    assert len(kit.executor.runs) == 1


async def test_shutdown_already_begun_leaves_a_late_workers_job_queued(kit, submit):
    kit.set(workers=1)
    async with kit.running() as engine:
        await submit(engine)
        run = await kit.executor.next_run()
        waiting = await submit(engine)
        engine.begin_shutdown()
        assert run.kills == [] or run.kills == [KillReason.SHUTDOWN]
    assert kit.row(waiting.job_id).status == "queued"
    assert kit.kinds(waiting.job_id) == ["accepted"]
    assert run.kills == [KillReason.SHUTDOWN]


class AtStart:
    """A store that calls back in the moment between the durable start and its answer."""

    def __init__(self, store, then):
        self._store = store
        self._then = then
        self.read = store.read

    def submit(self, op):
        if not isinstance(op, Start):
            return self._store.submit(op)
        answer = self._store.call(op)
        self._then()
        future = Future()
        future.set_result(answer)
        return future


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize(
    ("how", "killed_by"),
    [
        ("shutdown", "server_shutdown_before_execution"),
        ("cancel", "cancelled_before_execution"),
        ("both", "server_shutdown_before_execution"),
    ],
)
async def test_a_stop_right_after_the_durable_start_runs_nothing(
    kit, submit, how, killed_by, ahead
):
    if ahead:
        kit.build_ahead()

    def stop():
        if how != "shutdown":
            for token in engine._tokens._tokens.values():
                token.set("cancelled")
        if how != "cancel":
            engine.begin_shutdown()

    engine = kit.engine(store=AtStart(kit.store, stop))
    async with kit.running(engine):
        submitted = await submit(engine)
        while kit.row(submitted.job_id).finished_at_ms is None:
            await anyio.sleep(0.002)
    receipt = kit.receipt(submitted.job_id)
    assert (receipt["outcome"], receipt["killed_by"]) == ("cancelled", killed_by)
    assert kit.executor.runs == []
    assert kit.kinds(submitted.job_id) == ["accepted", "started", "finished"]
    # A cancel completed by a worker carries the observed members in their never-ready form.
    assert receipt["bootstrap_ready"] is False
    assert receipt["effective_limits"]["wall_seconds"] is None
    assert len(receipt["policy_sha256"]) == 64


async def test_a_sandbox_that_is_built_ahead_waits_for_the_durable_start(kit, submit, finished):
    kit.build_ahead()
    seen = []

    async def script(run):
        seen.append(kit.row(run.plan.job_id).status)
        run.end()

    detail = await run_one(kit, submit, finished, script)
    assert seen == ["running"]
    assert detail.status == "succeeded"
    assert kit.kinds(detail.job_id) == ["accepted", "started", "finished"]


async def test_a_sandbox_that_fails_before_the_durable_start_is_told_after_it(
    kit, submit, finished
):
    kit.build_ahead()
    kit.executor.start_error_before = SandboxStartError("clone")
    detail = await run_one(kit, submit, finished, None)
    assert detail.status == "error"
    assert kit.kinds(detail.job_id) == ["accepted", "started", "violation", "finished"]
    assert kit.executor.runs == []


# What the executor says, held to what was asked.


async def test_input_and_output_files_are_listed_without_content(kit, submit, finished):
    async def script(run):
        assert [(file.path, file.content) for file in run.plan.files] == [("input/a", b"in")]
        run.end(collected=(CollectedOutput("output/b", b"out"),))

    detail = await run_one(
        kit,
        submit,
        finished,
        script,
        files=[{"path": "input/a", "content_base64": base64.b64encode(b"in").decode()}],
        outputs=["output/b"],
    )
    assert detail.status == "succeeded"
    digest = hashlib.sha256
    assert detail.receipt["input_files"] == [
        {"path": "input/a", "size_bytes": 2, "sha256": digest(b"in").hexdigest()}
    ]
    assert detail.receipt["artifacts"] == [
        {"path": "output/b", "size_bytes": 3, "sha256": digest(b"out").hexdigest()}
    ]
    (artifact,) = [event for event in kit.events(detail.job_id) if event.kind == "artifact"]
    assert base64.b64decode(artifact.data["content_base64"]) == b"out"


async def test_a_missing_output_is_named_and_the_good_ones_come_back(kit, submit, finished):
    async def script(run):
        run.end(
            collected=(CollectedOutput("output/good", b"1"),),
            uncollected=(UncollectedOutput("output/gone", "missing"),),
        )

    detail = await run_one(
        kit, submit, finished, script, outputs=["output/gone", "output/good", "output/silent"]
    )
    assert (detail.status, detail.exit_code) == ("error", 0)
    assert detail.receipt["killed_by"] == "requested_output_unavailable"
    (violation,) = [event for event in kit.events(detail.job_id) if event.kind == "violation"]
    assert violation.data == {
        "rule": "artifact_collection_failed",
        "detail": {
            "code": "requested_output_unavailable",
            "outputs": [
                {"path": "output/gone", "reason": "missing"},
                {"path": "output/silent", "reason": "missing"},
            ],
        },
    }
    assert [file["path"] for file in detail.receipt["artifacts"]] == ["output/good"]


async def test_a_failed_run_keeps_its_status_beside_a_missing_output(kit, submit, finished):
    async def script(run):
        run.end(JobStatus.FAILED, 3, uncollected=(UncollectedOutput("output/x", "link"),))

    detail = await run_one(kit, submit, finished, script, outputs=["output/x"])
    assert (detail.status, detail.exit_code, detail.receipt["killed_by"]) == ("failed", 3, None)


async def test_a_run_that_was_never_ready_contradicts_itself(kit, submit, finished):
    async def script(run):
        run.end(provenance=Provenance.never_ready("off"))

    detail = await run_one(kit, submit, finished, script)
    assert (detail.status, detail.exit_code) == ("error", 0)
    assert detail.receipt["killed_by"] == "minimum_isolation_observation_mismatch"
    (violation,) = [event for event in kit.events(detail.job_id) if event.kind == "violation"]
    assert violation.data["detail"] == {
        "minimum_isolation": "none",
        "observed_isolation": "none",
        "bootstrap_ready": False,
    }


async def test_a_failure_before_ready_claims_nothing_and_keeps_code_and_stdin_out(
    kit, submit, finished
):
    kit.executor.start_error = SandboxStartError("mounts")
    detail = await run_one(kit, submit, finished, None, code="print('the code')", stdin="the stdin")
    receipt = detail.receipt
    assert (detail.status, receipt["killed_by"]) == ("error", None)
    assert kit.events(detail.job_id)[-2].data == {
        "rule": "sandbox_bootstrap_failed",
        "detail": {"stage": "mounts"},
    }
    assert (receipt["backend"], receipt["isolation_class"]) == ("off", "none")
    assert receipt["controls"] == []
    for name in ("bootstrap_ready", "isolated", "seccomp", "private_rootfs"):
        assert receipt[name] is False
    for name in ("network_allowed", "networking", "executor_output", "runtime_version"):
        assert receipt[name] is None
    assert set(receipt["effective_limits"].values()) == {None}
    assert set(receipt["limit_enforcement"].values()) == {False}
    assert detail.effective_spec.isolation_class is None
    stored = kit.row(detail.job_id).effective_spec_json
    assert "the code" not in stored
    assert "the stdin" not in stored
    assert msgspec.json.decode(stored)["limits"]["wall_seconds"] is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LauncherLostError("gone"), "executor_unavailable"),
        (CapabilityUnavailableError("mounts"), "executor_unavailable"),
        (PermissionError(13, "/secret/host/path"), "executor_unavailable"),
        (RuntimeError("/secret/host/path"), "executor_failure"),
    ],
)
async def test_an_executor_that_fails_is_told_coarsely_and_the_server_goes_on(
    kit, submit, finished, error, code
):
    kit.executor.start_error = error
    async with kit.running() as engine:
        submitted = await submit(engine)
        detail = await finished(engine, submitted.job_id)
        assert (detail.status, detail.exit_code) == ("error", None)
        assert kit.events(submitted.job_id)[-2].data == {
            "rule": "executor_error",
            "detail": {"code": code},
        }
        assert "secret" not in kit.row(submitted.job_id).receipt_json
        kit.executor.start_error = None
        after = await submit(engine)
        (await kit.executor.next_run()).end()
        assert (await finished(engine, after.job_id)).status == "succeeded"
        assert engine.fatal is None


async def test_an_interpreter_that_is_gone_ends_the_job_unrun(kit, submit, finished):
    kit.executor.start_error = RuntimeUnavailableError()
    detail = await run_one(kit, submit, finished, None)
    assert (detail.status, detail.receipt["killed_by"]) == ("error", "runtime_unavailable")
    assert kit.kinds(detail.job_id) == ["accepted", "started", "finished"]


async def test_controls_are_told_sorted_and_once_whoever_observed_them(kit, submit, finished):
    async def script(run):
        run.end(provenance=provenance(kit, controls=("seccomp", "rlimits", "seccomp")))

    detail = await run_one(kit, submit, finished, script)
    assert detail.receipt["controls"] == ["rlimits", "seccomp"]
    assert detail.execution_policy.controls == ("rlimits", "seccomp")


async def test_a_report_that_never_comes_right_is_an_executor_error(kit, submit, finished):
    async def script(run):
        await run.print("kept\n")
        run.report_error = RuntimeError("no report")
        run.end()

    detail = await run_one(kit, submit, finished, script)
    assert detail.status == "error"
    assert kit.kinds(detail.job_id) == ["accepted", "started", "stdout", "violation", "finished"]
    assert detail.receipt["output"]["stdout_bytes"] == 5


async def test_an_event_stream_that_breaks_ends_the_job_with_what_it_gave(kit, submit, finished):
    async def script(run):
        await run.print("kept\n")
        run.break_stream()

    detail = await run_one(kit, submit, finished, script)
    assert (detail.status, detail.receipt["killed_by"]) == ("error", "event_producer_stopped")
    assert detail.receipt["evidence_complete"] is False
    assert kit.executor.runs[0].kills == [KillReason.CANCELLED]
    assert "stdout" in kit.kinds(detail.job_id)


async def test_a_limits_violation_and_outcome_are_the_executors(kit, submit, finished):
    async def script(run):
        await run.emit(Violation("wall_clock_exceeded", {"wall_seconds": 1}))
        run.end(JobStatus.TIMED_OUT, None, "wall-clock", wall_time_ms=1003)

    detail = await run_one(kit, submit, finished, script, limits={"wall_seconds": 1})
    assert detail.status == "timed_out"
    assert (detail.receipt["killed_by"], detail.receipt["duration_ms"]) == ("wall-clock", 1003)
    assert kit.executor.runs[0].plan.limits.wall_seconds == 1


async def test_limits_are_clamped_for_the_run_and_kept_as_asked(kit, submit, finished):
    async def script(run):
        run.end()

    detail = await run_one(kit, submit, finished, script, limits={"wall_seconds": 99999})
    assert kit.executor.runs[0].plan.limits.wall_seconds == 300
    assert detail.requested_spec["limits"]["wall_seconds"] == 99999
    assert detail.receipt["requested_limits"]["wall_seconds"] == 99999


async def test_a_report_that_cannot_be_stored_still_ends_the_job(kit, submit, finished):
    async def script(run):
        run.end(JobStatus.FAILED, 2**40)

    detail = await run_one(kit, submit, finished, script)
    assert (detail.status, detail.exit_code) == ("error", None)
    assert detail.receipt["evidence_complete"] is False
    assert kit.kinds(detail.job_id) == ["accepted", "started", "finished"]


# A governed job brings more, and all of it goes through the same road.


class Companion:
    def __init__(self):
        self.ended = []
        self.source_fd = 5

    def extend(self, plan):
        return msgspec.structs.replace(
            plan,
            workspace=Mount(source_fd=self.source_fd, target="/workspace", read_only=False),
            environment=(("TOKEN", "x"),),
        )

    def receipt_members(self):
        return {"governance": {"version": 1, "citadel_id": "c1"}}

    def finalising(self, status):
        return (self,)

    def apply(self, db, context):
        self.ended.append((context.job_id, context.status, context.receipt_sha256))


class Companions:
    def __init__(self):
        self.companion = Companion()

    async def of(self, row):
        return self.companion

    async def ending_unrun(self, job_id):
        return (self.companion,)


async def test_a_companion_adds_to_the_plan_the_receipt_and_the_final_transaction(
    kit, submit, finished
):
    kit.companions = Companions()
    ended = kit.companions.companion.ended

    async def script(run):
        assert run.plan.workspace.target == "/workspace"
        assert run.plan.environment == (("TOKEN", "x"),)
        run.end()

    detail = await run_one(kit, submit, finished, script)
    assert detail.receipt["governance"] == {"version": 1, "citadel_id": "c1"}
    assert ended == [(detail.job_id, "succeeded", detail.receipt_sha256)]


async def test_a_companions_rows_also_join_a_queued_cancel(kit, submit):
    kit.companions = Companions()
    kit.set(workers=1)
    async with kit.running() as engine:
        await submit(engine)
        await kit.executor.next_run()
        waiting = await submit(engine)
        await engine.cancel(TENANT, waiting.job_id)
        assert [one[:2] for one in kit.companions.companion.ended] == [
            (waiting.job_id, "cancelled")
        ]


async def test_the_fingerprint_is_the_stored_specs_digest(kit, job, submit, finished):
    async def script(run):
        run.end()

    detail = await run_one(kit, submit, finished, script)
    accepted = kit.events(detail.job_id)[0]
    assert accepted.data["requested_spec_sha256"] == fingerprint(job())
