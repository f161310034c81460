"""An executor as somebody else might write it, over util-linux: it knows only the public names.

It confines a job to a PID namespace, so that every process of it ends, and claims no control at
all. The variants below it lie, each in one way, and the contract has to notice.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from rookhold_exec.capture import StreamCapture
from rookhold_exec.errors import CapabilityUnavailableError, RuntimeUnavailableError
from rookhold_exec.executor import (
    CollectedOutput,
    ExecEvent,
    KillReason,
    Posture,
    Provenance,
    Report,
    ResourceUsage,
    SandboxPlan,
    UncollectedOutput,
    Violation,
)
from rookhold_exec.settings import ExecSettings
from rookhold_types.isolation import IsolationClass
from rookhold_types.limits import EffectiveLimits, LimitEnforcement
from rookhold_types.states import JobStatus

NAME = "sample"
ENTER = ("/usr/bin/unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
RUN = {"python": ("/usr/bin/python3", "job.py"), "bash": ("/usr/bin/bash", "job.sh")}
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8"}
# The second process writes its exit status the way a shell shows it; 128 and more is a signal.
WRAP = ("/bin/sh", "-c", 'unset PWD OLDPWD; "$@"; exit $?', "sh")


def end(process: asyncio.subprocess.Process) -> None:
    """Kill the whole group: the namespace's first process is in it, and takes all others along."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class SampleRunning:
    def __init__(self, plan: SandboxPlan, process: asyncio.subprocess.Process, at: Path) -> None:
        self._plan = plan
        self._process = process
        self._at = at
        self._began = time.monotonic()
        self._queue: asyncio.Queue[ExecEvent | None] = asyncio.Queue(256)
        self._captures = {name: StreamCapture(name) for name in ("stdout", "stderr")}
        self._cause: JobStatus | None = None
        self._report: asyncio.Task[Report] = asyncio.create_task(self._follow())

    async def _pump(self, stream: asyncio.StreamReader, capture: StreamCapture) -> None:
        while data := await stream.read(65536):
            for event in capture.feed(data):
                await self._queue.put(event)
        for event in capture.finish():
            await self._queue.put(event)

    def _end(self, cause: JobStatus) -> None:
        if self._cause is None and self._process.returncode is None:
            self._cause = cause
            end(self._process)

    async def _follow(self) -> Report:
        loop = asyncio.get_running_loop()
        wall = self._plan.limits.wall_seconds
        timer = loop.call_later(wall, self._end, JobStatus.TIMED_OUT)
        pumps = [
            asyncio.create_task(self._pump(stream, self._captures[name]))
            for name, stream in (
                ("stdout", self._process.stdout),
                ("stderr", self._process.stderr),
            )
        ]
        code = await self._process.wait()
        timer.cancel()
        wall_ms = int((time.monotonic() - self._began) * 1000)
        await asyncio.gather(*pumps)
        status, exit_code, killed_by = self._judge(code)
        if self._cause is not None:
            timed_out = self._cause is JobStatus.TIMED_OUT
            rule = "wall_clock_exceeded" if timed_out else "job_cancelled"
            await self._queue.put(Violation(rule, {"wall_seconds": wall} if timed_out else {}))
        collected, uncollected = self._collect()
        shutil.rmtree(self._at)
        await self._queue.put(None)
        return Report(
            status=status,
            exit_code=exit_code,
            killed_by=killed_by,
            wall_time_ms=wall_ms,
            usage=ResourceUsage(wall_time_ms=wall_ms),
            stdout=self._captures["stdout"].evidence(),
            stderr=self._captures["stderr"].evidence(),
            provenance=observed(self._plan),
            collected=collected,
            uncollected=uncollected,
        )

    def _judge(self, code: int) -> tuple[JobStatus, int | None, str | None]:
        if self._cause is JobStatus.TIMED_OUT:
            return self._cause, None, "wall-clock"
        if self._cause is JobStatus.CANCELLED:
            return self._cause, None, "cancelled"
        if code > 128:
            return JobStatus.FAILED, None, f"signal-{code - 128}"
        return (JobStatus.FAILED if code else JobStatus.SUCCEEDED), code, None

    def _collect(self) -> tuple[tuple[CollectedOutput, ...], tuple[UncollectedOutput, ...]]:
        good, bad = [], []
        if self._cause is JobStatus.CANCELLED:
            return (), ()
        for name in self._plan.outputs:
            path = self._at / name
            real = path.resolve()
            if not real.is_relative_to(self._at.resolve()) or real != self._at.resolve() / name:
                bad.append(UncollectedOutput(name, "link"))
            elif any(
                folder.is_dir() and not folder.stat().st_mode & 0o100
                for folder in (self._at / part for part in reversed(Path(name).parents))
            ):
                bad.append(UncollectedOutput(name, "unreadable"))
            elif not path.exists():
                bad.append(UncollectedOutput(name, "missing"))
            elif not path.is_file():
                bad.append(UncollectedOutput(name, "not_regular"))
            elif path.stat().st_size > 2 << 20:
                bad.append(UncollectedOutput(name, "too_large"))
            elif not path.stat().st_mode & 0o400:
                bad.append(UncollectedOutput(name, "unreadable"))
            else:
                good.append(CollectedOutput(name, path.read_bytes()))
        return tuple(good), tuple(bad)

    async def events(self) -> AsyncIterator[ExecEvent]:
        while (event := await self._queue.get()) is not None:
            yield event

    def kill(self, reason: KillReason) -> None:
        self._end(JobStatus.CANCELLED)

    async def wait(self) -> Report:
        return await asyncio.shield(self._report)


