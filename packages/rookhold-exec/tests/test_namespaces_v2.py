"""Jobs in groups of version 2: what each of the two groups holds, and what its counters tell.

The first test runs wherever a version 2 hierarchy is, since its CPU counter always counts; the
others need its memory and process controllers.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from reviewed import VERSION_2, opened, surveyed

from rookhold_exec import probe
from rookhold_exec.cgroup.controllers import Group, MemoryV2, PidsV2
from rookhold_exec.cgroup.discovery import find
from rookhold_exec.executor import KillReason, OutputRecord
from rookhold_exec.select import choose_backend
from rookhold_exec.settings import SLOT_UID_BASE, ExecSettings
from rookhold_exec.testing import Harness
from rookhold_types.limits import MIB, Limits
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.mark.linux_ns
@pytest.mark.root
@pytest.mark.groups("v2:v2")
def test_a_payload_is_born_in_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    place = find()[-1].place
    assert place is not None
    monkeypatch.setattr(probe, "places", lambda: [place])
    harness = Harness(choose_backend("namespaces-dev", ExecSettings(node="none")))
    harness.do(harness.executor.open())
    try:
        result = harness.run("python", "print(open('/proc/self/cgroup').read())")
        assert "cgroup-cpu" in result.report.provenance.controls
        assert result.report.provenance.effective_limits.cpu_seconds == Limits().cpu_seconds
        assert b"0::/\n" in result.stdout
        spin = harness.run("bash", "while :; do :; done & sleep 20", limits=Limits(cpu_seconds=1))
        assert spin.report.status is JobStatus.FAILED
        assert spin.report.killed_by == "cgroup-cpu"
    finally:
        harness.close()
    assert not list(Path(place[2]).glob("rookhold-*/job-*"))


class TestWithControllers:
    """On the backend as it is."""

    pytestmark = VERSION_2.marks

    @pytest.fixture(scope="class")
    @classmethod
    def harness(cls) -> Iterator[Harness]:
        [kind] = VERSION_2.values
        harness = opened(kind)
        yield harness
        harness.close()
        assert not list(cls.top().glob("rookhold-*/job-*"))

    @staticmethod
    def top() -> Path:
        [kind] = VERSION_2.values
        [[_, _, directory]] = surveyed(kind)["found"]["places"]
        return Path(directory)

    def while_running(
        self, harness: Harness, code: str, look: Callable[[Path], Any], **more: Any
    ) -> tuple[Any, Any]:
        """Start a job that prints a line and sleeps; return what `look` saw, and the report."""
        more.setdefault("limits", Limits(wall_seconds=60, mem_mb=64, max_pids=20))

        async def scenario() -> tuple[Any, Any]:
            running = await harness.executor.start(harness.plan("bash", code, slot=1, **more))
            seen = None
            async for event in running.events():
                if isinstance(event, OutputRecord) and event.line == "up":
                    [group] = self.top().glob("rookhold-*/job-*")
                    seen = look(group)
                    running.kill(KillReason.CANCELLED)
            return seen, await running.wait()

        return harness.do(scenario())

    def test_the_payload_has_every_limit_and_its_supervisor_none(self, harness: Harness) -> None:
        def look(group: Path) -> dict[str, Any]:
            payload, init = group / "payload", group / "init"
            return {
                "payload": [
                    MemoryV2(Group(payload)).max,
                    MemoryV2(Group(payload)).oom_group,
                    PidsV2(Group(payload)).max,
                    (payload / "memory.swap.max").read_text().strip()
                    if (payload / "memory.swap.max").exists()
                    else "0",
                ],
                "init": [MemoryV2(Group(init)).max, PidsV2(Group(init)).max],
                "processes": [
                    len((each / "cgroup.procs").read_text().split()) for each in (payload, init)
                ],
            }

        seen, report = self.while_running(harness, "echo up; sleep 30; true", look)
        assert seen["payload"] == [64 * MIB, True, 20, "0"]
        assert seen["init"] == [None, None]
        assert seen["processes"][0] >= 1
        assert seen["processes"][1] == 1
        assert report.status is JobStatus.CANCELLED

    def test_only_the_lists_of_processes_belong_to_the_job(self, harness: Harness) -> None:
        def look(group: Path) -> set[tuple[str, int]]:
            return {
                (str(path.relative_to(group)), path.stat().st_uid)
                for path in (group, *group.rglob("*"))
                if path.stat().st_uid != 0
            }

        seen, _ = self.while_running(harness, "echo up; sleep 30; true", look)
        assert seen == {
            ("cgroup.procs", SLOT_UID_BASE + 1),
            ("payload/cgroup.procs", SLOT_UID_BASE + 1),
        }

    def test_a_child_that_is_killed_for_memory_takes_the_whole_job(self, harness: Harness) -> None:
        code = (
            "import os, time\n"
            "if os.fork() == 0:\n"
            "    x = bytearray(256 << 20); x[::4096] = b'x' * len(x[::4096])\n"
            "os.wait(); print('survived', flush=True); time.sleep(60)\n"
        )
        result = harness.run("python", code, limits=Limits(wall_seconds=60, mem_mb=64))
        assert (result.report.status, result.report.killed_by) == (
            JobStatus.OOM_KILLED,
            "cgroup-oom",
        )
        assert result.stdout == b""

    def test_a_group_above_that_is_full_is_not_the_job_s_own_limit(self, harness: Harness) -> None:
        code = (
            "import time\n"
            "print('up', flush=True); time.sleep(2)\n"
            "x = bytearray(128 << 20); x[::4096] = b'x' * len(x[::4096]); print('not reached')\n"
        )

        async def scenario() -> Any:
            plan = harness.plan("python", code, limits=Limits(wall_seconds=60, mem_mb=512))
            running = await harness.executor.start(plan)
            async for event in running.events():
                if isinstance(event, OutputRecord) and event.line == "up":
                    [group] = self.top().glob("rookhold-*/job-*")
                    (group / "memory.max").write_text(str(64 * MIB))
            return await running.wait()

        report = harness.do(scenario())
        assert (report.status, report.killed_by) == (JobStatus.FAILED, "signal-9")

    def test_filling_the_space_is_an_error_inside_and_no_kill(self, harness: Harness) -> None:
        code = (
            "import errno\n"
            "try:\n"
            "    with open('/work/fill', 'wb', 0) as file:\n"
            "        while True: file.write(bytes(1 << 16))\n"
            "except OSError as error: print(errno.errorcode[error.errno])\n"
        )
        limits = Limits(wall_seconds=60, mem_mb=64, max_file_mb=512)
        result = harness.run("python", code, limits=limits)
        assert (result.stdout, result.report.status) == (b"ENOSPC\n", JobStatus.SUCCEEDED)

    @pytest.mark.parametrize("mem_mb", [16, 17, 24])
    def test_the_largest_files_arrive_under_the_smallest_limits(
        self, harness: Harness, mem_mb: int
    ) -> None:
        from rookhold_types.checks import InputFile

        files = tuple(InputFile(f"input/{n}", bytes([n]) * (2 << 20)) for n in range(2))
        code = "#" * ((1 << 20) - 64) + "\nwc -c < input/0; wc -c < input/1"
        limits = Limits(wall_seconds=60, mem_mb=mem_mb)
        result = harness.run("bash", code, files=files, limits=limits)
        assert result.report.status is JobStatus.SUCCEEDED
        assert result.stdout.split() == [b"2097152", b"2097152"]
