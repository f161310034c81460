"""What a server that was taken over gets out of the root process that started it: launchers.

The server of these tests is a program of the attacker, started by the real supervisor in the place
of ours, as the same account.
"""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.root, pytest.mark.readable, pytest.mark.linux_ns]

ACCOUNT = 51_234
SECONDS = 120

# What every attacker has: the socket, and our own code to speak with.
PREAMBLE = """
import array, json, os, select, socket, sys
from rookhold_exec.launcher.protocol import START, decode, encode
from rookhold_exec.launcher.client import hello
from rookhold_exec.launcher.spawning import KILL, LAUNCH, descriptors
supervisor = socket.socket(fileno=int(os.environ["ROOKHOLD_SUPERVISOR_FD"]))
grant = decode(supervisor.recv(1 << 17))
supervisor.settimeout(20)

def ask(message):
    supervisor.send(message if isinstance(message, bytes) else encode(message))

def answer():
    data, ancillary, _, _ = supervisor.recvmsg(1 << 17, socket.CMSG_SPACE(8))
    return decode(data), descriptors(ancillary)

def launched():
    ask({"op": LAUNCH})
    told, fds = answer()
    launcher = socket.socket(fileno=fds[0])
    launcher.settimeout(20)
    return told["pid"], launcher, fds[1], decode(launcher.recv(1 << 17))

def silence(seconds=1.0):
    return not select.select([supervisor], [], [], seconds)[0]

def order(launcher, streams=(), **change):
    ours, theirs = socket.socketpair()
    read, out = os.pipe()
    job = {
        "op": START, "job": "0123", "argv": [b"/usr/bin/id"], "environment": {}, "script": "job.sh",
        "outputs": [], "directory": "", "slot": 0, "wall_ms": 5000, "cpu_seconds": 5,
        "mem_bytes": 64 << 20, "processes": 16, "file_bytes": 1 << 20, "space_bytes": 1 << 20,
        "inodes": 64, **change,
    }
    rights = array.array("i", [theirs.fileno(), *(streams or (out, out))])
    launcher.sendmsg([encode(job)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    theirs.close()
    ours.settimeout(20)
    size = int.from_bytes(ours.recv(4), "little")
    return decode(ours.recv(size)) if size else None

def say(**facts):
    print(json.dumps(facts))
"""


