from __future__ import annotations

import pytest

from rookhold_cli.granted import differences

RECEIPT = {
    "effective_limits": {"wall_seconds": 300, "mem_mb": None, "max_pids": 8, "cpu_seconds": None}
}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, []),
        ({"max_pids": 8}, []),
        ({"wall_seconds": 600}, ["the time limit was 300 s, not the 600 s asked for"]),
        (
            {"mem_mb": 64},
            ["the memory limit does not hold for a whole job there; see `rookhold check`"],
        ),
        (
            {"cpu_seconds": 1},
            ["the processor time limit is measured by the supervisor, not guaranteed there"],
        ),
        ({"max_file_mb": 1}, []),
    ],
    ids=str,
)
def test_only_a_limit_that_was_asked_for_and_not_given_is_said(
    asked: dict[str, int], said: list[str]
) -> None:
    assert list(differences(asked, RECEIPT)) == said


def test_a_job_that_never_started_had_no_limits_to_speak_of() -> None:
    assert list(differences({"wall_seconds": 600}, {})) == []
