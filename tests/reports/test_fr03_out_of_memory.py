"""FR-03: a job that meets its memory limit is told from every other end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from reports.site import Site

MIB = 1 << 20
MEMORY_MB = 128
HOGS = {
    "python": "print('kept', flush=True)\n"
    "b = bytearray(300 * 1024 * 1024); b[::4096] = b'x' * len(b[::4096])",
    "node": "console.log('kept'); const a = []; while (true) a.push(Buffer.alloc(1 << 20, 1));",
    "bash": "echo kept; head -c 300M /dev/zero | tail",
}


@pytest.mark.groups("memory")
@pytest.mark.parametrize(
    "language", ["python", pytest.param("node", marks=pytest.mark.node), "bash"]
)
def test_x8_running_out_of_memory_is_told_as_what_it_is(sandbox: Site, language: str) -> None:
    limits = sandbox.limits(mem_mb=MEMORY_MB, wall_seconds=250, cpu_seconds=200)
    ran = sandbox.run(language, HOGS[language], limits=limits)
    assert "cgroup-memory" in ran.controls
    assert ran.ended == ("oom_killed", "cgroup-oom")
    assert ran.rules == ["memory_cap_exceeded"]
    assert ran.result.violations[0].detail == {"mem_mb": limits["mem_mb"]}
    assert ran.result.exit_code is None
    assert ran.result.stdout == "kept\n"
    limit = limits["mem_mb"] * MIB
    # The kernel lets itself have a page beyond it.
    peak = ran.receipt["resource_usage"]["memory_peak_bytes"]
    assert limit - 28 * MIB < peak <= limit + MIB // 16
    assert sandbox.left_over() == []


@pytest.mark.groups("memory")
@pytest.mark.parametrize("code", ["exit 137", "kill -KILL $$", "echo out of memory >&2; exit 1"])
def test_what_only_looks_like_it_is_not_told_as_it(sandbox: Site, code: str) -> None:
    ran = sandbox.run("bash", code)
    assert ran.result.status == "failed"
    assert ran.rules == []
