"""How much of the memory budget a job holds while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rookhold_types.isolation import Control
from rookhold_types.limits import LIMIT_BOUNDS, memory_charge_mb

if TYPE_CHECKING:
    from rookhold_exec.executor import Posture

WORKSPACE_FLOOR_MB = 64


class MemoryPermits(Struct, frozen=True, kw_only=True):
    """The charge of a job and, where its tmpfs is not in that charge, the tmpfs beside it."""

    job_ceiling_mb: int
    budget_mb: int
    counts_workspace: bool

    @classmethod
    def under(cls, posture: Posture, *, job_ceiling_mb: int, budget_mb: int) -> MemoryPermits:
        return cls(
            job_ceiling_mb=job_ceiling_mb,
            budget_mb=budget_mb,
            counts_workspace=Control.WORKSPACE_QUOTA in posture.controls
            and not posture.tmpfs_charged_to_job,
        )

    def of(self, admitted_mem_mb: int, max_file_mb: int) -> int:
        """The permit, in MiB: never zero, never more than the whole budget."""
        charge = memory_charge_mb(admitted_mem_mb, self.job_ceiling_mb)
        if self.counts_workspace:
            file_mb = LIMIT_BOUNDS["max_file_mb"].clamp(max_file_mb)
            charge += min(max(WORKSPACE_FLOOR_MB, 2 * file_mb), charge)
        return min(charge, self.budget_mb)
