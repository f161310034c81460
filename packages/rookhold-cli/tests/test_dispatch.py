"""The command line itself, through real processes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rookhold_cli import __version__
from rookhold_cli.main import VERBS

if TYPE_CHECKING:
    from conftest import Rookhold


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["run"],
        ["run", "python"],
        ["run", "python", "a.py", "-c", "print(1)"],
        ["run", "python", "-c", "1", "--wall", "soon"],
        ["run", "python", "-c", "1", "--min-isolation", "steel"],
        ["run", "python", "-c", "1", "--detach"],
        ["run", "python", "-c", "1", "--no-evidence", "--evidence", "x"],
        ["verify"],
        ["verify", "a", "b"],
        ["show"],
        ["jobs", "--status", "asleep"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_64_and_a_reason(rookhold: Rookhold, arguments: list[str]) -> None:
    ended = rookhold(*arguments)
    assert ended.returncode == 64
    assert ended.stdout == b""
    assert b"rookhold: " in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_no_verb_at_all_shows_the_verbs_once(rookhold: Rookhold) -> None:
    ended = rookhold()
    assert ended.returncode == 64
    assert ended.stdout == b""
    assert ended.stderr.count(b"Usage:") == 1
    assert b"\n  run " in ended.stderr


def test_examples_are_not_wrapped(rookhold: Rookhold) -> None:
    assert b"\n  rookhold run bash -c 'echo hello'\n" in rookhold("run", "--help").stdout


def test_a_folder_that_is_not_there_ends_with_74(rookhold: Rookhold) -> None:
    ended = rookhold("verify", "nowhere")
    assert ended.returncode == 74
    assert ended.stderr == b"rookhold: nowhere is not there\n"


@pytest.mark.parametrize("name", ["ROOKHOLD_BASE_URL", "ROOKHOLD_API_KEY"])
def test_half_a_gateway_is_wrong_usage(rookhold: Rookhold, name: str) -> None:
    ended = rookhold("run", "python", "-c", "print(1)", **{name: "http://127.0.0.1:1"})
    assert ended.returncode == 64


@pytest.mark.parametrize("verb", [*VERBS, ""])
def test_every_verb_explains_itself(rookhold: Rookhold, verb: str) -> None:
    ended = rookhold(*([verb] if verb else []), "--help")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"Usage: rookhold" in ended.stdout


@pytest.mark.parametrize("verb", ["run", "jobs", "show", "result", "cancel"])
def test_a_gateway_that_is_not_there_ends_with_69(rookhold: Rookhold, verb: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    arguments = {"run": ["python", "-c", "print(1)"], "jobs": []}.get(verb, ["some-id"])
    gateway = {"ROOKHOLD_BASE_URL": f"http://127.0.0.1:{port}", "ROOKHOLD_API_KEY": "key"}
    ended = rookhold(verb, *arguments, **gateway)
    assert ended.returncode == 69
    assert ended.stdout == b""


class _Elsewhere(BaseHTTPRequestHandler):
    """Some other service, which knows nothing of jobs."""

    def do_GET(self) -> None:
        moved = self.path.startswith("/moved")
        self.send_response(301 if moved else 404)
        self.send_header("Location", "http://127.0.0.1:9/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Not to the terminal."""


@pytest.mark.parametrize("place", ["", "/moved"])
def test_an_answer_of_somebody_else_is_said_to_be_one(rookhold: Rookhold, place: str) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}{place}"
        there = {"ROOKHOLD_BASE_URL": address, "ROOKHOLD_API_KEY": "key"}
        ended = rookhold("jobs", **there)
        checked = rookhold("check", "--json", **there)
        server.shutdown()
    assert ended.returncode == 69
    assert f"is {address} the address of a gateway?" in ended.stderr.decode()
    assert checked.returncode == 69
    assert "the address of a gateway?" in json.loads(checked.stdout)["gateway"]["problem"]


def test_production_never_gets_a_temporary_gateway(rookhold: Rookhold) -> None:
    for verb in (["run", "python", "-c", "print(1)"], ["dev"]):
        assert rookhold(*verb, ROOKHOLD_ENV="production").returncode == 64


def test_the_version_is_told_without_loading_anything(rookhold: Rookhold) -> None:
    ended = rookhold("--version")
    assert ended.stdout.decode() == f"rookhold {__version__}\n"
    program = (
        "import sys\nfrom rookhold_cli.main import main\nmain(['--version'])\n"
        "assert not {'click', 'rich', 'http.client', 'rookhold'} & sys.modules.keys()"
    )
    subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=60, stdout=subprocess.DEVNULL
    )


def test_all_versions_are_listed(rookhold: Rookhold) -> None:
    wheels = json.loads(rookhold("version", "--json").stdout)["wheels"]
    assert wheels["rookhold-cli"] == __version__
    assert {"rookhold-sdk", "rookhold-server", "rookhold-attestation"} <= wheels.keys()
    assert "rookhold-governance" not in wheels, "there is none to install"
    assert b"rookhold-cli" in rookhold("version").stdout


def test_the_version_is_the_wheels() -> None:
    text = (Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8")
    assert tomllib.loads(text)["project"]["version"] == __version__


@pytest.mark.parametrize(
    ("verb", "missing", "extra"),
    [
        ("serve", "rookhold_server", "[server]"),
        ("dev", "rookhold_server", "[server]"),
        ("run", "rookhold_server", "[server]"),
        ("quickstart", "rookhold_server", "[server]"),
        ("verify", "rookhold_attestation", "[verify]"),
    ],
)
def test_a_missing_extra_is_named_in_one_line(
    rookhold_without: Rookhold, tmp_path: Path, verb: str, missing: str, extra: str
) -> None:
    arguments = {"run": ["python", "-c", "print(1)"], "verify": [str(tmp_path)]}.get(verb, [])
    for name in ("envelope.json", "result.json", "public-key.pem"):
        (tmp_path / name).touch()
    ended = rookhold_without(missing, verb, *arguments)
    assert ended.returncode == 64
    told = ended.stderr.decode().splitlines()
    assert f"pip install 'rookhold-cli{extra}'" in told[-1]
