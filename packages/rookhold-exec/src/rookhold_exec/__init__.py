"""Run one untrusted job in one fresh sandbox, and report what was observed.

Names are loaded when they are first used: the launcher imports submodules of this package with
nothing but the standard library, and must not pay for, or depend on, the rest.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing's; importing that would double the launcher's memory
if TYPE_CHECKING:
    from rookhold_exec.executor import (
        Executor,
        KillReason,
        Posture,
        Provenance,
        Report,
        Running,
        SandboxPlan,
    )
    from rookhold_exec.select import choose_backend
    from rookhold_exec.settings import ExecSettings

__all__ = [
    "ExecSettings",
    "Executor",
    "KillReason",
    "Posture",
    "Provenance",
    "Report",
    "Running",
    "SandboxPlan",
    "choose_backend",
]

_HOME = {
    "ExecSettings": "settings",
    "choose_backend": "select",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME.get(name, 'executor')}"), name)
