"""What a job costs the server in processes and threads: none of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gateway import Gateway, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

JOBS = 24
WORKERS = 4
# The loop, the store's writer and its readers; whatever the number of jobs.
THREADS_MAX = 1 + 1 + 8


@pytest.fixture(params=[pytest.param("namespaces-dev", marks=pytest.mark.linux_ns), "off"])
def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Gateway]:
    settings = {"ROOKHOLD_WORKERS": str(WORKERS), "ROOKHOLD_RATE_PER_MIN": "100000"}
    with Gateway(tmp_path / "home", sandbox=request.param, **settings) as started:
        yield started


def tasks(gateway: Gateway) -> list[Path]:
    assert gateway.process is not None
    return list(Path(f"/proc/{gateway.process.pid}/task").iterdir())


def children(gateway: Gateway) -> list[str]:
    """Return the children that any thread of the server has made."""
    return [pid for task in tasks(gateway) for pid in (task / "children").read_text().split()]


def test_jobs_are_no_children_and_no_threads_of_the_server(gateway: Gateway) -> None:
    with gateway.client() as client:
        launcher = children(gateway)
        assert len(launcher) == 1
        waiting = [client.submit("bash", "sleep 0.3; echo done") for _ in range(JOBS)]
        assert eventually(60, lambda: client.status().scheduler["running"] == WORKERS)
        assert children(gateway) == launcher
        assert len(tasks(gateway)) <= THREADS_MAX
        for job in waiting:
            assert client.wait(job.job_id).stdout == "done\n"
        assert children(gateway) == launcher
        assert len(tasks(gateway)) <= THREADS_MAX
