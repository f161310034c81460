"""Writes a tar stream out as a root file system, keeping only what the layout keeps.

Ownership, modes and times become the same for everything: root (or this user), 0755 or 0644, the
epoch of the package list. So no setuid bit, capability or foreign owner can come through.
"""

from __future__ import annotations

import os
import stat
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from rookhold_exec.rootfs.errors import BuildFailedError
from rookhold_exec.rootfs.layout import kept

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK: Final = 1 << 20


class Tree:
    """A directory that is being filled; every path is relative to it and plain."""

    def __init__(self, root: str, epoch: int) -> None:
        self._root = root
        self._times = (epoch, epoch)
        self._directories: set[str] = {""}
        self._owner = (0, 0) if os.geteuid() == 0 else (os.geteuid(), os.getegid())

    def unpack(self, stream: BinaryIO) -> None:
        """Write out what the layout keeps of a tar stream; devices are never part of it."""
        try:
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    self._take(archive, member)
        except tarfile.TarError as error:
            raise BuildFailedError from error
        except FileExistsError as error:  # also a directory where the archive has put a link
            raise BuildFailedError("its archive has one path twice") from error

    def _take(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        path = _plain(member.name)
        if not path or not kept(path):
            return
        if member.isdir():
            self.directory(path)
        elif member.issym():
            self.link(path, member.linkname)
        elif member.islnk():
            self._hard_link(path, _plain(member.linkname))
        elif member.isreg():
            source = archive.extractfile(member)
            if source is not None:
                with source:
                    chunks = iter(lambda: source.read(_CHUNK), b"")
                    self.file(path, chunks, executable=bool(member.mode & 0o111))

    def directory(self, path: str) -> None:
        """Make a directory and those above it, unless they are there."""
        if path in self._directories:
            return
        self._make_parent(path)
        self._at(path).mkdir()
        self._directories.add(path)

    def file(self, path: str, chunks: Iterator[bytes], *, executable: bool = False) -> None:
        self._make_parent(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(self._at(path), flags, 0o600), "wb") as target:
            for chunk in chunks:
                target.write(chunk)
            os.fchmod(target.fileno(), 0o755 if executable else 0o644)

    def text(self, path: str, content: str) -> None:
        self.file(path, iter((content.encode("utf-8"),)))

    def link(self, path: str, target: str) -> None:
        self._make_parent(path)
        self._at(path).symlink_to(target)

    def _hard_link(self, path: str, source: str) -> None:
        self._make_parent(path)
        if source.rpartition("/")[0] not in self._directories:  # or it could be by way of a link
            raise BuildFailedError("it has a link to what is left out")
        try:
            os.link(self._at(source), self._at(path), follow_symlinks=False)
        except FileNotFoundError as error:  # to something that the layout drops
            raise BuildFailedError("it has a link to what is left out") from error

    def _at(self, path: str) -> Path:
        return Path(self._root, path)

    def _make_parent(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent not in self._directories:
            self.directory(parent)

    def settle(self) -> None:
        """Give everything its owner, mode and time; last, as writing changes times."""
        for folder, folders, names in os.walk(self._root, topdown=False):
            for name in (*names, *folders):
                self._settle(f"{folder}/{name}")
        self._settle(self._root)

    def _settle(self, path: str) -> None:
        os.chown(path, *self._owner, follow_symlinks=False)
        if stat.S_ISDIR(os.lstat(path).st_mode):
            Path(path).chmod(0o755)
        os.utime(path, self._times, follow_symlinks=False)


def _plain(name: str) -> str:
    """Return a member's path without its leading `./`; refuse one that leads elsewhere."""
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if ".." in parts or "\0" in name:
        raise BuildFailedError("its archive leads out of itself")
    return "/".join(parts)
