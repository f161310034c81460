"""Lying about how it ended: codes, signals, limits that others met, and messages to the server."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import anyio
import pytest
from hostile.target import SLOW

from rookhold_exec import probe
from rookhold_exec.executor import KillReason, OutputRecord
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from hostile.target import Target

    from rookhold_exec.executor import Report

FAILED = JobStatus.FAILED


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("exit 137", 137), ("exit 124", 124), ("exit 143", 143), ("exit 159", 159), ("exit 256", 0),
     ("exit -1", 255), ("(exit 139); exit $?", 139)],
    ids=["killed", "timed_out", "terminated", "filtered", "wrapped", "negative", "a_crash"],
)  # fmt: skip
def test_an_exit_code_is_a_number_and_no_verdict(target: Target, code: str, exit_code: int) -> None:
    result = target.run("bash", code)
    assert result.report.exit_code == exit_code
    assert result.report.killed_by is None
    assert result.report.status is (FAILED if exit_code else JobStatus.SUCCEEDED)
    assert result.rules == []


@pytest.mark.parametrize(
    ("name", "number"),
    [("KILL", 9), ("SYS", 31), ("XCPU", 24), ("XFSZ", 25), ("TERM", 15), ("SEGV", 11), ("BUS", 7),
     ("ABRT", 6), ("HUP", 1), ("RTMIN", 34)],
)  # fmt: skip
def test_a_signal_to_itself_is_only_that_signal(target: Target, name: str, number: int) -> None:
    code = f"signal.signal({number}, signal.SIG_DFL) if {number} != 9 else None\n"
    code += f"os.kill(os.getpid(), {number})\nsignal.pause()\n"
    result = target.run("python", code)
    assert result.report.status is FAILED
    assert result.report.killed_by == f"signal-{number}"
    assert result.report.exit_code is None
    assert result.rules == []


def test_a_child_that_kills_the_job_is_told_as_the_signal(target: Target) -> None:
    report = target.run("bash", "(kill -9 $$) & sleep 20").report
    assert (report.status, report.killed_by) == (FAILED, "signal-9")


def test_killed_children_do_not_make_a_job_fail(target: Target) -> None:
    code = "for s in 9 31 24 25 11; do sleep 20 & kill -$s $!; wait $!; done 2>/dev/null; exit 0"
    result = target.run("bash", code)
    assert (result.report.status, result.report.killed_by) == (JobStatus.SUCCEEDED, None)
    assert result.rules == []


def test_a_fake_seccomp_death_is_not_believed(target: Target) -> None:
    code = """
class Info(ctypes.Structure):
    _fields_ = [("signo", ctypes.c_int), ("errno", ctypes.c_int), ("code", ctypes.c_int),
                ("pad", ctypes.c_int), ("rest", ctypes.c_char * 112)]
signal.signal(31, signal.SIG_DFL)
info = Info(31, 0, -1)
info.code = 1  # SYS_SECCOMP
called(129, os.getpid(), 31, ctypes.byref(info))
os.kill(os.getpid(), 31)
"""
    result = target.run("python", code)
    assert result.report.killed_by == "signal-31"
    assert "seccomp_violation" not in result.rules


@pytest.mark.root
@pytest.mark.groups("memory")
def test_a_child_that_ran_out_of_memory_is_told_even_if_its_parent_ends_well(
    target: Target,
) -> None:
    code = """
import time
if os.fork() == 0:
    blocks = [bytearray(b"x") * (1 << 20) for _ in range(600)]
    os._exit(0)
os.wait()
os._exit(0)
"""
    report = target.run("python", code, limits=target.limits(mem_mb=64)).report
    assert report.status is JobStatus.OOM_KILLED
    assert report.killed_by == "cgroup-oom"


def test_a_big_job_that_kills_itself_did_not_run_out_of_memory(target: Target) -> None:
    code = "block = bytearray(b'x') * (40 << 20)\nos.kill(os.getpid(), 9)\n"
    report = target.run("python", code, limits=target.limits(mem_mb=96)).report
    assert (report.status, report.killed_by) == (FAILED, "signal-9")


def test_a_refused_allocation_is_no_death(target: Target) -> None:
    told = target.ask("""
try:
    bytearray(1 << 60)
except MemoryError:
    told["refused"] = True
""")
    assert told == {"refused": True}


def test_a_handler_for_the_cpu_signal_gains_nothing(target: Target) -> None:
    code = """
signal.signal(signal.SIGXCPU, lambda number, frame: None)
signal.signal(signal.SIGPROF, signal.SIG_IGN)
while True:
    pass
"""
    report = target.run("python", code, limits=target.limits(cpu_seconds=1)).report
    assert report.status is FAILED
    assert report.killed_by in {"cgroup-cpu", "supervisor-cpu"}


def test_the_counter_that_ended_a_job_is_the_one_that_is_named(target: Target) -> None:
    limits = target.limits(cpu_seconds=1)
    report = target.run("python", "while True: pass", limits=limits).report
    # The exact counter of a group, wherever one may be made; the supervisor's sum elsewhere.
    assert report.killed_by == ("cgroup-cpu" if probe.places() else "supervisor-cpu")


def test_cpu_time_of_a_child_that_was_not_waited_for_is_the_job_s(target: Target) -> None:
    code = """
import time
if os.fork() == 0:
    os.setsid()
    while True:
        pass
