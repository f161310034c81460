"""An executor whose sandboxes can be weakened job by job, for the twins of the claims' tests.

It is installed as a provider, chosen by name like any other. A job whose source begins with the
line `# without: a, b` runs with the controls `a` and `b` switched off; everything else of the
server, the launcher and the sandbox is the real thing. No test but a twin runs on it.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from msgspec.structs import replace

import rookhold_exec
from rookhold_exec.backends.gvisor import Gvisor
from rookhold_exec.backends.namespaces import Namespaces
from rookhold_exec.backends.namespaces_dev import NamespacesDev
from rookhold_exec.backends.off import Off
from rookhold_types.isolation import BACKEND_FACTS, Control, IsolationClass
from rookhold_types.limits import LimitEnforcement

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rookhold_exec.backends.launched import LaunchedExecutor
    from rookhold_exec.executor import (
        ExecEvent,
        KillReason,
        Posture,
        Provenance,
        Report,
        Running,
        SandboxPlan,
    )
    from rookhold_exec.settings import ExecSettings

MARKER = b"# without: "
LONG_SECONDS = 120

_BACKENDS = {
    "off": Off,
    "namespaces-dev": NamespacesDev,
    "namespaces": Namespaces,
    "gvisor": Gvisor,
}

# A control that is no setting is switched off in a copy of the launcher: (file, text, new text).
_Edit = tuple[str, str, str]  # a file of the launcher, what it says, what it says instead
_EDITS: dict[str, tuple[_Edit, ...]] = {
    "host-directories": (
        (
            "root.py",
            '_BOUND = ("/usr", ',
            '_BOUND = ("/root", "/home", "/var", "/run", "/opt", "/srv", "/usr", ',
        ),
        (
            "gvisor/root.py",
            "mount(entry.path.encode(), f",
            'mount(b"/" + entry.name.encode() if entry.name in '
            '("root", "home", "var", "run", "opt", "srv") else entry.path.encode(), f',
        ),
    ),
    "no-network": (
        ("gvisor/config.json", ',\n      {"type": "network"}\n', "\n"),
        ("gvisor/setup.py", "--network=none", "--network=host"),
    ),
    "no-pid": (("gvisor/config.json", '{"type": "pid"},\n      ', ""),),
    "own-tmp": (
        ("gvisor/config.json", '"source": "/space/tmp"', '"source": "/tmp"'),
        (
            "gvisor/root.py",
            '    add_attributes(b"/", MOUNT_ATTR_RDONLY)\n',
            '    mount(b"shared", b"/tmp", b"tmpfs", MS_NOSUID, b"mode=1777")\n'
            '    add_attributes(b"/", MOUNT_ATTR_RDONLY)\n',
        ),
    ),
    "masks": (
        ("masks.py", "    for source, target in masks:\n", "    for source, target in ():\n"),
    ),
    "closed-descriptors": (
        (
            "confine.py",
            "        if supervisor.recv(1) != GO:\n",
            "        os.dup2(2, 500)\n        if supervisor.recv(1) != GO:\n",
        ),
    ),
    "no-links": (
        (
            "collect.py",
            "open_beneath(work, path.encode(), _FLAGS)",
            "os.open(path, os.O_RDONLY | os.O_NONBLOCK, dir_fd=work)",
        ),
    ),
    "read-only-usr": (
        (
            "root.py",
            "attributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV\n",
            "attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV\n",
        ),
    ),
    "ending": (
        ("family.py", "        job.group.kill()\n", "        return\n"),
        # the launcher's own look at what a killed supervisor has left
        ("family.py", "    while orphans := [", "    while orphans := [] and ["),
        (  # nor does the end of its supervisor end runsc
            "gvisor/supervisor.py",
            "        prctl(PR_SET_PDEATHSIG, SIGKILL)\n        if os.getppid()",
            "        if os.getppid()",
        ),
    ),
    "looking": (
        (
            "readback.py",
            "    seen.sort()\n    return seen\n",
            f"    return {sorted(control.value for control in Control)}\n",
        ),
    ),
}


# What is lost with an edit besides: the executor would not open without it.
_LOST_TOO = {"no-network": ("network-namespace", "user-namespace"), "own-tmp": ("workspace-quota",)}


class Careless:
    """A running job that nobody can cancel."""

    def __init__(self, running: Running) -> None:
        self._running = running

    def events(self) -> AsyncIterator[ExecEvent]:
        return self._running.events()

    def kill(self, reason: KillReason) -> None:
        """Hear it and do nothing."""

    async def wait(self) -> Report:
        return await self._running.wait()


def _leaking(executor: LaunchedExecutor, plan: SandboxPlan, argv: list[str]) -> dict[str, Any]:
    """Give the job the server's environment on top of its own."""
    message = type(executor)._message(executor, plan, argv)
    server = {os.fsencode(k): os.fsencode(v) for k, v in os.environ.items()}
    return {**message, "environment": {**server, **message["environment"]}}


