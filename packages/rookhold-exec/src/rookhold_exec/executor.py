"""What an executor is: the Protocol, the plan it gets, the events and the report it gives.

A job that fails is an outcome in the report; only our own failure to start is an exception. What a
report says about isolation and limits was observed after the ready boundary, never configured.
"""

from __future__ import annotations

import base64
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from rookhold_types.checks import InputFile
from rookhold_types.isolation import IsolationClass
from rookhold_types.limits import EffectiveLimits, LimitEnforcement, Limits
from rookhold_types.receipts import ResourceUsage
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Permit = Callable[[], Awaitable[bool]]

__all__ = [
    "AheadExecutor",
    "CollectedOutput",
    "ExecEvent",
    "Executor",
    "Identity",
    "InputFile",
    "KillReason",
    "Mount",
    "NotPermittedError",
    "OutputRecord",
    "Posture",
    "Provenance",
    "Report",
    "ResourceUsage",
    "Running",
    "SandboxPlan",
    "StreamEvidence",
    "StreamName",
    "Truncated",
    "UncollectedOutput",
    "Violation",
]

StreamName = Literal["stdout", "stderr"]


class Mount(Struct, frozen=True, kw_only=True):
    """A directory of the host, given by descriptor, that appears at `target` in the sandbox."""

    source_fd: int
    target: str
    read_only: bool = True
    nosuid: bool = True
    nodev: bool = True


class Identity(Struct, frozen=True, kw_only=True):
    """Who a governed job is inside its sandbox; never a uid of the host with powers."""

    user: str
    uid: int
    gid: int


class SandboxPlan(Struct, frozen=True, kw_only=True):
    """One job as the executor needs it; `limits` are already clamped.

    `runtime` names a runtime pack; without it the language's own is taken, where there is one.
    `slot` is the worker slot (0 to workers - 1): no two running plans share one. A backend that
    cannot honour `mounts`, `workspace`, `environment` or `identity` refuses the plan as a whole.
    """

    job_id: str
    language: str
    code: bytes
    limits: Limits
    stdin: bytes | None = None
    files: tuple[InputFile, ...] = ()
    outputs: tuple[str, ...] = ()
    runtime: str | None = None
    slot: int = 0
    mounts: tuple[Mount, ...] = ()
    workspace: Mount | None = None
    environment: tuple[tuple[str, str], ...] = ()
    identity: Identity | None = None


class OutputRecord(Struct, frozen=True):
    """One record of a stream; `raw` is set only where `line` is not exactly the bytes."""

    stream: StreamName
    line: str
    eol: bool
    raw: bytes | None = None

    def data(self) -> dict[str, Any]:
        """Return the data of its output event."""
        shown: dict[str, Any] = {"line": self.line, "eol": self.eol}
        if self.raw is not None:
            shown["raw_base64"] = base64.b64encode(self.raw).decode("ascii")
        return shown


class Truncated(Struct, frozen=True):
    """The stream reached a limit: what follows is counted and hashed, but not kept."""

    stream: StreamName


class Violation(Struct, frozen=True):
    """A rule the job ran into, with coarse detail: no host path and no system text."""

    rule: str
    detail: dict[str, Any]


ExecEvent = OutputRecord | Truncated | Violation


class StreamEvidence(Struct, frozen=True, kw_only=True):
    """Counts and digests of one stream; `offered` is what was kept, `seen` all that was read."""

    bytes_seen: int
    bytes_offered: int
    records_offered: int
    offered_sha256: str
    seen_sha256: str
    truncated: bool


