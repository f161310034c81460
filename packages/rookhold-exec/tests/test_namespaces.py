"""What the namespace backend in a reviewed root keeps a job from, and what it says of itself.

Everything here runs twice where it can: with groups of version 1, which is this backend but for its
groups, and with those of version 2, as it really is.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from reviewed import KINDS, opened, settings, surveyed
from rootfs import test_rootfs

from rookhold_exec.backends.namespaces import PROMISED, Namespaces
from rookhold_exec.errors import ExecutorUnavailableError
from rookhold_exec.launcher import masks
from rookhold_types.isolation import IsolationClass
from rookhold_types.limits import Limits
from rookhold_types.runtimes import PACKS
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rookhold_exec.testing import Harness

NAMESPACES = ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup")


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> type[Namespaces]:
    chosen: type[Namespaces] = request.param
    return chosen


@pytest.fixture(scope="module")
def harness(kind: type[Namespaces]) -> Iterator[Harness]:
    harness = opened(kind)
    yield harness
    harness.close()


def test_every_control_is_seen_and_the_class_with_them(harness: Harness) -> None:
    provenance = harness.run("python", "print(1)").report.provenance
    posture = harness.executor.posture
    assert set(provenance.controls) == set(posture.controls) == PROMISED
    for said in (provenance, posture):
        assert said.backend == "namespaces+cgroups-v2+private-rootfs"
        assert said.isolation_class is IsolationClass.LINUX_SHARED_KERNEL
        assert said.isolated
        assert said.private_rootfs
    enforced = provenance.limit_enforcement
    assert all((enforced.wall, enforced.cpu, enforced.mem, enforced.pids, enforced.file))


@pytest.mark.parametrize("control", sorted(PROMISED))
def test_a_control_that_was_dropped_is_missing_alone_and_takes_the_class_along(
    kind: type[Namespaces], control: str
) -> None:
    without = opened(kind, faults=frozenset({control}))
    try:
        report = without.run("python", "print(1)").report
        posture = without.executor.posture
    finally:
        without.close()
    assert report.exit_code == 0
    for said in (report.provenance, posture):
        assert set(said.controls) == PROMISED - {control}
        assert said.isolation_class is IsolationClass.NONE
        assert not said.isolated
        assert said.private_rootfs == (control != "private-rootfs")


def test_what_was_reviewed_is_named_in_the_evidence(
    kind: type[Namespaces], harness: Harness
) -> None:
    found = surveyed(kind)["found"]
    provenance = harness.run("python", "print(1)").report.provenance
    assert provenance.rootfs_sha256 == found["rootfs_sha256"]
    expected = PACKS["python"] if PACKS["python"] in found["packs"] else None
    assert provenance.runtime_pack == expected
    assert provenance.runtime_sha256 is None


def test_without_the_private_root_nothing_of_it_is_claimed(kind: type[Namespaces]) -> None:
    without = opened(kind, faults=frozenset({"private-rootfs"}))
    try:
        provenance = without.run("python", "print(1)").report.provenance
    finally:
        without.close()
    assert (provenance.rootfs_sha256, provenance.runtime_pack) == (None, None)


def test_the_root_is_the_reviewed_one_and_nothing_of_the_host(harness: Harness) -> None:
    canary = Path(f"/var/tmp/rookhold-canary-{os.getpid()}")
    canary.write_text("canary")
    try:
        code = f"import os; print(sorted(os.listdir('/')), os.path.exists({str(canary)!r}))"
        stdout = harness.run("python", code).stdout.decode().strip()
    finally:
        canary.unlink()
    names = sorted(path.name for path in test_rootfs().iterdir())
    assert stdout == f"{names} False"


def test_hosts_and_accounts_are_those_of_the_reviewed_root(harness: Harness) -> None:
    code = "import sys; [sys.stdout.write(open(p).read()) for p in ('/etc/hosts', '/etc/passwd')]"
    inside = "".join((test_rootfs() / name).read_text() for name in ("etc/hosts", "etc/passwd"))
    assert harness.run("python", code).stdout.decode() == inside


WRITABLE = """
import os
found = []
for top, dirs, files in os.walk('/'):
    dirs[:] = [d for d in dirs if not os.path.islink(os.path.join(top, d))]
    if top in ('/work', '/tmp', '/dev/shm'):
        dirs[:] = []
        continue
    if top.startswith(('/usr/share/', '/usr/lib/')):
        dirs[:] = dirs[:3]
    try:
        open(top + '/canary', 'w').close(); found.append(top)
    except OSError:
        pass
    for name in files:
        path = os.path.join(top, name)
        if not path.startswith('/dev/') and not os.path.islink(path) and os.path.isfile(path):
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK)); found.append(path)
            except OSError:
                pass
