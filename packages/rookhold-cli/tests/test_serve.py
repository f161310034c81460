"""`rookhold serve` and `rookhold dev`, from their first line to their orderly end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from rookhold import Rookhold, UnauthorizedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS = 60


@contextmanager
def served(
    log: Path, environment: dict[str, str], *arguments: str
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    ready, told = os.pipe()
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "rookhold_cli", *arguments],
            env=environment | {"ROOKHOLD_READY_FD": str(told)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            pass_fds=(told,),
            cwd=environment["HOME"],
        )
    os.close(told)
    try:
        with os.fdopen(ready, "rb") as pipe:
            line = pipe.readline()
        assert line, log.read_text("utf-8")
        yield process, f"http://{json.loads(line)['address']}"
    finally:
        process.terminate()
        process.wait(SECONDS)


def test_dev_serves_at_once_and_keeps_its_signing_key(
    environment: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    seen = []
    for _ in range(2):
        with served(log, environment, "dev", "--port", "0") as (process, base_url):
            with Rookhold(base_url, "rookhold-dev-key") as client:
                assert client.run("bash", "echo hello").stdout == "hello\n"
                seen.append((client.public_key().key_id, len(list(client.jobs()))))
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) == 0
    (first_key, first_jobs), (second_key, second_jobs) = seen
    assert first_key == second_key
    assert (first_jobs, second_jobs) == (1, 2)
    said = log.read_text("utf-8")
    assert "PUBLIC" in said
    assert "this computer only" in said


def test_serve_takes_its_configuration_from_the_environment(
    environment: dict[str, str], tmp_path: Path
) -> None:
    settings = environment | {
        "ROOKHOLD_ADDR": "127.0.0.1:0",
        "ROOKHOLD_API_KEYS": "acme:a-key-of-sixteen-or-more",
    }
    with served(tmp_path / "log", settings, "serve") as (process, base_url):
        with Rookhold(base_url, "a-key-of-sixteen-or-more") as client:
            assert client.whoami().tenant == "acme"
        with Rookhold(base_url, "rookhold-dev-key") as client, pytest.raises(UnauthorizedError):
            client.whoami()
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0


def test_serve_refuses_what_it_does_not_understand(
    environment: dict[str, str], tmp_path: Path
) -> None:
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "rookhold_cli", "serve"],
        env=environment | {"ROOKHOLD_WORKERS": "many"},
        cwd=tmp_path,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 1
    assert b"ROOKHOLD_WORKERS" in ended.stderr
