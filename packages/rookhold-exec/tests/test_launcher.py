"""The launcher's life: what is in it, what its death does, what the server's death does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookhold_exec import run
from rookhold_exec.backends.launched import LaunchedExecutor
from rookhold_exec.errors import ExecutorUnavailableError, LauncherLostError, SandboxStartError
from rookhold_exec.launcher.client import LauncherClient, hello
from rookhold_exec.launcher.spawner import LocalSpawner
from rookhold_exec.select import choose_backend
from rookhold_exec.settings import ExecSettings
from rookhold_exec.testing import Harness
from rookhold_types.checks import InputFile
from rookhold_types.states import JobStatus

BACKENDS = [pytest.param("namespaces-dev", marks=pytest.mark.linux_ns), "off"]
GROUPS = Path("/sys/fs/cgroup")


@pytest.fixture(params=BACKENDS)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    executor = choose_backend(request.param, ExecSettings(jobs_root=str(tmp_path), node="none"))
    harness = Harness(executor)
    harness.do(executor.open())
    yield harness
    harness.close()


def client(harness: Harness) -> LauncherClient:
    assert isinstance(harness.executor, LaunchedExecutor)
    assert harness.executor._launcher is not None
    return harness.executor._launcher


def gone(pid: int) -> bool:
    """Say whether a process is gone, or a zombie that only waits for its parent."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] == "Z"


def wait_until_gone(pids: list[int], seconds: float = 10) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if all(gone(pid) for pid in pids):
            return True
        time.sleep(0.01)
    return False


def below(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            child = int(path.parent.name)
            found += [child, *below(child)]
    return found


def groups_of(pid: int) -> list[Path]:
    return list(GROUPS.glob(f"*/rookhold-{pid}-*")) + list(GROUPS.glob(f"*/*/rookhold-{pid}-*"))


def test_it_has_no_secret_no_thread_and_no_descriptor_of_the_server(harness: Harness) -> None:
    with open("/etc/passwd", "rb") as held:
        os.set_inheritable(held.fileno(), True)
        os.environ["ROOKHOLD_SECRET"] = "canary"
        pid = client(harness).pid
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            open_files = []
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):  # of the last probe, being reaped
                    open_files.append(os.readlink(entry))
        finally:
            del os.environ["ROOKHOLD_SECRET"]
        assert set(environment.split(b"\0")) <= {b"PATH=/usr/bin:/bin", b"LANG=C.UTF-8", b""}
        assert len(list(Path(f"/proc/{pid}/task").iterdir())) == 1
        assert not [name for name in open_files if "passwd" in name]
        assert os.getsid(pid) == pid


@pytest.mark.parametrize("backend", BACKENDS)
def test_jobs_run_as_ever_under_a_server_that_was_started_with_signals_ignored(
    backend: str, tmp_path: Path
) -> None:
    ignored = (signal.SIGCHLD, signal.SIGQUIT, signal.SIGUSR1, signal.SIGRTMIN)
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in ignored]
    try:
        harness = Harness(
            choose_backend(backend, ExecSettings(jobs_root=str(tmp_path), node="none"))
        )
        harness.do(harness.executor.open())
        ended = harness.run("bash", "exec grep SigIgn /proc/self/status")
        alone = harness.run("bash", "kill -USR1 $$; echo survived")
        harness.close()
    finally:
        for number, handler in before:
            signal.signal(number, handler)
    assert ended.stdout.split() == [b"SigIgn:", b"0000000000000000"]
    assert ended.report.status is JobStatus.SUCCEEDED
    assert (alone.stdout, alone.report.killed_by) == (b"", "signal-10")


def test_a_launcher_that_dies_takes_its_jobs_with_it_and_is_restarted(harness: Harness) -> None:
    async def scenario() -> None:
        launcher = client(harness)
        first = launcher.pid
        plan = harness.plan("bash", "echo up; sleep 60")
        running = await harness.executor.start(plan)
        pids = below(first)
        assert len(pids) >= 2
        os.kill(first, signal.SIGKILL)
        events = [event async for event in running.events()]
        report = await running.wait()
        assert report.status is JobStatus.ERROR
        assert report.killed_by is None
        assert events[-1].rule == "executor_error"
        assert wait_until_gone([first, *pids])
        again = await harness.finish(harness.plan("python", "print('again')"))
        assert again.stdout == b"again\n"
        assert launcher.pid != first
        assert launcher.restarts == 1
        assert groups_of(first) == []

    harness.do(scenario())


def test_a_job_that_comes_before_anybody_noticed_the_death_goes_to_the_next_launcher(
    harness: Harness,
) -> None:
    launcher = client(harness)

    async def scenario() -> None:
        os.kill(launcher.pid, signal.SIGKILL)
        assert wait_until_gone([launcher.pid])  # the loop does not run meanwhile
        result = await harness.finish(harness.plan("bash", "echo up"))
        assert (result.stdout, launcher.restarts) == (b"up\n", 1)

    harness.do(scenario())


