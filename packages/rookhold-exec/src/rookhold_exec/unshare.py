"""Namespaces from Python: the interface of python-unshare, and the clones that it lacks.

Standard library only, and few of it: the launcher lives on this module. `clone` and `clone3` are
raw system calls that bypass every fork handler, for a process that never had a second thread; all
calls keep the interpreter's lock (PyDLL), so there is none to repair in the child. Failures are
OSError.
"""

from __future__ import annotations

import ctypes
import os
import sys
from struct import pack_into

CLONE_NEWTIME = 0x00000080
CLONE_PIDFD = 0x00001000
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
CLONE_INTO_CGROUP = 0x200000000  # clone3 only: the child is born in the group of a descriptor
# What python-unshare also names.
CLONE_VM = 0x00000100
CLONE_FS = 0x00000200
CLONE_FILES = 0x00000400
CLONE_SIGHAND = 0x00000800
CLONE_PTRACE = 0x00002000
CLONE_VFORK = 0x00004000
CLONE_PARENT = 0x00008000
CLONE_THREAD = 0x00010000
CLONE_SYSVSEM = 0x00040000
CLONE_SETTLS = 0x00080000
CLONE_PARENT_SETTID = 0x00100000
CLONE_CHILD_CLEARTID = 0x00200000
CLONE_DETACHED = 0x00400000
CLONE_UNTRACED = 0x00800000
CLONE_CHILD_SETTID = 0x01000000
CLONE_IO = 0x80000000

_SIGCHLD = 17
_CLONE = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine, -1)
_CLONE3 = 435
_CLONE_ARGS = 88  # bytes of struct clone_args up to and with `cgroup` (Linux 5.7)

_libc = ctypes.PyDLL(None, use_errno=True)
_clone = _libc["syscall"]
_clone.argtypes = (ctypes.c_long,) * 6
_clone.restype = ctypes.c_long
_clone3 = _libc["syscall"]
_clone3.argtypes = (ctypes.c_long, ctypes.c_void_p, ctypes.c_long)
_clone3.restype = ctypes.c_long
_args = ctypes.create_string_buffer(_CLONE_ARGS)


def _failed() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


if sys.version_info >= (3, 12):
    from os import setns, unshare
else:
    _unshare = _libc["unshare"]
    _unshare.argtypes = (ctypes.c_int,)
    _setns = _libc["setns"]
    _setns.argtypes = (ctypes.c_int, ctypes.c_int)

    def unshare(flags: int) -> None:
        """Give this process namespaces of its own, a CLONE_NEW* flag each."""
        if _unshare(flags):
            raise _failed()

    def setns(fd: int, nstype: int = 0) -> None:
        """Enter the namespace of `fd`, or several with a pidfd; 0 allows any type."""
        if _setns(fd, nstype):
            raise _failed()


def clone(flags: int) -> int:
    """Fork this process with `flags`; return the child's pid, and 0 in the child.

    No new stack, SIGCHLD as exit signal. Flags that share memory or write to addresses (CLONE_VM,
    CLONE_THREAD, CLONE_SETTLS, CLONE_*TID, CLONE_PIDFD) have no meaning here.
    """
    if _CLONE < 0:
        raise OSError(38, os.strerror(38))
    # With no stack, thread pointer or addresses, the two machines' different orders are one.
    pid = int(_clone(_CLONE, flags | _SIGCHLD, 0, 0, 0, 0))
    if pid < 0:
        raise _failed()
    return pid


def clone3(flags: int, *, cgroup: int = -1) -> int:
    """Do the same by clone3; the child is born in `cgroup`, the descriptor of a v2 directory."""
    if cgroup >= 0:
        flags |= CLONE_INTO_CGROUP
    # In `struct clone_args` the first and fifth are the flags and the exit signal.
    pack_into("<11Q", _args, 0, flags, 0, 0, 0, _SIGCHLD, 0, 0, 0, 0, 0, max(cgroup, 0))
    pid = int(_clone3(_CLONE3, ctypes.addressof(_args), _CLONE_ARGS))
    if pid < 0:
        raise _failed()
    return pid
