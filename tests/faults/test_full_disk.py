"""The disk of a real server is full: who is refused, and that nobody who was accepted is lost."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from faults.mapped import Mounted
from gateway import Gateway, eventually
from invariants import problems

from rookhold.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rookhold import Rookhold

pytestmark = pytest.mark.disks("small")
SECONDS = 120.0
MIB = 1024 * 1024
RESERVE_MIB = 32
OUTPUT = "for ((i = 0; i < 800; i++)); do printf '%01000d\\n' $i; done"  # 800 kB


class Filler:
    """A file of somebody else that takes space."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._path = place / "filler"

    def leave(self, free: int) -> None:
        """Grow until no more than this many bytes are left, or none at all."""
        with self._path.open("ab") as file:
            step = 16 * MIB
            while step:
                if shutil.disk_usage(self._place).free - free < step:
                    step //= 4
                    continue
                try:
                    file.write(b"\1" * step)
                    file.flush()
                    os.fsync(file.fileno())
                except OSError:
                    step //= 4

    def release(self) -> None:
        self._path.unlink(missing_ok=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Mounted]:
    with Mounted(tmp_path, 256) as mounted:
        yield mounted


@pytest.fixture
def filler(disk: Mounted) -> Filler:
    return Filler(disk.at)


def gateway_on(disk: Mounted, tmp_path: Path, reserve_mib: int) -> Gateway:
    gateway = Gateway(
        tmp_path / "gateway",
        sandbox="off",
        ROOKHOLD_STORAGE_FREE_RESERVE_MB=str(reserve_mib),
        ROOKHOLD_WORKERS="2",
    )
    gateway.database = disk.at / "db" / "rookhold.db"
    return gateway


def refusal(client: Rookhold) -> str | None:
    """Submit one more; return the code if it is refused for want of space."""
    try:
        client.submit("bash", "echo more")
    except ApiError as error:
        return error.code if (error.status, error.retryable) == (507, True) else str(error.status)
    return None


def begun(client: Rookhold, code: str) -> str:
    job_id = client.submit("bash", code).job_id
    assert eventually(SECONDS, lambda: client.job(job_id).status == "running")
    return job_id


def test_what_was_accepted_is_finished_from_the_reserve(
    disk: Mounted, filler: Filler, tmp_path: Path
) -> None:
    with gateway_on(disk, tmp_path, RESERVE_MIB) as gateway, gateway.client() as client:
        go = tmp_path / "go"
        running = [begun(client, f"until [ -e {go} ]; do sleep 0.05; done; {OUTPUT}") for _ in "12"]
        waiting = client.submit("bash", OUTPUT).job_id
        filler.leave(RESERVE_MIB * MIB)  # all but the reserve, what jobs hold of the rest included
        assert refusal(client) == "storage_reserve"
        assert client.ready().ready  # it can finish, sign and be read
        go.touch()
        for job_id in (*running, waiting):
            result = client.wait(job_id, SECONDS)
            assert (result.status, len(result.stdout)) == ("succeeded", 800 * 1001)
            assert client.attestation(job_id, 30).content
        assert refusal(client) == "storage_reserve"
        filler.release()
        later = client.run("bash", "echo later")
        assert later.stdout == "later\n"
        assert gateway.stop() == 0
        accepted = [*running, waiting, later.job_id]
        assert problems(gateway.database, accepted) == []


def test_a_disk_that_somebody_fills_to_the_last_byte_loses_no_accepted_job(
    disk: Mounted, filler: Filler, tmp_path: Path
) -> None:
    with gateway_on(disk, tmp_path, 0) as gateway, gateway.client() as client:
        go = tmp_path / "go"
        running = begun(client, f"until [ -e {go} ]; do sleep 0.05; done; {OUTPUT}; {OUTPUT}")
        accepted = [running, client.run("bash", "echo before").job_id]
        filler.leave(0)
        go.touch()
        assert eventually(SECONDS, lambda: refusal(client) == "storage_reserve")
        assert eventually(SECONDS, lambda: client.ready().code == "storage_unavailable")
        known = {job.job_id for job in client.jobs()}
        assert set(accepted) <= known
        assert not client.job(running).finished
        filler.release()
        assert eventually(SECONDS, lambda: client.ready().ready)
        assert eventually(SECONDS, lambda: all(job.finished for job in client.jobs()))
        assert client.run("bash", "echo after").stdout == "after\n"
        result = client.result(running)
        assert result.status == "succeeded"
        whole = "".join(f"{number:01000d}\n" for number in range(800)) * 2
        assert whole.startswith(result.stdout)
        receipt = client.job(running).receipt or {}
        assert result.truncated == (result.stdout != whole)
        assert receipt["evidence_complete"] == (result.stdout == whole)
        assert client.attestation(running, 30).content
        assert gateway.stop() == 0
        assert problems(gateway.database, accepted) == []


def test_a_gateway_that_dies_on_a_full_disk_starts_on_it(
    disk: Mounted, filler: Filler, tmp_path: Path
) -> None:
    gateway = gateway_on(disk, tmp_path, RESERVE_MIB)
    with gateway:
        with gateway.client() as client:
            running = begun(client, "sleep 100")
        filler.leave(RESERVE_MIB * MIB)
        gateway.kill()
        gateway.start()
        with gateway.client() as client:
            assert client.job(running).killed_by == "server_restarted"
            assert refusal(client) == "storage_reserve"
        assert gateway.stop() == 0
        assert problems(gateway.database, [running]) == []
