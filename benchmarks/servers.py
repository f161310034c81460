"""The servers that are measured, each a process of its own with a clean environment."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.programs import ENVIRONMENT
from rookhold_attestation import PrivateKey

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
STOP_SECONDS = 60
QUEUE = 1024
# What a developer's host would stop long before the machine does.
_UNHURRIED = {
    "ROOKHOLD_RATE_PER_MIN": "1000000",
    "ROOKHOLD_TENANT_QUEUE_CAPACITY": str(QUEUE),
    "ROOKHOLD_LOG_LEVEL": "warning",
    # A full queue is charged 32 GiB, which a disk need not have free to be measured.
    "ROOKHOLD_STORAGE_GLOBAL_MB": "65536",
    "ROOKHOLD_STORAGE_TENANT_MB": "65536",
    "ROOKHOLD_STORAGE_FREE_RESERVE_MB": "0",
}


@dataclass(frozen=True, kw_only=True)
class Served:
    """A server that answers."""

    pid: int
    address: str
    api_key: str = ""
    ready_seconds: float = 0.0


@contextmanager
def gateway(home: Path, *, signing: bool = True, **settings: str) -> Iterator[Served]:
    """A gateway on a new database, with the strongest sandbox of this host."""
    home.mkdir(mode=0o700)
    key = secrets.token_hex(16)
    environment = {
        **ENVIRONMENT,
        "HOME": str(home),
        "ROOKHOLD_ADDR": "127.0.0.1:0",
        "ROOKHOLD_API_KEYS": f"bench:{key}",
        "ROOKHOLD_DB": str(home / "state" / "rookhold.db"),
        "ROOKHOLD_JOBS_ROOT": str(home / "jobs"),
        **_UNHURRIED,
        **settings,
    }
    if signing:
        environment["ROOKHOLD_ATTESTATION_KEY_FILE"] = str(home / "key.pem")
        PrivateKey.generate().save(home / "key.pem")
    ready, told = os.pipe()
    environment["ROOKHOLD_READY_FD"] = str(told)
    began = time.perf_counter()
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "rookhold_server"],
            env=environment,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(told,),
        )
    os.close(told)
    with os.fdopen(ready, "rb") as pipe:
        line = pipe.readline()
    if not line:
        process.wait(STOP_SECONDS)
        raise RuntimeError(f"the gateway did not start: {(home / 'log').read_text('utf-8')}")
    took = time.perf_counter() - began
    try:
        address = json.loads(line)["address"]
        yield Served(pid=process.pid, address=address, api_key=key, ready_seconds=took)
    finally:
        _stop(process)


@contextmanager
def baseline() -> Iterator[Served]:
    """The baseline server; it needs bubblewrap."""
    with _bare("benchmarks.baseline.app") as served:
        yield served


@contextmanager
def broadcast() -> Iterator[Served]:
    """Bare hypercorn with an application that sends every WebSocket the same."""
    with _bare("benchmarks.baseline.broadcast") as served:
        yield served


@contextmanager
def _bare(module: str) -> Iterator[Served]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(listener.fileno())],
            env=ENVIRONMENT,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            pass_fds=(listener.fileno(),),
        )
    try:
        yield Served(pid=process.pid, address=address)
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