def _boasting(
    executor: LaunchedExecutor, plan: SandboxPlan, controls: tuple[str, ...]
) -> Provenance:
    """Claim a class that was not earned."""
    seen = type(executor)._observed(executor, plan, controls)
    isolation_class = BACKEND_FACTS[executor.backend].isolation_class
    if isolation_class is IsolationClass.NONE:
        isolation_class = IsolationClass.LINUX_SHARED_KERNEL
    return replace(seen, isolation_class=isolation_class, isolated=True)


def _overstating(_: tuple[str, ...]) -> LimitEnforcement:
    return LimitEnforcement(wall=True, cpu=True, mem=True, pids=True, file=True)


class Weakened:
    """One real executor for each set of controls that is asked to be missing."""

    def __init__(self, backend: str, settings: ExecSettings) -> None:
        self._backend = backend
        self._settings = settings
        self._copies = tempfile.TemporaryDirectory()
        self._open: dict[frozenset[str], LaunchedExecutor] = {}
        self._opening = anyio.Lock()

    @property
    def posture(self) -> Posture:
        return self._open[frozenset()].posture

    async def open(self) -> None:
        await self._without(frozenset())

    async def close(self) -> None:
        for executor in self._open.values():
            await executor.close()
        self._copies.cleanup()

    async def start(self, plan: SandboxPlan) -> Running:
        first = plan.code.partition(b"\n")[0]
        names = frozenset[str]()
        if first.startswith(MARKER):
            names = frozenset(first.removeprefix(MARKER).decode().split(", "))
        executor = await self._without(names)
        if "wall" in names:
            plan = replace(plan, limits=replace(plan.limits, wall_seconds=LONG_SECONDS))
        running = await executor.start(plan)
        return Careless(running) if "cancel" in names else running

    async def _without(self, names: frozenset[str]) -> LaunchedExecutor:
        async with self._opening:
            if names not in self._open:
                executor = self._make(names)
                await executor.open()
                self._open[names] = executor
            return self._open[names]

    def _make(self, names: frozenset[str]) -> LaunchedExecutor:
        if "own-kernel" in names:
            # What is left without a kernel of its own: the host's. Such a twin does no harm.
            return Off(self._settings, "weakened on purpose, for a test")
        faults = names & {control.value for control in Control}
        if self._backend == "gvisor":
            faults |= {each for name in names for each in _LOST_TOO.get(name, ())}
        settings = replace(self._settings, faults=faults, surveyed=_surveyed())
        if edits := sorted(names & _EDITS.keys()):
            settings = replace(settings, launcher=self._copy(edits))
        executor = _BACKENDS[self._backend](settings, "weakened on purpose, for a test")
        lies: dict[str, tuple[str, Any]] = {
            "secrecy": ("_message", partial(_leaking, executor)),
            "modesty": ("_observed", partial(_boasting, executor)),
            "honest-limits": ("enforcement", _overstating),
        }
        for name, (method, lie) in lies.items():
            if name in names:
                setattr(executor, method, lie)
        return executor

    def _copy(self, edits: list[str]) -> tuple[str, ...]:
        """Return the launcher of a copy of rookhold_exec with these edits made."""
        home = Path(self._copies.name) / "+".join(edits)
        package = home / "rookhold_exec"
        program = package / "launcher" / "__main__.py"
        launcher = (sys.executable, "-I", "-S", str(program))
        if program.exists():
            return launcher
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(rookhold_exec.__file__).parent, package, ignore=ignored)
        for name, (file, text, changed) in ((n, edit) for n in edits for edit in _EDITS[n]):
            source = package / "launcher" / file
            before = source.read_text("utf-8")
            if before.count(text) != 1:
                raise ValueError(f"{file} has changed: the sabotage {name} no longer fits")
            source.write_text(before.replace(text, changed), "utf-8")
        return launcher


def _surveyed() -> dict[str, Any] | None:
    """Return what the tests have found out about this host already, where that takes seconds."""
    path = os.environ.get("CLAIMS_SURVEYED")
    if path is None:
        return None
    told: dict[str, Any] = pickle.loads(Path(path).read_bytes())
    return told


def namespaces_dev(settings: ExecSettings) -> Weakened:
    return Weakened("namespaces-dev", settings)


def namespaces(settings: ExecSettings) -> Weakened:
    return Weakened("namespaces", settings)


def gvisor(settings: ExecSettings) -> Weakened:
    return Weakened("gvisor", settings)


def off(settings: ExecSettings) -> Weakened:
    return Weakened("off", settings)
