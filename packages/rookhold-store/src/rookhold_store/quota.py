"""How much may be retained: what is asked in the writer's transaction before a charge grows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rookhold_store.accounting import RESERVE_PENDING
from rookhold_store.errors import (
    GlobalQuotaError,
    InvalidOperationError,
    ReserveReachedError,
    StorageUnavailableError,
    TenantQuotaError,
)
from rookhold_store.reservations import Followed, Reservations
from rookhold_types.events import EventKind

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import apsw

    from rookhold_store.writer import Work

_LEDGER: Final = "SELECT tenant, reserved_bytes FROM job_storage_usage WHERE job_id = ?"
_CHARGED: Final = """
SELECT charged_bytes,
  coalesce((SELECT charged_bytes FROM tenant_storage_usage WHERE tenant = ?), 0)
FROM storage_usage_total
"""
# What is said about a run, in few words, and never by the job: it is kept over any quota.
_ABOUT_THE_RUN: Final = frozenset({EventKind.VIOLATION.value, EventKind.TRUNCATED.value})


class StorageLimits(Struct, frozen=True, kw_only=True):
    """The most that may be charged, overall and to one tenant, and the disk that is left free.

    In bytes. A free reserve of 0 turns the check of the disk off.
    """

    global_bytes: int
    tenant_bytes: int
    free_reserve_bytes: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.tenant_bytes <= self.global_bytes:
            raise InvalidOperationError("a tenant's quota is above 0 and at most the overall one")
        if self.free_reserve_bytes < 0:
            raise InvalidOperationError("the free reserve is negative")


def free_bytes(directory: Path) -> int:
    """Return what an ordinary account may still write on the file system of `directory`."""
    try:
        found = os.statvfs(directory)
    except OSError as exc:
        raise StorageUnavailableError("the file system does not tell its free space") from exc
    return found.f_bavail * found.f_frsize


def is_of_the_job(kinds: Iterable[str]) -> bool:
    """Whether a quota may refuse a batch of events of these kinds."""
    return any(kind not in _ABOUT_THE_RUN for kind in kinds)


class Quota:
    """The limits of one store. Without limits nothing is asked, nor is anything refused.

    Only new jobs and what jobs add are refused. The start and the end of a job, recovery, the
    outbox and opening never are: a charge may then stand above its limit until some is removed.
    """

    def __init__(self, limits: StorageLimits | None, directory: Path) -> None:
        self.limits = limits
        self._directory = directory
        checks_disk = limits is not None and limits.free_reserve_bytes > 0
        self._reservations = Reservations() if checks_disk else None
        self._free: int | None = None  # as found in the present transaction
        self._asking: apsw.Cursor  # kept: a new one for each question costs as much as the question

    def prepare(self, db: apsw.Connection) -> None:
        """Get the writer's connection ready, between transactions; once more for each new one."""
        self._asking = db.cursor()
        if self._reservations is not None:
            self._reservations.track(db)

    def followed(self, work: Work) -> Work:
        """Return the work as the writer is to run it."""
        return work if self._reservations is None else Followed(work, self._reservations)

    def committed(self) -> None:
        """Say that a transaction of the writer has ended, well or not."""
        if self._reservations is not None:
            self._reservations.committed()
            self._free = None

    def admit(self, tenant: str, charge: int) -> None:
        """Refuse a new job for the disk, its tenant, or all tenants together, in this order.

        What other jobs of the same commit retain is not on the disk yet, and not counted for it.
        """
        limits = self.limits
        if limits is None:
            return
        if self._reservations is not None:
            outstanding = self._reservations.outstanding
            self._check_disk(limits.free_reserve_bytes + outstanding + charge)
        self._hold(limits, tenant, charge)

    def check_growth(self, job_id: str, by: int) -> None:
        """Refuse what an unfinished job adds beyond its reserve, if a quota has no room for it."""
        if self.limits is not None and (ledger := self._ledger(job_id)) is not None:
            tenant, reserved = ledger
            more = by + max(RESERVE_PENDING, reserved - by) - reserved
            if more > 0:
                self._hold(self.limits, tenant, more)

    def check_ending(self, job_id: str, by: int) -> None:
        """Refuse an ending that comes with events if a quota has no room; without them it is taken.

        The reserve of an ended job is not eaten by what the ending adds.
        """
        if self.limits is not None and (ledger := self._ledger(job_id)) is not None:
            tenant, reserved = ledger
            more = by + RESERVE_PENDING - reserved
            if more > 0:
                self._hold(self.limits, tenant, more)

    def _ledger(self, job_id: str) -> tuple[str, int] | None:
        ledger: tuple[str, int] | None = self._asking.execute(_LEDGER, (job_id,)).get
        return ledger

    def _check_disk(self, needed: int) -> None:
        if self._free is None:
            self._free = free_bytes(self._directory)
        available = self._free
        if available < needed:
            raise ReserveReachedError(
                "the job would take disk that is to stay free",
                needed_bytes=needed,
                available_bytes=available,
            )

    def _hold(self, limits: StorageLimits, tenant: str, more: int) -> None:
        overall, own = self._asking.execute(_CHARGED, (tenant,)).get
        if own + more > limits.tenant_bytes:
            raise TenantQuotaError(
                "the tenant's storage quota has no room for it",
                quota_bytes=limits.tenant_bytes,
                charged_bytes=own,
                more_bytes=more,
            )
        if overall + more > limits.global_bytes:
            raise GlobalQuotaError(
                "the storage quota of all tenants together has no room for it",
                quota_bytes=limits.global_bytes,
                charged_bytes=overall,
                more_bytes=more,
            )
