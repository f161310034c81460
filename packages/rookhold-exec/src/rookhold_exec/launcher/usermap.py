"""A user namespace with one account in it."""

from __future__ import annotations

import os

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