# A launcher that answers as one that is ready, and is gone at once.
_SHORT_LIVED = """
import socket
from rookhold_exec.launcher.protocol import READY, VERSION, encode
server = socket.socket(fileno=3)
server.recv(131072)
server.send(encode({"op": READY, "version": VERSION}))
"""


def test_a_launcher_that_answers_and_dies_at_once_is_replaced(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = client(harness)
    settings, attempts = launcher._settings, []

    def busy_meanwhile() -> dict[str, object]:
        attempts.append(launcher.pid)
        if len(attempts) == 2:
            monkeypatch.undo()  # the third is a real one
        # The loop looks up again only when answer and death are both there to be seen.
        asyncio.get_running_loop().call_soon(time.sleep, 0.7)
        return settings()

    async def scenario() -> None:
        argv = (sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{_SHORT_LIVED}")
        monkeypatch.setattr(launcher, "_spawner", LocalSpawner(argv))
        monkeypatch.setattr(launcher, "_settings", busy_meanwhile)
        os.kill(launcher.pid, signal.SIGKILL)
        async with asyncio.timeout(30):
            while not launcher.restarts:
                await asyncio.sleep(0.01)
        assert launcher.pid not in attempts
        again = await harness.finish(harness.plan("bash", "echo again"))
        assert again.stdout == b"again\n"

    harness.do(scenario())
    assert len(attempts) == 2


def test_a_launcher_that_dies_before_it_answers_is_replaced_at_once(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = client(harness)

    async def scenario() -> float:
        monkeypatch.setattr(launcher, "_spawner", LocalSpawner(["/usr/bin/true"]))
        began = time.monotonic()
        os.kill(launcher.pid, signal.SIGKILL)
        await asyncio.sleep(0.1)
        monkeypatch.undo()
        again = await harness.finish(harness.plan("bash", "echo again"))
        assert again.stdout == b"again\n"
        return time.monotonic() - began

    assert harness.do(scenario()) < 5


def test_jobs_leave_no_process_descriptor_or_group(harness: Harness) -> None:
    pid = client(harness).pid

    async def scenario() -> None:
        for n in range(10):
            plans = [harness.plan("bash", "sleep 0.01 & echo x", slot=slot) for slot in range(2)]
            await asyncio.gather(*(harness.finish(plan) for plan in plans))
            if n == 4:
                scenario.before = len(os.listdir("/proc/self/fd"))
                scenario.launcher = len(os.listdir(f"/proc/{pid}/fd"))
        await asyncio.sleep(0.3)
        assert len(os.listdir("/proc/self/fd")) <= scenario.before
        assert len(os.listdir(f"/proc/{pid}/fd")) <= scenario.launcher
        assert below(pid) == []
        assert [g for own in groups_of(pid) for g in own.glob("job-*")] == []

    harness.do(scenario())


_SERVER = """
import asyncio, sys
from rookhold_types.limits import Limits
from rookhold_exec.executor import SandboxPlan
from rookhold_exec.select import choose_backend
from rookhold_exec.settings import ExecSettings

async def main():
    executor = choose_backend(sys.argv[1], ExecSettings(jobs_root=sys.argv[2], node="none"))
    await executor.open()
    code = b"echo up; (setsid sleep 60 &); sleep 60"
    plan = SandboxPlan(job_id="held", language="bash", code=code, limits=Limits(wall_seconds=60))
    running = await executor.start(plan)
    async for event in running.events():
        print(executor._launcher.pid, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_server_that_is_killed_takes_launcher_jobs_and_groups_with_it(
    backend: str, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_SERVER), backend, str(tmp_path)],
        stdout=subprocess.PIPE,
    ) as server:
        assert server.stdout is not None
        launcher = int(server.stdout.readline())
        time.sleep(0.1)
        pids = [launcher, *below(launcher)]
        server.kill()
    assert len(pids) >= 4
    assert wait_until_gone(pids)
    assert groups_of(launcher) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.linux_ns
@pytest.mark.root
def test_a_new_launcher_sweeps_the_groups_of_a_dead_one(tmp_path: Path) -> None:
    executor = choose_backend("namespaces-dev", ExecSettings(node="none", bash="none"))
    harness = Harness(executor)
    harness.do(executor.open())
    old = client(harness).pid
    try:
        if not groups_of(old):
            assert "cgroup-memory" not in executor.posture.controls
            return
        (place, *_) = groups_of(old)
        leftover = place.with_name("rookhold-4194300-1")
        (leftover / "job-x").mkdir(parents=True)
        second = choose_backend("namespaces-dev", ExecSettings(node="none", bash="none"))
        harness.do(second.open())
        harness.do(second.close())
        assert not leftover.exists()
        assert groups_of(old)
    finally:
        harness.close()
    assert groups_of(old) == []


def test_a_launcher_that_cannot_start_is_told_by_its_code(tmp_path: Path) -> None:
    for interpreter in (("/nonexistent",), ("/usr/bin/true",)):
        settings = ExecSettings(jobs_root=str(tmp_path), launcher=interpreter)

        async def scenario(settings: ExecSettings = settings) -> None:
            with pytest.raises(ExecutorUnavailableError) as caught:
                await choose_backend("off", settings).open()
            assert caught.value.code == "executor_unavailable"

        asyncio.run(scenario())


def test_a_launcher_that_hangs_is_replaced(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "START_SECONDS", 0.2)
    monkeypatch.setattr(run, "_OVERDUE_SECONDS", 0.2)
    hung = client(harness).pid
    os.kill(hung, signal.SIGSTOP)

    async def scenario() -> None:
        with pytest.raises(LauncherLostError):
            await harness.executor.start(harness.plan("bash", "echo"))
        monkeypatch.undo()
        result = await harness.finish(harness.plan("bash", "echo again"))
        assert result.stdout == b"again\n"

    harness.do(scenario())
    assert wait_until_gone([hung])


def test_a_start_that_fails_costs_no_other_job_anything(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_OVERDUE_SECONDS", 0.2)
    before = client(harness).pid
    # The second name needs a directory where the first one is a file.
    clash = (InputFile("input/a", b"x"), InputFile("input/a/b", b"y"))

    async def scenario() -> None:
        other = await harness.executor.start(harness.plan("bash", "sleep 1.5; echo fine", slot=1))
        for _ in range(5):
            with pytest.raises(SandboxStartError):
                await harness.executor.start(harness.plan("bash", "echo", files=clash))
        assert [event.line async for event in other.events()] == ["fine"]
        assert (await other.wait()).status is JobStatus.SUCCEEDED
        assert (client(harness).pid, client(harness).restarts) == (before, 0)

    harness.do(scenario())


def test_whoever_waited_for_a_dead_launcher_spares_its_successor(harness: Harness) -> None:
    launcher = client(harness)
    first = launcher.pid

    async def scenario() -> None:
        launcher.kill_itself(first)
        async with asyncio.timeout(10):
            while not launcher.restarts:
                await asyncio.sleep(0.01)
        assert (await harness.finish(harness.plan("bash", "echo again"))).stdout == b"again\n"
        second = launcher.pid
        launcher.kill_itself(first)  # by somebody who has not heard
        assert (await harness.finish(harness.plan("bash", "echo still"))).stdout == b"still\n"
        assert (launcher.pid, launcher.restarts) == (second, 1)

    harness.do(scenario())


@pytest.mark.linux_ns
def test_cancel_acts_within_milliseconds(tmp_path: Path) -> None:
    from rookhold_exec.executor import KillReason

    harness = Harness(choose_backend("namespaces-dev", ExecSettings(node="none")))
    harness.do(harness.executor.open())

    async def scenario() -> float:
        running = await harness.executor.start(harness.plan("bash", "echo up; sleep 60"))
        taken = 0.0
        async for _ in running.events():
            if not taken:
                taken = time.monotonic()
                running.kill(KillReason.CANCELLED)
        await running.wait()
        return time.monotonic() - taken

    try:
        times = sorted(harness.do(scenario()) for _ in range(5))
    finally:
        harness.close()
    assert times[2] < 0.2


@pytest.mark.parametrize("backend", BACKENDS)
def test_too_low_a_limit_on_open_files_is_said(backend: str, tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import resource, sys
        from rookhold_exec.errors import ExecutorUnavailableError
        from rookhold_exec.select import choose_backend
        from rookhold_exec.settings import ExecSettings
        from rookhold_exec.testing import Harness
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        harness = Harness(choose_backend(sys.argv[1], ExecSettings(jobs_root=sys.argv[2])))
        try:
            harness.do(harness.executor.open())
        except ExecutorUnavailableError as refused:
            print(refused)
    """)
    argv = [sys.executable, "-c", program, backend, str(tmp_path / "jobs")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert "Too many open files" in done.stdout


@pytest.mark.linux_ns
def test_a_server_that_goes_while_its_launcher_starts_leaves_no_group(tmp_path: Path) -> None:
    settings = ExecSettings(jobs_root=str(tmp_path), node="none")
    executor = choose_backend("namespaces-dev", settings)
    assert isinstance(executor, LaunchedExecutor)
    _, order = executor.order()

    async def scenario() -> int:
        launched = await LocalSpawner(settings.launcher).start()
        launched.socket.send(hello(order))
        launched.socket.close()
        os.close(launched.pidfd)
        return launched.pid

    pid = asyncio.run(scenario())
    os.waitpid(pid, 0)
    assert groups_of(pid) == []
