"""Looking at others: the jobs beside, the jobs before, the host, the server and its secrets."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import secrets
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hostile.target import told_by

from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hostile.target import Target

# Looks into every file that can be opened, the processes' own too, for what stdin has in hex.
SEARCH = """
import signal
signal.alarm(20)
needle = bytes.fromhex(sys.stdin.read())
found, looked = [], 0
for path in everything(skipped=("/sys", "/usr/share", "/usr/lib", "/usr/include", "/usr/bin",
                                "/proc/self/task", "/proc/thread-self")):
    if needle in path.encode() or path.endswith(("kmsg", "/mem", "kcore", "pagemap", "clear_refs")):
        if needle in path.encode():
            found.append("name " + path)
        continue
    looked += 1
    content = readable(path, 1 << 18)
    if needle in content:
        found.append(path)
    try:
        if needle in os.readlink(path).encode():
            found.append("link " + path)
    except OSError:
        pass
told["found"] = [path for path in found if not path.startswith(f"/proc/{os.getpid()}/fd")]
told["looked"] = looked > 200
"""


def canary() -> str:
    """Return a text that stands nowhere by chance."""
    return f"canary-{secrets.token_hex(12)}"


def hexed(secret: str) -> bytes:
    return secret.encode().hex().encode()


def neighbour(secret: str) -> str:
    """Return a job that keeps a secret everywhere that it can."""
    return f"""
import socket, time
secret = {secret!r}
if os.environ.get("SECRET") != secret:
    marked = {{**os.environ, "SECRET": secret}}
    os.execve(sys.executable, [sys.executable, "job.py", secret], marked)
for place in ("/work", "/tmp", "/dev/shm", "/work/output"):
    with open(f"{{place}}/{{secret}}", "w") as file:
        file.write(secret)
held = os.memfd_create(secret)
os.write(held, secret.encode())
unix = socket.socket(socket.AF_UNIX)
unix.bind("\\0" + secret)
unix.listen()
path = socket.socket(socket.AF_UNIX)
path.bind("/tmp/" + secret[:20])
path.listen()
libc.prctl(15, secret.encode()[:15])
os.write(1, b"ready\\n")
time.sleep(60)
"""


def test_nothing_of_a_job_beside_is_seen(target: Target) -> None:
    secret = canary()
    attacker, other = target.together(neighbour(secret), SEARCH, stdin=hexed(secret))
    assert told_by(attacker) == {"found": [], "looked": True}
    assert other.report.status is JobStatus.CANCELLED, "the neighbour lived all the while"


def test_what_a_job_beside_opens_in_the_shared_root_is_not_watched(target: Target) -> None:
    watching = """
import fcntl, select, time
place = os.path.dirname(os.__file__) + "/wsgiref"
signal.signal(signal.SIGIO, lambda *_: print("told by dnotify", flush=True))
directory = os.open(place, os.O_RDONLY)
attempted(fcntl.fcntl, directory, 1026, 0x80000021)
fd = libc.inotify_init1(os.O_NONBLOCK)
libc.inotify_add_watch(fd, place.encode(), 0x21)
print("ready", flush=True)
until = time.monotonic() + 25
while time.monotonic() < until:
    if fd < 0:
        time.sleep(0.1)
    elif select.select([fd], [], [], 0.1)[0]:
        print("told by inotify", os.read(fd, 4096), flush=True)
"""
    using = """
import time
with open(os.path.dirname(os.__file__) + "/wsgiref/util.py", "rb") as file:
    told["read"] = len(file.read()) > 0
time.sleep(0.5)
"""
    user, watcher = target.together(watching, using)
    assert told_by(user) == {"read": True}
    assert watcher.stdout == b"ready\n"


def test_nothing_is_planted_in_a_job_beside(target: Target) -> None:
    watching = """
import time
print("ready", flush=True)
seen = set()
for _ in range(2000):
    for place in ("/work", "/work/output", "/tmp", "/dev/shm", "/"):
        if os.path.exists(place + "/planted"):
            seen.add(place)
    for name in os.listdir("/tmp") + os.listdir("/work"):
        if name not in ("job.py", "input", "output"):
            seen.add(name)
    if seen:
        print("seen", sorted(seen), flush=True)
        break
    time.sleep(0.01)