def observed(plan: SandboxPlan) -> Provenance:
    enforced = LimitEnforcement(wall=True)
    return Provenance(
        backend=NAME,
        isolation_class=IsolationClass.NONE,
        bootstrap_ready=True,
        isolated=False,
        seccomp=False,
        network_allowed=True,
        networking="host",
        private_rootfs=False,
        dedicated_bootstrap=False,
        controls=(),
        limit_enforcement=enforced,
        effective_limits=EffectiveLimits.observed(plan.limits, enforced, network=True),
    )


class SampleExecutor:
    """Every job in a PID namespace and a temporary directory."""

    def __init__(self, settings: ExecSettings) -> None:
        self._root = settings.jobs_root or tempfile.gettempdir()
        self.posture = Posture(
            backend=NAME,
            isolation_class=IsolationClass.NONE,
            isolated=False,
            private_rootfs=False,
            dedicated_bootstrap=False,
            seccomp=False,
            networking="host",
            controls=(),
            limit_enforcement=LimitEnforcement(wall=True),
            languages=tuple(RUN),
            tmpfs_charged_to_job=False,
            note="a sample",
        )

    async def open(self) -> None:
        """Nothing to make ready."""

    async def close(self) -> None:
        """Nothing to end."""

    async def start(self, plan: SandboxPlan) -> SampleRunning:
        if plan.language not in RUN:
            raise RuntimeUnavailableError
        for capability in ("mounts", "workspace", "environment", "identity"):
            if getattr(plan, capability):
                raise CapabilityUnavailableError(capability)
        at = Path(tempfile.mkdtemp(dir=self._root))
        interpreter, script = RUN[plan.language]
        (at / script).write_bytes(plan.code)
        for directory in ("input", "output"):
            (at / directory).mkdir()
        for file in plan.files:
            (at / file.path).parent.mkdir(parents=True, exist_ok=True)
            (at / file.path).write_bytes(file.content)
            (at / file.path).chmod(0o444)
        for output in plan.outputs:
            (at / output).parent.mkdir(parents=True, exist_ok=True)
        stdin = tempfile.TemporaryFile()  # noqa: SIM115 - the job inherits it
        stdin.write(plan.stdin or b"")
        stdin.seek(0)
        with stdin:
            starting = asyncio.ensure_future(
                asyncio.create_subprocess_exec(
                    *ENTER,
                    *WRAP,
                    interpreter,
                    script,
                    stdin=stdin,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    cwd=at,
                    env=ENVIRONMENT,
                    start_new_session=True,
                )
            )
            try:
                process = await asyncio.shield(starting)
            except asyncio.CancelledError:
                process = await starting
                end(process)
                await process.communicate()
                shutil.rmtree(at)
                raise
        return SampleRunning(plan, process, at)


def make(settings: ExecSettings) -> SampleExecutor:
    """Be the entry point."""
    return SampleExecutor(settings)


class LyingRunning(SampleRunning):
    """Reports what `lie` makes of the truth."""

    lie: dict[str, object]

    async def wait(self) -> Report:
        report = await super().wait()
        provenance = msgspec.structs.replace(report.provenance, **self.lie)
        return msgspec.structs.replace(report, provenance=provenance)


def liar(**lie: object) -> type[SampleExecutor]:
    """Return a provider that claims something which is not so."""

    class Liar(SampleExecutor):
        async def start(self, plan: SandboxPlan) -> SampleRunning:
            running = await super().start(plan)
            running.__class__ = type("Lying", (LyingRunning,), {"lie": lie})
            return running

    return Liar
