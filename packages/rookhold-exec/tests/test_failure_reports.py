"""The kinds of failure that systems like this one had in public, replayed as small experiments."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookhold_exec.executor import OutputRecord
from rookhold_exec.select import choose_backend
from rookhold_exec.settings import ExecSettings
from rookhold_exec.testing import Harness
from rookhold_types.limits import Limits
from rookhold_types.states import JobStatus

MIB = 1 << 20


def _open(backend: str, root: Path) -> Harness:
    harness = Harness(choose_backend(backend, ExecSettings(jobs_root=str(root))))
    harness.do(harness.executor.open())
    return harness


@pytest.fixture(
    scope="module",
    params=[pytest.param("namespaces-dev", marks=pytest.mark.linux_ns), "off"],
)
def either(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Harness]:
    """Every backend here, for programs that do no harm."""
    harness = _open(request.param, tmp_path_factory.mktemp("jobs"))
    yield harness
    harness.close()


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """An isolating backend, for programs that would."""
    harness = _open("namespaces-dev", tmp_path_factory.mktemp("jobs"))
    yield harness
    harness.close()


def alive(marker: str) -> list[str]:
    """Return the command lines of the processes that carry a marker; zombies have none."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if marker in text and path.parent.name != str(os.getpid()):
            found.append(text)
    return found


class TestFr01BackgroundChild:
    def test_a_child_with_the_pipe_open_does_not_outlast_its_parent(self, either: Harness) -> None:
        code = "(setsid sleep 61.01 >&1 &) ; sleep 0.1; echo parent-done"
        result = either.run("bash", code, limits=Limits(wall_seconds=10))
        assert result.report.status is JobStatus.SUCCEEDED
        assert result.stdout == b"parent-done\n"
        assert result.seconds < 5
        assert abs(result.seconds * 1000 - result.report.wall_time_ms) < 1000
        assert alive("61.01") == []

    def test_the_wall_limit_acts_on_a_parent_and_its_child(self, either: Harness) -> None:
        code = "setsid sleep 61.02 & sleep 61.02"
        result = either.run("bash", code, limits=Limits(wall_seconds=1))
        assert result.report.killed_by == "wall-clock"
        assert result.seconds < 5
        assert alive("61.02") == []

    def test_a_daemon_stops_writing_before_the_result_is_out(self, either: Harness) -> None:
        code = (
            "import os, time\n"
            "if os.fork() == 0:\n"
            "    os.setsid()\n"
            "    if os.fork() == 0:\n"
            "        while True:\n"
            "            with open('output/log', 'a') as log: log.write('line\\n')\n"
            "            time.sleep(0.02)\n"
            "    os._exit(0)\n"
            "time.sleep(0.3)\n"
        )
        report = either.run("python", code, outputs=("output/log",)).report
        assert report.status is JobStatus.SUCCEEDED
        (log,) = report.collected
        assert log.content.count(b"line\n") * 5 == len(log.content) > 0


@pytest.mark.linux_ns
class TestFr02ProcessChain:
    @pytest.mark.parametrize(
        "code",
        [
            "chain() { echo $1; ( chain $(($1 + 1)) ) & wait; }; chain 1",
            "bomb() { bomb | bomb & }; bomb; sleep 30",
        ],
        ids=["chain", "breadth"],
    )
    def test_it_fails_inside_the_job_and_others_go_on(self, sandbox: Harness, code: str) -> None:
        async def scenario() -> None:
            limits = Limits(max_pids=32, mem_mb=128, wall_seconds=3, cpu_seconds=60)
            bomb = asyncio.ensure_future(
                sandbox.finish(sandbox.plan("bash", code, limits=limits, slot=0))
            )
            await asyncio.sleep(0.5)
            for _ in range(3):
                other = await sandbox.finish(sandbox.plan("python", "print(1)", slot=1))
                assert other.stdout == b"1\n"
                assert other.seconds < 5
            result = await bomb
            assert result.report.status in {JobStatus.FAILED, JobStatus.TIMED_OUT}
            assert result.report.wall_time_ms < 8000

        sandbox.do(scenario())


