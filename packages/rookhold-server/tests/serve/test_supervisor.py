"""A gateway that root starts: who its processes are, and what the death of each one does."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rookhold_attestation import PrivateKey
from rookhold_server.identity.keeping import Keeper
from rookhold_server.identity.private_files import Owner
from rookhold_server.identity.scopes import Scope

pytestmark = [pytest.mark.root, pytest.mark.readable]

Server = Callable[..., Any]
ACCOUNT = 51_234  # of nobody here: a number needs no name
SLOT_UID = 210_000
STATE = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of the account that no temp directory is above of."""
    place = Path(tempfile.mkdtemp(prefix="rookhold-test-", dir="/var/lib"))
    os.chown(place, ACCOUNT, ACCOUNT)
    yield place
    shutil.rmtree(place)


@pytest.fixture
def production(server: Server, place: Path) -> Server:
    def prepare(**settings: str) -> Any:
        named = {
            "ENV": "production",
            "USER": str(ACCOUNT),
            "ATTESTATION_MODE": "off",
            "SANDBOX": "namespaces-dev",
            "UNSAFE_ALLOW_NAIVE": "1",
            "NODE": "none",
            "DB": str(place / "db/rookhold.db"),
            "JOBS_ROOT": str(place / "jobs"),
        }
        prepared = server(**(named | settings))
        prepared.home = place
        return prepared

    return prepare


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii")
    return [int(word) for word in text.split()]


def family(running: Any) -> tuple[int, int, int]:
    """Return the pids of supervisor, server and launcher."""
    supervisor = running.popen.pid
    programs = {
        pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in children(supervisor)
    }
    [server] = [pid for pid, argv in programs.items() if b"rookhold_server" in argv]
    [launcher] = [pid for pid in programs if pid != server]
    return supervisor, server, launcher


def state(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name: value.strip() for name, _, value in pairs if name in STATE}


def gone(*pids: int) -> bool:
    """Wait until none of them is there; a zombie that nobody reaps is not."""
    until = time.monotonic() + 60
    left = set(pids)
    while left and time.monotonic() < until:
        for pid in list(left):
            try:
                text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
            except OSError:
                left.discard(pid)
                continue
            if text.rpartition(")")[2].split()[0] == "Z":
                left.discard(pid)
        time.sleep(0.02)
    return not left


def result(running: Any, code: str) -> dict[str, Any]:
    status, job = running.call("POST", "/v1/jobs", {"language": "bash", "code": code})
    assert status == 201
    path = f"/v1/jobs/{job['job_id']}/result?wait_seconds=30"
    answer: dict[str, Any] = running.call("GET", path)[1]
    return answer


def begun(running: Any, code: str) -> str:
    """Submit a job and return its id once it runs."""
    _, job = running.call("POST", "/v1/jobs", {"language": "bash", "code": code})
    until = time.monotonic() + 60
    while time.monotonic() < until:
        detail = running.call("GET", f"/v1/jobs/{job['job_id']}")[1]
        if detail["status"] == "running":
            return str(job["job_id"])
        time.sleep(0.02)
    raise AssertionError("the job did not start")


def jobs_of(launcher: int) -> list[int]:
    """Return the processes of its jobs, of which there is one that runs or is about to."""
    until = time.monotonic() + 60
    while not (jobs := children(launcher)) and time.monotonic() < until:
        time.sleep(0.02)
    assert jobs
    return jobs


@pytest.mark.linux_ns
def test_the_server_is_its_account_without_a_privilege_and_the_launcher_is_root(
    production: Server, place: Path
) -> None:
    running = production().start()
    supervisor, server, launcher = family(running)
    ids, none = "\t".join([str(ACCOUNT)] * 4), "0" * 16
    assert state(server) == {
        "Uid": ids,
        "Gid": ids,
        "Groups": "",
        **dict.fromkeys(STATE[3:8], none),
        "NoNewPrivs": "1",
    }
    assert state(supervisor)["Uid"] == state(launcher)["Uid"] == "0\t0\t0\t0"
    ended = result(running, "id -u; echo $(</proc/self/uid_map)")
    assert ended["stdout"].split() == ["1000", "1000", str(SLOT_UID), "1"]
    assert running.stop() == 0
    assert (place / "db/rookhold.db").stat().st_uid == ACCOUNT
    assert (place / "jobs").stat().st_uid == ACCOUNT


