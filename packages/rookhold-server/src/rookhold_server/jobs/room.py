"""No room for a job: told to its tenant with what to do, to the operator with the numbers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rookhold_server.refusal import Refusal
from rookhold_store import (
    GlobalQuotaError,
    ReserveReachedError,
    StorageFullError,
    TenantQuotaError,
)
from rookhold_store.accounting import RESERVE_ACCEPTED
from rookhold_store.quota import free_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from rookhold_server.metrics.recorder import Recorder
    from rookhold_store import StorageLimits

log = logging.getLogger(__name__)

_MIB: Final = 1024 * 1024
_WHAT_TO_DO: Final = "free disk, or lower ROOKHOLD_STORAGE_FREE_RESERVE_MB"


def no_room(error: Exception) -> Refusal | None:
    """The answer for a job that the store has no room for; None for any other failure.

    A tenant learns its own figures. Those of the disk and of all tenants are the operator's.
    """
    match error:
        case TenantQuotaError(detail=figures):
            text = (
                f"Your jobs are charged {_mib(figures['charged_bytes'])} of your"
                f" {_mib(figures['quota_bytes'])} of storage, and this one would be charged"
                f" {_mib(figures['more_bytes'])}, most of it only until it has ended."
                " Wait for your running jobs to end, or for old ones to be removed by age."
            )
        case GlobalQuotaError():
            text = "The jobs of all tenants together use up the storage of this server."
        case ReserveReachedError():
            text = (
                "The job would take disk that this server keeps free."
                f" Its operator has to {_WHAT_TO_DO}."
            )
        case StorageFullError():
            text = "The disk of this server is full. Its operator has to free some."
        case _:
            return None
    return Refusal(str(error.code), text)


def _mib(count: int | str) -> str:
    return f"{int(count) / _MIB:.1f} MiB"


class DiskWatch:
    """Counts the jobs that are refused for the disk, and logs when that begins and when it ends."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._short = False

    def refused(self, error: Exception) -> None:
        if not isinstance(error, StorageFullError):
            return
        self._recorder.disk_refused("reserve" if isinstance(error, ReserveReachedError) else "full")
        if not self._short:
            self._short = True
            log.error(
                "too little free disk to accept jobs; " + _WHAT_TO_DO,  # noqa: G003  # constants
                extra={
                    name.removesuffix("_bytes"): _mib(figure)
                    for name, figure in error.detail.items()
                },
            )

    def accepted(self) -> None:
        if self._short:
            self._short = False
            log.info("there is disk again to accept jobs")


def foretell_refusals(limits: StorageLimits, directory: Path) -> None:
    """Warn at the start where the first job would already be refused for the disk."""
    if not limits.free_reserve_bytes:
        return
    needed, available = limits.free_reserve_bytes + RESERVE_ACCEPTED, free_bytes(directory)
    if available < needed:
        log.warning(
            "no job will be accepted: too little free disk; " + _WHAT_TO_DO,  # noqa: G003  # as above
            extra={"needed": _mib(needed), "available": _mib(available)},
        )
