"""Living on: daemons, handlers, stopped groups, orphans; and the limits, which act all the same."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
from hostile.target import SLOW, alive

from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from hostile.target import Target

HANDLERS = """
def ignored(number, frame):
    pass
for number in set(range(1, 65)) - {9, 19, 32, 33}:
    try:
        signal.signal(number, ignored)
    except (OSError, ValueError):
        pass
"""


def marker() -> str:
    """Return seconds to sleep that nobody else on this host sleeps."""
    return f"600.{secrets.randbelow(10**9):09}"


@pytest.mark.parametrize(
    "start",
    [
        pytest.param("(setsid sleep {0} >/dev/null 2>&1 </dev/null &)", id="daemon"),
        pytest.param("(setsid setsid sleep {0} >/dev/null 2>&1 &) ; disown -a", id="double_fork"),
        pytest.param("(trap '' 1 2 3 13 15 20; exec sleep {0}) & disown", id="deaf"),
        pytest.param("(setsid sleep {0} &)", id="with_the_pipes_open"),
        pytest.param("sleep {0} & kill -STOP $!", id="stopped"),
        pytest.param("for i in 1 2 3 4 5 6 7 8; do setsid sleep {0} & done", id="many_sessions"),
        pytest.param("(cd /; exec -a '[kworker/0:1]' bash -c 'sleep {0}; :') &", id="disguised"),
        pytest.param("nohup nice sleep {0} >/dev/null 2>&1 &", id="nohup"),
        pytest.param("coproc sleep {0}; exec 3>&-", id="coprocess"),
    ],
)
def test_no_process_outlives_its_job(target: Target, start: str) -> None:
    asleep = marker()
    code = start.format(asleep) + "\nsleep 0.2; echo over\n"
    result = target.run("bash", code)
    assert result.report.status is JobStatus.SUCCEEDED
    assert result.stdout == b"over\n"
    assert result.seconds < 15 * SLOW
    assert alive(asleep) == []


def test_a_daemon_has_stopped_writing_when_the_job_is_over(target: Target) -> None:
    report = target.run(
        "python",
        HANDLERS
        + """
import time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        n = 0
        while True:
            n += 1
            with open("/work/output/log", "a") as log:
                log.write(f"{n:08}\\n")
    os._exit(0)
time.sleep(0.4)
""",
        outputs=("output/log",),
    ).report
    assert report.status is JobStatus.SUCCEEDED
    (log,) = report.collected
    lines = log.content.split(b"\n")[:-1]
    assert lines == [b"%08d" % n for n in range(1, len(lines) + 1)]
    assert len(lines) > 2
    assert len(log.content) == 9 * len(lines)


def test_a_child_that_runs_from_process_to_process_is_caught(target: Target) -> None:
    result = target.run(
        "python",
        """
import time
if os.fork() == 0:
    os.setsid()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if os.fork():
            os._exit(0)
time.sleep(0.3)
""",
    )
    assert result.report.status is JobStatus.SUCCEEDED
    assert result.seconds < 15 * SLOW
    assert target.before.left_between_jobs() == []


def test_a_subreaper_of_its_own_keeps_nobody(target: Target) -> None:
    asleep = marker()
    result = target.run(
        "python",
        f"""
import time
libc.prctl(36, 1)
libc.prctl(1, 0)
child = os.fork()
if child == 0:
    libc.prctl(36, 1)
    libc.prctl(1, 0)
    os.setsid()
    if os.fork() == 0:
        os.execv("/bin/sleep", ["sleep", "{asleep}"])
    os.execv("/bin/sleep", ["sleep", "{asleep}"])
