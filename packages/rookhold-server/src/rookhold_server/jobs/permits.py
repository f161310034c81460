"""How much of the memory budget a job holds while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rookhold_types.isolation import Control
from rookhold_types.limits import MIB, Limits, clamp, workspace_bytes

if TYPE_CHECKING:
    from rookhold_exec.executor import Posture


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
        asked = Limits(mem_mb=admitted_mem_mb, max_file_mb=max_file_mb)
        granted = clamp(asked, self.job_ceiling_mb)
        charge = granted.mem_mb
        if self.counts_workspace:
            charge += workspace_bytes(granted, charged=False) // MIB
        return min(charge, self.budget_mb)
