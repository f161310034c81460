"""What executors that go through the launcher share: preflight, refusals, one start a plan."""

from __future__ import annotations

import asyncio  # noqa: TID251 - the probe's deadline is on the loop that the launcher client uses
import logging
from typing import TYPE_CHECKING, Any, ClassVar

from rookhold_exec import interpreters
from rookhold_exec.errors import (
    CapabilityUnavailableError,
    ExecError,
    ExecutorUnavailableError,
    LauncherLostError,
    RuntimeUnavailableError,
    SandboxStartError,
)
from rookhold_exec.executor import (
    KillReason,
    OutputRecord,
    Posture,
    Provenance,
    Report,
    Running,
    SandboxPlan,
)
from rookhold_exec.launcher.client import LauncherClient
from rookhold_exec.launcher.spawner import LocalSpawner
from rookhold_exec.run import SandboxRun, content_of
from rookhold_types.isolation import BACKEND_FACTS, Backend
from rookhold_types.limits import (
    MIB,
    EffectiveLimits,
    LimitEnforcement,
    Limits,
    workspace_bytes,
)
from rookhold_types.paths import check_input_path, check_output_path
from rookhold_types.runtimes import PACKS, SOURCE_NAMES
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from rookhold_exec.executor import Permit
    from rookhold_exec.interpreters import Interpreter
    from rookhold_exec.settings import ExecSettings

_log = logging.getLogger(__name__)

_INODES = 16_384
_CLOSE_SECONDS = 5.0
_PROBE_ATTEMPTS = 4
_PROBE_LIMITS = Limits(wall_seconds=interpreters.PROBE_SECONDS, cpu_seconds=20, mem_mb=512)


