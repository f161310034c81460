"""An executor in use, and what it and its launcher hold when nothing runs."""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from faults.leftovers import descriptors, mounts, resident_kib, threads

from rookhold_exec.backends.launched import LaunchedExecutor

if TYPE_CHECKING:
    from hostile.leftovers import Before

    from rookhold_exec.testing import Harness


@dataclass(frozen=True)
class Held:
    """What one process holds; everything but the memory must be the same later."""

    descriptors: list[str]
    mounts: list[str]
    namespaces: list[str]
    threads: int
    resident_kib: int = field(compare=False)

    @classmethod
    def of(cls, pid: int) -> Held:
        inside = Path(f"/proc/{pid}/ns")
        return cls(
            descriptors=descriptors(pid),
            mounts=[line.split(" ", 3)[3] for line in mounts(str(pid))],
            namespaces=sorted(str(link.readlink()) for link in inside.iterdir()),
            threads=threads(pid),
            resident_kib=resident_kib(pid),
        )


@dataclass(frozen=True)
class Executor:
    """The harness of an open executor, with what was there before it."""

    harness: Harness
    before: Before

    @property
    def launcher(self) -> int:
        executor = self.harness.executor
        assert isinstance(executor, LaunchedExecutor)
        assert executor._launcher is not None
        return executor._launcher.pid

    def at_rest(self) -> tuple[Held, Held]:
        """Return what this process and the launcher hold, once nothing of a job is left."""
        assert self.before.left_between_jobs() == []
        gc.collect()
        return Held.of(os.getpid()), Held.of(self.launcher)