@pytest.mark.linux_ns
def test_what_only_root_may_read_the_server_cannot(production: Server, place: Path) -> None:
    canary = place / "canary"
    canary.write_text("of root alone")
    canary.chmod(0o600)
    running = production().start()
    _, server, launcher = family(running)
    # As that process, in its own root and with its own ids: not a guess from the numbers.
    argv = ["nsenter", f"--target={server}", "--all", f"--setuid={ACCOUNT}", f"--setgid={ACCOUNT}"]
    read = subprocess.run([*argv, "cat", canary], capture_output=True, check=False, timeout=60)
    assert read.returncode != 0
    assert b"Permission denied" in read.stderr
    for pid in (server, launcher):
        held = {str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()}
        assert not [path for path in held if path.endswith("/canary")]
    environment = Path(f"/proc/{launcher}/environ").read_bytes().split(b"\0")
    assert set(environment) <= {b"PATH=/usr/bin:/bin", b"LANG=C.UTF-8", b""}


@pytest.mark.linux_ns
def test_the_root_process_is_small_and_neither_listens_nor_holds_the_database(
    production: Server,
) -> None:
    running = production().start()
    supervisor, server, _ = family(running)
    sockets = {str(fd.readlink()) for fd in Path(f"/proc/{supervisor}/fd").iterdir()}
    files = {path for path in sockets if path.startswith("/")}
    assert files <= {"/dev/null", str(running.log_file)}
    listening = {
        f"socket:[{line.split()[9]}]"
        for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]
        if line.split()[3] == "0A"
    }
    assert not sockets & listening
    assert listening & {str(fd.readlink()) for fd in Path(f"/proc/{server}/fd").iterdir()}
    maps = Path(f"/proc/{supervisor}/maps").read_text("utf-8", "replace")
    for library in ("msgspec", "apsw", "sodium", "_ssl", "sqlite"):
        assert library not in maps
    assert len(list(Path(f"/proc/{supervisor}/task").iterdir())) == 1


@pytest.mark.linux_ns
def test_a_launcher_that_is_killed_is_replaced_by_root_and_the_next_job_runs(
    production: Server,
) -> None:
    running = production().start()
    _, server, launcher = family(running)
    os.kill(launcher, signal.SIGKILL)
    assert gone(launcher)
    assert result(running, "echo again")["stdout"] == "again\n"
    _, same, another = family(running)
    assert same == server
    assert another != launcher
    assert state(another)["Uid"] == "0\t0\t0\t0"
    assert running.stop() == 0


@pytest.mark.linux_ns
def test_with_a_killed_server_everything_ends_and_its_end_is_passed_on(production: Server) -> None:
    running = production().start()
    pids = family(running)
    begun(running, "sleep 300")
    jobs = jobs_of(pids[2])
    os.kill(pids[1], signal.SIGKILL)
    assert running.ended() == 128 + signal.SIGKILL
    assert gone(*pids, *jobs)


@pytest.mark.linux_ns
def test_with_a_killed_supervisor_the_server_stops_in_order_and_nothing_is_left(
    production: Server,
) -> None:
    running = production().start()
    pids = family(running)
    job = begun(running, "sleep 300")
    jobs = jobs_of(pids[2])
    os.kill(pids[0], signal.SIGKILL)
    assert running.ended() == -signal.SIGKILL
    assert gone(*pids, *jobs)
    assert "the root supervisor has ended; stopping" in running.log
    again = production().start()
    assert again.call("GET", f"/v1/jobs/{job}")[1]["status"] == "cancelled"


@pytest.mark.linux_ns
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_supervisor_stops_the_server_in_order(
    production: Server, number: int
) -> None:
    running = production().start()
    pids = family(running)
    begun(running, "sleep 300")
    jobs = jobs_of(pids[2])
    running.signal(number)
    assert running.ended() == 0
    assert gone(*pids, *jobs)
    lines = [json.loads(line) for line in running.log.splitlines()]
    assert [line["message"] for line in lines][-2:] == ["stopping", "stopped"]


