"""`rookhold run` with a gateway of its own, through real processes and real sandboxes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rookhold_cli import verifying

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Rookhold

PATIENCE = 60


@pytest.fixture
def here(tmp_path: Path, rookhold: Rookhold) -> Path:
    """Where the command runs."""
    del rookhold  # makes it
    return tmp_path / "here"


def test_a_program_from_stdin_runs_and_leaves_evidence(rookhold: Rookhold, here: Path) -> None:
    ended = rookhold("run", "python", "-", stdin=b"print(6*7)\n")
    assert (ended.stdout, ended.returncode) == (b"42\n", 0)
    assert b"temporary" in ended.stderr
    (folder,) = (here / "rookhold-evidence").iterdir()
    names = {"receipt.json", "result.json", "envelope.json", "public-key.pem", "README.txt"}
    assert {entry.name for entry in folder.iterdir()} == names
    verified = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "rookhold_attestation",
            "verify",
            "--tenant",
            "local",
            "--envelope",
            "envelope.json",
            "--subject",
            "result.json",
            "--public-key",
            "public-key.pem",
        ],
        cwd=folder,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    facts = json.loads(verified.stdout)
    assert (verified.returncode, facts["outcome"]) == (0, "succeeded")
    assert facts["execution_id"] == folder.name
    assert "local" in (folder / "README.txt").read_text("utf-8")
    assert verifying.verify_folder(folder, tenant="local").compared == ("receipt.json",)


@pytest.mark.groups("memory")
def test_the_memory_limit_ends_with_137(rookhold: Rookhold) -> None:
    hungry = "a = []\nwhile True: a.append(bytearray(b'x' * (1 << 20)))"
    ended = rookhold("run", "python", "-c", hungry, "--memory", "64M", "--wall", "30s", "--json")
    document = json.loads(ended.stdout)
    assert (ended.returncode, document["status"]) == (137, "oom_killed")


def test_output_comes_back_byte_exact_on_its_own_stream(rookhold: Rookhold) -> None:
    program = (
        "import sys\n"
        "sys.stdout.buffer.write(b'\\xff\\x00\\r\\n' + b'x' * 70000 + b'\\n\\nno end')\n"
        "sys.stdout.flush()\n"
        "sys.stderr.write('to stderr')"
    )
    ended = rookhold("run", "python", "-c", program, "--no-evidence", "-q")
    assert ended.stdout == b"\xff\x00\r\n" + b"x" * 70000 + b"\n\nno end"
    assert ended.stderr == b"to stderr"


def test_ten_thousand_lines_come_back_whole_and_in_order(rookhold: Rookhold) -> None:
    ended = rookhold(
        "run", "python", "-c", "for n in range(10000): print(n)", "--no-evidence", "--wall", "60s"
    )
    assert ended.stdout.split() == [b"%d" % n for n in range(10000)]


def test_a_disk_that_is_too_full_for_a_job_is_told_with_what_to_do(rookhold: Rookhold) -> None:
    """A temporary gateway leaves 64 MB free unless the user says otherwise: here, a TiB."""
    ended = rookhold("run", "bash", "-c", "echo", ROOKHOLD_STORAGE_FREE_RESERVE_MB="1048576")
    assert (ended.stdout, ended.returncode) == (b"", 77)
    assert b"storage_reserve" in ended.stderr
    assert b"ROOKHOLD_STORAGE_FREE_RESERVE_MB" in ended.stderr


def test_output_is_shown_while_the_job_still_runs(environment: dict[str, str], here: Path) -> None:
    """The job prints, then waits to be killed: what it printed can only have come live."""
    with _started(environment, here, "echo first; sleep 100") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130


def test_files_go_in_and_come_out(rookhold: Rookhold, here: Path) -> None:
    (here / "data in.bin").write_bytes(b"\x00\x01")
    program = (
        "data = open('input/data in.bin', 'rb').read()\n"
        "open('output/a.bin', 'wb').write(data + b'!')\n"
        "open('output/b.txt', 'w').write(input())"
    )
    ended = rookhold(
        *["run", "python", "-c", program, "--file", "data in.bin", "--stdin", "-"],
        *["--output-file", "a.bin", "--output-file", "output/b.txt=copy.txt", "--evidence", "kept"],
        stdin=b"from stdin\n",
    )
    assert ended.returncode == 0, ended.stderr
    assert (here / "kept/output/a.bin").read_bytes() == b"\x00\x01!"
    assert (here / "copy.txt").read_bytes() == b"from stdin"
    compared = verifying.verify_folder(here / "kept").compared
    assert compared == ("receipt.json", "output/a.bin", "output/b.txt")


def test_json_is_one_document_with_everything(rookhold: Rookhold, here: Path) -> None:
    ended = rookhold("run", "bash", "-c", "echo out; echo err >&2; exit 4", "--json")
    document = json.loads(ended.stdout)
    assert (document["stdout"], document["stderr"]) == ("out\n", "err\n")
    assert (document["exit_code"], document["exit_status"], ended.returncode) == (4, 4, 4)
    assert document["receipt"]["outcome"] == "failed"
    assert document["evidence"]["verified"] is True
    assert (here / document["evidence"]["folder"] / "receipt.json").exists()


def test_evidence_never_goes_where_something_is_already(rookhold: Rookhold, here: Path) -> None:
    (here / "kept").mkdir()
    (here / "kept/precious").write_text("mine", "utf-8")
    ended = rookhold("run", "python", "-c", "print(1)", "--evidence", "kept")
    assert (ended.returncode, ended.stdout) == (64, b"")
    assert [entry.name for entry in (here / "kept").iterdir()] == ["precious"]


def test_a_job_that_fails_leaves_evidence_too(rookhold: Rookhold, here: Path) -> None:
    ended = rookhold("run", "bash", "-c", "sleep 60", "--wall", "1s", "--evidence", "kept")
    assert ended.returncode == 124
    assert b"1 s" in ended.stderr
    assert verifying.verify_folder(here / "kept", tenant="local").outcome == "timed_out"


def test_progress_is_silent_where_nobody_watches(rookhold: Rookhold) -> None:
    ended = rookhold("run", "python", "-c", "1", "-q")
    assert (ended.stdout, ended.stderr) == (b"", b"")


def test_a_server_in_the_current_folder_is_not_taken_for_ours(
    rookhold: Rookhold, here: Path
) -> None:
    (here / "rookhold_server").mkdir()
    (here / "rookhold_server/__main__.py").write_text("raise SystemExit('hijacked')", "utf-8")
    assert rookhold("run", "python", "-c", "print(1)", "--no-evidence").stdout == b"1\n"


@pytest.mark.parametrize(
    ("number", "exit_status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_command_that_is_interrupted_leaves_nothing_running(
    environment: dict[str, str], here: Path, number: int, exit_status: int
) -> None:
    with _started(environment, here, "echo up; sleep 100") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        family = _descendants(process.pid)
        assert len(family) >= 2, "the gateway and something of the job"
        process.send_signal(number)
        assert process.wait(PATIENCE) == exit_status
        assert _gone(family)


@pytest.mark.parametrize("pause", [0.002, 0.05])
def test_an_impatient_interrupt_ends_as_a_single_one(
    environment: dict[str, str], here: Path, pause: float
) -> None:
    """While the gateway starts, and up to the very end of the process; the fixture looks around."""
    temporary = Path(environment["HOME"], ".local/state/rookhold/temporary")
    with _started(environment, here, "sleep 100") as process:
        end = time.monotonic() + PATIENCE
        while not list(temporary.glob("gateway-*")) and time.monotonic() < end:
            time.sleep(0.002)
        family = _descendants(process.pid)
        while process.poll() is None and time.monotonic() < end:
            process.send_signal(signal.SIGINT)
            time.sleep(pause)
        assert process.wait(PATIENCE) == 130
        assert _gone(family)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["cobol", "-c", "1"], 77, b"unsupported_language"),
        (["python", "-c", " "], 77, b"empty_code"),
        (["python", "-c", "1", "--output-file", "../x"], 77, b"invalid_output_path"),
        (["python", "-c", "1", "--idempotency-key", "a b"], 64, b"idempotency key"),
        (["python", "-c", "1", "--public-key", "none.pem"], 74, b"(io)"),
        (["python", "-c", "1", "--public-key", "key.pem"], 64, b"invalid_key_encoding"),
        ([b"python", b"-c", b"'\xff'"], 64, b"UTF-8"),
    ],
    ids=str,
)
def test_what_no_gateway_would_take_starts_none(
    rookhold: Rookhold, here: Path, arguments: list[str], status: int, said: bytes
) -> None:
    (here / "key.pem").write_text("no key\n")
    (here / "key.pem").chmod(0o644)
    ended = rookhold("run", *arguments)
    assert (ended.returncode, ended.stdout) == (status, b"")
    assert said in ended.stderr
    assert b"temporary" not in ended.stderr
    assert [path.name for path in here.iterdir()] == ["key.pem"]


def test_a_command_that_is_killed_takes_its_gateway_with_it(
    environment: dict[str, str], here: Path, rookhold: Rookhold
) -> None:
    with _started(environment, here, "echo up; sleep 100") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        family = _descendants(process.pid)
        assert len(family) >= 2
        process.kill()
        process.wait(PATIENCE)
        assert _gone(family)
    # The next one tidies up what this one could not; the fixture checks that nothing is left.
    assert rookhold("run", "python", "-c", "1", "--no-evidence").returncode == 0


def test_no_sandbox_is_said_aloud_even_when_quiet(rookhold: Rookhold) -> None:
    ended = rookhold("run", "bash", "-c", "exit 0", "-q", "--no-evidence", ROOKHOLD_SANDBOX="off")
    assert ended.returncode == 0
    assert b"NO SANDBOX" in ended.stderr


def test_a_gateway_that_cannot_start_says_why(rookhold: Rookhold) -> None:
    ended = rookhold("run", "python", "-c", "1", ROOKHOLD_WORKERS="many")
    assert ended.returncode == 69
    assert b"ROOKHOLD_WORKERS" in ended.stderr


class _started:  # noqa: N801 - reads as what it is: `with _started(...)`
    """A running `rookhold run bash`; ended at the latest when the block is left."""

    def __init__(self, environment: dict[str, str], here: Path, code: str) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "rookhold_cli",
                "run",
                "bash",
                "-c",
                code,
                "--wall",
                "120s",
            ],
            env=environment,
            cwd=here,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self._process

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()


def _parents() -> Iterator[tuple[int, int, str]]:
    """Yield (pid, parent, start time) of every living process."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            after_name = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if after_name[0] != "Z":
            yield int(entry.name), int(after_name[1]), after_name[19]


def _descendants(root: int) -> set[tuple[int, str]]:
    """Return what lives below `root`, with start times, so that a reused id is not mistaken."""
    known = {pid: (parent, born) for pid, parent, born in _parents()}
    found = set()
    for pid, (parent, born) in known.items():
        while parent in known and parent != root:
            parent = known[parent][0]
        if parent == root:
            found.add((pid, born))
    return found


def _gone(family: set[tuple[int, str]]) -> bool:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if not family & {(pid, born) for pid, _, born in _parents()}:
            return True
        time.sleep(0.05)
    return False


def test_the_working_folder_is_all_that_was_touched(rookhold: Rookhold, here: Path) -> None:
    home = here.parent / "home"
    rookhold("run", "python", "-c", "1", "--evidence", "kept")
    left = [path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()]
    assert left == []
    assert os.listdir(here) == ["kept"]  # noqa: PTH208
