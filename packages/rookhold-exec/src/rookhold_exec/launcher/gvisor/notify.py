"""Hearing of what happens to a file, from the kernel: inotify."""

from __future__ import annotations

import ctypes
import os
from struct import calcsize, unpack_from

IN_MODIFY, IN_OPEN = 0x2, 0x20
_HEAD = "iIII"
_SIZE = calcsize(_HEAD)

_libc = ctypes.PyDLL(None, use_errno=True)
_init = _libc.inotify_init1
_init.argtypes = (ctypes.c_int,)
_add = _libc.inotify_add_watch
_add.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)


class Notices:
    """One queue; `fd` is readable when something is in it."""

    __slots__ = ("fd",)

    def __init__(self) -> None:
        self.fd: int = _init(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "inotify")

    def watch(self, path: str, mask: int) -> int:
        """Return the number under which this file or directory will be reported."""
        number: int = _add(self.fd, path.encode(), mask)
        if number < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        return number

    def take(self) -> set[int]:
        """Return the numbers of those that something happened to since the last time."""
        seen: set[int] = set()
        while True:
            try:
                data = os.read(self.fd, 4096)
            except BlockingIOError:
                return seen
            at = 0
            while at < len(data):
                number, _, _, length = unpack_from(_HEAD, data, at)
                seen.add(number)
                at += _SIZE + length
