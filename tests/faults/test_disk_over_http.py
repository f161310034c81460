"""The disk of a real server fails for a while, and what its clients are told meanwhile."""

from __future__ import annotations

import http.client
import json
import time
from typing import TYPE_CHECKING

import pytest
from faults.disk import How
from faults.faulty_server import FaultyGateway
from gateway import eventually
from invariants import problems

from rookhold.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rookhold import Rookhold

SECONDS = 60.0


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[FaultyGateway]:
    with FaultyGateway(tmp_path / "gateway", sandbox="off") as running:
        yield running
        running.heal()


def refused(call: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value.status, caught.value.code


def over(client: Rookhold, jobs: list[str]) -> bool:
    return all(client.job(job).finished for job in jobs)


def test_writes_that_fail_are_refused_and_what_runs_is_finished_later(
    gateway: FaultyGateway,
) -> None:
    with gateway.client() as client:
        before = client.run("bash", "echo one").job_id
        running = client.submit("bash", "echo begun; sleep 1; echo ended").job_id
        assert eventually(SECONDS, lambda: client.job(running).status == "running")
        gateway.fail(How.EIO, "write", "sync")
        assert refused(lambda: client.submit("bash", "echo no", idempotency_key="again")) == (
            500,
            "internal_error",
        )
        assert eventually(SECONDS, lambda: client.ready().code == "storage_unavailable")
        assert client.job(before).status == "succeeded"  # what can be read is read
        assert [job.job_id for job in client.jobs()] == [running, before]
        time.sleep(1.5)  # the job ends meanwhile, and cannot be finalised
        assert not client.job(running).finished
        gateway.heal()
        assert eventually(SECONDS, lambda: client.ready().ready)
        again = client.submit("bash", "echo no", idempotency_key="again")
        assert not again.replayed
        assert eventually(SECONDS, lambda: over(client, [running, again.job_id]))
        accepted = [before, running, again.job_id]
        assert sorted(job.job_id for job in client.jobs()) == sorted(accepted)
    assert gateway.stop() == 0
    assert problems(gateway.database, accepted) == []


def test_reads_that_fail_say_so_and_never_that_there_is_nothing(gateway: FaultyGateway) -> None:
    with gateway.client() as client:
        jobs = [client.run("bash", "echo one").job_id for _ in range(3)]
        gateway.fail(How.EIO, "read", "open", "shm")
        job = f"/v1/jobs/{jobs[0]}"
        paths = ["/v1/jobs", job]
        paths += [f"{job}/{each}" for each in ("result", "replay", "attestation")]
        paths += [f"{job}/result-artifact"]
        told = {answer(gateway, path) for path in paths * 4}
        assert told <= {"the answer", "storage_unavailable"}
        assert "storage_unavailable" in told
        gateway.heal()
        assert eventually(SECONDS, lambda: client.ready().ready)
        assert {answer(gateway, path) for path in paths} == {"the answer"}


def answer(gateway: FaultyGateway, path: str) -> str:
    """Ask once, without the client's patience."""
    connection = http.client.HTTPConnection(gateway.address, timeout=SECONDS)
    connection.request("GET", path, headers={"authorization": f"Bearer {gateway.api_key}"})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    if response.status == 200:
        return "the answer" if len(body) > 50 else body.decode()
    code: str = json.loads(body)["error"]["code"]
    assert response.status == 503 or code != "storage_unavailable"
    return code


def test_a_server_whose_disk_cannot_be_read_says_so_and_does_not_start(
    gateway: FaultyGateway,
) -> None:
    with gateway.client() as client:
        job_id = client.run("bash", "echo one").job_id
    gateway.kill()
    gateway.fail(How.EIO, "read")
    with pytest.raises(AssertionError, match=r"refused to start.*code=storage_unavailable"):
        gateway.start()
    gateway.heal()
    gateway.start()
    with gateway.client() as client:
        assert client.job(job_id).status == "succeeded"