time.sleep(30)
"""
    attacker, other = target.together(
        watching,
        """
import time
for place in ("/work", "/work/output", "/tmp", "/dev/shm"):
    with open(place + "/planted", "w") as file:
        file.write("planted")
attempted(os.chmod, "/work", 0o777)
time.sleep(0.3)
told["planted"] = os.path.exists("/tmp/planted")
""",
    )
    assert told_by(attacker) == {"planted": True}
    assert other.stdout == b"ready\n"


def test_the_sockets_of_a_job_beside_do_not_answer(target: Target) -> None:
    secret = canary()
    listening = f"""
import socket, time
unix = socket.socket(socket.AF_UNIX)
unix.bind("\\0{secret}")
unix.listen()
tcp = [socket.socket(socket.AF_INET), socket.socket(socket.AF_INET)]
for each, host in zip(tcp, ("127.0.0.1", "0.0.0.0")):
    each.bind((host, 40123 + tcp.index(each)))
    each.listen()
print("ready", flush=True)
time.sleep(60)
"""
    attacker, _ = target.together(
        listening,
        f"""
import socket
told["abstract"] = attempted(socket.socket(socket.AF_UNIX).connect, "\\0{secret}")
for port in (40123, 40124):
    told[str(port)] = attempted(socket.create_connection, ("127.0.0.1", port), 2)
""",
    )
    told = told_by(attacker)
    assert told.pop("abstract") == "ECONNREFUSED"
    assert set(told.values()) <= {"ECONNREFUSED", "ENETUNREACH", "EADDRNOTAVAIL"}


def test_no_signal_reaches_a_job_beside(target: Target) -> None:
    ticking = """
import time
caught = []
for number in set(range(1, 65)) - {9, 19, 32, 33}:
    try:
        signal.signal(number, lambda number, frame: caught.append(number))
    except (OSError, ValueError):
        pass
print("ready", flush=True)
for _ in range(600):
    time.sleep(0.1)
    if caught:
        print("caught", caught, flush=True)
"""
    attacker, other = target.together(
        ticking,
        """
import time
me = os.getpid()
sent = set()
for pid in range(2, 33000):
    if pid != me:
        sent.add(attempted(os.kill, pid, signal.SIGUSR1))
told["sent"] = sorted(sent)
time.sleep(0.3)
""",
    )
    assert told_by(attacker)["sent"] == ["ESRCH"]
    assert other.stdout == b"ready\n"
    assert other.report.status is JobStatus.CANCELLED


def test_killing_everybody_does_not_reach_a_job_beside(target: Target) -> None:
    attacker, other = target.together(
        "print('ready', flush=True)\nimport time\ntime.sleep(60)\n",
        "if os.fork() == 0:\n    os.kill(-1, 9)\nimport time\ntime.sleep(3)\n",
    )
    # Under gVisor the job is the first process of its system, whom that spares.
    assert attacker.report.killed_by == target.on("signal-9", gvisor=None)
    assert other.report.status is JobStatus.CANCELLED


def test_nothing_of_the_job_before_is_left(target: Target) -> None:
    secret = canary()
    target.run(
        "python",
        f"""
import shutil
for place in ("/work", "/tmp", "/dev/shm", "/work/input", "/work/output", "/var/tmp", "/dev",
              "/run", "/var/lock", "/dev/mqueue", "/"):
    try:
        with open(place + "/{secret}", "w") as file:
            file.write("{secret}" * 1000)
        os.mkdir(place + "/d-{secret}")
    except OSError:
        pass
""",
    )
    assert target.ask(SEARCH, stdin=hexed(secret)) == {"found": [], "looked": True}


@pytest.mark.root
def test_what_a_job_sets_on_its_input_is_not_there_for_the_next(target: Target) -> None:
    program = """
import fcntl
F_SETSIG, F_GETSIG = 10, 11
told["found"] = [fcntl.fcntl(0, fcntl.F_GETFL), fcntl.fcntl(0, F_GETSIG)]
flags = told["found"][0] | os.O_APPEND | os.O_NONBLOCK | os.O_ASYNC
told["set"] = [attempted(fcntl.fcntl, 0, fcntl.F_SETFL, flags),
               attempted(fcntl.fcntl, 0, F_SETSIG, 37)]
