"""Walks a root file system in the order of its manifest, never through a link, within bounds."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rookhold_exec.rootfs import mounts
from rookhold_exec.rootfs.errors import (
    ChangingError,
    MountedInsideError,
    SpecialFileError,
    TooLargeError,
    UnreadableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES_MAX: Final = 1_000_000
DEPTH_MAX: Final = 64  # directories held open at a time
BYTES_MAX: Final = 16 << 30

_CHUNK: Final = 1 << 20
# Labels of this host's security policy are no part of what was reviewed.
_RECORDED_XATTRS: Final = ("security.capability", "system.posix_acl_", "user.")
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class Entry(Struct, frozen=True):
    """One file, directory or link; `content` is a file's SHA-256 or a link's target."""

    path: bytes  # from the root: b"/" itself, b"/etc/passwd"
    mode: int  # as stat has it, type included
    uid: int
    gid: int
    size: int
    content: bytes
    xattrs: tuple[tuple[str, bytes], ...]
    empty: bool  # a directory without entries

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)


def printable(path: bytes) -> str:
    """Return `path` without a byte that is not a visible ASCII character, `%` included.

    Reversible, so that no two paths look alike, whatever a hostile name holds.
    """
    if path.isascii() and b" " not in path and b"%" not in path:  # nearly all of them
        text = path.decode("ascii")
        if text.isprintable():
            return text
    return "".join(chr(b) if 0x21 <= b <= 0x7E and b != 0x25 else f"%{b:02X}" for b in path)


class Walk:
    """One pass over the tree below an open directory; counts what it has seen."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._device = os.fstat(root).st_dev
        self.entries = 0
        self.bytes = 0

    def __iter__(self) -> Iterator[Entry]:
        """Yield every entry by the byte order of its whole path; the tree itself comes first."""
        self._check_mounts()
        status = os.fstat(self._root)
        names = self._names(self._root, b"/")
        yield self._entry(b"/", status, b"", self._xattrs(self._root, b".", b"/"), not names)
        yield from self._below(self._root, b"/", names, 1)
        self._check_mounts()

    def _check_mounts(self) -> None:
        """Refuse what a bind mount shows here: jobs see what lies below it, on the same device."""
        with _Reading(b"/"):
            for mounted in mounts.below(self._root):
                raise MountedInsideError(printable(mounted))

    def _below(
        self, directory: int, prefix: bytes, names: list[bytes], depth: int
    ) -> Iterator[Entry]:
        if depth > DEPTH_MAX:
            raise TooLargeError(printable(prefix))
        # What is below a directory sorts as its name with a slash: after "a-b", unlike "a" itself.
        steps = [(name, False) for name in names]
        listed: dict[bytes, list[bytes]] = {}
        statuses: dict[bytes, os.stat_result] = {}
        for name in names:
            statuses[name] = self._stat(directory, name, prefix + name)
            if stat.S_ISDIR(statuses[name].st_mode):
                steps.append((name + b"/", True))
        steps.sort()
        for step, descend in steps:
            name = step[:-1] if descend else step
            path, status = prefix + name, statuses[name]
            if descend:
                child = self._open(directory, name, path, _DIRECTORY, status)
                try:
                    yield from self._below(child, path + b"/", listed.pop(name), depth + 1)
                finally:
                    os.close(child)
                continue
            content, empty = b"", False
            if stat.S_ISDIR(status.st_mode):
                if status.st_dev != self._device:
                    raise MountedInsideError(printable(path))
                child = self._open(directory, name, path, _DIRECTORY, status)
                try:
                    listed[name] = self._names(child, path)
                finally:
                    os.close(child)
                empty = not listed[name]
            elif stat.S_ISREG(status.st_mode):
                content = self._hash(directory, name, path, status)
            elif stat.S_ISLNK(status.st_mode):
                with _Reading(path):
                    content = os.readlink(name, dir_fd=directory)
            else:
                raise SpecialFileError(printable(path))
            yield self._entry(path, status, content, self._xattrs(directory, name, path), empty)

    def _entry(
        self,
        path: bytes,
        status: os.stat_result,
        content: bytes,
        xattrs: tuple[tuple[str, bytes], ...],
        empty: bool,
    ) -> Entry:
        return Entry(
            path, status.st_mode, status.st_uid, status.st_gid, status.st_size, content, xattrs,
            empty,
        )  # fmt: skip

    def _names(self, directory: int, path: bytes) -> list[bytes]:
        names: list[bytes] = []
        with _Reading(path), os.scandir(directory) as found:
            for item in found:
                self.entries += 1
                if self.entries > ENTRIES_MAX:
                    raise TooLargeError(printable(path))
                names.append(os.fsencode(item.name))
        return names

    def _stat(self, directory: int, name: bytes, path: bytes) -> os.stat_result:
        with _Reading(path):
            return os.stat(name, dir_fd=directory, follow_symlinks=False)

    def _open(
        self, directory: int, name: bytes, path: bytes, flags: int, seen: os.stat_result
    ) -> int:
        with _Reading(path):
            fd = os.open(name, flags, dir_fd=directory)
        now = os.fstat(fd)
        if (now.st_dev, now.st_ino) != (seen.st_dev, seen.st_ino):
            os.close(fd)
            raise ChangingError(printable(path))
        return fd

    def _hash(self, directory: int, name: bytes, path: bytes, seen: os.stat_result) -> bytes:
        self.bytes += seen.st_size
        if self.bytes > BYTES_MAX:  # before a byte of it is read: a sparse file costs nothing
            raise TooLargeError(printable(path))
        fd = self._open(directory, name, path, _FILE, seen)
        try:
            digest, left = hashlib.sha256(), seen.st_size
            with _Reading(path):
                while left > 0 and (chunk := os.read(fd, min(left, _CHUNK))):
                    digest.update(chunk)
                    left -= len(chunk)
                more = os.read(fd, 1)
            now = os.fstat(fd)
        finally:
            os.close(fd)
        if left or more or now.st_ctime_ns != seen.st_ctime_ns:
            raise ChangingError(printable(path))
        return digest.hexdigest().encode("ascii")

    def _xattrs(self, directory: int, name: bytes, path: bytes) -> tuple[tuple[str, bytes], ...]:
        # Only by this name can a link's own be read: its descriptor (O_PATH) gives none.
        place = b"/proc/self/fd/%d/%s" % (directory, name)
        with _Reading(path):
            try:
                found = os.listxattr(place, follow_symlinks=False)
            except OSError as error:
                if error.errno == errno.EOPNOTSUPP:
                    return ()
                raise
            return tuple(
                (attribute, os.getxattr(place, attribute, follow_symlinks=False))
                for attribute in sorted(found)
                if attribute.startswith(_RECORDED_XATTRS)
            )


class _Reading:
    """Turns a failure to read into a refusal that names the place inside the tree."""

    def __init__(self, path: bytes) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FileNotFoundError):
            raise ChangingError(printable(self._path)) from error
        if isinstance(error, OSError):
            raise UnreadableError(printable(self._path)) from error
