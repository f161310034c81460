"""Every backend of this wheel on this host: whether it can be had, else what is missing for it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from msgspec import Struct

from rookhold_exec.backends.launched import LaunchedExecutor
from rookhold_exec.errors import ExecutorUnavailableError
from rookhold_exec.select import choose_backend
from rookhold_types.isolation import BACKEND_FACTS, Backend

if TYPE_CHECKING:
    from rookhold_exec.settings import ExecSettings


class Option(Struct, frozen=True, kw_only=True):
    """One backend; `why` says what is missing and how to get it, and is empty if nothing is."""

    backend: str
    isolation_class: str
    available: bool
    why: str


def options(settings: ExecSettings) -> tuple[Option, ...]:
    """Look at each as its own start would, the strongest first. Never raises for what is missing.

    A root file system is read from end to end for it; nothing is started that outlives the call.
    """
    return (
        _surveyed(Backend.GVISOR, settings),
        _surveyed(Backend.NAMESPACES, settings),
        _option(Backend.NAMESPACES_DEV, _without_namespaces()),
        _option(Backend.OFF, ""),
    )


def _surveyed(backend: Backend, settings: ExecSettings) -> Option:
    try:
        executor = choose_backend(str(backend), settings)
        if isinstance(executor, LaunchedExecutor):
            executor.survey()
    except ExecutorUnavailableError as error:
        return _option(backend, str(error).removeprefix(f"{backend} lacks here: "))
    return _option(backend, "")


def _without_namespaces() -> str:
    if not sys.platform.startswith("linux"):
        return f"namespaces exist on Linux only, and this is {sys.platform}"
    from rookhold_exec import probe

    host = probe.host()
    if host.namespaces:
        return ""
    lacking = [fact for fact in host.facts if fact.control in probe.NAMESPACES]
    return "; ".join(f"{fact.control} ({fact.why})" for fact in lacking if not fact.available)


def _option(backend: Backend, why: str) -> Option:
    return Option(
        backend=str(backend),
        isolation_class=str(BACKEND_FACTS[backend].isolation_class),
        available=not why,
        why=why,
    )
