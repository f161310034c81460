"""The part of the contract about starting, ending, limits that every backend holds, and files."""

from __future__ import annotations

import asyncio  # noqa: TID251 - cancels a start on the executor's loop
import hashlib
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from rookhold_exec.errors import CapabilityUnavailableError, RuntimeUnavailableError
from rookhold_exec.executor import Executor, KillReason, Mount, OutputRecord, Running
from rookhold_exec.testing.harness import HarnessContract
from rookhold_types.checks import InputFile
from rookhold_types.limits import Limits
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from rookhold_exec.testing.harness import Harness

HELLO = {
    "python": "print('hello')",
    "node": "console.log('hello')",
    "bash": "echo hello",
}
_ALLOWED = {"PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE"}
_SECOND = Limits(wall_seconds=1)


class RunningContract(HarnessContract):
    """Starting, ending, environment and files."""

    def test_it_offers_the_interface(self, harness: Harness) -> None:
        assert isinstance(harness.executor, Executor)
        assert set(harness.executor.posture.languages) <= set(HELLO)
        assert "python" in harness.executor.posture.languages

    def test_every_language_offered_runs(self, harness: Harness) -> None:
        for language in harness.executor.posture.languages:
            result = harness.run(language, HELLO[language])
            assert (result.stdout, result.stderr) == (b"hello\n", b"")
            assert result.report.status is JobStatus.SUCCEEDED
            assert result.report.exit_code == 0
            assert result.report.killed_by is None

    def test_an_exit_code_is_kept(self, harness: Harness) -> None:
        report = harness.run("python", "raise SystemExit(37)").report
        assert (report.status, report.exit_code, report.killed_by) == (JobStatus.FAILED, 37, None)

    def test_a_signal_is_named(self, harness: Harness) -> None:
        code = "import os; os.kill(os.getpid(), 15)"
        report = harness.run("python", code).report
        assert (report.status, report.exit_code) == (JobStatus.FAILED, None)
        assert report.killed_by == f"signal-{signal.SIGTERM.value}"

    def test_a_signal_that_names_a_limit_is_not_taken_for_the_limit(self, harness: Harness) -> None:
        for number in (signal.SIGXCPU, signal.SIGSYS, signal.SIGKILL):
            code = f"import os; os.kill(os.getpid(), {number.value})"
            report = harness.run("python", code).report
            assert report.killed_by == f"signal-{number.value}"

    def test_a_language_that_is_not_there_is_refused(self, harness: Harness) -> None:
        with pytest.raises(RuntimeUnavailableError):
            harness.run("cobol", "STOP RUN.")

    def test_what_it_cannot_do_is_refused_before_anything_runs(self, harness: Harness) -> None:
        fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
        try:
            mounts = (Mount(source_fd=fd, target="/mnt"),)
            with pytest.raises(CapabilityUnavailableError):
                harness.run("python", "print(1)", mounts=mounts)
        finally:
            os.close(fd)

    def test_without_stdin_reading_ends_at_once(self, harness: Harness) -> None:
        result = harness.run("python", "import sys; print(repr(sys.stdin.read()))")
        assert result.stdout == b"''\n"
        assert result.seconds < 30

    def test_stdin_arrives_byte_for_byte(self, harness: Harness) -> None:
        given = b"abc\0\xff\r\n no newline at the end"
        code = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
        assert harness.run("python", code, stdin=given).stdout == given

    def test_stdin_that_nobody_reads_holds_nothing_up(self, harness: Harness) -> None:
        result = harness.run("python", "print('done')", stdin=b"x" * (1 << 20))
        assert result.stdout == b"done\n"
        assert result.seconds < 30

    def test_the_environment_holds_only_what_the_contract_names(self, harness: Harness) -> None:
        os.environ["ROOKHOLD_CANARY"] = "must not be seen"
        try:
            code = "import os; print(' '.join(sorted(os.environ)))"
            seen = set(harness.run("python", code).stdout.decode().split())
        finally:
            del os.environ["ROOKHOLD_CANARY"]
        assert {"PATH", "HOME", "TMPDIR", "LANG"} <= seen <= _ALLOWED

    def test_only_three_descriptors_are_open(self, harness: Harness) -> None:
        code = "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"
        assert harness.run("python", code).stdout == b"[0, 1, 2, 3]\n"

    def test_input_files_are_there_and_read_only(self, harness: Harness) -> None:
        files = (
            InputFile("input/a b/ü.bin", b"\0\xff"),
            InputFile("input/plain", b"text"),
        )
        code = (
            "import os, stat\n"
            "print(open('input/a b/ü.bin', 'rb').read(), open('input/plain').read())\n"
            "print(oct(stat.S_IMODE(os.stat('input/plain').st_mode)), os.path.isdir('output'))\n"
        )
        stdout = harness.run("python", code, files=files).stdout
        assert stdout == b"b'\\x00\\xff' text\n0o444 True\n"

    def test_code_and_files_of_the_largest_size_arrive(self, harness: Harness) -> None:
        files = tuple(InputFile(f"input/{n}", bytes([n]) * (2 << 20)) for n in range(2))
        code = "#" * ((1 << 20) - 200) + (
            "\nimport hashlib\n"
            "for n in range(2): print(hashlib.sha256(open(f'input/{n}', 'rb').read()).hexdigest())"
        )
        expected = [hashlib.sha256(file.content).hexdigest() for file in files]
        result = harness.run("python", code, files=files)
        assert result.stdout.decode().split() == expected

        async def cancelled() -> None:
            for delay in (0.0, 0.002, 0.01):
                starting = asyncio.ensure_future(
                    harness.executor.start(harness.plan("python", code, files=files))
                )
                await asyncio.sleep(delay)
                starting.cancel()
                try:
                    (await starting).kill(KillReason.CANCELLED)
                except asyncio.CancelledError:
                    continue

        harness.do(cancelled())
        assert harness.run("python", "print(1)").stdout == b"1\n"

    def test_good_outputs_come_back_and_the_others_are_named(self, harness: Harness) -> None:
        code = (
            "import os\n"
            "open('output/deep/er/good', 'wb').write(b'\\0\\xff')\n"
            "open('output/empty', 'wb').close()\n"
            "os.symlink('deep/er/good', 'output/link')\n"
            "os.removedirs('output/through/er'); os.makedirs('output', exist_ok=True)\n"
            "os.symlink('deep', 'output/through')\n"
            "os.mkfifo('output/fifo')\n"
            "os.mkdir('output/dir')\n"
            "open('output/large', 'wb').truncate((2 << 20) + 1)\n"
            "open('output/closed', 'wb').close(); os.chmod('output/closed', 0)\n"
            "open('output/shut/deep/file', 'wb').close(); os.chmod('output/shut', 0)\n"
        )
        wanted = [
            "deep/er/good",
            "empty",
            "link",
            "through/er/good",
            "fifo",
            "dir",
            "large",
            "none",
            "shut/deep/file",
        ]
        outputs = tuple(f"output/{name}" for name in (*wanted, "closed"))
        report = harness.run("python", code, outputs=outputs).report
        got = {output.path: output.content for output in report.collected}
        not_got = {output.path: output.reason for output in report.uncollected}
        assert got == {"output/deep/er/good": b"\0\xff", "output/empty": b""}
        # Where a kernel of its own keeps a fifo, there is nothing of it outside.
        assert not_got.pop("output/fifo") in {"not_regular", "missing"}
        assert not_got == {
            "output/link": "link",
            "output/through/er/good": "link",
            "output/dir": "not_regular",
            "output/large": "too_large",
            "output/none": "missing",
            "output/closed": "unreadable",
            "output/shut/deep/file": "unreadable",
        }

    def test_outputs_of_a_failed_job_come_back_too(self, harness: Harness) -> None:
        code = "open('output/a', 'w').write('kept'); raise SystemExit(3)"
        report = harness.run("python", code, outputs=("output/a",)).report
        assert [output.content for output in report.collected] == [b"kept"]
        assert report.exit_code == 3

    def test_the_wall_limit_ends_a_job(self, harness: Harness) -> None:
        result = harness.run("python", "import time; time.sleep(60)", limits=_SECOND)
        assert result.report.status is JobStatus.TIMED_OUT
        assert result.report.killed_by == "wall-clock"
        assert result.rules == ["wall_clock_exceeded"]
        assert 1000 <= result.report.wall_time_ms < 10_000

    def test_a_child_that_keeps_the_pipe_does_not_keep_the_job(self, harness: Harness) -> None:
        code = (
            "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True); print(1)"
        )
        result = harness.run("python", code)
        assert result.report.status is JobStatus.SUCCEEDED
        assert result.stdout == b"1\n"
        assert result.seconds < 30

    def test_cancel_ends_a_job(self, harness: Harness) -> None:
        plan = harness.plan("python", "print('go', flush=True)\nimport time; time.sleep(60)")
        result = harness.do(harness.finish(plan, kill_on=b"go"))
        assert result.report.status is JobStatus.CANCELLED
        assert result.report.killed_by == "cancelled"
        assert result.rules == ["job_cancelled"]
        assert result.report.exit_code is None
        assert result.seconds < 30

    def test_kill_may_come_twice_and_late(self, harness: Harness) -> None:
        async def scenario() -> None:
            running = await harness.executor.start(harness.plan("python", "print(1)"))
            async for _ in running.events():
                pass
            report = await running.wait()
            running.kill(KillReason.CANCELLED)
            running.kill(KillReason.SHUTDOWN)
            assert report.status is JobStatus.SUCCEEDED
            assert await running.wait() == report

        harness.do(scenario())

    def test_a_start_that_is_cancelled_leaves_nothing(self, harness: Harness) -> None:
        async def scenario() -> None:
            for delay in (0.0, 0.001, 0.003, 0.006):
                plan = harness.plan("python", "import time; time.sleep(60)")
                starting = asyncio.ensure_future(harness.executor.start(plan))
                await asyncio.sleep(delay)
                starting.cancel()
                try:
                    running = await starting
                except asyncio.CancelledError:
                    continue
                running.kill(KillReason.CANCELLED)
                await running.wait()

        began = time.monotonic()
        harness.do(scenario())
        assert time.monotonic() - began < 20
        assert harness.run("python", "print('still here')").stdout == b"still here\n"

    def test_two_jobs_at_once_do_not_mix(self, harness: Harness) -> None:
        async def scenario() -> None:
            plans = [harness.plan("python", f"print({n})", slot=n) for n in range(2)]
            results = await asyncio.gather(*(harness.finish(plan) for plan in plans))
            assert [result.stdout for result in results] == [b"0\n", b"1\n"]

        harness.do(scenario())

    def test_wall_and_cancel_act_while_nobody_reads_the_output(self, harness: Harness) -> None:
        code = "import sys\nwhile True: sys.stdout.write('line\\n' * 100)"

        async def scenario() -> None:
            limits = Limits(wall_seconds=1)
            running: Running = await harness.executor.start(
                harness.plan("python", code, limits=limits)
            )
            await asyncio.sleep(2)
            records = [e async for e in running.events() if isinstance(e, OutputRecord)]
            report = await running.wait()
            assert report.status is JobStatus.TIMED_OUT
            assert report.wall_time_ms < 10_000
            assert len(records) == report.stdout.records_offered

        harness.do(scenario())
