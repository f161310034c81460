"""FR-02: processes that make more processes stop at the job's own limit, and touch nobody else."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from gateway import eventually

from rookhold import Rookhold

if TYPE_CHECKING:
    from reports.site import Ran, Site

CHAINS = {
    "chain": "chain() { echo $1; ( chain $(($1 + 1)) ) & wait; }; chain 1",
    "breadth": "echo began; bomb() { bomb | bomb & }; bomb; sleep 30",
}
PROCESSES, MEMORY_MB = 16, 128
QUICK_SECONDS = 10


def submit(sandbox: Site, name: str, wall_seconds: int) -> str:
    more = {"wall_seconds": wall_seconds, "cpu_seconds": 60}
    limits = sandbox.limits(max_pids=PROCESSES, mem_mb=MEMORY_MB, **more)
    return sandbox.submit("bash", CHAINS[name], limits=limits)


def at_its_limit(sandbox: Site, job_id: str) -> bool:
    """Wait until a fork has failed, of which Bash says something before it tries again."""
    return eventually(60, lambda: b"fork" in sandbox.client.result(job_id).stderr_bytes)


def neighbour(sandbox: Site) -> Rookhold:
    gateway = sandbox.gateway
    return Rookhold(f"http://{gateway.address}", f"{gateway.api_key}-other", timeout=60)


def limit_is_told(sandbox: Site, ran: Ran) -> list[str]:
    """Return what the evidence says first: the limit, where something counted the refusals.

    The kernel of a gVisor sandbox refuses forks and counts none of that.
    """
    counted = "cgroup-pids" in ran.controls and not sandbox.own_kernel
    if counted:
        limit = sandbox.limits(max_pids=PROCESSES)["max_pids"]
        assert ran.result.violations[0].detail == {"max_pids": limit}
        assert ran.receipt["effective_limits"]["max_pids"] == limit
    return ["process_limit_reached"] if counted else []


@pytest.mark.parametrize("name", CHAINS)
def test_x8_it_stops_inside_and_the_neighbours_do_not_notice(sandbox: Site, name: str) -> None:
    with neighbour(sandbox) as other:
        chain = submit(sandbox, name, wall_seconds=6)
        assert at_its_limit(sandbox, chain)
        for _ in range(3):
            began = time.monotonic()
            assert other.run("python", "print(1)", wait_seconds=60).stdout == "1\n"
            assert time.monotonic() - began < QUICK_SECONDS
            began = time.monotonic()
            assert sandbox.client.health()
            assert time.monotonic() - began < QUICK_SECONDS
    ran = sandbox.finish(chain)
    assert ran.result.status in {"failed", "timed_out"}
    told = limit_is_told(sandbox, ran)
    assert ran.rules[: len(told)] == told
    assert ran.receipt["duration_ms"] < 20_000
    assert sandbox.left_over() == []


@pytest.mark.parametrize("name", CHAINS)
def test_x8_a_cancel_ends_all_of_it(sandbox: Site, name: str) -> None:
    chain = submit(sandbox, name, wall_seconds=60)
    assert at_its_limit(sandbox, chain)
    began = time.monotonic()
    assert not sandbox.client.cancel(chain).already_terminal
    ran = sandbox.finish(chain)
    assert time.monotonic() - began < QUICK_SECONDS
    assert ran.ended == ("cancelled", "cancelled")
    assert ran.rules == [*limit_is_told(sandbox, ran), "job_cancelled"]
    assert sandbox.left_over() == []
