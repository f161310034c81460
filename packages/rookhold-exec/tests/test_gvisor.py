"""What the gVisor backend keeps a job from, and what it says of itself, on each runsc there is."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from gvisor import PLATFORMS, STABLE, groups_left, opened, settings

from rookhold_exec.backends.gvisor import GROUPS, PROMISED
from rookhold_exec.errors import SandboxStartError
from rookhold_exec.executor import ExecEvent, KillReason, OutputRecord, Running
from rookhold_exec.launcher.family import descendants
from rookhold_exec.launcher.gvisor import config
from rookhold_exec.testing import Harness
from rookhold_types.isolation import IsolationClass
from rookhold_types.limits import Limits
from rookhold_types.states import JobStatus

TEMPLATE = Path(config.__file__).with_name("config.json")
FORKS = """
import os, time
made = 0
try:
    while made < 60:
        if os.fork() == 0:
            time.sleep(30); os._exit(0)
        made += 1
except OSError:
    pass
print(made)
"""


@pytest.fixture(scope="module", params=PLATFORMS)
def platform(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def harness(platform: str) -> Iterator[Harness]:
    harness = opened(platform, node="none")
    yield harness
    harness.close()


def launcher_of(harness: Harness) -> int:
    launcher = harness.executor._launcher  # type: ignore[attr-defined]
    return int(launcher.pid)


def below(harness: Harness) -> dict[str, int]:
    """Return the processes of the one job that runs: supervisor, runsc, sandbox and gofer."""
    launcher = launcher_of(harness)
    pids = descendants(launcher)
    found = {"supervisor": pids[0]}
    for pid in pids[1:]:
        name = Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0].decode()
        if name.startswith("runsc"):
            found[name.removeprefix("runsc-")] = pid
    return found


async def begun(harness: Harness, code: str) -> tuple[Running, AsyncIterator[ExecEvent]]:
    running = await harness.executor.start(harness.plan("bash", code))
    events = running.events()
    assert isinstance(await anext(events), OutputRecord)
    return running, events


# What it says of itself.


def test_every_control_is_seen_and_the_class_with_them(harness: Harness) -> None:
    provenance = harness.run("bash", "echo 1").report.provenance
    posture = harness.executor.posture
    assert set(provenance.controls) == set(posture.controls) == PROMISED | GROUPS
    for said in (provenance, posture):
        assert said.backend == "gvisor-oci"
        assert said.isolation_class is IsolationClass.GVISOR_APPLICATION_KERNEL
        assert said.isolated
        assert said.private_rootfs
        assert not said.seccomp
    enforced = provenance.limit_enforcement
    assert all((enforced.wall, enforced.cpu, enforced.mem, enforced.pids, enforced.file))


def test_runtime_root_and_configuration_are_named_by_their_digests(
    harness: Harness, platform: str
) -> None:
    known = settings(platform)
    one, same, other = (
        harness.run("bash", code, limits=limits).report.provenance
        for code, limits in (
            ("echo 1", Limits()),
            ("echo 2", Limits()),
            ("echo 1", Limits(max_file_mb=3)),
        )
    )
    assert known.runsc is not None
    assert one.runtime_sha256 == hashlib.sha256(Path(known.runsc).read_bytes()).hexdigest()
    assert one.runtime_version is not None
    assert one.runtime_version.startswith("0.0~20")
    assert one.rootfs_sha256 == known.rootfs_sha256
    assert one.config_sha256 == same.config_sha256
    assert one.config_sha256 != other.config_sha256
    assert one.runtime_pack is not None


@pytest.mark.parametrize("platform", [STABLE], scope="module")
@pytest.mark.parametrize("control", sorted(PROMISED | GROUPS))
def test_a_control_that_is_left_out_is_missing_from_the_evidence_alone(
    platform: str, control: str
) -> None:
    harness = opened(platform, faults=frozenset({control}))
    try:
        posture = harness.executor.posture
    finally:
        harness.close()
    assert (PROMISED | GROUPS) - set(posture.controls) == {control}
    weaker = control in PROMISED
    assert posture.isolated is not weaker


# What a job can and cannot do.


def test_the_root_is_another_one_and_runsc_sees_nothing_of_the_host(harness: Harness) -> None:
    async def scenario() -> set[str]:
        running, events = await begun(harness, "echo up; sleep 30")
        seen = set(os.listdir(f"/proc/{below(harness)['supervisor']}/root"))
        running.kill(KillReason.CANCELLED)
        assert [event async for event in events]
        return seen

    parts = {"bundle", "dev", "groups", "proc", "rootfs", "runsc", "space", "sys", "tmp"}
    assert harness.do(scenario()) == parts
    shown = harness.run("bash", "for each in /*; do echo $each; done").stdout.decode().split()
    assert "/workspace" not in shown or Path(settings_root(), "workspace").exists()
    assert not {"/bundle", "/runsc", "/space", "/rootfs", "/root/.ssh"} & set(shown)


def settings_root() -> str:
    return settings("ptrace").rootfs or ""


def test_live_sandboxes_share_no_namespace(harness: Harness) -> None:
    async def scenario() -> None:
        running = [await begun(harness, "echo up; sleep 30") for _ in range(2)]
        sandboxes = [
            pid
            for pid in descendants(launcher_of(harness))
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"runsc-sandbox")
        ]
        assert len(sandboxes) == 2
        for name in ("user", "pid", "mnt", "net", "ipc", "uts"):
            one, other = (os.readlink(f"/proc/{pid}/ns/{name}") for pid in sandboxes)
            assert len({one, other, os.readlink(f"/proc/self/ns/{name}")}) == 3
        for job, events in running:
            job.kill(KillReason.CANCELLED)
            assert [event async for event in events]

    harness.do(scenario())


def test_the_process_limit_is_exact_and_no_user_namespace_leads_out_of_it(
    harness: Harness,
) -> None:
    escape = "import ctypes; print(ctypes.CDLL(None).unshare(0x10000000))\n"
    result = harness.run("python", escape + FORKS, limits=Limits(max_pids=20, wall_seconds=60))
    assert result.stdout == b"-1\n19\n"
    assert result.report.status is JobStatus.SUCCEEDED


def test_a_process_in_a_namespace_of_users_cannot_be_made_with_clone_either(
    harness: Harness,
) -> None:
    code = (
        "import ctypes\n"
        "call = ctypes.CDLL(None, use_errno=True).syscall\n"
        "for number, flags in ((56, 0x10000011), (435, 0), (101, 0), (308, 3)):\n"
        "    print(call(number, flags, 0, 0, 0, 0), ctypes.get_errno())\n"
        "import threading\n"
        "threading.Thread(target=print, args=('a thread',)).start()\n"
    )
    told = b"-1 1\n-1 38\n-1 1\n-1 1\na thread\n"  # clone, clone3, ptrace, setns
    assert harness.run("python", code).stdout == told


def test_a_limit_too_small_to_start_is_told_and_nothing_hangs(harness: Harness) -> None:
    began = time.monotonic()
    with pytest.raises(SandboxStartError) as refused:
        harness.run("bash", "echo 1", limits=Limits(mem_mb=16))
    assert refused.value.stage == "memory"
    assert time.monotonic() - began < 15
    assert harness.run("bash", "echo 1", limits=Limits(mem_mb=32)).stdout == b"1\n"


def test_an_exit_that_looks_like_a_signal_is_an_exit(harness: Harness) -> None:
    for code in (137, 143, 128, 2):
        lie = "echo 'I0101 00:00:00.0 1 main.go:1] Exiting with status: 9' >&2"
        report = harness.run("bash", f"{lie}; exit {code}").report
        assert (report.status, report.exit_code, report.killed_by) == (
            JobStatus.FAILED,
            code,
            None,
        )


def test_kill_everybody_and_a_stop_of_oneself_leave_the_limits_in_charge(
    harness: Harness,
) -> None:
    code = "trap '' TERM; kill -9 -1; (sleep 60 &); echo left; kill -STOP $$; sleep 60"
    result = harness.run("bash", code, limits=Limits(wall_seconds=2))
    assert result.stdout == b"left\n"
    assert result.report.killed_by == "wall-clock"
    assert result.report.usage is not None
    assert result.report.usage.samples


def test_many_processes_one_after_another_cost_a_job_no_more_than_those_at_a_time(
    harness: Harness,
) -> None:
    code = "for n in {1..3}; do for m in {1..15}; do sleep 0.2 & done; wait; done; echo ended"
    result = harness.run("bash", code, limits=Limits(wall_seconds=60, cpu_seconds=60, max_pids=20))
    assert result.report.killed_by is None
    assert result.stdout == b"ended\n"
    assert result.report.status is JobStatus.SUCCEEDED


def test_a_fork_bomb_ends_at_a_limit_and_the_next_job_runs(harness: Harness) -> None:
    bomb = "b() { b | b & }; b; wait"
    result = harness.run("bash", bomb, limits=Limits(wall_seconds=3, cpu_seconds=2, max_pids=30))
    assert result.report.status in {
        JobStatus.FAILED,
        JobStatus.TIMED_OUT,
        JobStatus.OOM_KILLED,
        JobStatus.SUCCEEDED,
    }
    assert result.seconds < 30
    assert harness.run("bash", "echo next").stdout == b"next\n"


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_cancel_ends_a_job_at_once(harness: Harness, stopped: bool) -> None:
    code = "echo up; kill -STOP $$" if stopped else "echo up; sleep 60"

    async def scenario() -> float:
        running, events = await begun(harness, code)
        began = time.monotonic()
        running.kill(KillReason.CANCELLED)
        assert [event async for event in events]
        assert (await running.wait()).status is JobStatus.CANCELLED
        return time.monotonic() - began

    assert statistics.median(harness.do(scenario()) for _ in range(3)) < 1.0


# When something dies.


def left_of(launcher: int) -> list[str]:
    """Return what is there of jobs of this launcher: processes and groups."""
    processes = [f"process {pid}" for pid in descendants(launcher)]
    return processes + groups_left(f"rookhold-{launcher}-")


def nothing_is_left(launcher: int) -> bool:
    until = time.monotonic() + 10
    while (left := left_of(launcher)) and time.monotonic() < until:
        time.sleep(0.02)
    return not left


@pytest.mark.parametrize("victim", ["runsc", "sandbox", "gofer", "supervisor"])
def test_a_process_of_the_runtime_that_is_killed_costs_its_job_alone(
    harness: Harness, victim: str
) -> None:
    mounts = Path("/proc/self/mountinfo").read_text()

    async def scenario() -> None:
        running, events = await begun(harness, "echo up; sleep 60")
        os.kill(below(harness)[victim], 9)
        async for _ in events:
            pass
        report = await running.wait()
        assert (report.status, report.killed_by, report.exit_code) == (JobStatus.ERROR, None, None)

    harness.do(scenario())
    assert nothing_is_left(launcher_of(harness))
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert harness.run("bash", "echo next").stdout == b"next\n"


@pytest.mark.parametrize("own", [False, True], ids=["its-gofer-was-killed", "it-killed-itself"])
def test_who_killed_a_job_is_known_however_late_the_supervisor_looks(
    harness: Harness, *, own: bool
) -> None:
    async def scenario() -> None:
        code = "echo up; sleep 0.1; kill -9 $$" if own else "echo up; sleep 60"
        running, events = await begun(harness, code)
        there = below(harness)
        os.kill(there["supervisor"], signal.SIGSTOP)
        try:
            if not own:
                os.kill(there["gofer"], signal.SIGKILL)
            time.sleep(0.5)  # long enough for all that follows from it
        finally:
            os.kill(there["supervisor"], signal.SIGCONT)
        async for _ in events:
            pass
        report = await running.wait()
        expected = (JobStatus.FAILED, "signal-9") if own else (JobStatus.ERROR, None)
        assert (report.status, report.killed_by) == expected

    harness.do(scenario())
    assert nothing_is_left(launcher_of(harness))


def runs(pid: int) -> bool:
    """Say whether it lives; what waits to be reaped by a slow init does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def test_a_launcher_that_is_killed_takes_its_jobs_with_it_and_is_replaced(
    harness: Harness,
) -> None:
    async def scenario() -> None:
        running, events = await begun(harness, "echo up; sleep 60")
        launcher = launcher_of(harness)
        doomed = descendants(launcher)
        os.kill(launcher, 9)
        assert [event async for event in events]
        assert (await running.wait()).status is JobStatus.ERROR
        until = time.monotonic() + 30
        while any(runs(pid) for pid in doomed) and time.monotonic() < until:
            time.sleep(0.02)
        assert not any(runs(pid) for pid in doomed)

    harness.do(scenario())
    assert harness.run("bash", "echo next").stdout == b"next\n"


