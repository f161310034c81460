"""All control groups of one launcher: its own parent group in each hierarchy, and its jobs below.

Standard library only. Paths are used while a `Groups` is made, before the launcher leaves the
host's file system; afterwards everything is relative to descriptors.
"""

from __future__ import annotations

import os
from time import monotonic, sleep

from rookhold_exec.launcher import subtree
from rookhold_exec.launcher.descriptors import raise_descriptor
from rookhold_exec.launcher.group import (
    CPU,
    MEMORY,
    PIDS,
    V1_CONTROL,
    JobGroup,
    NoGroup,
    read_at,
    remove_directory,
    write_at,
)
from rookhold_exec.launcher.planned import PlannedGroup

Place = tuple[str, int, str]  # controller (or "v2"), version, a directory that may get a child

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_PREFIX = "rookhold-"
_SWEEP_SECONDS = 2.0
_SIGKILL = (
    9  # not from `signals`, which is of Linux: what looks for places is imported elsewhere too
)


class Groups:
    """The launcher's groups; `name` is `rookhold-<pid>-<start time>`, as `own_name` gives it."""

    def __init__(self, places: list[Place], name: str) -> None:
        self.name = name
        self._parents: list[tuple[str, int, int, int]] = []  # controller, version, above, own
        self._v2_controls: frozenset[str] = frozenset()
        for controller, version, directory in places:
            if version == 2:
                _prepare(directory)
            above = _open_high(directory)
            if version == 2:
                _enable(above)
            os.mkdir(name, 0o755, dir_fd=above)
            own = _open_high(name, above)
            self._parents.append((controller, version, above, own))
        taken = {V1_CONTROL[each[0]] for each in self._parents if each[1] == 1}
        for _, version, _, own in self._parents:
            if version == 2:
                self._v2_controls = frozenset(_enable(own) | {CPU}) - taken

    @property
    def controls(self) -> tuple[str, ...]:
        """What a job's groups will hold it to."""
        return tuple(
            sorted({V1_CONTROL[c] for c, v, _, _ in self._parents if v == 1} | self._v2_controls)
        )

    def sweep(self) -> int:
        """Remove what dead predecessors left, killing what still runs in it; return how many."""
        removed = 0
        for _, _, above, _ in self._parents:
            for name in os.listdir(above):
                if name.startswith(_PREFIX) and name != self.name and not _lives(name):
                    removed += _clear(above, name)
        return removed

    def plan(
        self,
        job: str,
        *,
        mem_bytes: int,
        pids: int,
        uid: int = -1,
        without: frozenset[str] = frozenset(),
    ) -> JobGroup | NoGroup:
        """Make the groups of one job if a process must be born in it, or leave that for later."""
        if any(version == 2 for _, version, _, _ in self._parents):
            return self.create(job, mem_bytes=mem_bytes, pids=pids, uid=uid, without=without)
        parents = {
            each: own for each, _, _, own in self._parents if V1_CONTROL[each] not in without
        }
        return PlannedGroup(_name(job), f"/{self.name}", parents, mem_bytes=mem_bytes, pids=pids)

    def create(
        self,
        job: str,
        *,
        mem_bytes: int,
        pids: int,
        uid: int = -1,
        without: frozenset[str] = frozenset(),
    ) -> JobGroup:
        """Make the groups of one job, limits set. Raises OSError, and then nothing is left.

        `uid` will own the `cgroup.procs` files through which a version 2 payload is born.
        `without` leaves controls out, by name; for tests of what a receipt then says.
        """
        group = JobGroup(_name(job), mem_bytes=mem_bytes, pids=pids)
        try:
            for controller, version, _, own in self._parents:
                if version == 2:
                    group.add_v2(own, f"/{self.name}", self._v2_controls - without, uid)
                elif V1_CONTROL[controller] not in without:
                    group.add_v1(controller, own, f"/{self.name}")
        except OSError:
            group.close()
            group.remove()
            raise
        return group

    def close(self) -> None:
        """Kill what is left in the launcher's own groups, remove them and forget them."""
        for _, _, above, own in self._parents:
            os.close(own)
            _clear(above, self.name)
            os.close(above)
        self._parents = []


def _prepare(directory: str) -> None:
    if root := subtree.prepare(directory):
        above = _open_high(root)
        try:
            _enable(above)
        finally:
            os.close(above)


def _open_high(path: str, at: int | None = None) -> int:
    """Open a directory as a descriptor of the launcher's own."""
    low = os.open(path, _DIRECTORY | os.O_CLOEXEC, dir_fd=at)
    try:
        return raise_descriptor(low)
    finally:
        os.close(low)


def _name(job: str) -> str:
    return f"job-{job}"


def own_name() -> str:
    """Return a name for this process's groups that no other process will ever have."""
    pid = os.getpid()
    return f"{_PREFIX}{pid}-{_start_time(pid)}"


def _start_time(pid: int) -> str:
    """Return when a process started, in clock ticks after boot, or "" if it is dead.

    A zombie is dead: where nobody reaps the orphan of a killed server, it stays one for ever.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    # The name in parentheses may hold anything; start time is the 20th field after it.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return "" if fields[0] in b"ZX" else fields[19].decode()


def _lives(name: str) -> bool:
    """Is the launcher that this group is named after still there?"""
    pid, _, start = name.removeprefix(_PREFIX).partition("-")
    return not (pid.isdigit() and start.isdigit()) or _start_time(int(pid)) == start


def _enable(directory: int) -> set[str]:
    """Hand the controllers of a version 2 group down to its children; return those that obey."""
    offered = read_at(directory, "cgroup.controllers").split()
    enabled = read_at(directory, "cgroup.subtree_control").split()
    controls = set()
    for controller, control in ((b"memory", MEMORY), (b"pids", PIDS)):
        if controller in offered and controller not in enabled:
            try:
                write_at(directory, "cgroup.subtree_control", f"+{controller.decode()}")
            except OSError:
                continue  # processes are in it, or it is not ours: its children lack this one
        if controller in offered:
            controls.add(control)
    return controls


def _clear(above: int, name: str) -> int:
    """Kill and remove one group with all below it; 1 if it is gone."""
    try:
        own = os.open(name, _DIRECTORY | os.O_CLOEXEC, dir_fd=above)
    except FileNotFoundError:  # another launcher swept it first
        return 0
    try:
        paths = _below(own)
        end = monotonic() + _SWEEP_SECONDS
        while _occupied(own, [*paths, "."]) and monotonic() < end:
            sleep(0.005)
        for path in paths:
            remove_directory(own, path)
    finally:
        os.close(own)
    return int(remove_directory(above, name))


def _below(directory: int) -> list[str]:
    """List the groups below a directory, deepest first. Ours are two levels deep."""
    found = []
    for name in os.listdir(directory):
        if name.startswith("job-"):
            found += [f"{name}/init", f"{name}/payload", name]
    return found


def _occupied(directory: int, paths: list[str]) -> bool:
    """Kill what is in these groups; False once there is nothing."""
    occupied = False
    for path in paths:
        try:
            pids = read_at(directory, f"{path}/cgroup.procs").split()
        except OSError:  # it is gone, or goes at this moment (ENODEV)
            continue
        for pid in pids:
            occupied = True
            if pid != b"0":  # 0: a process that this one cannot see, so not ours to kill
                _kill(int(pid))
    return occupied


def _kill(pid: int) -> None:
    try:
        os.kill(pid, _SIGKILL)
    except ProcessLookupError:
        return
