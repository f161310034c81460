"""Jobs as a tenant runs them, over HTTP, with what their receipts say about them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway import Gateway
    from isolating import Isolating

    from rookhold.results import JobDetail, Result

WAIT_SECONDS = 120


class ProgramFailedError(Exception):
    """The job of a check did not get as far as its answer; no twin may take that for success."""


@dataclass(frozen=True)
class Ran:
    """One job at its end."""

    result: Result
    detail: JobDetail

    @property
    def receipt(self) -> Mapping[str, Any]:
        assert self.detail.receipt is not None
        return self.detail.receipt

    def succeeded(self) -> Ran:
        if self.result.status != "succeeded":
            raise ProgramFailedError(f"{self.result.status}: {self.result.stderr}")
        return self

    @property
    def answer(self) -> Any:
        """What the program printed, as JSON."""
        return json.loads(self.succeeded().result.stdout)


@dataclass(frozen=True)
class Jobs:
    """Runs Python programs on one gateway, with some controls switched off for a twin."""

    gateway: Gateway
    kind: Isolating | None = None  # nothing on `off`
    switched_off: tuple[str, ...] = ()

    def without(self, *controls: str) -> Jobs:
        return replace(self, switched_off=controls)

    @property
    def own_kernel(self) -> bool:
        """Whether a job has a kernel of its own, and none of its processes is one of the host."""
        return self.kind is not None and self.kind.own_kernel

    def limits(self, **wanted: int) -> dict[str, int]:
        """Return limits that leave the program itself what is wanted."""
        return wanted if self.kind is None else self.kind.limits(**wanted)

    def source(self, code: str) -> str:
        return f"# without: {', '.join(self.switched_off)}\n{code}" if self.switched_off else code

    def submit(self, code: str, **more: Any) -> str:
        with self.gateway.client() as client:
            return client.submit("python", self.source(code), **more).job_id

    def runtime(self) -> list[int]:
        """Return the processes of runsc that live below the gateway: sandboxes, whatever is in."""
        found = []
        for pid in self.gateway.processes():
            try:
                name = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue  # it ended while we looked
            if name.startswith(b"runsc"):
                found.append(pid)
        return found

    def finish(self, job_id: str) -> Ran:
        with self.gateway.client() as client:
            result = client.wait(job_id, WAIT_SECONDS)
            return Ran(result, client.job(job_id))

    def run(self, code: str, **more: Any) -> Ran:
        return self.finish(self.submit(code, **more))

    def receipt(self) -> Mapping[str, Any]:
        """Return the receipt of a job that does nothing."""
        return self.run("pass").succeeded().receipt

    def ask(self, code: str, **more: Any) -> Any:
        """Run a program that prints its findings as JSON; return them."""
        return self.run(code, **more).answer
