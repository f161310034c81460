"""A process killed at any moment: afterwards every accepted job has exactly one end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from rookhold_types import check_chain, receipt_digest

pytestmark = pytest.mark.anyio
TENANT = "acme"

CHILD = Path(__file__).parent / "programs" / "engine_until_killed.py"


@pytest.mark.parametrize(
    "accepted",
    [pytest.param(1, marks=pytest.mark.soak), 7, pytest.param(20, marks=pytest.mark.soak)],
)
async def test_a_kill_in_the_middle_of_twenty_jobs_loses_and_doubles_none(
    kit, tmp_path, job, submit, accepted
):
    kit.store.close()
    jobs_root = tmp_path / "jobs"
    jobs_root.mkdir(mode=0o700)
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, CHILD, kit.path, jobs_root],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as child:
        ids = [child.stdout.readline().strip() for _ in range(accepted)]
        child.send_signal(signal.SIGKILL)
        ids += child.stdout.read().split()
    assert all(ids), "the child ended before it was killed"
    kit.open()
    assert {row.job_id for row in kit.store.read.list_jobs(TENANT, 501)} >= set(ids)

    async def script(run):
        run.end()

    kit.executor.script = script
    first = job("echo quick", "bash")
    async with kit.running() as engine:
        again = await submit(engine, first, key="k0")
        assert (again.job_id, again.replayed) == (ids[0], True)
        rows = kit.store.read.list_jobs(TENANT, 501)
        with anyio.fail_after(30):
            for row in rows:
                assert await engine.wait_terminal(TENANT, row.job_id, 30)
    assert len(rows) in (len(ids), len(ids) + 1)  # one may have been stored but not yet answered
    for row in rows:
        events = kit.events(row.job_id)
        assert [event.kind for event in events].count("finished") == 1
        assert events[-1].kind == "finished"
        assert check_chain(row.job_id, events).complete
        receipt = kit.receipt(row.job_id)
        assert receipt["receipt_sha256"] == receipt_digest(receipt)
        interrupted = receipt["killed_by"] == "server_restarted"
        assert interrupted == (receipt["outcome"] == "error")
        assert not (interrupted and row.job_id in kit.executor.started_ids)
