"""The client against the real server: its own process, database and keys."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from rookhold import (
    ApiError,
    InvalidRequestError,
    NotFoundError,
    PolicyError,
    Rookhold,
    UnauthorizedError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = "sdk-tests-key-0123456789"
SECONDS = 60


class Server:
    """One gateway that can be stopped and started again on the same port and database."""

    def __init__(self, home: Path) -> None:
        from rookhold_attestation import PrivateKey

        self.home = home
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.signing_key = PrivateKey.generate()
        self.signing_key.save(home / "signing-key.pem")

    def start(self) -> None:
        ready, told = os.pipe()
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "ROOKHOLD_ADDR": f"127.0.0.1:{self.port}",
            "ROOKHOLD_API_KEYS": f"local:{KEY},other:{KEY}-other",
            "ROOKHOLD_DB": str(self.home / "state/rookhold.db"),
            "ROOKHOLD_JOBS_ROOT": str(self.home / "jobs"),
            "ROOKHOLD_ATTESTATION_KEY_FILE": str(self.home / "signing-key.pem"),
            "ROOKHOLD_READY_FD": str(told),
        }
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "rookhold_server"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(told,),
                cwd=self.home,
            )
        os.close(told)
        with os.fdopen(ready, "rb") as pipe:
            line = pipe.readline()
        assert line, (self.home / "log").read_text("utf-8")
        self.port = int(json.loads(line)["address"].rpartition(":")[2])

    def stop(self, number: int = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(SECONDS)

    def client(self, key: str = KEY, **options: Any) -> Rookhold:
        return Rookhold(f"http://127.0.0.1:{self.port}", key, **options)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("gateway"))
    running.start()
    yield running
    running.stop()


@pytest.fixture
def client(server: Server) -> Iterator[Rookhold]:
    with server.client() as connected:
        yield connected


def test_a_job_runs_and_its_result_is_typed(client: Rookhold) -> None:
    found = client.run(
        "python",
        "import sys\nprint(open('input/a').read() + input())\n"
        "open('output/b', 'wb').write(b'\\xff')\nsys.stderr.buffer.write(b'\\xfe')",
        stdin="stdin",
        files={"input/a": b"file, "},
        outputs=["output/b"],
        limits={"wall_seconds": 20},
    )
    assert (found.status, found.exit_code, found.stdout) == ("succeeded", 0, "file, stdin\n")
    assert found.stderr_bytes == b"\xfe"
    assert [(item.path, item.content) for item in found.artifacts] == [("output/b", b"\xff")]


def test_a_job_that_fails_is_a_result_like_any_other(client: Rookhold) -> None:
    found = client.run("bash", "sleep 60", limits={"wall_seconds": 1})
    assert (found.status, found.exit_code) == ("timed_out", None)
    assert [item.rule for item in found.violations] == ["wall_clock_exceeded"]


def test_the_history_is_followed_live_and_whole(client: Rookhold) -> None:
    submitted = client.submit("python", "for n in range(3000): print(n)")
    events = list(client.events(submitted.job_id, follow=True))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert (events[0].kind, events[1].kind, events[-1].kind) == ("accepted", "started", "finished")
    printed = b"".join(event.output for event in events if event.kind == "stdout")
    assert printed == b"".join(b"%d\n" % n for n in range(3000))
    assert list(client.events(submitted.job_id)) == events
    assert [event.seq for event in client.events(submitted.job_id, len(events) - 1)] == [
        len(events)
    ]


def test_the_detail_carries_the_receipt(client: Rookhold) -> None:
    submitted = client.submit("bash", "exit 7")
    client.wait(submitted.job_id)
    detail = client.job(submitted.job_id)
    assert (detail.status, detail.exit_code, detail.killed_by) == ("failed", 7, None)
    assert detail.receipt is not None
    assert detail.receipt["receipt_sha256"] == detail.receipt_sha256
    assert detail.requested_spec["code"] == "exit 7"


def test_evidence_downloads_exactly_what_verifies(server: Server, client: Rookhold) -> None:
    from rookhold_attestation import Policy, verify_envelope

    job_id = client.submit("python", "print('signed')").job_id
    envelope = client.attestation(job_id, 30)
    artifact = client.result_artifact(job_id, 30)
    verified = verify_envelope(
        envelope.content,
        artifact=artifact.content,
        keys=[server.signing_key.public_key],
        policy=Policy(tenant="local"),
    )
    assert verified.execution_id == job_id
    assert artifact.sha256 == hashlib.sha256(artifact.content).hexdigest()
    assert client.job(job_id).attestation.state == "available"
    named = client.public_key()
    assert named.pem == server.signing_key.public_key.to_pem()
    assert "not a trust anchor" in named.trust_notice


def test_a_running_job_is_cancelled(client: Rookhold) -> None:
    job_id = client.submit("bash", "echo up; sleep 100", limits={"wall_seconds": 200}).job_id
    for event in client.events(job_id, follow=True):
        if event.kind == "stdout":
            assert client.cancel(job_id).cancellation_requested
    assert client.wait(job_id, SECONDS).status == "cancelled"
    assert client.cancel(job_id).already_terminal


def test_lists_hold_every_job_once(client: Rookhold) -> None:
    made = [client.submit("bash", "exit 0").job_id for _ in range(5)]
    for job_id in made:
        client.wait(job_id)
    listed = [job.job_id for job in client.jobs(page_size=2)]
    assert len(listed) == len(set(listed))
    assert listed[:5] == made[::-1]
    assert all(job.language == "bash" for job in client.jobs(language="bash"))
    with pytest.raises(InvalidRequestError) as caught:
        list(client.jobs(status="asleep"))
    assert caught.value.code == "invalid_status"


def test_the_gateway_tells_about_itself(client: Rookhold) -> None:
    assert client.health()
    assert client.ready().ready
    who = client.whoami()
    assert (who.tenant, who.auth_method) == ("local", "api_key")
    able = client.capabilities()
    assert "python" in able.languages
    assert able.signs
    assert client.status().execution == able.execution


def test_refusals_carry_the_servers_code(server: Server, client: Rookhold) -> None:
    with pytest.raises(PolicyError) as caught:
        client.submit("python", "1", requirements={"minimum_isolation": "hardware-vm"})
    assert caught.value.code == "minimum_isolation_unsatisfied"
    assert caught.value.request_id
    with server.client("wrong") as stranger, pytest.raises(UnauthorizedError):
        stranger.whoami()
    job_id = client.submit("bash", "exit 0").job_id
    with server.client(f"{KEY}-other") as other, pytest.raises(NotFoundError):
        other.job(job_id)


def test_a_large_body_that_is_refused_unread_still_tells_why(server: Server) -> None:
    with server.client("wrong") as stranger, pytest.raises(ApiError) as caught:
        stranger.submit("python", "#" * 8_000_000)
    assert caught.value.code == "invalid_api_key"


def test_the_same_key_makes_one_job(client: Rookhold) -> None:
    first = client.submit("bash", "exit 0", idempotency_key="sdk-once")
    again = client.submit("bash", "exit 0", idempotency_key="sdk-once")
    assert (first.replayed, again.replayed) == (False, True)
    assert first.job_id == again.job_id


def test_a_wait_outlives_a_server_that_is_killed_and_started_again(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.start()
    try:
        with server.client() as client:
            job_id = client.submit("bash", "sleep 100", limits={"wall_seconds": 200}).job_id
            while client.job(job_id).status != "running":
                time.sleep(0.02)
            found: list[Any] = []
            waiting = threading.Thread(target=lambda: found.append(client.wait(job_id, SECONDS)))
            following = threading.Thread(
                target=lambda: found.append(list(client.events(job_id, follow=True)))
            )
            waiting.start()
            following.start()
            server.stop(signal.SIGKILL)
            server.start()
            waiting.join(SECONDS)
            following.join(SECONDS)
            events, result = sorted(found, key=lambda value: not isinstance(value, list))
            assert result.status == "error"
            assert [event.kind for event in events] == ["accepted", "started", "finished"]
    finally:
        server.stop()
