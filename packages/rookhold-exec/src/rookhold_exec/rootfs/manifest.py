"""The canonical manifest of a root file system: what is in it, in one order, in one spelling.

A line for each entry, by the byte order of its path: kind, mode, uid, gid, size, content, path.
Content is the SHA-256 of a file or the target of a link; what does not apply is `-`. Each extended
attribute follows as a line of its own. Nothing of it depends on time, place or the host's
file system; a tree with devices, sockets or fifos has no manifest.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rookhold_exec.rootfs.errors import (
    MissingError,
    NotDirectoryError,
    SymlinkError,
    UnreadableError,
)
from rookhold_exec.rootfs.tree import Entry, Walk, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER: Final = b"rookhold-rootfs-manifest 1\n"


def lines(entry: Entry) -> bytes:
    """Return what the manifest says about one entry."""
    kind, size, content = "link", str(entry.size), printable(entry.content)
    if entry.is_directory:
        kind, size, content = "dir", "-", "-"  # a directory's size is its file system's affair
    elif entry.is_file:
        kind = "file"
    path = printable(entry.path)
    said = [
        f"{kind} {entry.mode & 0o7777:04o} {entry.uid} {entry.gid} {size} {content} {path}\n",
        *(f"xattr {printable(os.fsencode(name))} {value.hex() or '-'} {path}\n"
          for name, value in entry.xattrs),
    ]  # fmt: skip
    return "".join(said).encode("ascii")


def open_tree(path: str) -> int:
    """Open the directory itself; a link in its last component is refused."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise MissingError from error
    except NotADirectoryError as error:
        raise (SymlinkError if Path(path).is_symlink() else NotDirectoryError) from error
    except (OSError, ValueError) as error:
        raise UnreadableError from error


def stream(path: str) -> Iterator[bytes]:
    """Yield the manifest piece by piece, without holding more than one directory's names."""
    root = open_tree(path)
    try:
        yield HEADER
        for entry in Walk(root):
            yield lines(entry)
    finally:
        os.close(root)


def manifest(path: str) -> bytes:
    """Return the whole manifest of the tree at `path`."""
    return b"".join(stream(path))


def digest(content: bytes) -> str:
    """Return the digest by which a manifest is pinned."""
    return hashlib.sha256(content).hexdigest()


def digest_of(path: str) -> str:
    """Return the digest of the manifest of the tree at `path`, without building the manifest."""
    digests = hashlib.sha256()
    for piece in stream(path):
        digests.update(piece)
    return digests.hexdigest()
