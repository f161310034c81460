"""A gateway under test, as the reports use it: jobs over HTTP, and a look at the host beside it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway import eventually

from rookhold_types.events import WireEvent, check_chain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from faults.leftovers import Leftovers
    from gateway import Gateway
    from isolating import Isolating

    from rookhold import Rookhold
    from rookhold.results import Event, Result

WORKERS = 2
SETTINGS = {"ROOKHOLD_RATE_PER_MIN": "1000000", "ROOKHOLD_WORKERS": str(WORKERS)}
WAIT_SECONDS = 120


@dataclass(frozen=True)
class Ran:
    """One job at its end; `seconds` is how long its client waited."""

    result: Result
    receipt: Mapping[str, Any]
    seconds: float

    @property
    def ended(self) -> tuple[str, str | None]:
        return self.result.status, self.receipt["killed_by"]

    @property
    def controls(self) -> set[str]:
        return set(self.receipt["controls"] or ())

    @property
    def rules(self) -> list[str]:
        return [violation.rule for violation in self.result.violations]

    def agrees_with_the_clock(self) -> bool:
        """Whether what the server says it took is what the client saw, queueing included."""
        said = (self.receipt["finished_at_ms"] - self.receipt["created_at_ms"]) / 1000
        return self.receipt["duration_ms"] / 1000 <= said + 0.1 and abs(self.seconds - said) < 5


@dataclass(frozen=True)
class Site:
    gateway: Gateway
    client: Rookhold
    other_tenant: str
    backend: Isolating | None = None
    left: Leftovers | None = None

    @property
    def confines(self) -> bool:
        return self.client.capabilities().execution.backend != "off"

    @property
    def own_kernel(self) -> bool:
        """Whether a job has a kernel of its own, and none of its processes is one of the host."""
        return self.backend is not None and self.backend.own_kernel

    def refuse_without_a_sandbox(self) -> None:
        """Raise unless this backend confines: a hostile program must never start on `off`."""
        if not self.confines:
            raise RuntimeError("a hostile program was about to run without a sandbox")

    def limits(self, **wanted: int) -> dict[str, int]:
        """Return limits that leave the job itself what is wanted, beside its runtime."""
        return wanted if self.backend is None else self.backend.limits(**wanted)

    def left_over(self, seconds: float = 10) -> list[str]:
        """Return what is left of jobs although none runs, once it no longer goes by itself."""
        assert self.left is not None
        eventually(seconds, lambda: not self.left.of_jobs())
        return self.left.of_jobs()

    def submit(self, language: str, code: str, **more: Any) -> str:
        return self.client.submit(language, code, **more).job_id

    def run(self, language: str, code: str, **more: Any) -> Ran:
        began = time.monotonic()
        return self.finish(self.submit(language, code, **more), began)

    def finish(self, job_id: str, began: float | None = None) -> Ran:
        began = time.monotonic() if began is None else began
        result = self.client.wait(job_id, WAIT_SECONDS)
        seconds = time.monotonic() - began
        receipt = self.client.job(job_id).receipt
        assert receipt is not None
        return Ran(result, receipt, seconds)

    def events(self, job_id: str) -> list[Event]:
        """Return the whole history, whose chain is whole."""
        events = list(self.client.events(job_id))
        wire = [
            WireEvent(
                seq=event.seq,
                ts_ms=event.ts_ms,
                kind=event.kind,
                data=dict(event.data),
                prev_hash=event.prev_hash,
                event_hash=event.event_hash,
                hash_version=event.hash_version,
            )
            for event in events
        ]
        checked = check_chain(job_id, wire)
        assert checked.complete
        assert checked.events == len(events)
        return events

    def printed(self, job_id: str, stream: str) -> bytes:
        """Return what the stored events hold of a stream."""
        return b"".join(event.output for event in self.events(job_id) if event.kind == stream)

    def prints(self, job_id: str, wanted: bytes, seconds: float = 60) -> bool:
        """Wait until the job has printed that; what is stored was really printed by then."""
        return eventually(seconds, lambda: wanted in self.client.result(job_id).stdout_bytes)

    def memory_kib(self) -> int:
        """Return the resident memory of the server's own process."""
        assert self.gateway.process is not None
        status = Path(f"/proc/{self.gateway.process.pid}/status").read_text("ascii")
        return int(next(x for x in status.splitlines() if x.startswith("VmRSS:")).split()[1])


def running(argument: str) -> list[int]:
    """Return the live processes of this host that have `argument` in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it ended while we looked
        if argument.encode() in arguments:
            found.append(int(entry.name))
    return found
