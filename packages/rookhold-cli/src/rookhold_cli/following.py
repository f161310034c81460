"""Follows a job's history to its end and passes its output on as it comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rookhold import Artifact, Rookhold

from . import output

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What the history said about the job."""

    status: str
    exit_code: int | None
    artifacts: tuple[Artifact, ...]
    violations: tuple[Mapping[str, Any], ...]
    truncated: bool

    @property
    def rules(self) -> tuple[str, ...]:
        return tuple(str(violation.get("rule")) for violation in self.violations)


def follow(client: Rookhold, job_id: str, show: Callable[[str, bytes], None] = output.raw) -> Ended:
    """Give `show` each piece of output once and in order; return when the job has ended."""
    artifacts: list[Artifact] = []
    violations: list[Mapping[str, Any]] = []
    truncated = False
    status, exit_code = "error", None
    for event in client.events(job_id, follow=True):
        match event.kind:
            case "stdout" | "stderr":
                show(event.kind, event.output)
            case "started":
                output.progress("running")
            case "artifact":
                artifacts.append(Artifact.read(dict(event.data)))
            case "violation":
                violations.append(event.data)
            case "truncated":
                truncated = True
            case "finished":
                status = str(event.data.get("status"))
                exit_code = event.data.get("exit_code")
            case _:
                pass  # accepted, and kinds that a newer gateway may add
    return Ended(
        status=status,
        exit_code=exit_code if isinstance(exit_code, int) else None,
        artifacts=tuple(artifacts),
        violations=tuple(violations),
        truncated=truncated,
    )
