"""Run one harmless program in the strongest sandbox that this host offers."""

import asyncio  # noqa: TID251 - the wheel declares no anyio

from rookhold_exec import ExecSettings, SandboxPlan, choose_backend
from rookhold_types.limits import Limits


async def main() -> None:
    executor = choose_backend("auto", ExecSettings(jobs_root="jobs"))
    await executor.open()
    try:
        plan = SandboxPlan(job_id="one", language="python", code=b"print(6 * 7)", limits=Limits())
        running = await executor.start(plan)
        lines = [event.line async for event in running.events()]
        report = await running.wait()
    finally:
        await executor.close()
    assert report.exit_code == 0, report
    print(*lines)


asyncio.run(main())
