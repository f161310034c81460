"""Examples in the document. A test holds each against its schema and sends the submissions."""

from __future__ import annotations

from typing import Any, Final

_JOB: Final = "01983f0e-6d2c-7b3a-9f41-5d3a0c7e8b21"
_ROW: Final = {
    "job_id": _JOB,
    "tenant": "acme",
    "language": "python",
    "status": "succeeded",
    "created_at_ms": 1_760_000_000_000,
    "started_at_ms": 1_760_000_000_004,
    "finished_at_ms": 1_760_000_000_031,
    "exit_code": 0,
}

SUBMISSIONS: Final[dict[str, Any]] = {
    "hello": {
        "summary": "The shortest job.",
        "value": {"language": "python", "code": "print(6 * 7)"},
    },
    "files": {
        "summary": "A file in, a file out, and less time than usual.",
        "value": {
            "language": "bash",
            "code": "tr a-z A-Z < input/a.txt > output/b.txt",
            "files": [{"path": "input/a.txt", "content_base64": "aGVsbG8K"}],
            "outputs": ["output/b.txt"],
            "limits": {"wall_seconds": 5},
        },
    },
}

EXAMPLES: Final[dict[str, Any]] = {
    "submitJob": {
        "job_id": _JOB,
        "status": "queued",
        "stream_url": f"/v1/jobs/{_JOB}/stream",
        "replay_url": f"/v1/jobs/{_JOB}/replay",
        "stream_ticket_url": f"/v1/jobs/{_JOB}/stream-ticket",
    },
    "listJobs": {"items": [_ROW], "next_cursor": f"1760000000000:{_JOB}"},
    "cancelJob": {
        "job": {**_ROW, "status": "running", "finished_at_ms": None, "exit_code": None},
        "cancellation_requested": True,
        "already_terminal": False,
    },
    "getResult": {
        "job_id": _JOB,
        "status": "succeeded",
        "exit_code": 0,
        "duration_ms": 27,
        "stdout": "42\n",
        "stderr": "",
        "truncated": False,
        "violations": [],
        "artifacts": [],
    },
    "mintStreamTicket": {
        "ticket": "5f" * 32,
        "stream_url": f"/v1/jobs/{_JOB}/stream?ticket={'5f' * 32}",
        "expires_at_ms": 1_760_000_030_000,
    },
    "whoAmI": {
        "tenant": "acme",
        "principal_id": "ci",
        "credential_id": "4kq2",
        "auth_method": "api_key",
        "scopes": ["jobs:submit", "jobs:read"],
        "expires_at_ms": None,
    },
    "getHealth": {"ok": True},
    "getReadiness": {"ok": True},
}
