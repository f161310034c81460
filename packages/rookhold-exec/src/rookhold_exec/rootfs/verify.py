"""Decides whether a directory may be the root of hostile jobs, and says what exactly it is."""

from __future__ import annotations

import hashlib
import os
import stat
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rookhold_exec.rootfs import packs
from rookhold_exec.rootfs.errors import (
    ChangedError,
    ChangingError,
    ForeignOwnerError,
    HostRootError,
    JobOwnedError,
    MissingError,
    MountPointError,
    NotAbsoluteError,
    NotDirectoryError,
    NotNormalisedError,
    PrivilegedFileError,
    SymlinkError,
    UnreadableError,
    UnsafeAncestorError,
    WritableError,
)
from rookhold_exec.rootfs.manifest import HEADER, lines, open_tree
from rookhold_exec.rootfs.tree import Entry, Walk, printable

if TYPE_CHECKING:
    from collections.abc import Collection

MOUNT_POINTS: Final = ("proc", "dev", "tmp", "work")

_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_PRIVILEGED: Final = stat.S_ISUID | stat.S_ISGID
_CAPABILITY: Final = "security.capability"


class Rootfs(Struct, frozen=True, kw_only=True):
    """A directory that was found fit; `device` and `inode` tell whether a descriptor is of it."""

    path: str
    digest: str
    packs: tuple[str, ...]
    device: int
    inode: int
    entries: int
    bytes: int


def verify(path: str, *, pinned: str | None = None, uids: Collection[int] = ()) -> Rootfs:
    """Return what is at `path`, or raise a RootfsError; `uids` are the accounts that jobs have.

    Reads every byte of it. Its contents are judged as they were read: what root does to it
    afterwards is root's to answer for, and nobody else may write to it.
    """
    check_place(path)
    return examine(path, pinned=pinned, uids=uids)


def examine(path: str, *, pinned: str | None = None, uids: Collection[int] = ()) -> Rootfs:
    """Judge the tree alone, wherever it is for now."""
    root = open_tree(path)
    try:
        status = os.fstat(root)
        walk, judge = Walk(root), _Judge(uids)
        whole, bare = hashlib.sha256(HEADER), hashlib.sha256(HEADER)
        recorded = None
        for entry in walk:
            judge.see(entry)
            said = lines(entry)
            whole.update(said)
            if entry.path == packs.RECORD_PATH and entry.is_file:
                recorded = entry
            else:
                bare.update(said)
        judge.check_mount_points()
        record = None if recorded is None else _read_record(root, recorded)
    finally:
        os.close(root)
    found = whole.hexdigest()
    if pinned is not None and pinned != found:
        raise ChangedError
    return Rootfs(
        path=path,
        digest=found,
        packs=packs.offered(record, bare.hexdigest()),
        device=status.st_dev,
        inode=status.st_ino,
        entries=walk.entries,
        bytes=walk.bytes,
    )


def check_place(path: str) -> None:
    """Refuse a path that somebody else could make lead to another directory, or that is odd."""
    if not path.startswith("/"):
        raise NotAbsoluteError
    if not path.strip("/"):
        raise HostRootError
    if os.path.normpath(path) != path or path.startswith("//"):
        raise NotNormalisedError
    ours = {0, os.geteuid()}
    parts = path.split("/")[1:]
    for depth in range(len(parts) + 1):
        status = _lstat("/" + "/".join(parts[:depth]))
        if stat.S_ISLNK(status.st_mode):
            raise SymlinkError
        if not stat.S_ISDIR(status.st_mode):
            raise NotDirectoryError
        if depth == len(parts):  # the tree's own entry is judged with the rest of it
            host = os.lstat("/")
            if (status.st_dev, status.st_ino) == (host.st_dev, host.st_ino):
                raise HostRootError
        elif status.st_uid not in ours or (
            # In a sticky one of root's, such as /tmp, others cannot move what is not theirs.
            status.st_mode & _BY_OTHERS
            and not (status.st_mode & stat.S_ISVTX and status.st_uid == 0)
        ):
            raise UnsafeAncestorError


def _lstat(path: str) -> os.stat_result:
    try:
        return os.lstat(path)
    except FileNotFoundError as error:
        raise MissingError from error
    except NotADirectoryError as error:
        raise NotDirectoryError from error
    except (OSError, ValueError) as error:
        raise UnreadableError from error


class _Judge:
    """The rules for what is inside, whoever built it."""

    def __init__(self, uids: Collection[int]) -> None:
        self._uids = uids
        self._ours = {0, os.geteuid()}
        self._missing = {b"/" + name.encode("ascii") for name in MOUNT_POINTS}

    def see(self, entry: Entry) -> None:
        if entry.uid in self._uids:
            raise JobOwnedError(printable(entry.path))
        if entry.uid not in self._ours:
            raise ForeignOwnerError(printable(entry.path))
        if entry.is_directory or entry.is_file:
            self._check_mode(entry)
        if any(name == _CAPABILITY for name, _ in entry.xattrs):
            raise PrivilegedFileError(printable(entry.path))
        if entry.is_directory:
            self._missing.discard(entry.path)

    def _check_mode(self, entry: Entry) -> None:
        # Every backend mounts it nosuid, so this is a second line: it keeps a mistake harmless.
        if entry.is_file and entry.mode & _PRIVILEGED:
            raise PrivilegedFileError(printable(entry.path))
        # An empty sticky directory is the /tmp of most systems; what others put there is refused.
        sticky = entry.is_directory and entry.empty and entry.mode & stat.S_ISVTX
        if entry.mode & _BY_OTHERS and not sticky:
            raise WritableError(printable(entry.path))

    def check_mount_points(self) -> None:
        if self._missing:
            raise MountPointError(printable(min(self._missing)))


def _read_record(root: int, entry: Entry) -> bytes | None:
    """Return the very bytes that the manifest covers; a record of unheard-of size is none."""
    if entry.size > packs.RECORD_BYTES_MAX:
        return None
    try:
        fd = os.open(packs.RECORD, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
        try:
            content = os.read(fd, packs.RECORD_BYTES_MAX + 1)
        finally:
            os.close(fd)
    except OSError as error:
        raise ChangingError(printable(entry.path)) from error
    if hashlib.sha256(content).hexdigest().encode("ascii") != entry.content:
        raise ChangingError(printable(entry.path))
    return content
