"""The control groups of one job, made, read and removed through descriptors alone.

Standard library only: the launcher makes them, and the job's supervisor inherits the descriptors,
which work whatever its root is. Version 1: one directory a hierarchy, which a process joins by
writing `0` to `tasks`. Version 2: `job-ID/init` for the supervisor, without limits, and
`job-ID/payload` with them; processes are born there, since moving one takes ten milliseconds.
"""

from __future__ import annotations

import errno
import os

MEMORY, CPU, PIDS = "cgroup-memory", "cgroup-cpu", "cgroup-pids"
V1_CONTROL = {"memory": MEMORY, "cpuacct": CPU, "pids": PIDS}
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def write_at(at: int, name: str, text: str) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=at)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def read_at(at: int, name: str) -> bytes:
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=at)
    try:
        return os.read(fd, 65536)
    finally:
        os.close(fd)


def _text(fd: int) -> bytes:
    """Read a file from its start; nothing where there is no such file, or no longer."""
    try:
        return os.pread(fd, 4096, 0) if fd >= 0 else b""
    except OSError:  # ENODEV: the group was removed
        return b""


def _value(fd: int) -> int:
    """Read a file of one number; -1 where there is none, as for `max`."""
    text = _text(fd).strip()
    return int(text) if text.isdigit() else -1


def _keyed(fd: int, key: bytes) -> int:
    """Read the number beside `key` in a file of such lines; -1 where there is none."""
    for line in _text(fd).splitlines():
        name, _, number = line.partition(b" ")
        if name == key:
            return int(number)
    return -1


