"""FR-04: endless output fills neither the store beyond its limit nor the server's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from reports.site import Ran, Site

LIMIT = 1 << 20
LINES = 10_000
ENDLESS = {
    "lines": ("python", "while True: print('1234567890')"),
    "one line": ("bash", "yes | tr -d '\\n'"),
    "both streams": (
        "node",
        "const part = Buffer.alloc(65536, 'x');\n"
        "const fs = require('fs');\n"
        "for (;;) { fs.writeSync(1, part); fs.writeSync(2, part); }",
    ),
}
GROWTH_KIB = 48 * 1024


def check_stream(ran: Ran, stream: str) -> None:
    """It was cut at the limit, and what it would have been is counted."""
    content = getattr(ran.result, f"{stream}_bytes")
    output = ran.receipt["output"]
    assert len(content) <= LIMIT
    assert len(content) == LIMIT or content.count(b"\n") == LINES
    assert output[f"{stream}_bytes"] == len(content)
    assert output[f"{stream}_bytes_seen"] > len(content)
    assert output["truncated"]
    assert ran.result.truncated


def needs_node(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.node) if name == "both streams" else name


@pytest.mark.parametrize("name", [needs_node(name) for name in ENDLESS])
def test_x8_an_endless_flood_is_cut_counted_and_ended_by_the_wall_limit(
    sandbox: Site, name: str
) -> None:
    language, code = ENDLESS[name]
    # Through a kernel of its own a job floods more slowly, and takes longer to begin.
    streams = ("stdout", "stderr") if name == "both streams" else ("stdout",)
    # Where the processor is wanted by many, less than is kept may come in the time that is enough.
    for seconds in (6 if sandbox.own_kernel else 2, 30):
        limits = {"wall_seconds": seconds, "cpu_seconds": 60}
        ran = sandbox.run(language, code, limits=limits)
        assert ran.ended == ("timed_out", "wall-clock")
        assert ran.seconds < seconds + 30
        output = ran.receipt["output"]
        if all(output[f"{each}_bytes_seen"] > output[f"{each}_bytes"] for each in streams):
            break
    for stream in streams:
        check_stream(ran, stream)


def test_the_servers_memory_stays_flat_while_jobs_flood(sandbox: Site) -> None:
    """The first jobs warm the server up; six more must not make it grow."""

    def flood(count: int) -> list[Ran]:
        language, code = ENDLESS["lines"]
        limits = {"wall_seconds": 1, "cpu_seconds": 60}
        jobs = [sandbox.submit(language, code, limits=limits) for _ in range(count)]
        return [sandbox.finish(job) for job in jobs]

    flood(3)
    before = sandbox.memory_kib()
    highest = before
    for _ in range(2):
        for ran in flood(3):
            assert ran.ended == ("timed_out", "wall-clock")
            highest = max(highest, sandbox.memory_kib())
    assert highest - before < GROWTH_KIB


def test_one_line_without_an_end_streams_as_it_comes(sandbox: Site) -> None:
    code = (
        "import sys, time\n"
        "sys.stdout.write('x' * 40_000); sys.stdout.flush()\n"
        "sys.stdin.read(); time.sleep(60)\n"
    )
    job_id = sandbox.submit("python", code, limits={"wall_seconds": 60})
    seen = 0
    for event in sandbox.client.events(job_id, follow=True):
        seen += len(event.output)
        if seen >= 32_768:
            break
    assert not sandbox.client.cancel(job_id).already_terminal
    ran = sandbox.finish(job_id)
    assert ran.ended == ("cancelled", "cancelled")
    assert ran.result.stdout == "x" * 40_000


def test_stderr_after_a_full_stdout_is_kept(sandbox: Site) -> None:
    code = "import sys; sys.stdout.write('x' * (3 << 20)); sys.stderr.write('still here\\n')"
    ran = sandbox.run("python", code)
    assert ran.ended == ("succeeded", None)
    assert ran.result.stderr == "still here\n"
    assert len(ran.result.stdout_bytes) == LIMIT
    output = ran.receipt["output"]
    assert (output["stdout_bytes"], output["stdout_bytes_seen"]) == (LIMIT, 3 << 20)
    check_stream(ran, "stdout")
