"""What this computer can enforce: asked of its kernel, and tried with a real sandbox."""

from __future__ import annotations

import logging
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .extras import load

if TYPE_CHECKING:
    from collections.abc import Mapping

_WHAT = "looking at this computer"


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that a sandbox may be made of, and why it is not to be had if it is not."""

    control: str
    available: bool
    why: str


@dataclass(frozen=True, slots=True)
class Option:
    """One backend, the strongest first; `why` says what is missing for it and how to get that."""

    backend: str
    isolation_class: str
    available: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What was found. `posture` was tried with every interpreter, `failure` says why it was not."""

    facts: tuple[Fact, ...]
    options: tuple[Option, ...]
    asked_for: str
    posture: Any | None
    failure: str | None

    @property
    def sandboxed(self) -> bool:
        return self.posture is not None and self.posture.backend != "off"


def facts() -> tuple[Fact, ...]:
    """Ask the kernel; starts short processes, but no job."""
    probe = load("rookhold_exec.probe", what=_WHAT, extra="server")
    return tuple(Fact(fact.control, fact.available, fact.why or "") for fact in probe.host().facts)


def look(environ: Mapping[str, str]) -> Host:
    """Choose the backend as a gateway with these variables would, and start every interpreter."""
    errors = load("rookhold_types.errors", what=_WHAT, extra="server")
    execution = load("rookhold_server.config.execution", what=_WHAT, extra="server")
    asked_for = environ.get("ROOKHOLD_SANDBOX") or "auto"
    found = facts()
    options: tuple[Option, ...] = ()
    posture = failure = None
    jobs_root = Path(tempfile.mkdtemp(prefix="rookhold-check-")).resolve()
    try:
        name, settings = execution.trial_settings(environ, str(jobs_root))
        options = _options(settings)
        posture = _try(name, settings)
    except errors.RookholdError as exc:
        failure = f"{exc} ({exc.code})"
    finally:
        shutil.rmtree(jobs_root, ignore_errors=True)
    return Host(facts=found, options=options, asked_for=asked_for, posture=posture, failure=failure)


def _options(settings: Any) -> tuple[Option, ...]:
    module = load("rookhold_exec.options", what=_WHAT, extra="server")
    return tuple(
        Option(each.backend, each.isolation_class, each.available, each.why)
        for each in module.options(settings)
    )


def _try(name: str, settings: Any) -> Any:
    anyio = load("anyio", what=_WHAT, extra="server")
    select = load("rookhold_exec.select", what=_WHAT, extra="server")
    # What it logs about missing interpreters, the report says better.
    logging.getLogger("rookhold_exec").setLevel(logging.CRITICAL)
    chosen = select.choose_backend(name, settings)

    async def open_and_close() -> Any:
        executor = await select.open_chosen(name, chosen, settings)
        try:
            return executor.posture
        finally:
            await executor.close()

    return anyio.run(open_and_close)
