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

# A whole history whose chain is whole; of the shortest job below.
_EVENTS: Final = [
    (
        1_760_000_000_000,
        "accepted",
        {
            "language": "python",
            "requested_spec_sha256": (
                "8a6c86b83d8b453987b12fd3d806218b2f5c446eaf66a38ab6eea6d41a75da01"
            ),
            "status": "queued",
            "tenant": "acme",
        },
        "60586d162284707fd61852e6e4077c90f5d17a1a87fd16b1485c4f325aebb656",
    ),
    (
        1_760_000_000_004,
        "started",
        {
            "initial_effective_spec_sha256": (
                "1c3c271eee736c95830f660dbe366ea56f2c12b57bf8c1b064b1a5f63f6d45a2"
            ),
            "status": "running",
        },
        "870fc8f535a9374a330b21aaff50580ed72b9fb7d8540cd4918621d242d4a5c1",
    ),
    (
        1_760_000_000_030,
        "stdout",
        {"eol": True, "line": "42"},
        "f5f64c639364c31b23a6103dece6a8643b73f9e0e10257a23eee1fdfa370c4f2",
    ),
    (
        1_760_000_000_031,
        "finished",
        {
            "duration_ms": 24,
            "effective_spec_sha256": (
                "dac54c3761fa6281ad3ca6f3a427dad71a40d23920a3573978a63d520de2ef73"
            ),
            "exit_code": 0,
            "status": "succeeded",
        },
        "6dd3fd3cd83c023e0782d7695c81e9abd9f5f1c77411919017941ca8b84e4fcc",
    ),
]
_POSTURE: Final = {
    "backend": "namespaces+cgroups-v2+private-rootfs",
    "isolation_class": "linux-shared-kernel",
    "isolated": True,
    "private_rootfs": True,
    "dedicated_bootstrap": True,
    "seccomp": True,
    "networking": "disabled",
    "controls": ["capabilities-dropped", "cgroup-memory", "network-namespace", "seccomp"],
    "limit_enforcement": {"wall": True, "cpu": True, "mem": True, "pids": True, "file": True},
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
    "replayEvents": {
        "events": [
            {
                "seq": seq,
                "ts_ms": ts_ms,
                "kind": kind,
                "data": data,
                "prev_hash": "" if seq == 1 else _EVENTS[seq - 2][3],
                "event_hash": event_hash,
                "hash_version": 1,
            }
            for seq, (ts_ms, kind, data, event_hash) in enumerate(_EVENTS, 1)
        ],
        "next_cursor": 4,
        "complete": True,
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
    "getStatus": {
        "version": "0.1.0",
        "sandbox": _POSTURE["backend"],
        "uptime_seconds": 86_400,
        "environment": "production",
        "execution": _POSTURE,
        "scheduler": {
            "workers": 8,
            "queue_capacity": 64,
            "queue_depth": 3,
            "running": 8,
            "shutting_down": False,
        },
        "storage_ready": True,
    },
    "getPublicKey": {
        "algorithm": "Ed25519",
        "key_id": "sha256:63fb0dd4b04c4044c42d17d741785ec7e54f4dd494a4b02bf421e6b852ff8688",
        "public_key_pem": (
            "-----BEGIN PUBLIC KEY-----\n"
            "MCowBQYDK2VwAyEAKto72qFnkjPcnLOk0nrP/xIGWnm+rOpXKEymXE3S3jY=\n"
            "-----END PUBLIC KEY-----\n"
        ),
        "trust_notice": "This key is not a trust anchor: pin it through another channel.",
    },
    "getProtectedResource": {
        "resource": "https://gateway.example/api",
        "authorization_servers": ["https://issuer.example"],
        "bearer_methods_supported": ["header"],
        "scopes_supported": [
            "jobs:submit",
            "jobs:read",
            "jobs:cancel",
            "service:read",
            "metrics:read",
        ],
        "resource_name": "Rookhold execution gateway",
    },
    "getHealth": {"ok": True},
    "getReadiness": {"ok": True},
}