class Provenance(Struct, frozen=True, kw_only=True):
    """What was observed about the sandbox after it became ready."""

    backend: str
    isolation_class: IsolationClass
    bootstrap_ready: bool
    isolated: bool
    seccomp: bool
    network_allowed: bool | None
    networking: str | None
    private_rootfs: bool
    dedicated_bootstrap: bool
    controls: tuple[str, ...]
    limit_enforcement: LimitEnforcement
    effective_limits: EffectiveLimits
    runtime_version: str | None = None
    runtime_sha256: str | None = None
    rootfs_sha256: str | None = None
    config_sha256: str | None = None
    runtime_pack: str | None = None

    @classmethod
    def never_ready(cls, backend: str) -> Provenance:
        """Return the evidence of a job whose sandbox never became ready: nothing."""
        return cls(
            backend=backend,
            isolation_class=IsolationClass.NONE,
            bootstrap_ready=False,
            isolated=False,
            seccomp=False,
            network_allowed=None,
            networking=None,
            private_rootfs=False,
            dedicated_bootstrap=False,
            controls=(),
            limit_enforcement=LimitEnforcement.none(),
            effective_limits=EffectiveLimits.none(),
        )


class CollectedOutput(Struct, frozen=True):
    """A requested output that came back whole."""

    path: str
    content: bytes


class UncollectedOutput(Struct, frozen=True):
    """A requested output that did not, with one of the `OutputReason` values."""

    path: str
    reason: str


class Report(Struct, frozen=True, kw_only=True):
    """The one outcome of a job that was started."""

    status: JobStatus
    exit_code: int | None
    killed_by: str | None
    wall_time_ms: int
    usage: ResourceUsage | None
    stdout: StreamEvidence
    stderr: StreamEvidence
    provenance: Provenance
    collected: tuple[CollectedOutput, ...] = ()
    uncollected: tuple[UncollectedOutput, ...] = ()


class Posture(Struct, frozen=True, kw_only=True):
    """What this executor is set up to do, after its preflight; not evidence of any job."""

    backend: str
    isolation_class: IsolationClass
    isolated: bool
    private_rootfs: bool
    dedicated_bootstrap: bool
    seccomp: bool
    networking: str
    controls: tuple[str, ...]
    limit_enforcement: LimitEnforcement
    languages: tuple[str, ...]
    tmpfs_charged_to_job: bool
    note: str
    runtime_packs: tuple[str, ...] = ()  # of its languages; what its root file system offers


class KillReason(StrEnum):
    """Why somebody outside the job ends it."""

    CANCELLED = "cancelled"
    SHUTDOWN = "shutdown"


@runtime_checkable
class Running(Protocol):
    """A job whose sandbox was seen ready."""

    def events(self) -> AsyncIterator[ExecEvent]:
        """Yield what the job prints and runs into, in order; for one reader, once.

        The queue is bounded: while nobody takes events, the job's pipes are not read. It ends when
        capture is complete, which is before `wait` resolves.
        """

    def kill(self, reason: KillReason) -> None:
        """End every process of the job; idempotent, never blocks."""

    async def wait(self) -> Report:
        """Return the report once no process of the job is left and its outputs are collected.

        Never raises for what the job did. Does not need `events` to be read to the end by the time
        it is called, but resolves only after capture, which needs a reader if the job prints much.
        """


@runtime_checkable
class Executor(Protocol):
    """Runs one plan in one fresh sandbox."""

    @property
    def posture(self) -> Posture:
        """The configured posture; valid after `open`."""

    async def open(self) -> None:
        """Make ready to start jobs, or raise ExecutorUnavailableError."""

    async def close(self) -> None:
        """End everything that was started; idempotent."""

    async def start(self, plan: SandboxPlan) -> Running:
        """Start `plan` in a fresh sandbox and return once that was seen ready.

        Raises SandboxStartError or CapabilityUnavailableError; after either, as after cancelling
        this call, nothing of the job ran or will run, and nothing of it is left.
        """


class NotPermittedError(Exception):
    """A start was given up because its permit was refused; nothing failed."""


@runtime_checkable
class AheadExecutor(Executor, Protocol):
    """An executor that can build a sandbox while it is being decided whether the job may start.

    Optional: whoever has only `start` is asked for it after the decision.
    """

    async def start_when(self, plan: SandboxPlan, permit: Permit) -> Running:
        """Do as `start` does, but build the sandbox while `permit` runs.

        `permit` is called once, or not at all where the start fails before; nothing of the job is
        in the sandbox before it has returned true. If it returns false NotPermittedError is raised,
        and after that, after whatever it raises, and after a cancel nothing of the job ran or will
        run, and nothing of the sandbox is left.
        """
