"""The wall clock of a real server is set by an hour, there and back, while jobs come and run."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import apsw
import pytest
from faults.faulty_server import FaultyGateway
from gateway import eventually
from invariants import problems

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rookhold import Rookhold

SECONDS = 60.0
HOUR = 3600
LIMITS = {"wall_seconds": 30}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[FaultyGateway]:
    settings = {"ROOKHOLD_WORKERS": "4", "ROOKHOLD_RETENTION_HOURS": "3"}
    with FaultyGateway(tmp_path / "gateway", sandbox="off", **settings) as running:
        yield running


def begun(client: Rookhold) -> str:
    job_id = client.submit("bash", "sleep 1; echo done", limits=LIMITS).job_id
    assert eventually(SECONDS, lambda: client.job(job_id).status == "running")
    return job_id


def listed(client: Rookhold) -> list[str]:
    return [job.job_id for job in client.jobs(page_size=1)]  # every page of one


@pytest.mark.parametrize("jumps", [(HOUR, 0), (-HOUR, HOUR)], ids=str)
def test_a_clock_that_is_set_costs_no_job_no_signature_and_no_truth(
    gateway: FaultyGateway, jumps: tuple[int, ...]
) -> None:
    with gateway.client() as client:
        jobs = [client.run("bash", "echo before", idempotency_key="key").job_id]
        for ahead in jumps:
            running = begun(client)
            gateway.set_clock(ahead)  # while it runs: its wall limit is of another clock
            after = client.run("bash", "echo after").job_id
            jobs += [running, after]
            result = client.wait(running, SECONDS)
            assert (result.status, result.stdout) == ("succeeded", "done\n")
            assert (result.duration_ms or 0) >= 0  # that is of the wall clock; the receipt's is not
            again = client.submit("bash", "echo before", idempotency_key="key")
            assert (again.job_id, again.replayed) == (jobs[0], True)
        for job_id in jobs:
            assert client.attestation(job_id, 30).content
        assert sorted(listed(client)) == sorted(jobs)  # each once, whatever its time says
        running = begun(client)
        gateway.kill()
        gateway.set_clock(-jumps[0])
        gateway.start()
    with gateway.client() as client:
        assert client.job(running).killed_by == "server_restarted"
        assert client.attestation(running, 30).content
        assert sorted(listed(client)) == sorted([*jobs, running])  # and none is removed for its age
        begin = time.monotonic()
        last = client.run("bash", "echo last")
        assert last.stdout == "last\n"
        assert time.monotonic() - begin < SECONDS
        jobs.append(last.job_id)
    assert gateway.stop() == 0
    assert problems(gateway.database, [*jobs, running]) == []
    assert durations(gateway.database) == []


def durations(database: Path) -> list[int]:
    """Return the durations in receipts that cannot be, but for one that only the clock can tell."""
    db = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    receipts = [json.loads(row[0]) for row in db.execute("SELECT receipt_json FROM jobs")]
    db.close()
    told = [each["duration_ms"] for each in receipts if each["killed_by"] != "server_restarted"]
    assert all(each["duration_ms"] >= 0 for each in receipts)
    usages = [receipt.get("resource_usage") or {} for receipt in receipts]
    told += [usage.get("wall_time_ms") or 0 for usage in usages]
    return [each for each in told if not 0 <= each < HOUR * 1000]
