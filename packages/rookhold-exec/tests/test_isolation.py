"""What namespaces-dev keeps a job from, seen from inside, with every control read back."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookhold_exec.executor import KillReason
from rookhold_exec.select import choose_backend
from rookhold_exec.settings import ExecSettings
from rookhold_exec.testing import Harness
from rookhold_types.limits import Limits

pytestmark = pytest.mark.linux_ns

ALWAYS = {
    "capabilities-dropped",
    "cgroup-namespace",
    "ipc-namespace",
    "mount-namespace",
    "network-namespace",
    "no-new-privileges",
    "pid-namespace",
    "read-only-root",
    "rlimits",
    "seccomp",
    "user-namespace",
    "uts-namespace",
    "workspace-quota",
}
BY_GROUP = {"cgroup-cpu", "cgroup-memory", "cgroup-pids"}
NAMESPACES = ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup")


def opened(**settings: object) -> Harness:
    harness = Harness(choose_backend("namespaces-dev", ExecSettings(workers=4, **settings)))
    harness.do(harness.executor.open())
    return harness


@pytest.fixture(scope="module")
def harness() -> Iterator[Harness]:
    harness = opened()
    yield harness
    harness.close()


def test_every_control_of_the_backend_is_seen(harness: Harness) -> None:
    controls = set(harness.run("python", "print(1)").report.provenance.controls)
    assert controls - BY_GROUP == ALWAYS


@pytest.mark.root
@pytest.mark.parametrize("control", sorted(ALWAYS | BY_GROUP))
def test_a_control_that_was_dropped_is_missing_from_the_report_and_no_other(
    harness: Harness, control: str
) -> None:
    whole = set(harness.executor.posture.controls)
    without = opened(faults=frozenset({control}), node="no-node", bash="no-bash")
    try:
        report = without.run("python", "print(1)").report
    finally:
        without.close()
    assert set(report.provenance.controls) == whole - {control}
    assert report.exit_code == 0


def test_without_its_network_namespace_a_job_is_said_to_have_the_host_network() -> None:
    without = opened(faults=frozenset({"network-namespace"}), node="no-node", bash="no-bash")
    try:
        provenance = without.run("python", "print(1)").report.provenance
    finally:
        without.close()
    assert provenance.network_allowed is True
    assert provenance.networking == "host"
    assert provenance.effective_limits.allow_network is True


def test_descriptors_that_a_job_keeps_on_their_way_hold_up_no_start() -> None:
    hoard = """
