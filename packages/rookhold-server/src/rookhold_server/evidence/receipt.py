"""The members of a receipt that the worker knows; the store adds the core ones and overwrites."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rookhold_types.isolation import control_list
from rookhold_types.receipts import FileDigest, OutputEvidence, StreamOutput, policy_sha256
from rookhold_types.requested import requested_members
from rookhold_types.wire import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rookhold_exec.executor import Provenance, Report, StreamEvidence
    from rookhold_server.evidence.retained import Retained
    from rookhold_types.isolation import IsolationClass
    from rookhold_types.jobs import JobSpec


def executed(
    spec: JobSpec,
    report: Report | None,
    provenance: Provenance,
    *,
    killed_by: str | None,
    retained: Retained,
    artifacts: Sequence[dict[str, Any]],
    evidence_complete: bool,
) -> dict[str, Any]:
    """A job that an executor took; without a report where it failed to give one.

    `artifacts` are the data of stored artifact events.
    """
    usage = None if report is None else report.usage
    return {
        "killed_by": killed_by,
        "evidence_complete": evidence_complete,
        **requested_members(spec),
        "resource_usage": None if usage is None else plain(usage),
        "executor_output": None
        if report is None
        else {
            "stdout": plain(_stream(report.stdout)),
            "stderr": plain(_stream(report.stderr)),
        },
        "output": plain(_output(retained, report)),
        "artifacts": [
            {name: data[name] for name in FileDigest.__struct_fields__} for data in artifacts
        ],
        **observed(provenance, spec.requirements.minimum_isolation),
    }


def observed(provenance: Provenance, minimum: IsolationClass) -> dict[str, Any]:
    """The members from `backend` to `policy_sha256`."""
    members: dict[str, Any] = {
        **plain(provenance),
        "controls": list(control_list(provenance.controls)),
        "minimum_isolation": str(minimum),
    }
    return {**members, "policy_sha256": policy_sha256(members)}


def _stream(evidence: StreamEvidence) -> StreamOutput:
    return StreamOutput(
        bytes_seen=evidence.bytes_seen,
        bytes_offered_to_sink=evidence.bytes_offered,
        records_offered_to_sink=evidence.records_offered,
        raw_sha256=evidence.seen_sha256,
        executor_truncated=evidence.truncated,
    )


def _output(retained: Retained, report: Report | None) -> OutputEvidence:
    stdout = None if report is None else report.stdout
    stderr = None if report is None else report.stderr
    return OutputEvidence(
        stdout_bytes=retained.stdout.bytes,
        stderr_bytes=retained.stderr.bytes,
        stdout_sha256=retained.stdout.sha256,
        stderr_sha256=retained.stderr.sha256,
        stdout_bytes_seen=None if stdout is None else stdout.bytes_seen,
        stderr_bytes_seen=None if stderr is None else stderr.bytes_seen,
        stdout_seen_sha256=None if stdout is None else stdout.seen_sha256,
        stderr_seen_sha256=None if stderr is None else stderr.seen_sha256,
        truncated=retained.truncated,
    )
