"""An engine over the real `off` backend that takes 20 jobs and says each id it was given.

Started by a test, with the database and the jobs root as arguments, to be killed at some moment.
"""

import os
import sys

import anyio
import msgspec

from rookhold_exec.select import choose_backend
from rookhold_exec.settings import ExecSettings
from rookhold_server.jobs.engine import Engine, EngineSettings
from rookhold_store import Store
from rookhold_types import JobSpec, fingerprint, now_ms

PROGRAMS = [
    ("bash", "echo quick"),
    ("bash", "sleep 0.1; echo slow"),
    ("bash", "seq 3000"),
    ("bash", "exit 3"),
    ("bash", "sleep 60"),
]


async def main(database, jobs_root):
    settings = ExecSettings(workers=3, jobs_root=jobs_root, path=os.environ["PATH"])
    executor = choose_backend("off", settings)
    await executor.open()
    engine = Engine(
        store=Store.open(database),
        executor=executor,
        settings=EngineSettings(version="0", workers=3, tenant_concurrency=3),
        signer=None,
        clock=now_ms,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: engine.run(started=lambda: None))
        while not engine.recovered:
            await anyio.sleep(0.001)
        for number in range(20):
            language, code = PROGRAMS[number % len(PROGRAMS)]
            spec = msgspec.convert({"language": language, "code": code}, JobSpec)
            submitted = await engine.submit(
                tenant="acme",
                spec=spec,
                fingerprint=fingerprint(spec),
                idempotency_key=f"k{number}",
            )
            sys.stdout.write(submitted.job_id + "\n")
            sys.stdout.flush()
            await anyio.sleep(0.02)


anyio.run(main, *sys.argv[1:])
