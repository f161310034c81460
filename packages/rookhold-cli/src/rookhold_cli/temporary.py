"""A gateway of this command's own: started for it, reachable by it alone, gone after it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .errors import GatewayStartError, UsageError
from .extras import load, require
from .gateway import Target
from .interrupts import undisturbed
from .output import plain
from .private_state import private_state
from .surroundings import is_production

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_START_SECONDS: Final = 60
_STOP_SECONDS: Final = (20, 5)  # after the polite request; after the firm one
_LOG_LINES: Final = 8
_FREE_RESERVE_MB: Final = "64"  # what it stores is gone with it: a nearly full disk will do
_TENANT: Final = "local"
# What a user may have set for the gateway this command starts; its address, keys, files and
# environment are never taken over.
_TAKEN_OVER: Final = (
    "ROOKHOLD_SANDBOX",
    "ROOKHOLD_SANDBOX_UID_BASE",
    "ROOKHOLD_SECCOMP",
    "ROOKHOLD_ROOTFS",
    "ROOKHOLD_GVISOR_RUNSC",
    "ROOKHOLD_GVISOR_ROOTFS_SHA256",
    "ROOKHOLD_GVISOR_PLATFORM",
    "ROOKHOLD_GVISOR_UID",
    "ROOKHOLD_GVISOR_GID",
    "ROOKHOLD_PYTHON",
    "ROOKHOLD_NODE",
    "ROOKHOLD_BASH",
    "ROOKHOLD_WORKERS",
    "ROOKHOLD_MAX_JOB_MEM_MB",
    "ROOKHOLD_MEMORY_BUDGET_MB",
    "ROOKHOLD_STORAGE_GLOBAL_MB",
    "ROOKHOLD_STORAGE_TENANT_MB",
    "ROOKHOLD_STORAGE_FREE_RESERVE_MB",
    "ROOKHOLD_LOG_LEVEL",
)


@dataclass(frozen=True, slots=True)
class TemporaryGateway:
    """One that runs now. `public_key_pem` was read from its key file, not asked of it."""

    target: Target
    database: Path
    public_key_pem: bytes = field(repr=False)


def require_server(what: str = "no gateway is configured, and starting one") -> None:
    """Refuse where no gateway can be started; for a command to ask before it says anything."""
    require("rookhold_server", what=what, extra="server")


@contextlib.contextmanager
def temporary_gateway(environ: Mapping[str, str] = os.environ) -> Iterator[TemporaryGateway]:
    """Start one on a free loopback port with fresh keys; stop it however this ends.

    It watches a pipe whose other end only this process holds, so that it also ends, and its jobs
    with it, when this process is killed outright.
    """
    if is_production(environ):
        raise UsageError(
            "no gateway is configured, and ROOKHOLD_ENV says production:"
            " a temporary gateway is for development only"
        )
    require_server()
    with private_state(environ) as (state, lock):
        public_key_pem = _make_signing_key(state / "signing-key.pem")
        api_key = secrets.token_urlsafe(32)
        lifeline, our_end = os.pipe()
        ready, told = os.pipe()
        process: subprocess.Popen[bytes] | None = None
        try:
            process = _spawn(state, api_key, environ, lifeline=lifeline, told=told, lock=lock)
            os.close(lifeline)
            os.close(told)
            lifeline = told = -1
            address = _await_ready(ready, state / "gateway.log")
            target = Target(f"http://{address}", api_key)
            yield TemporaryGateway(target, state / "rookhold.db", public_key_pem)
        finally:
            with undisturbed():
                for end in (lifeline, told, ready, our_end):
                    if end >= 0:
                        os.close(end)
                if process is not None:
                    _stop(process)


def _make_signing_key(path: Path) -> bytes:
    keys = load("rookhold_attestation.keys", what="signing evidence", extra="server")
    key = keys.PrivateKey.generate()
    key.save(path)
    pem: str = key.public_key.to_pem()
    return pem.encode("ascii")


def _spawn(
    state: Path,
    api_key: str,
    environ: Mapping[str, str],
    *,
    lifeline: int,
    told: int,
    lock: int,
) -> subprocess.Popen[bytes]:
    kept = {name: text for name, text in environ.items() if not name.startswith("ROOKHOLD_")}
    kept["ROOKHOLD_STORAGE_FREE_RESERVE_MB"] = _FREE_RESERVE_MB
    kept |= {name: environ[name] for name in _TAKEN_OVER if environ.get(name)}
    kept |= {
        "XDG_STATE_HOME": str(state),
        "ROOKHOLD_ADDR": "127.0.0.1:0",
        "ROOKHOLD_DB": str(state / "rookhold.db"),
        "ROOKHOLD_JOBS_ROOT": str(state / "jobs"),
        "ROOKHOLD_API_KEYS": f"{_TENANT}:{api_key}",
        "ROOKHOLD_ATTESTATION_KEY_FILE": str(state / "signing-key.pem"),
        "ROOKHOLD_LIFELINE_FD": str(lifeline),
        "ROOKHOLD_READY_FD": str(told),
    }
    with (state / "gateway.log").open("wb") as log:
        return subprocess.Popen(
            # -P: a folder named rookhold_server where the user happens to be is not the server.
            [sys.executable, "-P", "-m", "rookhold_server"],
            env=kept,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=state,
            pass_fds=(lifeline, told, lock),
            start_new_session=True,  # Ctrl-C is for us; we then stop it in order
        )


def _await_ready(ready: int, log: Path) -> str:
    """Return its address; raise GatewayStartError with the end of its log if it gave up."""
    deadline = time.monotonic() + _START_SECONDS
    text = b""
    while not text.endswith(b"\n"):
        readable, _, _ = select.select([ready], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(ready, 4096) if readable else b""
        if not piece:
            why = "it ended at once" if readable else f"not ready after {_START_SECONDS} s"
            raise GatewayStartError(f"the gateway did not start ({why}){_last_words(log)}")
        text += piece
    address = json.loads(text)["address"]
    if not isinstance(address, str):
        raise GatewayStartError("the gateway told no address")
    return address


def _last_words(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = log.read_text("utf-8", "replace").splitlines()[-_LOG_LINES:]
        if lines:
            return ":\n" + "\n".join(f"    {plain(line)}" for line in lines)
    return ""


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End it in order, then firmly, then for certain."""
    process.terminate()
    for seconds in _STOP_SECONDS:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
        else:
            return
    process.kill()
    process.wait()