told["lock"] = attempted(fcntl.flock, 0, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""
    first, second = target.ask(program), target.ask(program)
    assert first["set"] == ["done", "done"]
    assert second == first


def test_nothing_that_lies_on_the_host_is_seen(target: Target) -> None:
    secret = canary()
    places = ("/root", "/home", "/var", "/var/tmp", "/run", "/opt", "/srv", "/mnt", "/etc", "/tmp",
              "/dev/shm", "/media", "/")  # fmt: skip
    with ExitStack() as planted:
        made = 0
        for place in map(Path, places):
            if place.is_dir():
                path = place / f"rookhold-{secret}"
                try:
                    path.write_text(secret)
                except OSError:
                    continue  # a host whose own system is read-only
                planted.callback(path.unlink)
                made += 1
        told = target.ask(SEARCH, stdin=hexed(secret))
    assert made >= 4
    assert told == {"found": [], "looked": True}


@pytest.fixture
def keeper() -> Iterator[str]:
    """A process of the host's that keeps a secret where a server may have one."""
    secret = canary()
    code = (
        "import socket, sys, time\n"
        "unix = socket.socket(socket.AF_UNIX); unix.bind('\\0' + sys.argv[1]); unix.listen()\n"
        "print('up', flush=True); time.sleep(300)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, secret], env={"KEY": secret}, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        try:
            yield secret
        finally:
            process.kill()


def test_the_environment_and_arguments_of_the_host_s_processes_are_not_seen(
    target: Target, keeper: str
) -> None:
    assert target.ask(SEARCH, stdin=hexed(keeper)) == {"found": [], "looked": True}


def test_the_process_that_asks_for_jobs_is_not_seen(target: Target) -> None:
    told = target.ask(f"""
told["pid"] = os.path.exists("/proc/{os.getpid()}/cmdline") and b"pytest" in readable(
    "/proc/{os.getpid()}/cmdline")
told["signalled"] = attempted(os.kill, {os.getpid()}, 0)
told["by its group"] = attempted(os.killpg, {os.getpgid(0)}, 0)
told["parent"] = os.getppid()
told["python"] = [pid for pid in os.listdir("/proc") if pid.isdigit()
                  and b"rookhold" in readable(f"/proc/{{pid}}/cmdline")]
""")
    assert told == {
        "pid": False,
        "signalled": "ESRCH",
        "by its group": "ESRCH",
        "parent": told["parent"],
        "python": [],
    }
    assert told["parent"] in {0, 1}


def test_the_environment_is_only_what_every_job_has(target: Target) -> None:
    os.environ["ROOKHOLD_TEST_SECRET"] = secret = canary()
    try:
        told = target.ask("""
told["names"] = sorted(os.environ)
told["all"] = " ".join(os.environ.values()) + readable("/proc/self/environ").decode()
told["arguments"] = sys.orig_argv[1:]
""")
    finally:
        del os.environ["ROOKHOLD_TEST_SECRET"]
    assert set(told["names"]) <= {"HOME", "LANG", "LC_ALL", "LC_CTYPE", "PATH", "TMPDIR"}
    assert secret not in told["all"]
    assert told["arguments"] == ["job.py"]


def test_mounts_and_groups_name_no_path_of_the_host(target: Target) -> None:
    told = target.ask("""
told["mounts"] = readable("/proc/self/mountinfo").decode() + readable("/proc/mounts").decode()
told["groups"] = readable("/proc/self/cgroup").decode()
told["limits"] = os.listdir("/sys/fs/cgroup") if os.path.isdir("/sys/fs/cgroup") else []
""")
    roots = {line.split(" ")[3] for line in told["mounts"].splitlines() if " - " in line}
    private = ("/root", "/home", "/var", "/run", "/opt", "/srv", "/mnt", "/work/", "/tmp/pytest")
    # Of a bind the kernel tells from where in its file system it is: that of the reviewed root.
    reviewed = target.kind.executor().get("rootfs", "/nowhere")
    shown = {root for root in roots if root.startswith(private)}
    assert not {root for root in shown if not reviewed.endswith(root)}
    for text in ("rookhold", "pytest", "job-"):
        assert text not in told["mounts"].replace(reviewed, "")
        assert text not in told["groups"]
    assert told["limits"] == []


def test_the_host_s_name_is_not_told(target: Target) -> None:
    told = target.ask("""
import socket
told["names"] = [os.uname().nodename, socket.gethostname(),
                 readable("/proc/sys/kernel/hostname").decode().strip()]
told["hosts"] = readable("/etc/hosts").decode() + readable("/etc/hostname").decode()
told["resolver"] = readable("/etc/resolv.conf").decode()
""")
    own = platform.node()
    assert len(set(told["names"]) - {""}) == 1
    assert own not in told["names"]
    assert own not in told["hosts"]
    assert told["resolver"] == ""


@pytest.mark.x86_64
def test_shared_memory_and_queues_of_the_host_are_not_seen(target: Target) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    key = secrets.randbelow(1 << 30) + 1
    memory = libc.shmget(key, 4096, 0o1666)  # IPC_CREAT, for everybody
    semaphore = libc.semget(key, 1, 0o1666)
    assert min(memory, semaphore) >= 0
    try:
        told = target.ask(f"""
SHMGET, SEMGET, MSGGET, MQ_OPEN = 29, 64, 68, 240
told["shmget"] = called(SHMGET, {key}, 4096, 0)
told["semget"] = called(SEMGET, {key}, 1, 0)
told["msgget"] = called(MSGGET, {key}, 0o1666)
told["mq_open"] = called(MQ_OPEN, b"canary", 0o100, 0o600, None)
for kind in ("shm", "sem", "msg"):
    told[kind] = len(readable("/proc/sysvipc/" + kind).decode().splitlines()) > 1
told["mqueue"] = os.path.exists("/dev/mqueue")
""")
    finally:
        libc.shmctl(memory, 0, None)
        libc.semctl(semaphore, 0, 0)
    assert [told.pop(kind) for kind in ("shm", "sem", "msg")] == [False] * 3
    assert not told.pop("mqueue")
    if target.gvisor:  # has its own, in which the host's key does not exist
        assert (told["shmget"], told["semget"]) == ("ENOENT", "ENOENT")
    else:
        assert told == dict.fromkeys(told, "EPERM")


def test_the_network_tables_show_nothing_of_the_host(target: Target) -> None:
    name = canary()
    with socket.socket(socket.AF_UNIX) as unix, socket.socket(socket.AF_INET) as tcp:
        unix.bind("\0" + name)
        unix.listen()
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        port = f":{tcp.getsockname()[1]:04X} "
        told = target.ask(f"""
tables = {{name: readable("/proc/net/" + name).decode() for name in
          ("unix", "tcp", "tcp6", "udp", "dev", "route", "arp", "fib_trie", "if_inet6", "packet")}}
told["unix"] = "{name}" in tables["unix"]
told["tcp"] = "{port}" in tables["tcp"]
told["interfaces"] = sorted(line.split(":")[0].strip() for line in tables["dev"].splitlines()[2:])
told["routes"] = tables["route"].splitlines()[1:]
told["neighbours"] = tables["arp"].splitlines()[1:]
told["sockets"] = len(tables["unix"].splitlines()[1:])
""")
    assert not told["unix"]
    assert not told["tcp"]
    assert set(told["interfaces"]) <= {"lo"}
    assert told["routes"] == target.on([], gvisor=told["routes"])
    assert told["neighbours"] == []
    assert told["sockets"] == 0


def test_what_the_host_is_made_of_is_not_told(target: Target) -> None:
    told = target.ask("""
told["boot"] = readable("/proc/cmdline").decode()
told["disks"] = readable("/proc/partitions").decode() + readable("/proc/diskstats").decode()
told["keys"] = readable("/proc/keys").decode()
told["key users"] = readable("/proc/key-users").decode()
told["locks"] = readable("/proc/locks").decode()
told["timers"] = readable("/proc/timer_list").decode()
told["sys"] = sorted(os.listdir("/sys")) if os.path.isdir("/sys") else []
told["firmware"] = readable("/sys/class/dmi/id/product_uuid").decode()
""")
    shown = {name for name, text in told.items() if text}
    if target.gvisor:  # whatever it tells is made up
        shown -= INVENTED
        assert platform.release() not in json.dumps(told)
    assert shown == set()


INVENTED = {"boot", "sys"}
