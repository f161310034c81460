"""How much of the memory budget a job holds."""

import pytest

from rookhold_server.jobs.permits import MemoryPermits

UNDER = {"job_ceiling_mb": 1024, "budget_mb": 1500}


@pytest.mark.parametrize(
    ("mem_mb", "file_mb", "alone", "with_workspace"),
    [
        (256, 16, 256, 320),  # the scratch space is at least 64 MiB
        (256, 100, 256, 456),  # or two of the largest files
        (100, 512, 100, 200),  # but no larger than the memory
        (0, 0, 16, 32),  # the floors
        (5000, 512, 1024, 1500),  # the ceiling, and never more than there is
    ],
)
def test_a_scratch_space_beside_the_memory_counts_too(mem_mb, file_mb, alone, with_workspace):
    assert MemoryPermits(**UNDER, counts_workspace=False).of(mem_mb, file_mb) == alone
    assert MemoryPermits(**UNDER, counts_workspace=True).of(mem_mb, file_mb) == with_workspace