import array, os, socket, time
null, held = os.open("/dev/null", os.O_RDONLY), []
try:
    for _ in range(400):
        held.append(pair := socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        pair[0].setblocking(False)
        try:
            while True:
                pair[0].sendmsg([b"x"], [(1, 1, array.array("i", [null] * 250))])
        except BlockingIOError:
            pass
except OSError as error:
    print(error.errno, flush=True)
time.sleep(60)
"""

    async def beside() -> bytes:
        running = await few.executor.start(few.plan("python", hoard, slot=1))
        events = running.events()
        refused = await anext(events)
        result = await few.finish(few.plan("python", "print('started')"))
        running.kill(KillReason.CANCELLED)
        await running.wait()
        return f"{refused.line} ".encode() + result.stdout

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))  # as a login gives it
    try:
        few = opened(node="no-node", bash="no-bash")
        try:
            assert few.do(beside()) == b"%d started\n" % errno.ETOOMANYREFS
        finally:
            few.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_without_the_filter_a_job_runs_and_the_report_says_so() -> None:
    without = opened(seccomp=False, node="no-node", bash="no-bash")
    try:
        provenance = without.run("python", "print(1)").report.provenance
    finally:
        without.close()
    assert not provenance.seccomp
    assert "seccomp" not in provenance.controls


INSIDE_A_FILTER = """
import asyncio, ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]
allow = (0x06).to_bytes(2, "little") + bytes(2) + (0x7FFF0000).to_bytes(4, "little")
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(1, allow)), 0, 0) == 0, ctypes.get_errno()
from rookhold_exec.select import choose_backend
from rookhold_exec.settings import ExecSettings
from rookhold_exec.testing import Harness
settings = ExecSettings(workers=1, node="no-node", bash="no-bash", seccomp=sys.argv[1] == "on")
harness = Harness(choose_backend("namespaces-dev", settings))
harness.do(harness.executor.open())
provenance = harness.run("python", "print(1)").report.provenance
harness.close()
print(provenance.seccomp, "seccomp" in provenance.controls)
"""


@pytest.mark.parametrize(("ours", "said"), [("on", "True True"), ("off", "False False")])
def test_a_filter_that_surrounds_the_server_is_not_claimed_as_ours(ours: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INSIDE_A_FILTER, ours],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, said), done.stderr


def test_jobs_at_the_same_time_share_no_namespace(harness: Harness) -> None:
    code = (
        "import os, json, time; "
        "print(json.dumps([os.readlink('/proc/self/ns/' + n) for n in "
        f"{NAMESPACES!r}]), flush=True); time.sleep(1)"
    )

    async def scenario() -> list[list[str]]:
        plans = [harness.plan("python", code, slot=slot) for slot in range(4)]
        results = await asyncio.gather(*(harness.finish(plan) for plan in plans))
        return [json.loads(result.stdout) for result in results]

    own = [os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES]
    for of_one_kind in zip(own, *harness.do(scenario()), strict=True):
        assert len(set(of_one_kind)) == 5


@pytest.mark.root
def test_a_file_planted_anywhere_else_on_the_host_is_not_seen(harness: Harness) -> None:
    places = [Path(p) for p in ("/root", "/home", "/var", "/run", "/opt", "/srv", "/mnt", "/etc")]
    planted = []
    try:
        for place in places:
            if place.is_dir():
                canary = place / f"rookhold-canary-{os.getpid()}"
                canary.write_text("canary")
                planted.append(canary)
        code = (
            "import os\n"
            f"print([p for p in {[str(p) for p in planted]!r} if os.path.exists(p)])\n"
            "print(sorted(os.listdir('/')))\n"
        )
        result = harness.run("python", code)
    finally:
        for canary in planted:
            canary.unlink()
    seen, top = result.stdout.decode().splitlines()
    assert len(planted) >= 6
    assert seen == "[]"
    allowed = {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "tmp"}
    assert set(json.loads(top.replace("'", '"'))) <= allowed | {"usr", "work", "workspace"}


def test_nothing_but_the_job_s_own_space_can_be_written(harness: Harness) -> None:
    code = (
        "import os\n"
        "found = []\n"
        "for top, dirs, files in os.walk('/'):\n"
        "    if top.startswith(('/proc', '/usr/share', '/usr/lib/python')):\n"
        "        dirs[:] = []\n"
        "        continue\n"
        "    if top.startswith(('/work', '/tmp', '/dev/shm')):\n"
        "        continue\n"
        "    try:\n"
        "        open(top + '/canary', 'w').close(); found.append(top)\n"
        "    except OSError:\n"
        "        pass\n"
        "for path in ('/work', '/tmp', '/dev/shm'):\n"
        "    open(path + '/mine', 'w').close()\n"
        "print(found)\n"
    )
    result = harness.run("python", code)
    assert (result.stdout, result.stderr) == (b"[]\n", b"")


def test_how_the_host_was_booted_and_what_disks_it_has_is_covered(harness: Harness) -> None:
    names = ("cmdline", "diskstats", "locks", "partitions")
    code = f"print([open('/proc/' + name).read(1) for name in {names!r}])"
    assert harness.run("python", code).stdout == b"['', '', '', '']\n"


def test_the_space_of_a_job_is_full_at_its_limit_and_the_host_does_not_notice(
    harness: Harness,
) -> None:
    code = (
        "import errno, os\n"
        "written = 0\n"
        "try:\n"
        "    for n in range(1000):\n"
        "        with open(('/work', '/tmp', '/dev/shm')[n % 3] + f'/fill{n}', 'wb', 0) as file:\n"
        "            for _ in range(16):\n"
        "                written += file.write(bytes(1 << 16))\n"
        "except OSError as error:\n"
        "    print(errno.errorcode[error.errno], written >> 20)\n"
    )
    result = harness.run("python", code, limits=Limits(mem_mb=256))
    name, size = result.stdout.decode().split()
    assert name == "ENOSPC"
    assert 60 <= int(size) <= 64


def test_files_without_content_are_limited_too(harness: Harness) -> None:
    code = (
        "import errno\n"
        "try:\n"
        "    for n in range(60000): open(f'/tmp/{n}', 'w').close()\n"
        "except OSError as error: print(errno.errorcode[error.errno], n)\n"
    )
    name, made = harness.run("python", code).stdout.decode().split()
    assert name == "ENOSPC"
    assert 16_000 < int(made) < 16_384


def test_there_is_no_way_to_the_network(harness: Harness) -> None:
    code = (
        "import socket\n"
        "print(socket.if_nameindex())\n"
        "for address in (('127.0.0.1', 80), ('10.0.0.1', 80), ('8.8.8.8', 53)):\n"
        "    try:\n"
        "        socket.create_connection(address, 1); print('connected')\n"
        "    except OSError: pass\n"
    )
    assert b"connected" not in harness.run("python", code).stdout


def test_a_job_cannot_signal_stop_or_see_its_supervisor(harness: Harness) -> None:
    code = (
        "import os, signal\n"
        "for number in range(1, 65):\n"
        "    try: os.kill(1, number)\n"
        "    except OSError: pass\n"
        "pids = [p for p in os.listdir('/proc') if p.isdigit()]\n"
        "print(os.path.exists('/proc/1'), pids, flush=True)\n"
        "os.kill(0, signal.SIGSTOP)\n"
    )
    result = harness.run("python", code, limits=Limits(wall_seconds=1))
    assert result.report.killed_by == "wall-clock"
    assert result.report.wall_time_ms < 3000
    assert result.stdout.startswith(b"False ")


def test_killing_everybody_inside_ends_only_the_job(harness: Harness) -> None:
    code = "kill -9 -1; echo not reached"
    result = harness.run("bash", f"bash -c '{code}' & sleep 20")
    assert result.report.killed_by == "signal-9"
    assert harness.run("bash", "echo next").stdout == b"next\n"


@pytest.mark.root
def test_the_kernel_takes_a_job_before_its_supervisor_and_the_server() -> None:
    own = Path("/proc/self/oom_score_adj")
    before = own.read_text()
    own.write_text("300")  # jobs must not inherit what the server was given
    try:
        again = opened()
        ended = again.run(
            "bash", "sleep 0 & cat /proc/self/oom_score_adj; exec cat /proc/$$/oom_score_adj"
        )
        again.close()
        assert ended.stdout.split() == [b"1000", b"1000"]
        assert own.read_text() == "300\n"
    finally:
        own.write_text(before)


def test_worker_slots_have_different_uids(harness: Harness) -> None:
    async def scenario() -> list[bytes]:
        code = "read -r me inside < /proc/self/uid_map; echo $me $inside; id -un"
        plans = [harness.plan("bash", code, slot=slot) for slot in range(2)]
        return [
            (await result).stdout
            for result in [asyncio.ensure_future(harness.finish(plan)) for plan in plans]
        ]

    first, second = harness.do(scenario())
    assert first.split()[0] == second.split()[0] == b"1000"
    assert first.split()[-1] == b"job"


@pytest.mark.root
def test_a_supervisor_keeps_no_power_that_it_does_not_need(harness: Harness) -> None:
    from rookhold_exec.executor import KillReason

    async def scenario() -> str:
        running = await harness.executor.start(harness.plan("bash", "echo up; sleep 20"))
        async for _ in running.events():
            break
        launcher = harness.executor._launcher.pid
        statuses = [path.read_text() for path in Path("/proc").glob("[0-9]*/status")]
        (supervisor,) = [text for text in statuses if f"\nPPid:\t{launcher}\n" in text]
        running.kill(KillReason.CANCELLED)
        running.discard()
        await running.wait()
        return supervisor

    effective = int(harness.do(scenario()).split("CapEff:\t")[1].split()[0], 16)
    assert effective == 1 << 2 | 1 << 5 | 1 << 19


def test_a_supervisor_is_in_the_namespaces_of_its_job_and_in_none_of_the_hosts(
    harness: Harness,
) -> None:
    from rookhold_exec.executor import KillReason

    kinds = ("pid", "mnt", "net", "ipc", "uts")

    def identities(process: Path) -> list[str]:
        return [(process / "ns" / kind).readlink().name for kind in kinds]

    async def scenario() -> tuple[list[str], list[str]]:
        running = await harness.executor.start(harness.plan("bash", "echo up; exec sleep 20"))
        async for _ in running.events():
            break
        launcher = str(harness.executor._launcher.pid)
        parents = {
            stat.parent: stat.read_text().rpartition(")")[2].split()[1]
            for stat in Path("/proc").glob("[0-9]*/stat")
        }
        (supervisor,) = [process for process, parent in parents.items() if parent == launcher]
        (job,) = [process for process, parent in parents.items() if parent == supervisor.name]
        found = identities(supervisor), identities(job)
        running.kill(KillReason.CANCELLED)
        running.discard()
        await running.wait()
        return found

    supervisor, job = harness.do(scenario())
    assert supervisor == job
    assert not set(supervisor) & set(identities(Path("/proc/self")))


@pytest.mark.root
@pytest.mark.groups("pids")
def test_groups_that_cannot_be_made_end_the_start_and_spare_another_job(harness: Harness) -> None:
    from rookhold_exec.errors import SandboxStartError
    from rookhold_exec.executor import KillReason
    from rookhold_types.states import JobStatus

    async def scenario() -> tuple[str, str]:
        plan = harness.plan("bash", "echo up; sleep 20")
        first = await harness.executor.start(plan)
        with pytest.raises(SandboxStartError) as refused:
            await harness.executor.start(plan)  # the same name, so the same groups
        first.kill(KillReason.CANCELLED)
        first.discard()
        return refused.value.stage, (await first.wait()).status

    assert harness.do(scenario()) == ("groups", JobStatus.CANCELLED)
    assert harness.run("bash", "echo well").stdout == b"well\n"
