"""A real gateway for the end-to-end tests: its own process, database, keys and port."""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rookhold import Rookhold
from rookhold_attestation.keys import PrivateKey

if TYPE_CHECKING:
    from types import TracebackType

PR_SET_CHILD_SUBREAPER = 36
START_SECONDS = 60
STOP_SECONDS = 60


class Gateway:
    """One server and the state it keeps; `kill` and `start` again to see what survives."""

    def __init__(
        self, home: Path, *, sandbox: str = "auto", python: str = sys.executable, **settings: str
    ) -> None:
        self.python = python
        self.home = home
        self.database = home / "state" / "rookhold.db"
        self.jobs_root = home / "jobs"
        self.log = home / "server.log"
        self.api_key = secrets.token_hex(16)
        self.key_file = home / "signing-key.pem"
        self.settings = {"ROOKHOLD_SANDBOX": sandbox, **settings}
        self.address = ""
        self.process: subprocess.Popen[bytes] | None = None
        adopt_orphans()
        self.before = descendants(os.getpid())
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        PrivateKey.generate().save(self.key_file)

    def environment(self) -> dict[str, str]:
        """Return what the server sees: nothing of the test runner's own but PATH and HOME."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "ROOKHOLD_ADDR": "127.0.0.1:0",
            "ROOKHOLD_API_KEYS": f"local:{self.api_key},other:{self.api_key}-other",
            "ROOKHOLD_DB": str(self.database),
            "ROOKHOLD_JOBS_ROOT": str(self.jobs_root),
            "ROOKHOLD_ATTESTATION_KEY_FILE": str(self.key_file),
            # Tests run wherever they can, also where less than the default is free.
            "ROOKHOLD_STORAGE_FREE_RESERVE_MB": "0",
            **self.settings,
        }

    def start(self) -> Gateway:
        return self.await_ready(self.begin())

    def begin(self) -> int:
        """Start the process without waiting; returns the pipe that tells when it is ready."""
        ready, told = os.pipe()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [self.python, "-m", "rookhold_server"],
                env=self.environment() | {"ROOKHOLD_READY_FD": str(told)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(told,),
                cwd=self.home,
            )
        os.close(told)
        return ready

    def await_ready(self, ready: int) -> Gateway:
        assert self.process is not None
        with os.fdopen(ready, "rb") as pipe:
            line = pipe.readline()  # end of file if the server gives up
        if not line:
            self.process.wait(START_SECONDS)
            raise AssertionError(f"the server did not start:\n{self.log.read_text('utf-8')}")
        self.address = json.loads(line)["address"]
        return self

    def client(self, *, tenant: str = "local", timeout: float = 120) -> Rookhold:
        suffix = "" if tenant == "local" else f"-{tenant}"
        return Rookhold(f"http://{self.address}", self.api_key + suffix, timeout=timeout)

    def for_clients(self) -> dict[str, str]:
        """Return the variables by which a client finds this gateway."""
        return {
            "ROOKHOLD_BASE_URL": f"http://{self.address}",
            "ROOKHOLD_API_KEY": self.api_key,
        }

    def kill(self) -> None:
        """End the server as a crash would; its helper processes must end by themselves."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP_SECONDS)

    def stop(self) -> int:
        """End it in order; returns its exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def processes(self) -> list[int]:
        """Return what lives of it: server, launcher and sandboxes, orphans included."""
        return sorted(descendants(os.getpid()) - self.before)

    def __enter__(self) -> Gateway:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()


def adopt_orphans() -> None:
    """Make this process the parent of what a killed server leaves behind, so that it is seen."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def descendants(root: int) -> set[int]:
    """Return every living process below `root`; a zombie is not alive."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            after_name = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue  # it ended while we looked
        if after_name[0] != "Z":
            parents[int(entry.name)] = int(after_name[1])
    found: set[int] = set()
    for pid in parents:
        above = pid
        while above in parents and above != root:
            above = parents[above]
        if above == root and pid != root:
            found.add(pid)
    return found


def eventually(seconds: float, condition: object) -> bool:
    """Tell whether `condition()` becomes true in time; for what has no event to wait for."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return bool(condition())  # type: ignore[operator]
