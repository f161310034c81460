"""What an earlier process left in the write-ahead log is made durable before anything follows it.

After a sync that failed, Linux shows what was written and takes it for written, although the disk
may never get it, and the next sync says that all is well. As long as the process lives, SQLite
writes that part of the log anew. If it dies first, the next one reads the log as it is shown,
believes it, and appends: a lost supply would then break the log in the middle, and take with it
what was appended, synced and acknowledged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import apsw

if TYPE_CHECKING:
    from apsw import VFSFile

CHUNK: Final = 64 * 1024  # SQLite takes no more than 128 KiB at once
_FLAGS: Final = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW


def make_durable(db: apsw.Connection) -> None:
    """Write the whole log again, byte for byte where it was, and sync it; a read of `db` opened it.

    The write lock is held meanwhile, so that nobody appends. Costs nothing after an orderly end,
    which leaves no log.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        log = apsw.VFSFile("", db.filename_wal, [_FLAGS, 0])
        try:
            _rewrite(log)
        finally:
            log.xClose()
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _rewrite(log: VFSFile) -> None:
    size = log.xFileSize()
    for offset in range(0, size, CHUNK):
        log.xWrite(log.xRead(min(CHUNK, size - offset), offset), offset)
    if size:
        log.xSync(apsw.SQLITE_SYNC_FULL)