time.sleep(0.3)
""",
    )
    assert result.report.status is JobStatus.SUCCEEDED
    assert alive(asleep) == []


@pytest.mark.parametrize(
    ("code", "language"),
    [
        pytest.param("kill -STOP 0; sleep 60", "bash", id="stops_its_group"),
        pytest.param("kill -STOP $$; sleep 60", "bash", id="stops_itself"),
        pytest.param("kill -STOP -1; sleep 60", "bash", id="stops_everybody"),
        pytest.param(HANDLERS + "while True: signal.pause()", "python", id="handles_all_signals"),
        pytest.param(
            "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: signal.pause()",
            "python",
            id="blocks_all_signals",
        ),
        pytest.param(
            "exec >&- 2>&- <&-; trap '' TERM; while :; do read -t 1; done",
            "bash",
            id="closes_its_streams",
        ),
        pytest.param(
            "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n"
            "libc.syscall(60, 0)",
            "python",
            id="leaves_its_threads_behind",
        ),
        pytest.param(
            "child = libc.syscall(56, 0x4000 | 17, 0, 0, 0, 0)\n"
            "os.execv('/bin/sleep', ['sleep', '60']) if child else signal.pause()",
            "python",
            id="waits_for_a_vfork_child",
            marks=pytest.mark.x86_64,
        ),
        pytest.param(
            "reading, writing = os.pipe()\nos.read(reading, 1)", "python", id="reads_for_ever"
        ),
        pytest.param(
            "os.mkfifo('/tmp/p')\nopen('/tmp/p')", "python", id="opens_what_nobody_writes"
        ),
    ],
)
def test_x8_the_wall_limit_acts_on_a_job_that(target: Target, code: str, language: str) -> None:
    result = target.run(language, code, limits=target.limits(wall_seconds=1))
    assert result.report.status is JobStatus.TIMED_OUT
    assert result.report.killed_by == "wall-clock"
    assert 1000 <= result.report.wall_time_ms < 4000 * SLOW
    assert target.before.left_between_jobs() == []


@pytest.mark.parametrize(
    ("code", "language"),
    [
        pytest.param("echo up; kill -STOP 0; sleep 60", "bash", id="stopped_itself"),
        pytest.param(
            HANDLERS + "print('up', flush=True)\nwhile True: signal.pause()",
            "python",
            id="handles_all_signals",
        ),
        pytest.param("echo up; while :; do :; done", "bash", id="spins"),
        pytest.param(
            "echo up; for i in 1 2 3 4 5 6; do (trap '' TERM; setsid sleep 60) & done; wait",
            "bash",
            id="has_a_family",
        ),
    ],
)
def test_x8_a_cancel_acts_on_a_job_that(target: Target, code: str, language: str) -> None:
    result = target.cancel(language, code, b"up")
    assert result.report.status is JobStatus.CANCELLED
    assert result.report.killed_by == "cancelled"
    assert result.report.wall_time_ms < 5000 * SLOW
    assert target.before.left_between_jobs() == []


def test_x8_killing_everybody_ends_only_the_job(target: Target) -> None:
    asleep = marker()
    report = target.run("bash", f"bash -c 'kill -9 -1' & sleep {asleep}; exit 5").report
    # Under gVisor the job is the first process of its system, whom that spares.
    assert report.killed_by == target.on("signal-9", gvisor=None)
    assert report.status is JobStatus.FAILED
    assert alive(asleep) == []
    assert target.run("bash", "echo next").stdout == b"next\n"


def test_killing_its_own_parent_does_nothing(target: Target) -> None:
    result = target.run(
        "bash",
        # A parent of 0, under gVisor, would be its own group.
        "for s in 1 2 3 9 15 17 18 19 20; do ((PPID)) && kill -$s $PPID; done 2>/dev/null;"
        " echo still",
    )
    assert result.report.status is JobStatus.SUCCEEDED
    assert result.stdout == b"still\n"


def test_the_end_of_its_parent_is_not_feigned(target: Target) -> None:
    # Told to die with its parent, which is the supervisor: it must still be the one who decides.
    result = target.run(
        "python",
        """
import time
libc.prctl(1, 9)
print(os.getppid(), flush=True)
child = os.fork()
if child == 0:
    libc.prctl(1, 9)
    time.sleep(60)
os._exit(3)
""",
    )
    assert result.report.exit_code == 3
    assert result.seconds < 10 * SLOW


def test_a_stopped_tracee_does_not_hold_up_the_end(target: Target) -> None:
    asleep = marker()
    result = target.run(
        "python",
        f"""
import time
child = os.fork()
if child == 0:
    libc.ptrace(0, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    os.execv("/bin/sleep", ["sleep", "{asleep}"])
os.waitpid(child, os.WUNTRACED)
libc.ptrace(16, child, 0, 0)
os.kill(child, signal.SIGSTOP)
""",
    )
    assert result.report.status is JobStatus.SUCCEEDED
    assert result.seconds < 15 * SLOW
    assert alive(asleep) == []