class JobGroup:
    """The groups of one job, as open descriptors; made by `Groups.create`.

    After a fork every method but `remove` and `close` works in the child too, whatever its root.
    """

    def __init__(self, name: str, *, mem_bytes: int, pids: int) -> None:
        self.name = name
        self.controls: tuple[str, ...] = ()
        self.fds: tuple[int, ...] = ()
        self.born_in = -1  # for CLONE_INTO_CGROUP: `payload`, or -1
        self.init_in = -1  # the same for the supervisor
        self._wanted = {MEMORY: mem_bytes, PIDS: pids}
        self._tails: dict[str, tuple[bytes, bytes]] = {}  # control: controller and end of its path
        self._join: list[int] = []
        self._limit = {MEMORY: -1, PIDS: -1}
        self._cpu = self._oom = self._now = self._peak = self._refused = self._kill = -1
        self._cpu_key = self._oom_at = b""
        self._made: list[tuple[int, str]] = []  # directories, parents first

    def make(self) -> None:
        """Make what is not there yet; these groups are."""

    def opened(self) -> JobGroup:
        """Return the groups as they are measured and ended."""
        return self

    def join(self) -> None:
        """Put the calling process into every version 1 group; a version 2 one it was born in."""
        for fd in self._join:
            os.write(fd, b"0")

    def seen(self, proc_cgroup: bytes) -> tuple[str, ...]:
        """Name the controls in force for the process whose /proc/PID/cgroup this is.

        That is: the process is in the group, and its limit (for CPU its counter) reads back.
        """
        at = {}
        for line in proc_cgroup.splitlines():
            _, controllers, path = line.split(b":", 2)
            for controller in controllers.split(b","):
                at[controller] = path
        return tuple(
            control
            for control, (controller, tail) in sorted(self._tails.items())
            if at.get(controller, b"").endswith(tail) and self._reads_back(control)
        )

    def _reads_back(self, control: str) -> bool:
        if control == CPU:
            return self.cpu_usec() >= 0
        return _value(self._limit[control]) == self._wanted[control]

    def cpu_usec(self) -> int:
        """Return the CPU time of all that ever was in the group, microseconds; -1 if unknown."""
        if self._cpu_key:
            return _keyed(self._cpu, self._cpu_key)
        nanoseconds = _value(self._cpu)
        return nanoseconds // 1000 if nanoseconds >= 0 else -1

    def memory_now(self) -> int:
        return _value(self._now)

    def memory_peak(self) -> int:
        return _value(self._peak)

    def oom_kills(self) -> int:
        """Return how many processes of the group the kernel killed at its limit.

        Version 2 also counts those that it killed because a group above, or the host, was full;
        only the other counter tells that this group had reached a limit of its own.
        """
        kills = max(_keyed(self._oom, b"oom_kill"), 0)
        if kills and self._oom_at and _keyed(self._oom, self._oom_at) <= 0:
            return 0
        return kills

    def pids_refused(self) -> int:
        """Return how often the process limit made a fork fail."""
        return max(_keyed(self._refused, b"max"), 0)

    def kill(self) -> None:
        """Kill what is in the version 2 payload group, at once; version 1 has no such file."""
        if self._kill >= 0:
            os.write(self._kill, b"1")

    def remove(self) -> bool:
        """Remove the directories; False while something is still in one of them."""
        self._made = [each for each in reversed(self._made) if not remove_directory(*each)][::-1]
        return not self._made

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds = ()

    def _open(self, at: int, name: str, flags: int = os.O_RDONLY) -> int:
        fd = os.open(name, flags | os.O_CLOEXEC, dir_fd=at)
        self.fds += (fd,)
        return fd

    def _open_if_there(self, at: int, name: str, flags: int = os.O_RDONLY) -> int:
        try:
            return self._open(at, name, flags)
        except FileNotFoundError:  # an older kernel
            return -1

    def _make(self, parent: int, path: str) -> None:
        os.mkdir(path, 0o755, dir_fd=parent)
        self._made.append((parent, path))

    def _add(self, control: str, controller: str, tail: str) -> None:
        self.controls = tuple(sorted((*self.controls, control)))
        self._tails[control] = (controller.encode(), tail.encode())

    def _set_limit(self, control: str, at: int, name: str) -> None:
        self._limit[control] = fd = self._open(at, name, os.O_RDWR)
        os.write(fd, b"%d" % self._wanted[control])

    def make_v1(self, controller: str, parent: int) -> None:
        """Make the group in one version 1 hierarchy, with its limit."""
        self._make(parent, self.name)
        if controller == "memory":
            limit = str(self._wanted[MEMORY])
            write_at(parent, f"{self.name}/memory.limit_in_bytes", limit)
            try:
                write_at(parent, f"{self.name}/memory.memsw.limit_in_bytes", limit)
            except FileNotFoundError:  # a kernel that does not count swap
                pass
        elif controller == "pids":
            write_at(parent, f"{self.name}/pids.max", str(self._wanted[PIDS]))

    def open_v1(self, controller: str, parent: int, tail: str) -> None:
        """Open what there is to read in that group."""
        name = self.name
        if controller == "memory":
            self._limit[MEMORY] = self._open(parent, f"{name}/memory.limit_in_bytes", os.O_RDWR)
            self._oom = self._open(parent, f"{name}/memory.oom_control")
            self._now = self._open(parent, f"{name}/memory.usage_in_bytes")
            self._peak = self._open(parent, f"{name}/memory.max_usage_in_bytes")
        elif controller == "pids":
            self._limit[PIDS] = self._open(parent, f"{name}/pids.max", os.O_RDWR)
            self._refused = self._open_if_there(parent, f"{name}/pids.events")
        else:
            self._cpu = self._open(parent, f"{name}/cpuacct.usage")
        self._add(V1_CONTROL[controller], controller, f"{tail}/{name}")

    def add_v1(self, controller: str, parent: int, tail: str) -> None:
        """Make the group in one version 1 hierarchy, to be joined by whoever inherits this."""
        self.make_v1(controller, parent)
        self._join.append(self._open(parent, f"{self.name}/tasks", os.O_WRONLY))
        self.open_v1(controller, parent, tail)

    def add_v2(self, parent: int, tail: str, controls: frozenset[str], uid: int) -> None:
        """Make `init` and `payload` in the unified hierarchy, for what no other hierarchy does."""
        self._make(parent, self.name)
        at = os.open(self.name, _DIRECTORY, dir_fd=parent)
        try:
            if handed := sorted(controls - {CPU}):  # all at once: each write is dear
                names = " ".join(f"+{control.removeprefix('cgroup-')}" for control in handed)
                write_at(at, "cgroup.subtree_control", names)
            self._make(parent, f"{self.name}/init")
            self._make(parent, f"{self.name}/payload")
            self.init_in = self._open(at, "init", _DIRECTORY)
            self.born_in = payload = self._open(at, "payload", _DIRECTORY)
            if uid >= 0:
                os.chown("cgroup.procs", uid, uid, dir_fd=at)
                os.chown("cgroup.procs", uid, uid, dir_fd=payload)
        finally:
            os.close(at)
        if MEMORY in controls:
            self._set_limit(MEMORY, payload, "memory.max")
            try:
                write_at(payload, "memory.swap.max", "0")
            except FileNotFoundError:  # a kernel without swap
                pass
            write_at(payload, "memory.oom.group", "1")
            self._oom, self._oom_at = self._open(payload, "memory.events"), b"oom"
            self._now = self._open(payload, "memory.current")
            self._peak = self._open_if_there(payload, "memory.peak")
        if PIDS in controls:
            self._set_limit(PIDS, payload, "pids.max")
            self._refused = self._open(payload, "pids.events")
        if CPU in controls:
            self._cpu, self._cpu_key = self._open(payload, "cpu.stat"), b"usage_usec"
        self._kill = self._open_if_there(payload, "cgroup.kill", os.O_WRONLY)
        for control in controls:
            self._add(control, "", f"{tail}/{self.name}/payload")


class NoGroup:
    """Stands where a job has no cgroup of its own."""

    controls: tuple[str, ...] = ()
    init_in = born_in = -1
    fds: tuple[int, ...] = ()

    def make(self) -> None:
        """Make none."""

    def opened(self) -> JobGroup | NoGroup:
        return self

    def join(self) -> None:
        """Join nothing."""

    def kill(self) -> None:
        """Kill nothing."""

    def close(self) -> None:
        """Close nothing."""

    def remove(self) -> bool:
        return True

    def seen(self, proc_cgroup: bytes) -> tuple[str, ...]:
        return ()

    def cpu_usec(self) -> int:
        return -1

    def memory_now(self) -> int:
        return -1

    def memory_peak(self) -> int:
        return -1

    def oom_kills(self) -> int:
        return 0

    def pids_refused(self) -> int:
        return 0


def remove_directory(parent: int, path: str) -> bool:
    """Remove one group; False while it is busy, as it is until its last process is reaped."""
    try:
        os.rmdir(path, dir_fd=parent)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.ENOTEMPTY):
            raise
        return False
    return True