class LaunchedExecutor:
    """An executor over one launcher. A backend says what it asks of it, and what it may claim."""

    backend: ClassVar[Backend]
    launched_as_root: ClassVar[bool] = True  # by a root supervisor, where there is one
    home: ClassVar[str] = "/tmp"  # noqa: S108 - the job's own, in its sandbox

    def __init__(self, settings: ExecSettings, note: str) -> None:
        self._settings = settings
        self._note = note
        self._launcher: LauncherClient | None = None
        self._interpreters: dict[str, Interpreter] = {}
        self._controls: tuple[str, ...] = ()
        self._runs: set[SandboxRun] = set()
        self._surveyed: dict[str, Any] = {}

    # What differs between backends.

    def survey(self) -> dict[str, Any]:
        """Find out what takes the launcher's privileges to find out, once, before it is started.

        Plain values, as the launcher's protocol speaks them: where a root supervisor starts the
        launcher, a root process of its own does this, and the server is told.
        """
        return {}

    def hello(self) -> dict[str, Any]:
        """Return the settings for the launcher, from ours and from the survey alone."""
        raise NotImplementedError

    def locate(self, name: str) -> str | None:
        """Return the path of an interpreter as jobs of this backend see it."""
        raise NotImplementedError

    def enforcement(self, controls: tuple[str, ...]) -> LimitEnforcement:
        """Return which limits hold for the whole job, given the controls seen in force."""
        raise NotImplementedError

    def path(self) -> str:
        return interpreters.SYSTEM_PATH

    def packs(self) -> tuple[str, ...]:
        """Return the runtime packs that the root file system offers, whatever languages work."""
        return ()

    def question(self, language: str, path: str) -> tuple[bytes, list[str]]:
        """Return a program and a command that make an interpreter print its version."""
        return b"\n", [path, "--version"]

    def directory(self, name: str) -> str:
        """Return the job's directory on the host, or nothing."""
        return ""

    # The Protocol.

    async def open(self) -> None:
        """Start the launcher and drop every language whose interpreter does not answer."""
        self._know()
        spawner = self._settings.spawner or LocalSpawner(self._settings.launcher)
        self._launcher = LauncherClient(spawner, self._hello)
        await self._launcher.open()
        try:
            for language, name in self._settings.interpreters().items():
                await self._probe(language, name)
        except BaseException:
            await self.close()
            raise
        if not self._interpreters:
            await self.close()
            raise ExecutorUnavailableError(
                "no interpreter works in this sandbox", code_detail="no_interpreter"
            )

    def order(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return `surveyed` for the server that this is done for, and the launcher's settings.

        Root tidies no directory up that belongs to another account: whoever owns it could lead root
        elsewhere meanwhile. Only jobs of `off` have directories, and their launcher is not root.
        """
        self._know()
        hello = self._hello()
        if self.launched_as_root:
            hello["jobs_root"] = ""
        return {"note": self._note, "found": self._surveyed}, hello

    def _know(self) -> None:
        told = self._settings.surveyed
        if told is None:
            self._surveyed = self.survey()
        else:
            self._note, self._surveyed = told["note"], told["found"]

    def _hello(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "jobs_root": settings.jobs_root or "",
            "workers": settings.workers,
            **self.hello(),
        }

    async def _probe(self, language: str, name: str) -> None:
        path = self.locate(name)
        if path is None:
            _log.warning("%s is not offered: its interpreter was not found", language)
            return
        try:
            report, text = await self._first_end(language, *self.question(language, path))
        except (ExecError, TimeoutError):
            _log.warning("%s is not offered: its interpreter does not start", language)
            return
        if report.status is not JobStatus.SUCCEEDED:
            _log.warning("%s is not offered: its interpreter does not work", language)
            return
        self._controls = report.provenance.controls
        version = interpreters.version_of(text)
        self._interpreters[language] = interpreters.Interpreter(language, path, version)

    async def _first_end(self, language: str, code: bytes, argv: list[str]) -> tuple[Report, str]:
        """Run a probe to an end of its own: a launcher that dies under it says nothing of it."""
        for attempt in range(1, _PROBE_ATTEMPTS):
            try:
                report, text = await self._ask(language, code, argv, attempt)
            except LauncherLostError:
                continue
            if report.status is not JobStatus.ERROR:
                return report, text
        return await self._ask(language, code, argv, _PROBE_ATTEMPTS)

    async def _ask(
        self, language: str, code: bytes, argv: list[str], attempt: int
    ) -> tuple[Report, str]:
        # A name of its own: what the last attempt had may still be on its way out.
        plan = SandboxPlan(
            job_id=f"probe-{language}-{attempt}",
            language=language,
            code=code,
            limits=_PROBE_LIMITS,
        )
        async with asyncio.timeout(interpreters.PROBE_SECONDS + 5):
            run = await self._begin(plan, argv)
            lines = [event.line async for event in run.events() if isinstance(event, OutputRecord)]
            return await run.wait(), "".join(line + "\n" for line in lines)

    @property
    def posture(self) -> Posture:
        facts = BACKEND_FACTS[self.backend]
        return Posture(
            backend=self.backend,
            isolation_class=facts.isolation_class,
            isolated=facts.isolated,
            private_rootfs=facts.private_rootfs,
            dedicated_bootstrap=facts.dedicated_bootstrap,
            seccomp="seccomp" in self._controls,
            networking=facts.networking,
            controls=self._controls,
            limit_enforcement=self.enforcement(self._controls),
            languages=tuple(self._interpreters),
            tmpfs_charged_to_job=self.charged(),
            note=self._note,
            runtime_packs=tuple(
                pack
                for language, pack in PACKS.items()
                if language in self._interpreters and pack in self.packs()
            ),
        )

    def charged(self) -> bool:
        """Say whether what a job writes counts against its memory limit."""
        return "cgroup-memory" in self._controls

    async def start(self, plan: SandboxPlan) -> Running:
        """Start `plan` in a fresh sandbox and return once that was seen ready."""
        return await self._start(plan, None)

    async def start_when(self, plan: SandboxPlan, permit: Permit) -> Running:
        """Build the sandbox while `permit` runs, and start `plan` in it if that says so."""
        return await self._start(plan, permit)

    async def _start(self, plan: SandboxPlan, permit: Permit | None) -> Running:
        self._refuse(plan)
        interpreter = self._interpreters.get(plan.language)
        if interpreter is None:
            raise RuntimeUnavailableError
        script = SOURCE_NAMES[plan.language]
        try:
            return await self._begin(plan, [interpreter.path, script], permit)
        except SandboxStartError as error:
            if error.stage == "exec" and self.locate(interpreter.path) is None:
                raise RuntimeUnavailableError from error
            raise

    def _refuse(self, plan: SandboxPlan) -> None:
        for capability in ("mounts", "workspace", "environment", "identity"):
            if getattr(plan, capability):
                raise CapabilityUnavailableError(capability)
        if plan.limits.allow_network:
            raise CapabilityUnavailableError("network")
        if plan.runtime is not None and plan.runtime != self.pack_of(plan):
            raise CapabilityUnavailableError("runtime pack")
        if not 0 <= plan.slot < self._settings.workers:
            raise SandboxStartError("slot")
        inside = all(check_input_path(file.path) for file in plan.files)
        if not inside or not all(check_output_path(path) for path in plan.outputs):
            raise SandboxStartError("files")

    def pack_of(self, plan: SandboxPlan) -> str | None:
        """Return the runtime pack that `plan` runs in: its language's, if that is offered."""
        pack = PACKS.get(plan.language)
        return pack if pack in self.packs() else None

    async def _begin(
        self, plan: SandboxPlan, argv: list[str], permit: Permit | None = None
    ) -> SandboxRun:
        if self._launcher is None:
            raise ExecutorUnavailableError("this executor is not open")
        never_ready = Provenance.never_ready(self.backend)
        run = SandboxRun(plan, self._launcher, self._observed, never_ready)
        self._runs.add(run)
        try:
            await run.begin(self._message(plan, argv), content_of(plan), permit)
        except BaseException:
            self._runs.discard(run)
            raise
        run.when_finished(self._runs.discard)
        return run

    def _message(self, plan: SandboxPlan, argv: list[str]) -> dict[str, Any]:
        name = plan.job_id.replace("-", "")
        directory = self.directory(name)
        limits = plan.limits
        return {
            "job": name,
            "argv": [part.encode() for part in argv],
            "environment": interpreters.environment(path=self.path(), home=directory or self.home),
            "script": SOURCE_NAMES[plan.language],
            "outputs": list(plan.outputs),
            "directory": directory,
            "slot": plan.slot,
            "wall_ms": limits.wall_seconds * 1000,
            "cpu_seconds": limits.cpu_seconds,
            "mem_bytes": limits.mem_mb * MIB,
            "processes": limits.max_pids,
            "file_bytes": limits.max_file_mb * MIB,
            "space_bytes": workspace_bytes(limits, charged=self.charged()),
            "inodes": _INODES,
        }

    def _observed(self, plan: SandboxPlan, controls: tuple[str, ...]) -> Provenance:
        facts = BACKEND_FACTS[self.backend]
        enforced = self.enforcement(controls)
        network = "network-namespace" not in controls
        interpreter = self._interpreters.get(plan.language)
        return Provenance(
            backend=self.backend,
            isolation_class=facts.isolation_class,
            bootstrap_ready=True,
            isolated=facts.isolated,
            seccomp="seccomp" in controls,
            network_allowed=network,
            networking="host" if network else "disabled",
            private_rootfs=facts.private_rootfs,
            dedicated_bootstrap=facts.dedicated_bootstrap,
            controls=controls,
            limit_enforcement=enforced,
            effective_limits=EffectiveLimits.observed(plan.limits, enforced, network=network),
            runtime_version=None if interpreter is None else interpreter.version,
            runtime_pack=self.pack_of(plan) if facts.isolated else None,
        )

    async def close(self) -> None:
        """End every job and the launcher; idempotent."""
        runs = list(self._runs)
        for run in runs:
            run.kill(KillReason.SHUTDOWN)
            run.discard()
        if runs:
            await asyncio.wait(
                [asyncio.ensure_future(run.ended()) for run in runs], timeout=_CLOSE_SECONDS
            )
        launcher, self._launcher = self._launcher, None
        if launcher is not None:
            await launcher.close()
