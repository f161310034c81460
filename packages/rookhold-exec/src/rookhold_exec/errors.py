"""Errors of the executor: our failures, never the job's."""

from __future__ import annotations

from typing import ClassVar

from rookhold_types.errors import RookholdError

__all__ = [
    "CapabilityUnavailableError",
    "ExecError",
    "ExecutorUnavailableError",
    "LauncherLostError",
    "RuntimeChangedError",
    "RuntimeUnavailableError",
    "SandboxStartError",
    "UnknownBackendError",
    "UnsupportedPlatformError",
]


class ExecError(RookholdError):
    """Root of the errors of this wheel."""

    code: ClassVar[str] = "executor_failure"


class ExecutorUnavailableError(ExecError):
    """The backend cannot run anything on this host, or its launcher did not come up."""

    code: ClassVar[str] = "executor_unavailable"


class UnknownBackendError(ExecutorUnavailableError):
    """No backend and no installed provider has this name."""

    code: ClassVar[str] = "unknown_backend"


class UnsupportedPlatformError(ExecutorUnavailableError):
    """The backend named does not exist on this platform."""

    code: ClassVar[str] = "unsupported_platform"


class RuntimeChangedError(ExecutorUnavailableError):
    """The container runtime is no longer the file that was reviewed; nothing of the job ran."""

    code: ClassVar[str] = "runtime_changed"


class LauncherLostError(ExecutorUnavailableError):
    """The launcher died before it could start the job; it is being restarted."""

    code: ClassVar[str] = "launcher_lost"
    retryable: ClassVar[bool] = True


class CapabilityUnavailableError(ExecError):
    """The plan asks for something that this backend cannot do; nothing of it ran."""

    code: ClassVar[str] = "capability_unavailable"

    def __init__(self, capability: str) -> None:
        super().__init__(f"this backend cannot provide {capability}", capability=capability)
        self.capability = capability


class SandboxStartError(ExecError):
    """The sandbox did not become ready; nothing of the job ran. `stage` is coarse on purpose."""

    code: ClassVar[str] = "sandbox_bootstrap_failed"

    def __init__(self, stage: str) -> None:
        super().__init__(f"the sandbox failed to start ({stage})", stage=stage)
        self.stage = stage


class RuntimeUnavailableError(SandboxStartError):
    """The language has no interpreter here, or no longer; nothing of the job ran."""

    code: ClassVar[str] = "runtime_unavailable"

    def __init__(self) -> None:
        super().__init__("runtime")
