"""One run of the executor: start, stream to the store, kill on request, report."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import anyio
from msgspec import Struct

from rookhold_exec.errors import (
    CapabilityUnavailableError,
    ExecutorUnavailableError,
    RuntimeUnavailableError,
    SandboxStartError,
)
from rookhold_exec.executor import (
    AheadExecutor,
    Executor,
    KillReason,
    NotPermittedError,
    Report,
    Running,
    SandboxPlan,
)
from rookhold_server.jobs.diagnosis import named
from rookhold_server.jobs.tokens import CancelToken, StopReason
from rookhold_types.violations import ExecutorFault, Rule

if TYPE_CHECKING:
    from rookhold_exec.executor import Permit
    from rookhold_server.jobs.pump import EventPump

log = logging.getLogger(__name__)

# A report follows the kill of a job within seconds; without an event stream to end, do not trust
# that it comes at all.
REPORT_SECONDS_AFTER_FAULT = 30.0


class Execution(Struct, frozen=True, kw_only=True):
    """What came of it: a report, or what says why there is none.

    `stopped_before_launch` is set where a cancel or shutdown came before anything ran,
    `runtime_gone` where the interpreter has disappeared since the server started.
    """

    report: Report | None = None
    fault: dict[str, Any] | None = None
    runtime_gone: bool = False
    stopped_before_launch: StopReason | None = None


class _Launch:
    """The start of one job and the wish to stop it, whichever comes first."""

    def __init__(self, token: CancelToken) -> None:
        self._token = token
        self.starting = anyio.CancelScope()
        self.deciding = False  # a permit is at work, which looks at the token itself, and last
        self.running: Running | None = None

    async def watch(self) -> None:
        await self._token.wait()
        if self.running is not None:
            self.kill()
        elif not self.deciding:
            self.starting.cancel()

    async def start(self, executor: Executor, plan: SandboxPlan, permit: Permit | None) -> None:
        if permit is None or not isinstance(executor, AheadExecutor):
            self.running = await executor.start(plan)
            return

        async def decide() -> bool:
            self.deciding = True
            try:
                return await permit()
            finally:
                self.deciding = False

        self.running = await executor.start_when(plan, decide)

    def kill(self) -> None:
        if self.running is not None:
            shutdown = self._token.reason is StopReason.SHUTDOWN
            self.running.kill(KillReason.SHUTDOWN if shutdown else KillReason.CANCELLED)


async def execute(
    executor: Executor,
    plan: SandboxPlan,
    *,
    token: CancelToken,
    pump: EventPump,
    permit: Permit | None = None,
) -> Execution | None:
    """Run `plan` to its end; returns after every process of it is gone and every event stored.

    An executor that builds ahead is given `permit` on the way; others have it before. None if it
    was refused: nothing ran, and whoever refused it has settled what becomes of the job.
    """
    launch = _Launch(token)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(launch.watch)
        try:
            with launch.starting:
                await launch.start(executor, plan, permit)
            execution: Execution | None = await _follow(launch, token, pump)
        except NotPermittedError:
            execution = None
        except RuntimeUnavailableError:
            execution = Execution(runtime_gone=True)
        except Exception as error:  # noqa: BLE001 - a provider may raise anything
            log.warning("job %s: the executor failed (%s)", plan.job_id, named(error))
            execution = Execution(fault=_fault(error))
        finally:
            tasks.cancel_scope.cancel()
    return execution


async def _follow(launch: _Launch, token: CancelToken, pump: EventPump) -> Execution:
    running = launch.running
    if running is None:
        return Execution(stopped_before_launch=token.reason)
    if token.reason is not None:  # it came while the start was already returning
        launch.kill()
    await pump.run(running.events(), failing=launch.kill)
    faulty = pump.source_failed or pump.broken
    with anyio.fail_after(REPORT_SECONDS_AFTER_FAULT if faulty else None):
        report = await running.wait()
    return Execution(report=report)


def _fault(error: Exception) -> dict[str, Any]:
    match error:
        case SandboxStartError():
            return {
                "rule": Rule.SANDBOX_BOOTSTRAP_FAILED,
                "detail": {"stage": error.stage},
            }
        case ExecutorUnavailableError() | CapabilityUnavailableError():
            code = ExecutorFault.UNAVAILABLE
        case FileNotFoundError() | PermissionError():
            code = ExecutorFault.UNAVAILABLE
        case _:
            code = ExecutorFault.FAILURE
    return {"rule": Rule.EXECUTOR_ERROR, "detail": {"code": code}}