@pytest.mark.linux_ns
@pytest.mark.root
class TestFr03OutOfMemory:
    @pytest.mark.parametrize(
        ("language", "code"),
        [
            (
                "python",
                "print('kept', flush=True); b = bytearray(300 << 20); b[::4096] = b'x' * 76800",
            ),
            ("bash", "echo kept; head -c 300M /dev/zero | tail"),
            pytest.param(
                "node",
                "console.log('kept'); const a = []; while (true) a.push(Buffer.alloc(1 << 20, 1));",
                marks=pytest.mark.node,
            ),
        ],
        ids=["python", "bash", "node"],
    )
    def test_it_is_told_as_what_it_is(self, sandbox: Harness, language: str, code: str) -> None:
        if not sandbox.executor.posture.limit_enforcement.mem:  # no group to be had on this host
            effective = sandbox.run("bash", "echo").report.provenance.effective_limits
            assert effective.mem_mb is None
            return
        report = sandbox.run(language, code, limits=Limits(mem_mb=128))
        assert report.report.status is JobStatus.OOM_KILLED
        assert report.report.killed_by == "cgroup-oom"
        assert report.stdout == b"kept\n"
        assert report.report.usage is not None
        peak = report.report.usage.memory_peak_bytes or 0
        assert 100 * MIB < peak <= 128 * MIB


class TestFr04OutputFlood:
    @pytest.mark.parametrize(
        ("language", "code"),
        [
            ("python", "while True: print('1234567890')"),
            ("bash", "yes | tr -d '\\n'"),
        ],
        ids=["lines", "one endless line"],
    )
    def test_the_collector_stays_small(self, either: Harness, language: str, code: str) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        limits = Limits(wall_seconds=1, cpu_seconds=20)
        for _ in range(2):
            result = either.run(language, code, limits=limits)
            assert result.report.stdout.bytes_offered <= MIB
            assert result.report.stdout.bytes_seen > MIB
            assert result.truncated == ["stdout"]
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 64 * 1024

    @pytest.mark.node
    def test_stderr_after_a_full_stdout_is_still_kept(self, either: Harness) -> None:
        code = (
            "const fs = require('fs');\n"
            "for (let i = 0; i < 40; i++) { fs.writeSync(1, 'o'.repeat(65536));"
            " fs.writeSync(2, 'e'.repeat(10)); }\n"
        )
        result = either.run("node", code)
        assert result.report.status is JobStatus.SUCCEEDED
        assert result.stdout == b"o" * MIB
        assert result.stderr == b"e" * 400
        assert result.report.stdout.bytes_seen == 40 * 65536

    def test_an_endless_line_comes_as_it_is_written(self, either: Harness) -> None:
        code = "import sys, time; sys.stdout.write('x' * 20000); sys.stdout.flush(); time.sleep(30)"

        async def scenario() -> None:
            from rookhold_exec.executor import KillReason

            running = await either.executor.start(either.plan("python", code))
            async for event in running.events():
                if isinstance(event, OutputRecord):
                    running.kill(KillReason.CANCELLED)
            report = await running.wait()
            assert report.status is JobStatus.CANCELLED
            assert report.wall_time_ms < 10_000

        either.do(scenario())


class TestFr05MultibyteCharacters:
    def test_what_arrives_is_what_was_written(self, either: Harness) -> None:
        code = (
            "import sys, hashlib\n"
            "data = ('\\u20ac' * 100000).encode()\n"
            "sys.stdout.buffer.write(data)\n"
            "sys.stderr.write(hashlib.sha256(data).hexdigest())\n"
        )
        result = either.run("python", code)
        assert hashlib.sha256(result.stdout).hexdigest().encode() == result.stderr
        assert all(e.raw is None for e in result.events if isinstance(e, OutputRecord))

    def test_a_cut_inside_a_character_is_exact_and_shows_one_mark(self, either: Harness) -> None:
        result = either.run("python", "import sys; sys.stdout.write('\\u20ac' * 400000)")
        assert len(result.stdout) == MIB
        assert MIB % 3
        shown = "".join(e.line for e in result.events if isinstance(e, OutputRecord))
        assert shown.count("\ufffd") == 1
        assert shown.endswith("\ufffd")


