"""The system calls that Python 3.11 lacks, with their constants.

Argument types are prepared once, and PyDLL keeps the interpreter's lock: there is one thread, and
nothing to give it to. Numbers from 424 up are the same on both machines.
"""

from __future__ import annotations

import ctypes
import os
from struct import pack

_X86 = os.uname().machine == "x86_64"
_libc = ctypes.PyDLL(None, use_errno=True)
_long, _text = ctypes.c_long, ctypes.c_char_p


def _nr(x86: int, arm: int) -> int:
    return x86 if _X86 else arm


_MOUNT, _UMOUNT2, _PIVOT_ROOT = _nr(165, 40), _nr(166, 39), _nr(155, 41)
_KEYCTL = _nr(250, 219)
_CAPSET, _SIGNALFD4, _PRCTL, _SIGACTION = _nr(126, 91), _nr(289, 74), _nr(157, 167), _nr(13, 134)
_OPEN_TREE, _MOVE_MOUNT, _CLOSE_RANGE, _OPENAT2, _MOUNT_SETATTR = 428, 429, 436, 437, 442
_PIDFD_GETFD = 438


def _typed(*types: type) -> ctypes._NamedFuncPointer:
    function = _libc["syscall"]
    function.argtypes = (_long, *types)
    function.restype = _long
    return function


_longs = _typed(_long, _long, _long, _long, _long)
_short = _typed(_long, _long)
_mount = _typed(_text, _text, _text, ctypes.c_ulong, _text)
_two_texts = _typed(_text, _text)
_text_long = _typed(_text, _long)
_at_text = _typed(_long, _text, _long)
_at_two = _typed(_long, _text, _long, _text, _long)
_at_struct = _typed(_long, _text, _text, _long)
_at_flags_struct = _typed(_long, _text, _long, _text, _long)
_two_structs = _typed(_text, _text)
_signalfd = _typed(_long, _text, _long, _long)
_prctl_text = _typed(_long, _long, _text, _long, _long)
_sigaction = _typed(_long, _text, _text, _long)

AT_FDCWD = -100
AT_EMPTY_PATH, AT_RECURSIVE = 0x1000, 0x8000
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 1, 0o2000000
MOVE_MOUNT_F_EMPTY_PATH = 4
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC = 1, 2, 4, 8
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 4096
MS_REC, MS_PRIVATE = 16384, 1 << 18
MNT_DETACH = 2
RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 1, 2, 4, 8
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 36, 38, 2
CAP_DAC_READ_SEARCH, CAP_KILL, CAP_SYS_PTRACE = 2, 5, 19
SIGCHLD = 17
_OWN = pack("<Ii", 0x20080522, 0)  # for capset: version 3, this process


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int, data: bytes) -> None:
    _check(_mount(_MOUNT, source, target, kind, flags, data))


def umount_detached(target: bytes) -> None:
    _check(_text_long(_UMOUNT2, target, MNT_DETACH))


def pivot_root(new: bytes, old: bytes) -> None:
    _check(_two_texts(_PIVOT_ROOT, new, old))


def bind_read_only(source: bytes, target: bytes, attributes: int) -> None:
    """Bind `source` with all below it at `target`, every mount of it with `attributes` added."""
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE
    tree = int(_check(_at_text(_OPEN_TREE, AT_FDCWD, source, flags)))
    try:
        _set_attributes(tree, b"", AT_EMPTY_PATH | AT_RECURSIVE, attributes)
        _check(_at_two(_MOVE_MOUNT, tree, b"", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH))
    finally:
        os.close(tree)


def bind_alone(directory: int, target: bytes, attributes: int, without: int = 0) -> None:
    """Bind a directory that is open at `target`, without the mounts that lie below it.

    `without` names attributes that its own mount may have and this one has not.
    """
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH
    tree = int(_check(_at_text(_OPEN_TREE, directory, b"", flags)))
    try:
        _set_attributes(tree, b"", AT_EMPTY_PATH, attributes, without)
        _check(_at_two(_MOVE_MOUNT, tree, b"", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH))
    finally:
        os.close(tree)


def add_attributes(target: bytes, attributes: int) -> None:
    """Add attributes to the one mount at `target`."""
    _set_attributes(AT_FDCWD, target, 0, attributes)


def _set_attributes(fd: int, path: bytes, flags: int, attributes: int, without: int = 0) -> None:
    wanted = pack("<QQQQ", attributes, without, 0, 0)
    _check(_at_flags_struct(_MOUNT_SETATTR, fd, path, flags, wanted, len(wanted)))


def open_beneath(directory: int, path: bytes, flags: int) -> int:
    """Open `path` below a directory descriptor, through no link and across no mount."""
    resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV
    how = pack("<QQQ", flags | os.O_CLOEXEC, 0, resolve)
    return int(_check(_at_struct(_OPENAT2, directory, path, how, len(how))))


def open_plain(path: bytes, flags: int) -> int:
    """Open an absolute `path` through no link at all."""
    how = pack("<QQQ", flags | os.O_CLOEXEC, 0, RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS)
    return int(_check(_at_struct(_OPENAT2, AT_FDCWD, path, how, len(how))))


def close_from(first: int, *, on_exec: bool = False) -> None:
    """Close every descriptor from `first` up, or let the next exec do that."""
    _check(_longs(_CLOSE_RANGE, first, 0xFFFFFFFF, 4 if on_exec else 0, 0, 0))


def descriptor_of(process: int, number: int) -> int:
    """Return a descriptor of our own of what `number` is to the process of a pidfd; it closes."""
    return int(_check(_longs(_PIDFD_GETFD, process, number, 0, 0, 0)))


def prctl(option: int, value: int = 0, third: int = 0) -> None:
    _check(_longs(_PRCTL, option, value, third, 0, 0))


def drop_bounding_set(last: int) -> None:
    for capability in range(last + 1):
        _short(_PRCTL, PR_CAPBSET_DROP, capability)


def drop_capabilities(kept: tuple[int, ...] = ()) -> None:
    """Leave this process without capabilities but those kept; ambient ones go with them."""
    mask = sum(1 << capability for capability in kept) if kept else 0
    _check(_two_structs(_CAPSET, _OWN, pack("<III12x", mask, mask, 0)))


class Filter:
    """A seccomp filter, an array of eight-byte instructions, laid out as the kernel wants it."""

    __slots__ = ("_code", "_head")

    def __init__(self, program: bytes) -> None:
        self._code = ctypes.create_string_buffer(program, len(program))
        self._head = pack("@HxxxxxxP", len(program) // 8, ctypes.addressof(self._code))

    def install(self) -> None:
        """Put it on this process."""
        _check(_prctl_text(_PRCTL, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, self._head, 0, 0))


def leave_keyring() -> None:
    """Take an empty session keyring: jobs would inherit the server's, and with it its keys."""
    _longs(_KEYCTL, 1, 0, 0, 0, 0)  # a kernel without keyrings has none to leave


def child_events() -> int:
    """Return a descriptor that is readable when a child has ended; SIGCHLD must be blocked."""
    mask = (1 << (SIGCHLD - 1)).to_bytes(8, "little")
    return int(_check(_signalfd(_SIGNALFD4, -1, mask, 8, os.O_NONBLOCK | os.O_CLOEXEC)))


def reset_signal(number: int) -> None:
    """Set a signal to its default, those too that the C library keeps for itself."""
    _sigaction(_SIGACTION, number, bytes(32), None, 8)
