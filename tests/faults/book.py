"""What the database says while a server runs, read from outside as fast as it can be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
from invariants import TERMINAL_NAMES

if TYPE_CHECKING:
    from pathlib import Path

_OPEN = "status NOT IN ({})".format(", ".join(f"'{name}'" for name in sorted(TERMINAL_NAMES)))


class Book:
    """A read-only connection of its own; for one thread."""

    def __init__(self, database: Path) -> None:
        self.db = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
        self.db.set_busy_timeout(5000)

    def __enter__(self) -> Book:
        return self

    def __exit__(self, *_: object) -> None:
        self.db.close()

    def job_ids(self) -> list[str]:
        return [row[0] for row in self.db.execute("SELECT job_id FROM jobs ORDER BY job_id")]

    def open_jobs(self) -> list[str]:
        return [row[0] for row in self.db.execute(f"SELECT job_id FROM jobs WHERE {_OPEN}")]

    def count_open(self) -> int:
        return int(self.db.execute(f"SELECT count(*) FROM jobs WHERE {_OPEN}").get)

    def count_running(self) -> int:
        return int(self.db.execute("SELECT count(*) FROM jobs WHERE status = 'running'").get)

    def status(self, job_id: str) -> str | None:
        row = self.db.execute("SELECT status FROM jobs WHERE job_id = ?", (job_id,)).fetchone()
        return None if row is None else str(row[0])

    def over(self, job_id: str) -> bool:
        return self.status(job_id) in TERMINAL_NAMES

    def events(self, job_id: str) -> int:
        text = "SELECT count(*) FROM events WHERE job_id = ?"
        return int(self.db.execute(text, (job_id,)).get)

    def kinds(self, job_id: str) -> list[str]:
        text = "SELECT kind FROM events WHERE job_id = ? ORDER BY seq"
        return [row[0] for row in self.db.execute(text, (job_id,))]

    def unsigned(self) -> list[str]:
        """Return the jobs that are over and still wait for their signature."""
        text = "SELECT job_id FROM attestation_outbox WHERE failed_at_ms IS NULL"
        return [row[0] for row in self.db.execute(text)]

    def waits_for_signature(self, job_id: str) -> bool:
        text = "SELECT 1 FROM attestation_outbox WHERE failed_at_ms IS NULL AND job_id = ?"
        return self.db.execute(text, (job_id,)).fetchone() is not None

    def receipt(self, job_id: str) -> str | None:
        text = "SELECT receipt_json FROM jobs WHERE job_id = ?"
        value = self.db.execute(text, (job_id,)).get
        return None if value is None else str(value)

    def attestation(self, job_id: str) -> tuple[bytes, bytes] | None:
        """Return the stored envelope and artifact."""
        text = "SELECT envelope_json, result_artifact FROM job_attestations WHERE job_id = ?"
        row = self.db.execute(text, (job_id,)).fetchone()
        return None if row is None else (bytes(row[0]), bytes(row[1]))
