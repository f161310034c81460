"""Choosing the backend: by name, or the strongest that this host really offers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rookhold_exec.errors import (
    ExecutorUnavailableError,
    UnknownBackendError,
    UnsupportedPlatformError,
)
from rookhold_types.isolation import Backend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rookhold_exec.backends.launched import LaunchedExecutor
    from rookhold_exec.executor import Executor
    from rookhold_exec.settings import ExecSettings

GROUP = "rookhold.executors"
_ISOLATED = (Backend.GVISOR, Backend.NAMESPACES)

_ALIASES = {
    "none": "off",
    "naive": "off",
    "ns-dev": "namespaces-dev",
    str(Backend.NAMESPACES): "namespaces",
    str(Backend.GVISOR): "gvisor",
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
        case "namespaces":
            note = "a reviewed root and namespaces of this host, as ROOKHOLD_SANDBOX asks"
            return _namespaces(settings, note)
        case "gvisor":
            return _gvisor(settings, "gVisor, as ROOKHOLD_SANDBOX asks")
        case _:
            return _provider(name, settings)


async def open_chosen(name: str, executor: Executor, settings: ExecSettings) -> Executor:
    """Open what `choose_backend` returned for this name; return what is open then.

    What a host lacks shows at times only when a backend starts its first sandboxes. Then `auto`
    passes it over and takes the next, down to `namespaces-dev`: that nothing isolates at all must
    show before. A backend that was named is taken or refused.
    """
    failed: dict[Backend, str] = {}
    while True:
        try:
            await executor.open()
        except ExecutorUnavailableError as error:
            backend = getattr(executor, "backend", None)
            if full_name(name) != "auto" or backend not in _ISOLATED:
                raise
            failed[backend] = str(error)
            executor = _strongest(settings, failed)
        else:
            return executor


def _strongest(settings: ExecSettings, failed: Mapping[Backend, str] | None = None) -> Executor:
    """Take the first of the isolated backends that is complete, or say what each of them lacks.

    `failed` names those that did not open, and why.
    """
    lacking: list[str] = []
    failed = failed or {}
    for backend, build, wanted in (
        (Backend.GVISOR, _gvisor, "ROOKHOLD_GVISOR_RUNSC" if settings.runsc is None else ""),
        (Backend.NAMESPACES, _namespaces, "ROOKHOLD_ROOTFS" if settings.rootfs is None else ""),
    ):
        if wanted:
            lacking.append(f"{backend} is not configured ({wanted})")
            continue
        if backend in failed:
            lacking.append(_named(backend, failed[backend]))
            continue
        try:
            return _complete(build, settings, _because(lacking))
        except ExecutorUnavailableError as error:
            lacking.append(_named(backend, str(error)))
    if settings.production:
        raise ExecutorUnavailableError(
            f"no isolated backend is complete on this host: {'; '.join(lacking)}"
        )
    return _for_development(settings, lacking)


def _named(backend: Backend, why: str) -> str:
    return why if str(backend) in why else f"{backend}: {why}"


def _complete(
    build: Callable[[ExecSettings, str], LaunchedExecutor], settings: ExecSettings, note: str
) -> Executor:
    """Return the backend with its survey done, or raise ExecutorUnavailableError."""
    found = build(settings, note).survey()
    return build(replace(settings, surveyed={"note": note, "found": found}), note)


def _because(lacking: list[str]) -> str:
    note = "the strongest sandbox that this host offers"
    return f"{note} ({'; '.join(lacking)})" if lacking else note


def _for_development(settings: ExecSettings, lacking: list[str]) -> Executor:
    if not sys.platform.startswith("linux"):
        return _off(settings, f"no sandbox: there is none for {sys.platform}")
    from rookhold_exec import probe

    host = probe.host()
    if host.namespaces:
        less = {*probe.UNIFIED, "newuidmap"}  # of the isolated backends; told with them
        missing = [
            fact.control for fact in host.facts if not (fact.available or fact.control in less)
        ]
        without = [f"without {', '.join(missing)}"] if missing else []
        return _namespaces_dev(settings, _because([*without, *lacking]))
    why = "; ".join(fact.why for fact in host.facts if fact.control == "user-namespace")
    return _off(settings, f"no sandbox: this host offers no namespaces ({why or 'unknown why'})")


def _gvisor(settings: ExecSettings, note: str) -> LaunchedExecutor:
    from rookhold_exec.backends.gvisor import Gvisor

    return Gvisor(settings, note)


def _namespaces(settings: ExecSettings, note: str) -> LaunchedExecutor:
    from rookhold_exec.backends.namespaces import Namespaces, check_platform

    check_platform(Backend.NAMESPACES)
    return Namespaces(settings, note)


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
