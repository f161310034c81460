"""Control groups as the server sees them: where they can be made, and their files as attributes.

What the launcher does with the groups of a job is in `rookhold_exec.launcher.group`.
"""

from rookhold_exec.cgroup.controllers import (
    CpuAcctV1,
    CpuV2,
    Group,
    IoV2,
    MemoryV1,
    MemoryV2,
    PidsV1,
    PidsV2,
    UnifiedController,
)
from rookhold_exec.cgroup.discovery import Finding, find, places

__all__ = [
    "CpuAcctV1",
    "CpuV2",
    "Finding",
    "Group",
    "IoV2",
    "MemoryV1",
    "MemoryV2",
    "PidsV1",
    "PidsV2",
    "UnifiedController",
    "find",
    "places",
]