@pytest.fixture
def attack(tmp_path: Path) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Run a program as the server; returns what it said, or fails where it did."""

    def run(program: str) -> dict[str, Any]:
        code = PREAMBLE + textwrap.dedent(program)
        start = "\n".join(
            [
                "import os, sys",
                "from rookhold_server.supervisor import main",
                f"main.SERVER = (sys.executable, '-c', {code!r})",
                "raise SystemExit(main.main(os.environ))",
            ]
        )
        done = subprocess.run(
            [sys.executable, "-c", start],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "ROOKHOLD_USER": str(ACCOUNT),
                "ROOKHOLD_ADDR": "127.0.0.1:0",
                "ROOKHOLD_SANDBOX": "namespaces-dev",
                "ROOKHOLD_WORKERS": "2",
                "ROOKHOLD_JOBS_ROOT": str(tmp_path / "jobs"),
                "ROOKHOLD_DB": str(tmp_path / "rookhold.db"),
            },
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said: dict[str, Any] = json.loads(done.stdout)
        return said

    return run


Attack = Callable[[str], dict[str, Any]]


def test_it_gets_one_launcher_at_a_time_and_another_after_that_has_ended(attack: Attack) -> None:
    said = attack("""
        pid, launcher, pidfd, ready = launched()
        ask({"op": LAUNCH})
        second, none = answer()
        ask({"op": KILL, "pid": pid})
        select.select([pidfd], [], [], 20)
        other, launcher, _, again = launched()
        say(ready=ready["op"], second=second, none=none, again=again["op"], other=other != pid)
    """)
    assert said == {
        "ready": "ready",
        "second": {"op": "refused", "errno": 16},
        "none": [],
        "again": "ready",
        "other": True,
    }


def test_whatever_else_it_says_is_not_done_and_not_answered(attack: Attack) -> None:
    said = attack("""
        for message in (
            {"op": LAUNCH, "argv": ["/usr/bin/id"]},
            {"op": LAUNCH, "hello": hello({"mode": "off"})},
            {"op": "exec", "argv": ["/usr/bin/id"]},
            {"op": "grant"}, {}, [], 7, None, b"", b"x", b"d1:", b"l9:" * 1000, b"i1;" * 9,
            {"op": KILL}, {"op": KILL, "pid": "1"}, {"op": [LAUNCH]},
        ):
            if message != b"":
                ask(message)
        silent = silence()
        pid, _, _, ready = launched()
        say(silent=silent, ready=ready["op"])
    """)
    assert said == {"silent": True, "ready": "ready"}


def test_it_can_have_nobody_killed_but_its_launcher(attack: Attack) -> None:
    bystander = subprocess.Popen(["sleep", "300"])
    try:
        said = attack(f"""
            pid, launcher, pidfd, ready = launched()
            for other in ({bystander.pid}, os.getppid(), -1, 0, 1, pid + (1 << 32)):
                ask({{"op": KILL, "pid": other}})
            alive = silence() and not select.select([pidfd], [], [], 0)[0]
            say(alive=alive)
        """)
        assert said == {"alive": True}
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_it_cannot_signal_the_root_processes_itself(attack: Attack) -> None:
    said = attack("""
        pid, _, pidfd, _ = launched()
        refused = []
        import signal
        for kill in (lambda: os.kill(pid, 9), lambda: os.kill(os.getppid(), 9),
                     lambda: signal.pidfd_send_signal(pidfd, 9)):
            try:
                kill()
            except PermissionError:
                refused.append(True)
        say(refused=refused)
    """)
    assert said == {"refused": [True, True, True]}


def test_what_root_told_the_launcher_first_cannot_be_told_again(attack: Attack) -> None:
    said = attack("""
        pid, launcher, pidfd, _ = launched()
        launcher.send(hello({
            "mode": "off", "seccomp": None, "places": [], "uid_base": 0, "faults": [],
            "jobs_root": "/etc", "workers": 256,
        }))
        ended = bool(select.select([pidfd], [], [], 20)[0])
        _, launcher, _, _ = launched()
        say(ended=ended, uid0=order(launcher, slot=-210_000))
    """)
    assert said == {"ended": True, "uid0": {"op": "failed", "stage": "order"}}


@pytest.mark.parametrize(
    "change",
    [
        "slot=-1",
        "slot=2",
        "job='../../etc'",
        "job=''",
        "directory='/etc'",
        "directory='/proc/1/root'",
        "cpu_seconds=[None] * 4000",
        "space_bytes=0",
        "argv=[]",
    ],
)
def test_an_order_that_reaches_beyond_a_job_is_refused_by_the_launcher(
    attack: Attack, change: str
) -> None:
    said = attack(f"""
        _, launcher, _, _ = launched()
        say(answer=order(launcher, {change}))
    """)
    assert said == {"answer": {"op": "failed", "stage": "order"}}


def test_no_job_is_given_a_directory_or_a_socket_of_the_host(attack: Attack) -> None:
    said = attack("""
        _, launcher, _, _ = launched()
        read, write = os.pipe()
        top, net = os.open("/", os.O_RDONLY), socket.socket().detach()
        say(answers=[order(launcher, given) for given in (
            (write, write, top), (top, write), (write, net), (write, write, net)
        )])
    """)
    assert said == {"answers": [{"op": "failed", "stage": "order"}] * 4}


def test_it_has_no_privilege_and_cannot_get_one(attack: Attack) -> None:
    said = attack("""
        import subprocess
        refused = []
        for call in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]),
                     lambda: os.chroot("/"), lambda: os.kill(os.getppid(), 0)):
            try:
                call()
            except PermissionError:
                refused.append(True)
        status = open("/proc/self/status").read()
        no_new = "NoNewPrivs:\\t1" in status
        # A setuid program gives nothing: `su` and `mount` are that on every Debian.
        uid = subprocess.run(["/usr/bin/su", "-c", "id -u"], stdin=subprocess.DEVNULL,
                             capture_output=True, text=True).stdout
        say(refused=len(refused), no_new=no_new, became_root=uid.strip() == "0")
    """)
    assert said == {"refused": 5, "no_new": True, "became_root": False}