# What a reviewer reads.


def test_the_template_is_json_that_grants_nothing() -> None:
    told = json.loads(TEMPLATE.read_text("utf-8"))
    process = told["process"]
    assert all(not held for held in process["capabilities"].values())
    assert process["noNewPrivileges"]
    assert not process["terminal"]
    assert told["root"] == {"path": "/rootfs", "readonly": True}
    sources = {mount["source"] for mount in told["mounts"]}
    assert sources == {"proc", "/space/work", "/space/tmp", "/space/shm"}
    kinds = {each["type"] for each in told["linux"]["namespaces"]}
    assert kinds == {"pid", "mount", "ipc", "uts", "network"}
    assert all("path" not in each for each in told["linux"]["namespaces"])


def test_what_is_filled_in_stays_in_its_place() -> None:
    text = config.template(frozenset(), uid=1234, gid=4321)
    argv = [b'/bin/"x', b"\\ \n\x7f \xc3\xbc"]
    filled = json.loads(config.build(text, argv, {b"PATH": b'"], "root": {'}, ()))
    assert filled["process"]["args"][4:] == ['/bin/"x', "\\ \n\x7f ü"]
    assert filled["process"]["env"] == ['PATH="], "root": {']
    assert filled["process"]["user"]["uid"] == 1234
    assert filled["root"] == {"path": "/rootfs", "readonly": True}


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(UnicodeDecodeError):
        config.quoted(b"\xff")


def test_a_template_without_one_of_its_places_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = config.read("config.json")
    less = whole.replace(b'"@uid@"', b"0")
    monkeypatch.setattr(config, "read", lambda name: less if name == "config.json" else b"")
    with pytest.raises(config.TemplateError):
        config.template(frozenset(), uid=1, gid=1)
