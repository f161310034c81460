"""A gateway that root starts for an account, end to end on every backend that isolates.

In production where the backend may be had there; gVisor's class wants version 2 groups for that.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gateway import Gateway, descendants, eventually
from isolating import GVISOR, NAMESPACES, NAMESPACES_DEV, Isolating

if TYPE_CHECKING:
    from collections.abc import Iterator

ACCOUNT = 51_234
SECONDS = 300
PLACES = ("/var/lib", "/run")  # nobody but root may write to what is above a jobs root

pytestmark = [pytest.mark.root, pytest.mark.readable]


def kind(backend: Isolating, klass: str, **settings: str) -> object:
    return pytest.param(backend, klass, settings, marks=backend.marks, id=backend.name)


KINDS = [
    kind(NAMESPACES_DEV, "none", ROOKHOLD_ENV="production", ROOKHOLD_UNSAFE_ALLOW_NAIVE="1"),
    kind(NAMESPACES, "linux-shared-kernel", ROOKHOLD_ENV="production"),
    kind(GVISOR, "gvisor-application-kernel"),
]


@pytest.fixture
def home() -> Iterator[Path]:
    above = next(place for place in PLACES if os.access(place, os.W_OK))
    place = Path(tempfile.mkdtemp(prefix="rookhold-test-", dir=above))
    yield place
    shutil.rmtree(place)


def server_of(gateway: Gateway) -> int:
    """Return the pid of the process that serves."""
    assert gateway.process is not None
    [pid] = [
        pid
        for pid in descendants(gateway.process.pid)
        if b"\0rookhold_server\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    return pid


def launcher_of(gateway: Gateway) -> int:
    assert gateway.process is not None
    server = server_of(gateway)
    text = Path(f"/proc/{gateway.process.pid}/task/{gateway.process.pid}/children").read_text()
    [pid] = [int(word) for word in text.split() if int(word) != server]
    return pid


@pytest.mark.parametrize(("backend", "klass", "settings"), KINDS)
def test_a_gateway_without_privileges_runs_signed_jobs_through_a_launcher_that_is_root(
    backend: Isolating, klass: str, settings: dict[str, str], home: Path
) -> None:
    gateway = Gateway(
        home,
        sandbox=backend.name,
        ROOKHOLD_USER=str(ACCOUNT),
        ROOKHOLD_NODE="none",
        **{**backend.settings(), **settings},
    )
    for path in (home, gateway.key_file):
        os.chown(path, ACCOUNT, ACCOUNT)
    with gateway, gateway.client(timeout=SECONDS) as client:
        server, launcher = server_of(gateway), launcher_of(gateway)
        assert Path(f"/proc/{server}").stat().st_uid == ACCOUNT
        assert Path(f"/proc/{launcher}").stat().st_uid == 0
        ended = client.run("python", "print(6 * 7)")
        assert (ended.status, ended.stdout) == ("succeeded", "42\n")
        detail = client.job(ended.job_id)
        assert detail.receipt is not None
        assert detail.receipt["isolation_class"] == klass
        assert "no-new-privileges" in detail.receipt["controls"]
        assert client.attestation(ended.job_id, wait_seconds=30).content
        os.kill(launcher, signal.SIGKILL)
        assert eventually(60, lambda: launcher not in descendants(os.getpid()))
        again = client.run("bash", "echo again")
        assert (again.status, again.stdout) == ("succeeded", "again\n")
        assert launcher_of(gateway) != launcher
        assert gateway.stop() == 0
    assert eventually(60, lambda: not gateway.processes())
    assert list(gateway.jobs_root.glob("job-*")) == []


@pytest.mark.parametrize("backend", [pytest.param(GVISOR, marks=GVISOR.marks, id="gvisor")])
def test_with_an_isolated_backend_development_too_wants_a_safe_way_to_the_jobs_root(
    backend: Isolating, home: Path
) -> None:
    gateway = Gateway(home, sandbox=backend.name, ROOKHOLD_NODE="none", **backend.settings())
    shared = home / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    gateway.jobs_root = shared / "jobs"
    with pytest.raises(AssertionError, match="code=unsafe_jobs_root"):
        gateway.start()
    assert eventually(60, lambda: not gateway.processes())
