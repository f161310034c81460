"""A server that dies without warning loses nothing it acknowledged and doubles nothing."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

import pytest
from gateway import Gateway, eventually
from invariants import problems

from rookhold.errors import RookholdError

if TYPE_CHECKING:
    from pathlib import Path

PROGRAMS = [
    ("python", "print('hello')"),
    ("python", "import time\nfor n in range(40): print(n, flush=True); time.sleep(0.02)"),
    ("python", "import sys\nsys.stdout.write('x' * 300_000)"),
    ("python", "raise SystemExit(3)"),
    ("bash", "for i in $(seq 200); do echo line $i; done"),
    ("bash", "sleep 1; echo late"),
    ("bash", "mkdir -p output && echo kept > output/kept"),
    ("bash", "exit 7"),
]
RECOVERY_SECONDS = 120


def submit_jobs(gateway: Gateway, dice: random.Random, count: int, accepted: list[str]) -> None:
    """Submit until the server is gone; only what was acknowledged is remembered."""
    with gateway.client(timeout=10) as client:
        for _ in range(count):
            language, code = dice.choice(PROGRAMS)
            outputs = ["output/kept"] if "output" in code else []
            try:
                job = client.submit(language, code, outputs=outputs, limits={"wall_seconds": 10})
            except (RookholdError, OSError):
                return
            accepted.append(job.job_id)


def all_over(gateway: Gateway, accepted: list[str]) -> bool:
    with gateway.client() as client:
        return all(client.job(job_id).finished for job_id in accepted)


@pytest.mark.linux_ns
@pytest.mark.parametrize("sandbox", ["off", "namespaces-dev"])
@pytest.mark.parametrize("seed", range(2))
def test_a_server_killed_in_the_middle_of_twenty_jobs_loses_and_doubles_nothing(
    tmp_path: Path, sandbox: str, seed: int
) -> None:
    dice = random.Random(seed)
    gateway = Gateway(tmp_path / "gateway", sandbox=sandbox).start()
    accepted: list[str] = []
    sender = threading.Thread(target=submit_jobs, args=(gateway, dice, 20, accepted))
    sender.start()
    assert eventually(30, lambda: len(accepted) >= 4)
    time.sleep(dice.uniform(0, 0.6))
    gateway.kill()
    sender.join(30)
    assert eventually(30, lambda: not gateway.processes()), "a process outlived the killed server"

    with gateway:
        assert eventually(RECOVERY_SECONDS, lambda: all_over(gateway, accepted))
        assert eventually(30, lambda: signed(gateway, accepted))
        with gateway.client() as client:
            outcomes = {client.job(job_id).status for job_id in accepted}
    assert problems(gateway.database, accepted) == []
    assert outcomes <= {"succeeded", "failed", "error"}
    assert eventually(10, lambda: not gateway.processes())
    assert not list(gateway.jobs_root.glob("job-*"))


def signed(gateway: Gateway, accepted: list[str]) -> bool:
    with gateway.client() as client:
        return all(client.job(job_id).attestation.available for job_id in accepted)
