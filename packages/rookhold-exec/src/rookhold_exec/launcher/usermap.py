"""A user namespace: with one account in it, or with a range of uids that the system set aside."""

from __future__ import annotations

import os
from errno import EPERM

from rookhold_exec.unshare import CLONE_NEWUSER, unshare


def enter(inside: int, *, uid: int, gid: int, flags: int = 0) -> None:
    """Enter a new one, with `flags` for others, in which `inside` stands for these ids outside.

    Supplementary groups cannot be changed in it: otherwise the kernel takes no map of groups from a
    process that is not privileged outside.
    """
    unshare(CLONE_NEWUSER | flags)
    for name, text in (
        ("uid_map", b"%d %d 1" % (inside, uid)),
        ("setgroups", b"deny"),
        ("gid_map", b"%d %d 1" % (inside, gid)),
    ):
        fd = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text)
        finally:
            os.close(fd)


def enter_range(flags: int, uid: int, gid: int, count: int) -> None:
    """Enter a new one in which we are 0, and `count` ids from `uid` and `gid` on are 1 and up.

    Only the system's own newuidmap and newgidmap may write such maps, from outside and after the
    namespace is there: a child of ours, who stays outside, has them do it.
    """
    process, own = os.getpid(), (os.geteuid(), os.getegid())
    entered, told = os.pipe()
    helper = os.fork()
    if helper == 0:
        try:
            os.close(told)
            if os.read(entered, 1) and _mapped(process, own, (uid, gid), count):
                os._exit(0)
        finally:
            os._exit(1)
    os.close(entered)
    try:
        unshare(CLONE_NEWUSER | flags)
        os.write(told, b"1")
    finally:
        os.close(told)
        _, status = os.waitpid(helper, 0)
    if status:
        raise OSError(EPERM, "newuidmap or newgidmap refused")


def _mapped(process: int, own: tuple[int, int], first: tuple[int, int], count: int) -> bool:
    for program, outside, start in zip(("newuidmap", "newgidmap"), own, first, strict=True):
        # Itself as 0; then the range, from 1 on.
        numbers = (process, 0, outside, 1, 1, start, count)
        argv = [program, *(str(number) for number in numbers)]
        if os.spawnvp(os.P_WAIT, program, argv):
            return False
    return True
