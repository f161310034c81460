"""FR-12: a job's stdin is what was given to it, or nothing; never the server's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rookhold.errors import RookholdError

if TYPE_CHECKING:
    from reports.site import Site

READERS = {
    "python": ("input()", "failed", 1),
    "bash": ("read x", "failed", 1),
    "node": ("process.stdin.resume()", "succeeded", 0),
}
ECHO = {
    "python": "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())",
    "bash": "cat",
    "node": "process.stdin.pipe(process.stdout)",
}
LANGUAGES = ["python", "bash", pytest.param("node", marks=pytest.mark.node)]
QUICK_MS = 5000  # well under a second, ten times over


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_stdin_is_an_end_of_file_at_once(sandbox: Site, language: str) -> None:
    code, status, exit_code = READERS[language]
    ran = sandbox.run(language, code, limits={"wall_seconds": 10})
    assert (ran.result.status, ran.result.exit_code) == (status, exit_code)
    assert ran.receipt["killed_by"] is None
    assert ran.receipt["duration_ms"] < QUICK_MS


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("given", ["abc", "", "\n", "a\r\nb\0c€"])
def test_stdin_arrives_byte_for_byte(sandbox: Site, language: str, given: str) -> None:
    ran = sandbox.run(language, ECHO[language], stdin=given)
    assert ran.ended == ("succeeded", None)
    assert ran.result.stdout_bytes == given.encode()


def test_unread_stdin_holds_nothing_up(sandbox: Site) -> None:
    ran = sandbox.run("python", "print('done')", stdin="x" * (1 << 20))
    assert ran.ended == ("succeeded", None)
    assert ran.result.stdout == "done\n"
    assert ran.receipt["duration_ms"] < QUICK_MS


def test_more_stdin_than_a_job_may_have_is_refused_and_the_next_job_runs(sandbox: Site) -> None:
    with pytest.raises(RookholdError) as refused:
        sandbox.submit("python", "print('never')", stdin="x" * (5 << 20))
    assert refused.value.code == "stdin_too_large"
    assert sandbox.run("python", "print('next')").result.stdout == "next\n"
