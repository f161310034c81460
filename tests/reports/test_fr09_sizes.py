"""FR-09: a file's length, its blocks and its memory are all held to a limit of the job's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from isolating import BACKENDS

if TYPE_CHECKING:
    from reports.site import Ran, Site

MIB = 1 << 20
MEMORY_MB = 128
SPACE_MB = 64  # what a job of that memory may write
INODES = 16_384
FILL = """
import errno, json, os
counts = {}
for place in ("/dev/shm", "/tmp", "/work"):
    counts[place] = 0
    try:
        while counts[place] < 200:
            with open(f"{place}/{counts[place]}", "wb") as file:
                file.write(bytes(1 << 20))
            counts[place] += 1
    except OSError as error:
        counts[place + " ended"] = errno.errorcode[error.errno]
print(json.dumps(counts), flush=True)
"""
MANY_FILES = [
    pytest.param(
        each.name, marks=(*each.marks, pytest.mark.soak) if each.own_kernel else each.marks
    )
    for each in BACKENDS
]
MANY = """
import errno, json
made, ended = 0, None
try:
    while made < 60_000:
        open(f"/tmp/{made}", "w").close()
        made += 1
except OSError as error:
    ended = errno.errorcode[error.errno]
print(json.dumps([made, ended]))
"""
SPARSE = """
import os
for size in SIZES:
    try:
        open("output/big", "wb").truncate(size)
        print("made", size)
    except OSError as error:
        print(error.errno)
"""


def run(sandbox: Site, code: str, outputs: tuple[str, ...] = (), **limits: int) -> Ran:
    limits = sandbox.limits(mem_mb=MEMORY_MB, wall_seconds=60, cpu_seconds=60) | limits
    return sandbox.run("python", code, limits=limits, outputs=outputs)


def available_mb() -> int:
    lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    return int(next(x for x in lines if x.startswith("MemAvailable")).split()[1]) // 1024


def too_large(ran: Ran) -> None:
    assert ran.ended == ("error", "requested_output_unavailable"), ran.result.stdout
    [failed] = ran.result.violations[0].detail["outputs"]
    assert failed == {"path": "output/big", "reason": "too_large"}
    assert ran.result.artifacts == ()


def test_a_sparse_file_of_eight_gibibytes_cannot_be_made(sandbox: Site) -> None:
    ran = run(sandbox, SPARSE.replace("SIZES", f"[{8 << 30}]"), max_file_mb=16)
    assert ran.ended == ("succeeded", None)
    assert ran.result.stdout == "27\n"  # EFBIG


def test_a_sparse_file_is_judged_by_its_length_and_not_read(sandbox: Site) -> None:
    ran = run(sandbox, SPARSE.replace("SIZES", f"[{500 * MIB}]"), ("output/big",), max_file_mb=512)
    too_large(ran)
    assert ran.seconds < 15


def test_preallocated_blocks_end_at_the_limit_of_one_file(sandbox: Site) -> None:
    code = (
        "import os\n"
        "fd = os.open('output/big', os.O_CREAT | os.O_RDWR)\n"
        "for size in (2 << 30, 3 << 20):\n"
        "    try: os.posix_fallocate(fd, 0, size); print('made', size)\n"
        "    except OSError as error: print(error.errno)\n"
    )
    ran = run(sandbox, code, ("output/big",), max_file_mb=16)
    assert ran.result.stdout in {f"27\nmade {3 << 20}\n", f"28\nmade {3 << 20}\n"}
    too_large(ran)


def test_x9_all_places_that_can_be_written_share_one_limit(sandbox: Site) -> None:
    before = available_mb()
    ran = run(sandbox, FILL)
    assert available_mb() > before - 1024, "the host has lost memory"
    assert "workspace-quota" in ran.controls
    if ran.result.status == "oom_killed":
        assert ran.receipt["killed_by"] == "cgroup-oom"
        return
    assert ran.ended == ("succeeded", None), ran.result.stderr
    said = json.loads(ran.result.stdout)
    ended = [value for name, value in said.items() if name.endswith(" ended")]
    assert ended == ["ENOSPC"] * 3
    limit = sandbox.limits(mem_mb=MEMORY_MB)["mem_mb"]
    full = sum(value for name, value in said.items() if not name.endswith(" ended"))
    assert SPACE_MB - 4 <= full <= max(SPACE_MB, limit)


@pytest.mark.parametrize("sandbox", MANY_FILES, indirect=True)
def test_x9_the_number_of_files_has_a_limit_too(sandbox: Site) -> None:
    """Each file takes gVisor some milliseconds, so there it is a matter of a soak."""
    ran = run(sandbox, MANY, wall_seconds=290)
    assert "workspace-quota" in ran.controls
    assert ran.ended == ("succeeded", None), ran.result.stderr
    made, ended = json.loads(ran.result.stdout)
    assert ended == "ENOSPC"
    assert INODES - 100 < made <= INODES
    assert sandbox.left_over() == []
