"""The other commands, and `run`, against a gateway that somebody configured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rookhold_cli import gateway, verifying
from rookhold_cli.commands import run as run_command
from rookhold_cli.temporary import TemporaryGateway, temporary_gateway

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Rookhold


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporaryGateway]:
    home = tmp_path_factory.mktemp("gateway")
    with temporary_gateway({"PATH": os.environ["PATH"], "HOME": str(home)}) as gateway:
        yield gateway


@pytest.fixture
def settings(running: TemporaryGateway) -> dict[str, str]:
    return {
        "ROOKHOLD_BASE_URL": running.target.base_url,
        "ROOKHOLD_API_KEY": str(running.target.api_key),
    }


@pytest.fixture
def job(rookhold: Rookhold, settings: dict[str, str]) -> str:
    """A job that ended with 3 and printed on both streams."""
    code = "echo out; echo err >&2; exit 3"
    ended = rookhold("run", "bash", "-c", code, "--detach", **settings)
    assert ended.returncode == 0
    job_id = ended.stdout.decode().strip()
    rookhold("result", job_id, "--wait", **settings)
    return job_id


def test_run_uses_the_configured_gateway(
    rookhold: Rookhold, settings: dict[str, str], tmp_path: Path
) -> None:
    ended = rookhold("run", "python", "-c", "print(42)", "--evidence", "kept", **settings)
    assert (ended.stdout, ended.returncode) == (b"42\n", 0)
    assert b"temporary" not in ended.stderr
    said = (tmp_path / "here/kept/README.txt").read_text("utf-8")
    assert "no trust anchor" in said


@pytest.mark.parametrize(
    ("arguments", "exit_status"),
    [
        (["bash", "-c", "exit 0"], 0),
        (["bash", "-c", "exit 3"], 3),
        (["python", "-c", "import os; os._exit(255)"], 255),
        (["bash", "-c", "kill -9 $$"], 137),
        (["bash", "-c", "kill -15 $$"], 143),
        (["bash", "-c", "sleep 60", "--wall", "1s"], 124),
        (["python", "-c", "while True: pass", "--cpu", "1s", "--wall", "50s"], 125),
        (["python", "-c", "1", "--output-file", "never-written"], 125),
        (["python", "-c", "1", "--min-isolation", "hardware-vm"], 77),
        (["cobol", "-c", "1"], 77),
        (["python", "-c", "  "], 77),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_the_exit_status_tells_how_it_ended(
    rookhold: Rookhold, settings: dict[str, str], arguments: list[str], exit_status: int
) -> None:
    ended = rookhold("run", *arguments, "--no-evidence", **settings)
    assert ended.returncode == exit_status, ended.stderr
    assert b"Traceback" not in ended.stderr


def test_without_the_verifier_evidence_is_kept_and_not_called_verified(
    rookhold_without: Rookhold, settings: dict[str, str], tmp_path: Path
) -> None:
    arguments = ["run", "python", "-c", "print(42)", "--evidence", "kept"]
    ended = rookhold_without("rookhold_attestation", *arguments, **settings)
    assert (ended.stdout, ended.returncode) == (b"42\n", 0)
    assert b"not checked here" in ended.stderr
    assert verifying.verify_folder(tmp_path / "kept").outcome == "succeeded"


def test_a_pinned_key_of_another_gateway_ends_with_65(
    rookhold: Rookhold, settings: dict[str, str], tmp_path: Path
) -> None:
    from rookhold_attestation import PrivateKey

    pem = tmp_path / "other.pem"
    PrivateKey.generate().public_key.save(pem)
    ended = rookhold("run", "python", "-c", "print(42)", "--public-key", str(pem), **settings)
    assert (ended.stdout, ended.returncode) == (b"42\n", 65)


def test_a_wrong_key_is_refused_with_77(rookhold: Rookhold, settings: dict[str, str]) -> None:
    wrong = settings | {"ROOKHOLD_API_KEY": "wrong"}
    for verb in (["run", "python", "-c", "1"], ["jobs"], ["show", "x"], ["cancel", "x"]):
        ended = rookhold(*verb, **wrong)
        assert ended.returncode == 77
        assert b"invalid_api_key" in ended.stderr
        assert b"wrong" not in ended.stderr


@pytest.mark.parametrize(("number", "exit_status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupting_run_cancels_the_job(
    environment: dict[str, str],
    settings: dict[str, str],
    running: TemporaryGateway,
    tmp_path: Path,
    number: int,
    exit_status: int,
) -> None:
    process = subprocess.Popen(
        [
            *[sys.executable, "-P", "-m", "rookhold_cli", "run", "bash"],
            *["-c", "echo up; sleep 100", "--wall", "2m"],
        ],
        env=environment | settings,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(number)
        assert process.wait(60) == exit_status
    with running.target.client() as client:
        newest = next(client.jobs())
        assert client.wait(newest.job_id, 60).status == "cancelled"


def test_result_repeats_what_run_would_have_said(
    rookhold: Rookhold, settings: dict[str, str], job: str
) -> None:
    ended = rookhold("result", job, **settings)
    assert (ended.stdout, ended.stderr, ended.returncode) == (b"out\n", b"err\n", 3)
    document = json.loads(rookhold("result", job, "--json", **settings).stdout)
    assert (document["job_id"], document["exit_code"]) == (job, 3)


@pytest.mark.parametrize(
    ("code", "limits", "status", "said"),
    [
        ("sleep 100", ["--wall", "1s"], 124, b"rookhold: stopped: it ran longer than its limit"),
        ("head -c 5000000 /dev/zero | tr '\\0' x", [], 0, b"rookhold: the job printed more than"),
    ],
    ids=["stopped", "cut"],
)
def test_result_says_what_run_says_also_where_nobody_watches(
    rookhold: Rookhold,
    settings: dict[str, str],
    code: str,
    limits: list[str],
    status: int,
    said: bytes,
) -> None:
    job = ["run", "bash", "-c", code, *limits, "--no-evidence", "--idempotency-key", f"say{status}"]
    ran = rookhold(*job, **settings)
    assert ran.stderr.startswith(said)
    job_id = rookhold(*job, "--detach", **settings).stdout.decode().strip()
    ended = rookhold("result", job_id, **settings)
    assert (ended.returncode, ended.stderr) == (status, ran.stderr)
    if status == 0:
        assert (
            "output        cut at its limit: "
            in rookhold("show", job_id, **settings).stdout.decode()
        )


def test_evidence_can_be_fetched_later(
    rookhold: Rookhold, settings: dict[str, str], job: str, tmp_path: Path
) -> None:
    ended = rookhold("result", job, "--evidence", "kept", **settings)
    assert ended.returncode == 3
    found = verifying.verify_folder(tmp_path / "here/kept", tenant="local")
    assert (found.execution_id, found.outcome) == (job, "failed")


def test_a_job_that_still_runs_has_no_result_yet(
    rookhold: Rookhold, settings: dict[str, str]
) -> None:
    started = rookhold("run", "bash", "-c", "sleep 100", "--wall", "2m", "--detach", **settings)
    job_id = started.stdout.decode().strip()
    assert rookhold("result", job_id, **settings).returncode == 64
    assert "evidence      not yet\n" in rookhold("show", job_id, **settings).stdout.decode()
    cancelled = rookhold("cancel", job_id, **settings)
    assert (cancelled.stdout, cancelled.returncode) == (b"cancellation requested\n", 0)
    ended = rookhold("result", job_id, "--wait", **settings)
    assert (ended.stderr, ended.returncode) == (b"rookhold: cancelled\n", 125)
    again = json.loads(rookhold("cancel", job_id, "--json", **settings).stdout)
    assert again["already_terminal"] is True


def test_show_tells_the_sandbox_and_the_limits(
    rookhold: Rookhold, settings: dict[str, str], job: str
) -> None:
    said = rookhold("show", job, **settings).stdout.decode()
    detail = json.loads(rookhold("show", job, "--json", **settings).stdout)
    assert detail["receipt"]["exit_code"] == 3
    for text in (job, "exit code 3", detail["receipt"]["backend"], "wall_seconds 15"):
        assert text in said


def test_a_development_gateway_is_noticed_if_it_takes_the_public_key(
    running: TemporaryGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = gateway.Target(running.target.base_url, gateway.DEVELOPMENT_KEY)
    nobody = gateway.Target("http://127.0.0.1:9", gateway.DEVELOPMENT_KEY)
    for target, runs in ((running.target, True), (wrong, False), (nobody, False)):
        monkeypatch.setattr(gateway, "DEVELOPMENT", target)
        assert gateway.development_runs() is runs


def test_run_says_how_to_use_the_development_gateway(
    running: TemporaryGateway,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(gateway, "DEVELOPMENT", running.target)
    monkeypatch.setenv("HOME", str(tmp_path))
    for quiet in (False, True):
        with run_command._gateway(None, quiet):
            assert (running.target.settings in capsys.readouterr().err) is not quiet


def test_jobs_are_listed_newest_first(
    rookhold: Rookhold, settings: dict[str, str], job: str
) -> None:
    rows = rookhold("jobs", "-n", "1", **settings).stdout.decode().splitlines()
    assert [row.split("\t")[:4] for row in rows] == [[job, "bash", "failed", "3"]]
    listed = json.loads(rookhold("jobs", "--status", "failed", "--json", **settings).stdout)
    assert listed["items"][0]["job_id"] == job
    none = rookhold("jobs", "--language", "node", **settings)
    assert (none.returncode, none.stdout) == (0, b"")
    asked = settings["ROOKHOLD_BASE_URL"]
    assert none.stderr.decode() == f"rookhold: no such jobs of yours at the gateway {asked}\n"


def test_a_job_of_nobody_is_refused(rookhold: Rookhold, settings: dict[str, str]) -> None:
    ended = rookhold("show", "00000000-0000-7000-8000-000000000000", **settings)
    assert ended.returncode == 77
    assert b"job_not_found" in ended.stderr


def test_the_same_key_runs_a_job_once(rookhold: Rookhold, settings: dict[str, str]) -> None:
    arguments = ["run", "python", "-c", "print(1)", "--idempotency-key", "once", "--detach"]
    first, second = (rookhold(*arguments, **settings).stdout for _ in range(2))
    assert first == second
    other = rookhold(*arguments[:3], "print(2)", *arguments[4:], **settings)
    assert other.returncode == 77
    assert b"idempotency_key_reused" in other.stderr


def test_a_repeated_key_finds_the_evidence_of_the_first_run(
    rookhold: Rookhold, settings: dict[str, str]
) -> None:
    arguments = ["run", "python", "-c", "print(1)", "--idempotency-key", "again"]
    first, second = (rookhold(*arguments, **settings) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0)
    assert first.stdout == second.stdout
    assert b"verified" in second.stderr


def test_output_that_cannot_be_written_cancels_the_job(
    rookhold: Rookhold, environment: dict[str, str], settings: dict[str, str]
) -> None:
    arguments = ["run", "bash", "-c", "echo out; sleep 60", "--no-evidence"]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "rookhold_cli", *arguments],
            env=environment | settings,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert ended.returncode == 74
    job_id = ended.stderr.splitlines()[0].split()[-1].decode()
    ended = rookhold("result", job_id, "--wait", **settings)
    assert (ended.stderr, ended.returncode) == (b"rookhold: cancelled\n", 125)
    assert b"cancelled" in rookhold("show", job_id, **settings).stdout


def test_a_limit_that_was_lowered_is_said(rookhold: Rookhold, settings: dict[str, str]) -> None:
    arguments = ["run", "python", "-c", "1", "--no-evidence", "--wall", "10m", "--pids", "8"]
    ended = rookhold(*arguments, **settings)
    assert ended.stderr == b"rookhold: the time limit was 300 s, not the 600 s asked for\n"


def test_check_looks_at_the_gateway_too(rookhold: Rookhold, settings: dict[str, str]) -> None:
    ended = rookhold("check", "--json", **settings)
    document = json.loads(ended.stdout)
    assert document["gateway"]["ok"] is True
    assert document["gateway"]["facts"]["tenant"] == "local"
    wrong = rookhold("check", **settings | {"ROOKHOLD_API_KEY": "wrong"})
    assert wrong.returncode == 77
    assert b"FAIL" in wrong.stdout


def test_verify_reads_a_folder_or_two_files(
    rookhold: Rookhold, settings: dict[str, str], job: str
) -> None:
    rookhold("result", job, "--evidence", "kept", **settings)
    folder = rookhold("verify", "kept", "--tenant", "local")
    assert folder.returncode == 0
    assert b"proves nothing" in folder.stderr
    files = ["kept/envelope.json", "kept/result.json", "--public-key", "kept/public-key.pem"]
    two = rookhold("verify", *files, "--tenant", "local", "--json")
    assert json.loads(two.stdout)["execution_id"] == job
    assert two.stderr == b""
    assert rookhold("verify", *files, "--tenant", "somebody").returncode == 65


def test_verify_checks_every_folder_also_after_one_that_does_not_hold(
    rookhold: Rookhold, settings: dict[str, str], job: str, tmp_path: Path
) -> None:
    for name in ("bad", "good"):
        rookhold("result", job, "--evidence", name, **settings)
    assert rookhold("verify", "bad", "good").returncode == 0
    with (tmp_path / "here/bad/result.json").open("ab") as file:
        file.write(b" ")
    ended = rookhold("verify", "bad", "good")
    assert ended.returncode == 65
    assert ended.stdout.count(b"verified: ") == 1
    assert b"rookhold: bad: the artifact is not the one" in ended.stderr
    told = json.loads(rookhold("verify", "bad", "good", "--json").stdout)
    assert [told["verified"], *(one["verified"] for one in told["folders"])] == [False, False, True]


def test_verify_refuses_a_changed_byte_with_65(
    rookhold: Rookhold, settings: dict[str, str], job: str, tmp_path: Path
) -> None:
    rookhold("result", job, "--evidence", "kept", **settings)
    result = tmp_path / "here/kept/result.json"
    result.write_bytes(result.read_bytes().replace(b"out", b"oui", 1))
    ended = rookhold("verify", "kept")
    assert (ended.returncode, ended.stdout) == (65, b"")
    assert b"subject_digest_mismatch" in ended.stderr