class TestFr06Nul:
    def test_every_byte_comes_back_and_the_next_job_runs(self, either: Harness) -> None:
        code = (
            "import os\n"
            "os.write(1, b'foo\\0bar\\n'); os.write(2, bytes(range(256)))\n"
            "open('output/nul', 'wb').write(b'a\\0b')\n"
            "open(b'output/odd\\n\\t\\xff', 'wb').write(b'x')\n"
        )
        result = either.run("python", code, outputs=("output/nul",))
        assert result.stdout == b"foo\0bar\n"
        assert result.stderr == bytes(range(256))
        assert result.report.collected[0].content == b"a\0b"
        assert either.run("python", "print('next')").stdout == b"next\n"


@pytest.mark.linux_ns
class TestFr07Links:
    def test_no_link_is_followed(self, sandbox: Harness) -> None:
        code = (
            "cd output\n"
            "ln -s /etc/passwd absolute; ln -s ../../../etc/passwd upward\n"
            "ln -s /proc/self/environ proc; ln -s good other\n"
            "ln -s self self; ln -s none dangling\n"
            "ln ../job.sh hard 2>/dev/null || cp ../job.sh hard\n"
            "echo good > good\n"
        )
        names = ("absolute", "upward", "proc", "other", "self", "dangling", "hard", "good")
        outputs = tuple(f"output/{name}" for name in names)
        report = sandbox.run("bash", code, outputs=outputs).report
        assert [(o.path, o.content) for o in report.collected] == [("output/good", b"good\n")]
        assert {o.reason for o in report.uncollected} == {"link"}
        assert len(report.uncollected) == 7


@pytest.mark.linux_ns
class TestFr08SpecialFiles:
    def test_they_are_named_and_hold_nothing_up(self, sandbox: Harness) -> None:
        code = (
            "mkfifo output/p; mknod output/n c 1 5 || true; ln -s /dev/zero output/z\n"
            "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('output/s')\"\n"
            "echo ok > output/a\n"
        )
        outputs = tuple(f"output/{name}" for name in ("p", "n", "z", "s", "a"))
        result = sandbox.run("bash", code, outputs=outputs)
        assert [o.content for o in result.report.collected] == [b"ok\n"]
        reasons = {o.path: o.reason for o in result.report.uncollected}
        assert reasons == {
            "output/p": "not_regular",
            "output/n": "missing",
            "output/z": "link",
            "output/s": "not_regular",
        }
        assert result.seconds < 5

    def test_a_very_deep_tree_is_no_trouble(self, sandbox: Harness) -> None:
        code = (
            "import os\n"
            "os.chdir('output')\n"
            "for n in range(5000): os.mkdir('d'); os.chdir('d')\n"
            "open('deep', 'w').close()\n"
        )
        report = sandbox.run("python", code, outputs=("output/d/x",)).report
        assert [o.reason for o in report.uncollected] == ["missing"]


@pytest.mark.linux_ns
class TestFr09Sizes:
    def test_a_sparse_file_is_judged_by_its_length(self, sandbox: Harness) -> None:
        code = (
            "import os\n"
            "for size in (8 << 30, 3 << 20):\n"
            "    try: open('output/big', 'wb').truncate(size)\n"
            "    except OSError as error: print(error.errno)\n"
        )
        result = sandbox.run("python", code, outputs=("output/big",))
        assert [o.reason for o in result.report.uncollected] == ["too_large"]
        assert result.seconds < 5


