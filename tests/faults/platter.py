"""What a power cut leaves of a file, as Linux and a disk have it.

A write is on the disk once a sync has succeeded. After a sync that failed it may never be, although
it can still be read, and the next sync, which has nothing to do for it, succeeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE: Final = 4096


class Platter:
    """What of one file a power cut leaves, in pages; the caller holds the disk's lock."""

    def __init__(self) -> None:
        self.pages: dict[int, bytes] = {}
        self.size = 0
        self.dirty: set[int] = set()

    def wrote(self, offset: int, size: int) -> None:
        self.dirty.update(range(offset // PAGE, (offset + size - 1) // PAGE + 1))

    def truncated(self, size: int) -> None:
        self.size = min(self.size, size)
        gone = -(-size // PAGE)
        self.dirty = {page for page in self.dirty if page < gone}
        self.pages = {page: data for page, data in self.pages.items() if page < gone}

    def synced(self, read: Callable[[int], bytes], size: int) -> None:
        for page in self.dirty:
            self.pages[page] = read(page)
        self.dirty.clear()
        self.size = size

    def content(self) -> bytes:
        whole = bytearray(self.size)
        for page, data in self.pages.items():
            whole[page * PAGE : page * PAGE + len(data)] = data
        return bytes(whole[: self.size])
