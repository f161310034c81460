"""What `show` says of jobs whose output or evidence is not whole."""

from __future__ import annotations

from typing import Any

import pytest

from rookhold import JobDetail
from rookhold_cli import evidence, wholeness
from rookhold_cli.commands import show

WHOLE = {
    "stdout_bytes": 4,
    "stdout_bytes_seen": 4,
    "stderr_bytes": 0,
    "stderr_bytes_seen": 0,
    "truncated": False,
}
RESTARTED = {
    "killed_by": "server_restarted",
    "terminal_reason": "server_restarted",
    "evidence_complete": False,
}


def detail(status: str, receipt: dict[str, Any], policy: dict[str, Any]) -> JobDetail:
    """Read a finished job as a gateway gives it."""
    job_id = "01890a5d-ac96-774b-bcce-b302099a8057"
    return JobDetail.read(
        {
            "job_id": job_id,
            "tenant": "acme",
            "language": "bash",
            "status": status,
            "created_at_ms": 1,
            "started_at_ms": 2,
            "finished_at_ms": 3,
            "exit_code": 0 if status == "succeeded" else None,
            "requested_spec": {},
            "effective_spec": None,
            "execution_policy": policy,
            "receipt": receipt,
            "receipt_sha256": "0" * 64,
            "attestation": {"available": True, "state": "attested"},
            "queue": None,
        }
    )


def facts(status: str, receipt: dict[str, Any], **policy: Any) -> dict[str, str]:
    return dict(show._facts(detail(status, receipt, policy)))


def test_a_job_whose_gateway_was_killed_is_not_said_to_have_had_no_sandbox() -> None:
    said = facts("error", RESTARTED)
    assert said["sandbox"] == "not recorded: the gateway ended while the job ran"
    assert said["ended"] == "stopped: the gateway stopped while it ran"
    assert said["evidence"].startswith("attested; incomplete: ")
    page = evidence._readme(detail("error", RESTARTED, {}), None)
    assert "  backend   not recorded: the gateway ended" in page
    assert "never started" not in page


def test_a_job_that_never_became_ready_is_still_said_so() -> None:
    said = facts("error", {"killed_by": "runtime_unavailable"})
    assert said["sandbox"] == "the job never became ready in one"


def test_output_that_was_cut_is_said_with_its_bytes_beside_a_good_end() -> None:
    cut = WHOLE | {"stdout_bytes": 65536, "stdout_bytes_seen": 100000, "truncated": True}
    said = facts("succeeded", {"output": cut, "evidence_complete": True})
    assert said["ended"] == "the job ended well"
    assert said["output"] == "cut at its limit: 65536 of 100000 bytes of stdout kept"
    assert said["evidence"] == "attested"


def test_a_whole_job_needs_no_line_about_it() -> None:
    said = facts("succeeded", {"output": WHOLE, "evidence_complete": True})
    assert "output" not in said
    assert said["evidence"] == "attested"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"truncated": True}, "cut at its limit"),
        ({"stderr_bytes_seen": 9}, "not kept whole: 0 of 9 bytes of stderr kept"),
        ({"stdout_bytes_seen": None}, None),
    ],
)
def test_no_more_is_said_of_output_than_is_known(changes: dict[str, Any], said: str | None) -> None:
    assert wholeness.output({"output": WHOLE | changes}) == said


def test_a_receipt_that_does_not_say_is_not_called_incomplete() -> None:
    assert wholeness.evidence({}) is None
    assert wholeness.output({}) is None
