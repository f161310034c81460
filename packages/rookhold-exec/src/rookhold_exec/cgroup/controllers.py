"""The controllers of both versions of control groups, declared on cgroupspy's descriptors.

A controller is made for one directory, `MemoryV2(Group(path))`; cgroupspy's tree, which reads the
whole hierarchy, is never built. Reading or writing a file that the kernel lacks raises OSError.
"""

import os
from pathlib import Path

from cgroupspy.controllers import (  # type: ignore[import-untyped]
    Controller,
    CpuAcctController,
    MemoryController,
)
from cgroupspy.interfaces import FlagFile, IntegerFile  # type: ignore[import-untyped]

from rookhold_exec.cgroup.files import (
    CountersFile,
    LimitFile,
    NestedKeysFile,
    QuotaFile,
    WordsFile,
)

__all__ = [
    "CpuAcctV1",
    "CpuV2",
    "Group",
    "IoV2",
    "MemoryV1",
    "MemoryV2",
    "PidsV1",
    "PidsV2",
    "UnifiedController",
]


class Group:
    """One directory of a hierarchy, in the shape that cgroupspy's controllers want."""

    def __init__(self, path: Path | str) -> None:
        self.full_path = os.fsencode(path)  # bytes: cgroupspy joins it with encoded file names


class UnifiedController(Controller):  # type: ignore[misc]
    """What every version 2 group has."""

    controllers = WordsFile("cgroup.controllers", readonly=True)
    subtree_control = WordsFile("cgroup.subtree_control")
    events = CountersFile("cgroup.events")  # populated, frozen
    kill = FlagFile("cgroup.kill", writeonly=True)
    freeze = FlagFile("cgroup.freeze")


class MemoryV2(UnifiedController):
    """Memory: bytes; None is no limit."""

    max = LimitFile("memory.max")
    high = LimitFile("memory.high")
    swap_max = LimitFile("memory.swap.max")
    current = IntegerFile("memory.current", readonly=True)
    peak = IntegerFile("memory.peak", readonly=True)
    oom_group = FlagFile("memory.oom.group")
    memory_events = CountersFile("memory.events")  # low, high, max, oom, oom_kill, oom_group_kill
    stat = CountersFile("memory.stat")


class PidsV2(UnifiedController):
    """Processes and threads."""

    max = LimitFile("pids.max")
    current = IntegerFile("pids.current", readonly=True)
    pids_events = CountersFile("pids.events")  # max: forks refused


class CpuV2(UnifiedController):
    """CPU time; `stat` has its microseconds even where the controller is not enabled."""

    max = QuotaFile("cpu.max")
    stat = CountersFile("cpu.stat")


class IoV2(UnifiedController):
    """Bytes and operations by device."""

    max = NestedKeysFile("io.max")
    stat = NestedKeysFile("io.stat", readonly=True)


class MemoryV1(MemoryController):  # type: ignore[misc]
    """cgroupspy's, with its event counter: that one has three lines, not a flag."""

    oom_control = CountersFile("memory.oom_control")  # oom_kill_disable, under_oom, oom_kill


class CpuAcctV1(CpuAcctController):  # type: ignore[misc]
    """CPU time as cgroupspy has it, in nanoseconds."""


class PidsV1(Controller):  # type: ignore[misc]
    """Processes and threads; cgroupspy has no such controller."""

    max = LimitFile("pids.max")
    current = IntegerFile("pids.current", readonly=True)
    pids_events = CountersFile("pids.events")