@pytest.mark.linux_ns
class TestFr10Proc:
    def test_nothing_but_the_job_s_own_is_readable(self, sandbox: Harness) -> None:
        secret = "rookhold-secret-canary"
        os.environ["ROOKHOLD_API_KEY"] = secret
        code = (
            "import glob, os\n"
            "pids = sorted(int(p) for p in os.listdir('/proc') if p.isdigit())\n"
            "print(pids == [os.getpid()])\n"
            "for path in glob.glob('/proc/[0-9]*/*') + glob.glob('/proc/[0-9]*/fd/*'):\n"
            "    try:\n"
            "        linked = os.path.islink(path)\n"
            "        text = os.readlink(path) if linked else open(path, 'rb').read(1 << 20)\n"
            "    except (OSError, ValueError): continue\n"
            "    print(path, text)\n"
        )
        try:
            result = sandbox.run("python", code)
        finally:
            del os.environ["ROOKHOLD_API_KEY"]
        assert result.stdout.startswith(b"True\n")
        repository = str(Path(__file__).resolve().parents[3]).encode()
        for word in (secret.encode(), b"rookhold", b"launcher", repository):
            assert word not in result.stdout

    def test_what_governs_the_job_cannot_be_changed(self, sandbox: Harness) -> None:
        code = (
            "import os\n"
            "for path, text in (\n"
            "    ('/proc/sys/kernel/hostname', 'x'), ('/proc/sys/vm/overcommit_memory', '1'),\n"
            "    ('/proc/self/oom_score_adj', '-500'), ('/proc/sysrq-trigger', 'h'),\n"
            "    ('/sys/fs/cgroup/memory/tasks', '0'), ('/proc/self/uid_map', '0 0 1'),\n"
            "):\n"
            "    try: os.write(os.open(path, os.O_WRONLY), text.encode()); print('wrote', path)\n"
            "    except OSError: pass\n"
            "print(open('/proc/self/cgroup').read())\n"
        )
        result = sandbox.run("python", code)
        assert b"wrote" not in result.stdout
        assert b"job-" not in result.stdout


class TestFr11WhichLimit:
    @pytest.mark.parametrize("code", ["while True: pass"], ids=["spin"])
    def test_a_busy_loop_meets_the_cpu_limit(self, either: Harness, code: str) -> None:
        result = either.run("python", code, limits=Limits(cpu_seconds=1, wall_seconds=60))
        assert result.report.status is JobStatus.FAILED
        assert result.report.killed_by in {"cgroup-cpu", "supervisor-cpu", "rlimit-cpu"}
        assert result.rules == ["cpu_limit_exceeded"]
        assert result.report.usage is not None
        assert 950_000 <= (result.report.usage.cpu_time_usec or 0) < 1_500_000

    def test_sleep_meets_the_wall_limit(self, either: Harness) -> None:
        code = "import time; time.sleep(10)"
        result = either.run("python", code, limits=Limits(cpu_seconds=5, wall_seconds=1))
        assert result.report.killed_by == "wall-clock"
        assert result.rules == ["wall_clock_exceeded"]

    def test_threads_are_added_up(self, either: Harness) -> None:
        code = (
            "import hashlib, threading\n"
            "def work():\n"
            "    while True: hashlib.sha256(bytes(1 << 20)).digest()\n"
            "for _ in range(4): threading.Thread(target=work).start()\n"
        )
        result = either.run("python", code, limits=Limits(cpu_seconds=1, wall_seconds=60))
        assert result.report.killed_by in {"cgroup-cpu", "supervisor-cpu", "rlimit-cpu"}

    def test_a_handler_for_the_signal_does_not_help(self, either: Harness) -> None:
        code = "import signal; signal.signal(signal.SIGXCPU, lambda *a: None)\nwhile True: pass\n"
        result = either.run("python", code, limits=Limits(cpu_seconds=1, wall_seconds=60))
        assert result.report.killed_by in {"cgroup-cpu", "supervisor-cpu", "rlimit-cpu"}
        assert result.report.wall_time_ms < 30_000


class TestFr12Stdin:
    @pytest.mark.parametrize(
        ("language", "code"),
        [
            ("python", "input()"),
            ("bash", 'read x; echo "[$x]"'),
            pytest.param("node", "process.stdin.resume()", marks=pytest.mark.node),
        ],
    )
    def test_no_stdin_ends_at_once(self, either: Harness, language: str, code: str) -> None:
        result = either.run(language, code, limits=Limits(wall_seconds=10))
        assert result.report.status in {JobStatus.SUCCEEDED, JobStatus.FAILED}
        assert result.seconds < 5

    def test_five_mebibytes_unread_hold_nobody_up(self, either: Harness) -> None:
        result = either.run("bash", "echo done", stdin=b"x" * (5 * MIB))
        assert result.stdout == b"done\n"
        assert result.seconds < 5

    def test_stdin_without_a_newline_gets_none(self, either: Harness) -> None:
        assert either.run("bash", "cat", stdin=b"abc").stdout == b"abc"
