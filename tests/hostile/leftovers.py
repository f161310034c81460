"""What an executor under attack may not leave behind, on the host and in its own process."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from faults.leftovers import descriptors, mounts
from faults.victims import children, family

from rookhold_exec.cgroup.discovery import places

if TYPE_CHECKING:
    from collections.abc import Callable

SETTLING_SECONDS = 20.0


class Before:
    """What there was before the executor was opened; asks afterwards what has been added."""

    def __init__(self, jobs_root: Path, uids: range) -> None:
        self._jobs_root = jobs_root
        self._uids = uids
        self._mounts = mounts("self")
        self._descriptors = Counter(descriptors(os.getpid()))
        self._children = set(children(os.getpid()))
        self._groups = _groups()
        self._idle: Counter[str] | None = None

    def left_between_jobs(self) -> list[str]:
        """Return what is there although no job runs, the executor's own standing parts apart."""
        return _settled(self._between_jobs)

    def left_after_close(self) -> list[str]:
        """Return what is there although the executor was closed."""
        return _settled(self._after_close)

    def _anywhere(self) -> list[str]:
        found = [f"process {pid} of a job's uid" for pid in _of_uids(self._uids)]
        found += [f"keys of a job: {line}" for line in _keys_of(self._uids)]
        added = set(mounts("self")) - set(self._mounts)
        found += [f"mount {line}" for line in sorted(added) if self._may_be_ours(line)]
        return found + [f"directory {path.name}" for path in self._jobs_root.iterdir()]

    def _between_jobs(self) -> list[str]:
        found = self._anywhere()
        for launcher in self._new_children():
            found += [f"process {pid} below the launcher" for pid in family(launcher)[1:]]
            has = Counter(f"mount {line.split(' ', 3)[3]}" for line in mounts(str(launcher)))
            has.update(f"descriptor {target}" for target in descriptors(launcher))
            self._idle = self._idle or has
            found += (has - self._idle).elements()
            # By the launcher's name: other executors may run on this host at the same time.
            for group in _groups() - self._groups:
                if group.name.startswith(f"rookhold-{launcher}-"):
                    found += [f"group {below}" for below in group.glob("job-*")]
        return found

    def _after_close(self) -> list[str]:
        found = self._anywhere()
        found += [f"child {pid}" for pid in self._new_children() if not _is_dead(pid)]
        found += [f"group {group}" for group in _groups() - self._groups if not _lives(group)]
        added = Counter(descriptors(os.getpid())) - self._descriptors
        return found + [f"descriptor {target}" for target in added.elements()]

    def _may_be_ours(self, mounted: str) -> bool:
        """Other programs mount too; ours would be here, or below where jobs have theirs."""
        at, source = mounted.split(" ")[4], mounted.partition(" - ")[2].split(" ")[1]
        below = at.startswith((str(self._jobs_root), "/work", "/proc", "/dev", "/tmp/rookhold"))
        return below or at in {"/", "/tmp"} or source in {"job", "root"}

    def _new_children(self) -> set[int]:
        return set(children(os.getpid())) - self._children


def _settled(look: Callable[[], list[str]]) -> list[str]:
    """Ask until there is nothing: what the kernel takes away by itself needs a moment."""
    until = time.monotonic() + SETTLING_SECONDS
    while (found := look()) and time.monotonic() < until:
        time.sleep(0.1)
    return found


def _is_dead(pid: int) -> bool:
    """Say whether only a record is left, or not even that.

    This process adopts the orphans of what it starts, and nobody here collects them.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def _groups() -> set[Path]:
    directories = {directory for _, _, directory in places()}
    return {path for each in directories for path in Path(each).glob("rookhold-*")}


def _lives(group: Path) -> bool:
    """Say whether the launcher that a group is named after runs; then it is somebody else's."""
    return Path(f"/proc/{group.name.split('-')[1]}").exists()


def _of_uids(uids: range) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.stat().st_uid in uids:
                found.append(int(entry.name))
        except OSError:
            continue  # it has ended
    return found


def _keys_of(uids: range) -> list[str]:
    """Return the lines of the accounts that have keys or keyrings in the kernel."""
    lines = Path("/proc/key-users").read_text("ascii").splitlines()
    return [line for line in lines if int(line.split(":")[0]) in uids]