time.sleep(25)
"""
    report = target.run("python", code, limits=target.limits(cpu_seconds=1)).report
    assert report.killed_by in {"cgroup-cpu", "supervisor-cpu"}


def test_a_real_file_limit_is_told_as_its_signal(target: Target) -> None:
    code = "head -c 8M /dev/zero >output/x; echo $?; exec head -c 8M /dev/zero >output/y"
    limits = target.limits(max_file_mb=1)
    report = target.run("bash", code, limits=limits).report
    assert report.killed_by == "signal-25"


def test_closing_everything_and_ending_well_is_a_success(target: Target) -> None:
    result = target.run("bash", "exec 0<&- 1>&- 2>&-; exit 0")
    assert result.report.status is JobStatus.SUCCEEDED
    assert (result.stdout, result.stderr) == (b"", b"")


def test_the_limit_that_was_met_first_is_the_one_that_is_told(target: Target) -> None:
    limits = target.limits(wall_seconds=1, cpu_seconds=20)
    report = target.run("python", "while True: pass", limits=limits).report
    assert (report.status, report.killed_by) == (JobStatus.TIMED_OUT, "wall-clock")


FORGED = r"""
import json, struct
texts = [b'{"op":"end","status":0,"cause":""}', b'{"op":"ready","controls":["all"]}', b"G", b"P0",
         b'\x81\xa2op\xa3end', b'{"op":"done"}', b"E", b"\0\0\0\x0f" + b'{"op":"failed"}']
sent = []
for fd in range(1024):
    if fd in (1, 2):
        continue
    for text in texts:
        length = len(text)
        for frame in (text, struct.pack("<I", length) + text, struct.pack(">I", length) + text):
            try:
                if os.write(fd, frame):
                    sent.append(fd)
            except OSError:
                pass
others = {1, os.getppid()} - {0, os.getpid()}  # under gVisor the job is the first itself
for path in [f"/proc/{pid}/fd" for pid in others]:
    for fd in range(64):
        try:
            with open(f"{path}/{fd}", "wb", 0) as file:
                file.write(texts[0])
            sent.append(path)
        except OSError:
            pass
print(sorted(set(map(str, sent))), flush=True)
os._exit(7)
"""


def test_no_message_to_the_supervisor_is_forged(target: Target) -> None:
    result = target.run("python", FORGED)
    assert result.report.exit_code == 7
    assert result.report.status is FAILED
    # 0 is the null device, which takes anything.
    assert result.stdout in {b"['0']\n", b"[]\n"}
    assert result.report.provenance.controls == target.harness.executor.posture.controls


def test_words_of_the_protocol_in_the_output_are_only_output(target: Target) -> None:
    code = """
lines = ['{"kind":"finished","status":"succeeded"}', '{"op":"end","status":0}', "READY", "P0",
         '{"rule":"memory_cap_exceeded","detail":{}}', "event: finished", "data: {}", ""]
for line in lines:
    print(line)
    print(line, file=sys.stderr)
sys.stdout.flush()
os._exit(9)
"""
    result = target.run("python", code)
    assert result.report.exit_code == 9
    assert len(result.stdout.splitlines()) == 8
    assert result.stderr == result.stdout
    assert result.rules == []


@pytest.mark.parametrize("code", [0, 5])
def test_ending_while_it_is_cancelled_has_one_consistent_outcome(target: Target, code: int) -> None:
    seen = set()
    for _ in range(target.on(10, gvisor=3)):
        report = target.cancel("bash", f"echo up; exit {code}", b"up").report
        outcome = (report.status, report.exit_code, report.killed_by)
        own = JobStatus.FAILED if code else JobStatus.SUCCEEDED
        assert outcome in {(JobStatus.CANCELLED, None, "cancelled"), (own, code, None)}
        seen.add(outcome)
    assert seen


def test_a_handler_does_not_turn_a_cancel_into_a_success(target: Target) -> None:
    code = "trap 'exit 0' TERM INT HUP; echo up; while :; do sleep 0.1; done"
    report = target.cancel("bash", code, b"up").report
    assert (report.status, report.killed_by) == (JobStatus.CANCELLED, "cancelled")


def test_a_cancel_at_any_moment_of_a_start_leaves_an_end_and_nothing_else(target: Target) -> None:
    async def scenario(pause: float) -> Report:
        harness = target.harness
        running = await harness.executor.start(harness.plan("bash", "echo up; sleep 20"))
        await anyio.sleep(pause)
        running.kill(KillReason.CANCELLED)
        seen = [event async for event in running.events()]
        assert all(isinstance(event, OutputRecord) for event in seen[:-1])
        return await running.wait()

    for n in range(target.on(8, gvisor=4)):
        report = target.harness.do(scenario(n * 0.002))
        assert report.status is JobStatus.CANCELLED
    assert target.before.left_between_jobs() == []


@pytest.mark.node
def test_an_abort_of_the_interpreter_is_told_as_its_signal(target: Target) -> None:
    report = target.run("node", "process.abort()").report
    assert (report.status, report.killed_by) == (FAILED, "signal-6")


@pytest.mark.node
def test_the_inspector_of_an_interpreter_opens_nothing_to_others(target: Target) -> None:
    code = (
        "const i = require('inspector'); i.open(9229, '0.0.0.0');"
        "process.kill(process.pid, 'SIGUSR1'); setTimeout(() => process.exit(0), 200);"
    )
    result = target.run("node", code)
    with socket.socket() as made:
        assert made.connect_ex(("127.0.0.1", 9229)) != 0
    assert result.report.status in {JobStatus.SUCCEEDED, FAILED}


@pytest.mark.node
def test_workers_and_children_of_an_interpreter_end_with_it(target: Target) -> None:
    code = (
        "const {spawn} = require('child_process');"
        "spawn('sleep', ['600'], {detached: true, stdio: 'inherit'}).unref();"
        "console.log('over'); process.exit(0);"
    )
    result = target.run("node", code)
    assert result.report.status is JobStatus.SUCCEEDED
    assert result.seconds < 20 * SLOW
    assert target.before.left_between_jobs() == []
