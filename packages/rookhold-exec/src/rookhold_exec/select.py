"""Choosing the backend: by name, or the strongest that this host really offers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rookhold_exec.errors import (
    ExecutorUnavailableError,
    UnknownBackendError,
    UnsupportedPlatformError,
)

if TYPE_CHECKING:
    from rookhold_exec.executor import Executor
    from rookhold_exec.settings import ExecSettings

GROUP = "rookhold.executors"

_ALIASES = {
    "none": "off",
    "naive": "off",
    "ns-dev": "namespaces-dev",
    "ns": "namespaces",
    "sandbox": "namespaces",
    "runsc": "gvisor",
}


def full_name(name: str) -> str:
    """Return the name that an alias stands for, and any other as it is."""
    return _ALIASES.get(name, name)


def choose_backend(name: str, settings: ExecSettings) -> Executor:
    """Return the executor of that name, not opened yet; its posture's note says why this one.

    `auto` looks at what the host offers, and never takes an installed provider: those are chosen
    by name only. Raises UnknownBackendError, UnsupportedPlatformError or ExecutorUnavailableError.
    """
    name = full_name(name)
    match name:
        case "auto":
            return _strongest(settings)
        case "off":
            return _off(settings, "no sandbox: ROOKHOLD_SANDBOX asks for none")
        case "namespaces-dev":
            return _namespaces_dev(settings, "namespaces of this host, as ROOKHOLD_SANDBOX asks")
        case "namespaces" | "gvisor":
            raise UnsupportedPlatformError(
                f"this version has no {name} backend yet; namespaces-dev is the strongest",
                backend=name,
            )
        case _:
            return _provider(name, settings)


def _strongest(settings: ExecSettings) -> Executor:
    if not sys.platform.startswith("linux"):
        return _off(settings, f"no sandbox: there is none for {sys.platform}")
    from rookhold_exec import probe

    host = probe.host()
    if host.namespaces:
        missing = [fact.control for fact in host.facts if not fact.available]
        note = "the strongest sandbox that this host and this version offer"
        if missing:
            note += f" (without {', '.join(missing)})"
        return _namespaces_dev(settings, note)
    why = "; ".join(fact.why for fact in host.facts if fact.control == "user-namespace")
    return _off(settings, f"no sandbox: this host offers no namespaces ({why or 'unknown why'})")


def _namespaces_dev(settings: ExecSettings, note: str) -> Executor:
    if not sys.platform.startswith("linux"):
        raise UnsupportedPlatformError("namespaces exist on Linux only", backend="namespaces-dev")
    from rookhold_exec.backends.namespaces_dev import NamespacesDev

    return NamespacesDev(settings, note)


def _off(settings: ExecSettings, note: str) -> Executor:
    from rookhold_exec.backends.off import Off

    return Off(settings, note)


def _provider(name: str, settings: ExecSettings) -> Executor:
    """Return what an installed distribution provides under this exact name."""
    from importlib.metadata import entry_points  # slow to load, and seldom needed

    for found in entry_points(group=GROUP, name=name):
        factory = found.load()
        executor: Executor = factory(settings)
        return executor
    if not name:
        raise ExecutorUnavailableError("no backend was named")
    raise UnknownBackendError("no backend and no installed provider has this name")