@pytest.mark.linux_ns
def test_a_hang_up_of_the_supervisor_has_the_server_read_its_credentials(
    production: Server, place: Path
) -> None:
    keys = place / "keys"
    keys.mkdir(mode=0o700)
    os.chown(keys, ACCOUNT, ACCOUNT)
    keeper = Keeper(keys / "file", keys / "pepper", owner=Owner(ACCOUNT, ACCOUNT))

    def create() -> str:
        made = keeper.create(tenant="acme", principal=None, scopes=tuple(Scope), now_ms=1)
        return made.token

    token = create()
    settings = {"CREDENTIALS_FILE": str(keys / "file"), "CREDENTIAL_PEPPER_FILE": keys / "pepper"}
    running = production(**{name: str(path) for name, path in settings.items()}).start()
    assert running.call("GET", "/v1/whoami", key=token)[0] == 200
    another = create()  # by root, for the account
    running.signal(signal.SIGHUP)
    until = time.monotonic() + 60
    while running.call("GET", "/v1/whoami", key=another)[0] != 200:
        assert time.monotonic() < until
        time.sleep(0.02)
    (keys / "file").chmod(0o640)
    running.signal(signal.SIGHUP)
    while "credentials_kept" not in running.log:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert running.call("GET", "/v1/whoami", key=another)[0] == 200
    assert another not in running.log
    assert running.stop() == 0


@pytest.mark.linux_ns
def test_a_hang_up_without_a_credentials_file_ends_nothing(production: Server) -> None:
    running = production().start()
    running.signal(signal.SIGHUP)
    until = time.monotonic() + 60
    while "asked to read credentials again" not in running.log:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert running.call("GET", "/v1/whoami")[0] == 200
    assert running.stop() == 0


@pytest.mark.linux_ns
def test_the_end_of_a_parent_reaches_the_server_too(production: Server) -> None:
    running = production().start()
    pids = family(running)
    running.cut_lifeline()
    assert running.ended() == 0
    assert gone(*pids)


@pytest.mark.linux_ns
def test_root_binds_the_address_for_a_server_that_may_not(production: Server) -> None:
    with socket.socket() as probe:
        port = next(port for port in range(1023, 600, -1) if _is_free(probe, port))
    running = production(ADDR=f"127.0.0.1:{port}").start()
    assert running.address == f"127.0.0.1:{port}"
    assert running.call("GET", "/readyz")[0] == 200


def _is_free(probe: socket.socket, port: int) -> bool:
    try:
        probe.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


def test_without_a_sandbox_not_even_the_launcher_is_root(production: Server) -> None:
    running = production(SANDBOX="off").start()
    _, _, launcher = family(running)
    none = state(launcher)
    assert none["Uid"] == "\t".join([str(ACCOUNT)] * 4)
    assert {none[name] for name in STATE[3:8]} == {"0" * 16}
    ended = result(running, "echo $UID $EUID; grep -c 'CapEff:.0000000000000000' /proc/self/status")
    assert ended["stdout"] == f"{ACCOUNT} {ACCOUNT}\n1\n"
    os.kill(launcher, signal.SIGKILL)
    assert gone(launcher)
    assert result(running, "echo $UID")["stdout"] == f"{ACCOUNT}\n"
    assert running.stop() == 0


@pytest.mark.linux_ns
def test_development_as_root_with_an_account_is_started_the_same_way(production: Server) -> None:
    running = production(ENV="dev", UNSAFE_ALLOW_NAIVE="").start()
    _, server, _ = family(running)
    assert state(server)["Uid"].split()[0] == str(ACCOUNT)
    assert running.stop() == 0


