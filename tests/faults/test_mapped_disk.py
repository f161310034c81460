"""A disk of the kernel fails or is slow below a real server, where there is a device mapper."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from faults.mapped import Mapped
from gateway import Gateway, eventually
from invariants import problems

from rookhold.errors import RookholdError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.disks("mapped")
SECONDS = 120.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Mapped]:
    # Without a journal of its own, for that makes itself read-only at the first error.
    with Mapped(tmp_path, 64, journal=False) as mounted:
        yield mounted
        mounted.become("linear")


@pytest.fixture
def gateway(disk: Mapped, tmp_path: Path) -> Iterator[Gateway]:
    settings = {
        "ROOKHOLD_STORAGE_FREE_RESERVE_MB": "0",
        "ROOKHOLD_DB": str(disk.at / "db" / "a.db"),
    }
    gateway = Gateway(tmp_path / "gateway", sandbox="off", **settings)
    gateway.database = disk.at / "db" / "a.db"
    with gateway:
        yield gateway
        disk.become("linear")


def test_what_was_accepted_survives_writes_that_fail_a_kill_and_a_cut(
    disk: Mapped, gateway: Gateway
) -> None:
    with gateway.client() as client:
        first = client.run("bash", "echo one").job_id
        disk.become("no writes")
        with pytest.raises(RookholdError) as refused:
            client.submit("bash", "echo no")
        assert refused.value.status in (500, 503)
        assert eventually(SECONDS, lambda: client.ready().code == "storage_unavailable")
        assert client.job(first).status == "succeeded"
        gateway.kill()  # what it could not write is only in memory, and looks written
        disk.become("linear")
    gateway.start()
    with gateway.client() as client:
        second = client.run("bash", "echo two").job_id
        disk.become("error")  # the supply is cut: nothing more reaches the disk
    gateway.kill()
    disk.unmount()
    disk.become("linear")
    disk.mount()
    gateway.start()
    with gateway.client() as client:
        assert client.job(first).status == "succeeded"
        assert client.job(second).status == "succeeded"
        assert eventually(SECONDS, lambda: client.ready().ready)
        assert all(job.finished for job in client.jobs()) or eventually(
            SECONDS, lambda: all(job.finished for job in client.jobs())
        )
    assert gateway.stop() == 0
    assert problems(gateway.database, [first, second]) == []


def test_a_disk_that_fails_for_a_while_costs_no_accepted_job(
    disk: Mapped, gateway: Gateway
) -> None:
    with gateway.client() as client:
        running = client.submit("bash", "sleep 2; echo done").job_id
        assert eventually(SECONDS, lambda: client.job(running).status == "running")
        disk.become("no writes")
        assert eventually(SECONDS, lambda: _refuses(client))
        time.sleep(3)
        disk.become("linear")
        assert eventually(SECONDS, lambda: client.ready().ready)
        assert eventually(SECONDS, lambda: client.job(running).finished)
        later = client.run("bash", "echo later").job_id
    assert gateway.stop() == 0
    assert problems(gateway.database, [running, later]) == []


def test_a_slow_disk_makes_answers_late_and_none_wrong(disk: Mapped, gateway: Gateway) -> None:
    with gateway.client() as client:
        disk.become("slow")
        began = time.monotonic()
        jobs = [client.submit("bash", "echo slow").job_id for _ in range(3)]
        assert time.monotonic() - began > 3 * 0.2  # each waited for its own sync
        assert all(client.wait(job).stdout == "slow\n" for job in jobs)
        assert client.ready().ready
    assert gateway.stop() == 0
    assert problems(gateway.database, jobs) == []


def _refuses(client: object) -> bool:
    try:
        client.submit("bash", "echo no")  # type: ignore[attr-defined]
    except RookholdError:
        return True
    return False
