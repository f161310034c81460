"""What a verification reports: one place where the file is not what the store claims."""

from __future__ import annotations

from msgspec import Struct

FILE = "file"  # the place of a finding about pages rather than about a row


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that does not hold.

    `place` is `table.column`, a table, `schema.<object>` or `file`. `problem` is for people; it may
    hold numbers, digests and names of columns, never what a job printed or was given.
    """

    place: str
    problem: str
    job_id: str | None = None
    seq: int | None = None  # of the event
    tenant: str | None = None  # where a sum is a tenant's
    disk: bool = False  # it could not be read: the file may be sound, on a disk that is not
    kept: bool = False  # the store may be sound in itself, but differs from what was kept elsewhere

    def __str__(self) -> str:
        subject = [f"job {self.job_id}"] if self.job_id is not None else []
        subject += [f"event {self.seq}"] if self.seq is not None else []
        subject += [f"tenant {self.tenant}"] if self.tenant is not None else []
        return ": ".join([*([", ".join(subject)] if subject else []), self.place, self.problem])