@pytest.mark.parametrize(
    ("settings", "code", "said"),
    [
        ({"USER": "no-such-account-here"}, "setting_invalid", "ROOKHOLD_USER"),
        ({"USER": "root"}, "setting_invalid", "ROOKHOLD_USER"),
        ({"UNSAFE_ALLOW_NAIVE": ""}, "setting_unsafe", "ROOKHOLD_SANDBOX"),
        ({"SANDBOX": "auto"}, "executor_unavailable", "ROOKHOLD_ROOTFS"),
        ({"SECCOMP": "off"}, "setting_unsafe", "ROOKHOLD_SECCOMP"),
        ({"API_KEYS": ""}, "setting_required", "ROOKHOLD_API_KEYS"),
        ({"SANDBOX": "no-such-provider"}, "unknown_backend", ""),
        ({"DB": "/var/lib/rookhold-of-somebody/db"}, "not_usable", "ROOKHOLD_DB"),
        ({"SANDBOX_UID_BASE": str(ACCOUNT - 1)}, "setting_conflict", "ROOKHOLD_SANDBOX_UID_BASE"),
        ({"GVISOR_UID": str(ACCOUNT)}, "setting_conflict", "ROOKHOLD_GVISOR_UID"),
        ({"READY_FD": "2"}, "setting_invalid", "ROOKHOLD_READY_FD"),
        ({"READY_FD": "²"}, "setting_invalid", "ROOKHOLD_READY_FD"),
        ({"LIFELINE_FD": "9" * 5000}, "setting_invalid", "ROOKHOLD_LIFELINE_FD"),
    ],
)
def test_a_refused_start_ends_with_one_and_says_why(
    production: Server, settings: dict[str, str], code: str, said: str
) -> None:
    refused = production(**settings)
    assert refused.run() == 1
    assert code in refused.log
    assert said in refused.log
    assert "Traceback" not in refused.log
    assert "internal_error" not in refused.log


def test_root_does_not_start_what_the_account_could_have_written(
    production: Server, place: Path
) -> None:
    prepared = production()
    prepared.environment["PYTHONPATH"] = str(place)  # a directory of the account's
    assert prepared.run() == 1
    assert "names an account that can change what root runs" in prepared.log
    assert "setting_conflict" in prepared.log
    assert str(place) not in prepared.log


def test_a_server_that_another_program_starts_does_not_stay_root_either(
    production: Server,
) -> None:
    prepared = production(USER="no-such-account-here")  # which is asked for by the survey alone
    done = subprocess.run(
        [sys.executable, "-c", "from rookhold_server.serve import main; main([])"],
        env=prepared.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "there is no account of this name" in done.stderr


def test_a_key_that_the_account_cannot_read_refuses(production: Server, place: Path) -> None:
    os.chown(place, 0, 0)
    key = place / "key.pem"
    PrivateKey.generate().save(key)
    refused = production(ATTESTATION_MODE="", ATTESTATION_KEY_FILE=str(key))
    assert refused.run() == 1
    assert "Permission denied" in refused.log
    assert str(place) not in refused.log


def test_another_account_cannot_be_become_without_root(server: Server, place: Path) -> None:
    prepared = server(USER="nobody", JOBS_ROOT=str(place / "jobs"), DB=str(place / "db/x.db"))
    prepared.user, prepared.home = ACCOUNT, place
    with pytest.raises(AssertionError, match="did not start"):
        prepared.start()
    assert "setting_conflict" in prepared.log
    own = server(USER=str(ACCOUNT), JOBS_ROOT=str(place / "jobs"), DB=str(place / "db/x.db"))
    own.user, own.home = ACCOUNT, place
    assert own.start().stop() == 0


def test_an_interpreter_that_the_account_cannot_use_is_said(
    production: Server, place: Path
) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)  # root's
    python = closed / "python"
    python.symlink_to(sys.executable)
    prepared = production()
    start = (
        "import os; from rookhold_server.supervisor import main as m;"
        f"m.SERVER = ({str(python)!r}, *m.SERVER[1:]); raise SystemExit(m.main(os.environ))"
    )
    done = subprocess.run(
        [sys.executable, "-c", start],
        env=prepared.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 126
    assert "Permission denied" in done.stderr
    assert "code=not_started" in done.stderr
    assert str(place) not in done.stderr
