"""The version 2 group in which a launcher makes its own: never the root group itself.

Version 2 hands controllers down only from a group without processes. So below the root group one
is made, and a group that was delegated to us as a whole is first emptied into a leaf of its own:
server and launcher go there, with whatever else was started in it.

Standard library only: the launcher does this, and discovery asks whether it could.
"""

from __future__ import annotations

import os

OWN = "rookhold"  # below the root group; it stays, so that several servers can share it
LEAF = "server"

_MARKS = ("user.delegate", "trusted.delegate")  # set by systemd on a unit's group
_ROUNDS = 20  # what is being moved may fork meanwhile


def is_root_group(directory: str) -> bool:
    """Say whether a group is the root of its hierarchy, which has no type."""
    return not os.path.exists(f"{directory}/cgroup.type")


def is_delegated(directory: str, own: str) -> bool:
    """Say whether all that runs in a group is ours to move; `own` is this process's group.

    So it is where systemd says so, and in a container that sees its group as the root of all.
    """
    for mark in _MARKS:
        try:
            if os.getxattr(directory, mark) == b"1":
                return True
        except OSError:
            continue
    return own == "/" and os.path.ismount(directory) and not is_root_group(directory)


def below_root(directory: str) -> str:
    """Return the group to use where discovery would use the root group."""
    return f"{directory}/{OWN}"


def prepare(directory: str) -> str:
    """Make the group if it is the one below the root group, or empty it if it was delegated.

    Returns the root group in the first case, which has to hand its controllers down to ours.
    """
    above, _, name = directory.rpartition("/")
    if name == OWN and is_root_group(above):
        try:
            os.mkdir(directory, 0o755)
        except FileExistsError:
            pass
        return above
    if is_delegated(directory, _own_group()):
        _empty(directory)
    return ""


def _empty(directory: str) -> None:
    """Move every process of a group into its leaf, as far as the kernel lets us."""
    for _ in range(_ROUNDS):
        with open(f"{directory}/cgroup.procs", "rb") as text:
            pids = text.read().split()
        if not pids:
            return
        try:
            os.mkdir(f"{directory}/{LEAF}", 0o755)
        except FileExistsError:
            pass
        for pid in pids:
            _move(pid, f"{directory}/{LEAF}")


def _move(pid: bytes, group: str) -> None:
    fd = os.open(f"{group}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, pid)
    except OSError:  # it has ended; one that cannot be moved shows by what is then lacking
        return
    finally:
        os.close(fd)


def _own_group() -> str:
    with open("/proc/self/cgroup", "rb") as text:
        for line in text:
            if line.startswith(b"0::"):
                return os.fsdecode(line[3:].rstrip(b"\n"))
    return ""
