"""One isolating executor under attack, and the rule that nothing here runs without one."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rookhold_exec.executor import KillReason, OutputRecord
from rookhold_types.isolation import Backend, Control
from rookhold_types.limits import Limits
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hostile.leftovers import Before
    from isolating import Isolating

    from rookhold_exec.executor import Report
    from rookhold_exec.testing import Harness, Result

ISOLATING = {
    Backend.NAMESPACES_DEV: {
        Control.MOUNT_NAMESPACE,
        Control.NETWORK_NAMESPACE,
        Control.PID_NAMESPACE,
        Control.CAPABILITIES_DROPPED,
        Control.SECCOMP,
    },
    Backend.NAMESPACES: {
        Control.MOUNT_NAMESPACE,
        Control.NETWORK_NAMESPACE,
        Control.PID_NAMESPACE,
        Control.CAPABILITIES_DROPPED,
        Control.SECCOMP,
        Control.PRIVATE_ROOTFS,
    },
    Backend.GVISOR: {Control.APPLICATION_KERNEL, Control.PRIVATE_ROOTFS},
}
SLOW = int(os.environ.get("ROOKHOLD_TEST_SLOW", "1"))  # how much longer things may take here
Test = TypeVar("Test")
KIT = Path(__file__).with_name("kit.py").read_text("utf-8")
LIMITS = Limits(wall_seconds=30, cpu_seconds=20)


class NotIsolatingError(Exception):
    """The executor does not confine what it runs: no hostile program may be given to it."""


def refuse_what_does_not_isolate(harness: Harness, without: frozenset[str]) -> None:
    """Look at what the open executor says of itself; `without` was switched off on purpose."""
    posture = harness.executor.posture
    needed = ISOLATING.get(posture.backend)  # type: ignore[call-overload]
    if needed is None:
        raise NotIsolatingError(f"{posture.backend} does not isolate")
    if len(without) > 1:
        raise NotIsolatingError("more than one control is off")
    if missing := needed - set(posture.controls) - without:
        raise NotIsolatingError(f"{posture.backend} runs without {sorted(missing)}")


class Target:
    """The attacked executor, and how to read what an attack tells."""

    def __init__(
        self,
        harness: Harness,
        kind: Isolating,
        before: Before,
        without: frozenset[str] = frozenset(),
    ) -> None:
        refuse_what_does_not_isolate(harness, without)
        self.kind = kind
        self.before = before
        self.harness = harness
        self.backend = harness.executor.posture.backend
        self.gvisor = self.backend == Backend.GVISOR

    def run(self, language: str, code: str, **more: Any) -> Result:
        """Run one program to its end; it must have run where it was meant to."""
        more.setdefault("limits", LIMITS)
        result = self.harness.run(language, self._whole(language, code), **more)
        self._must_have_been_confined(result.report)
        return result

    def ask(self, code: str, **more: Any) -> Any:
        """Run a Python program that ends well; return what it told."""
        return told_by(self.run("python", code, **more))

    def together(self, neighbour: str, code: str, **more: Any) -> tuple[Result, Result]:
        """Run a Python program while another job runs, which prints `ready` and then lives on.

        The neighbour is in another slot. When the program has ended the neighbour is cancelled.
        """

        async def scenario() -> tuple[Result, Result]:
            harness = self.harness
            plan = harness.plan("python", KIT + neighbour, limits=LIMITS, slot=1)
            running = await harness.executor.start(plan)
            events = running.events()
            seen = []
            async for event in events:
                seen.append(event)
                if isinstance(event, OutputRecord) and event.line == "ready":
                    break
            more.setdefault("limits", LIMITS)
            result = await harness.finish(harness.plan("python", KIT + code, **more))
            running.kill(KillReason.CANCELLED)
            seen += [event async for event in events]
            report = await running.wait()
            return result, type(result)(report, tuple(seen), 0.0)

        attacker, other = self.harness.do(scenario())
        self._must_have_been_confined(attacker.report)
        self._must_have_been_confined(other.report)
        return attacker, other

    def cancel(self, language: str, code: str, on: bytes, **more: Any) -> Result:
        """Run a program and cancel it when it prints `on`."""
        more.setdefault("limits", LIMITS)
        plan = self.harness.plan(language, self._whole(language, code), **more)
        result: Result = self.harness.do(self.harness.finish(plan, kill_on=on))
        self._must_have_been_confined(result.report)
        return result

    def limits(self, **wanted: int) -> Limits:
        """Return limits of which the program itself has what is wanted, its runtime apart."""
        wanted = {"wall_seconds": 30, "cpu_seconds": 20, **wanted}
        return Limits(**self.kind.limits(**wanted))

    def on(self, namespaces: Any, *, gvisor: Any) -> Any:
        """Return what is expected of the backend under attack, where the two kinds differ."""
        return gvisor if self.gvisor else namespaces

    @staticmethod
    def _whole(language: str, code: str) -> str:
        return KIT + code if language == "python" else code

    def _must_have_been_confined(self, report: Report) -> None:
        provenance = report.provenance
        assert provenance.backend == self.backend
        assert provenance.bootstrap_ready


def not_on_gvisor(why: str) -> Callable[[Test], Test]:
    """Leave a test out where it would say nothing of the host; `why` is for the reader."""

    def noted(test: Test) -> Test:
        test.not_on_gvisor = why  # type: ignore[attr-defined]
        return test

    return noted


def told_by(result: Result) -> Any:
    """Return what a program told, which must have ended well and complained of nothing."""
    shown = result.stderr.decode(errors="replace")[-2000:]
    assert result.report.status is JobStatus.SUCCEEDED, (result.report.killed_by, shown)
    assert shown == ""
    return json.loads(result.stdout.splitlines()[-1])


def alive(marker: str) -> Sequence[str]:
    """Return the command lines of the host's processes that carry a marker; zombies have none."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue  # it has ended
        if marker in text and sys.executable not in text:
            found.append(text)
    return found