print(found)
"""


def test_nothing_but_the_job_s_own_space_can_be_written_not_even_in_proc(harness: Harness) -> None:
    result = harness.run("python", WRITABLE, limits=Limits(wall_seconds=60, cpu_seconds=60))
    assert (result.stdout, result.stderr) == (b"[]\n", b"")


def test_what_proc_tells_of_the_host_is_covered(harness: Harness) -> None:
    names = [name for name, _ in masks.HIDDEN if os.path.lexists(f"/proc/{name}")]
    code = (
        "import os\n"
        f"for name in {names!r}:\n"
        "    path = '/proc/' + name\n"
        "    if os.listdir(path) if os.path.isdir(path) else open(path, 'rb').read(1):\n"
        "        print(name)\n"
        "print('looked')\n"
    )
    assert len(names) > 10
    result = harness.run("python", code)
    assert (result.stdout, result.stderr) == (b"looked\n", b"")


def test_there_is_no_sys_and_no_cgroup_file_system(harness: Harness) -> None:
    code = (
        "import os\n"
        "print(os.listdir('/sys') if os.path.exists('/sys') else [])\n"
        "kinds = {line.split(' - ')[1].split()[0] for line in open('/proc/self/mountinfo')}\n"
        "print(sorted(kinds & {'sysfs', 'cgroup', 'cgroup2', 'debugfs', 'tracefs', 'devpts'}))\n"
    )
    assert harness.run("python", code).stdout == b"[]\n[]\n"


def test_programs_find_what_they_read_of_a_system(harness: Harness) -> None:
    code = (
        "import os\n"
        "for path in ('cpuinfo', 'meminfo', 'stat', 'uptime', 'version', 'self/status'):\n"
        "    assert open('/proc/' + path).read(16), path\n"
        "open('/dev/null', 'w').write('x'); open('/dev/urandom', 'rb').read(8)\n"
        "print(os.cpu_count() > 0, os.stat('/dev/shm').st_mode & 0o7777 == 0o1777)\n"
    )
    result = harness.run("python", code)
    assert (result.stdout, result.stderr) == (b"True True\n", b"")


def test_jobs_at_the_same_time_share_no_namespace(harness: Harness) -> None:
    code = (
        "import os, time\n"
        f"print(*[os.readlink('/proc/self/ns/' + n) for n in {NAMESPACES!r}], flush=True)\n"
        "time.sleep(1)\n"
    )

    async def scenario() -> list[list[str]]:
        plans = [harness.plan("python", code, slot=slot) for slot in range(4)]
        results = await asyncio.gather(*(harness.finish(plan) for plan in plans))
        return [result.stdout.decode().split() for result in results]

    own = [str(Path(f"/proc/self/ns/{name}").readlink()) for name in NAMESPACES]
    for of_one_kind in zip(own, *harness.do(scenario()), strict=True):
        assert len(set(of_one_kind)) == 5


def test_a_small_memory_limit_is_enough_to_start_and_ends_what_needs_more(
    harness: Harness,
) -> None:
    small = Limits(wall_seconds=30, mem_mb=16)
    result = harness.run("bash", "echo fits", limits=small)
    assert (result.stdout, result.report.status) == (b"fits\n", JobStatus.SUCCEEDED)
    code = "x = bytearray(64 << 20); x[::4096] = b'x' * len(x[::4096]); print('not reached')"
    report = harness.run("python", code, limits=small).report
    assert (report.status, report.killed_by) == (JobStatus.OOM_KILLED, "cgroup-oom")


def test_samples_of_cpu_and_memory_are_taken_from_the_groups(harness: Harness) -> None:
    code = (
        "import time\n"
        "kept = bytearray(48 << 20); kept[::4096] = b'x' * len(kept[::4096])\n"
        "until = time.monotonic() + 2\n"
        "while time.monotonic() < until: pass\n"
    )
    usage = harness.run("python", code).report.usage
    assert usage is not None
    samples = usage.samples
    assert 1 <= len(samples) <= 256
    assert all(isinstance(number, int) for sample in samples for number in sample)
    times, cpu, memory = (list(column) for column in zip(*samples, strict=True))
    assert times == sorted(times)
    assert cpu == sorted(cpu)
    assert cpu[-1] > 200_000
    assert max(memory) > 48 << 20


class Deaf(Namespaces):
    """Its launcher leaves a control out, and nobody told the backend."""

    def hello(self) -> dict[str, Any]:
        return {**super().hello(), "faults": ["seccomp", "private-rootfs"]}


def test_it_does_not_open_where_a_control_it_promises_was_not_seen(kind: type[Namespaces]) -> None:
    executor = type("Deaf", (Deaf, kind), {})(settings(surveyed=surveyed(kind), node="none"), "")
    with pytest.raises(ExecutorUnavailableError) as caught:
        asyncio.run(executor.open())
    assert caught.value.detail["controls"] == "private-rootfs, seccomp"


def test_a_filter_that_an_operator_turned_off_costs_the_class(kind: type[Namespaces]) -> None:
    without = opened(kind, seccomp=False, node="none", bash="none")
    try:
        provenance = without.run("python", "print(1)").report.provenance
    finally:
        without.close()
    assert set(provenance.controls) == PROMISED - {"seccomp"}
    assert provenance.isolation_class is IsolationClass.NONE
