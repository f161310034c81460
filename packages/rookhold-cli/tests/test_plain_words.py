from __future__ import annotations

from rookhold_cli.plain_words import LIMITS, loose_limits

ALL = dict.fromkeys(LIMITS, True)


def test_limits_that_hold_are_not_called_loose() -> None:
    assert loose_limits(ALL) == []


def test_processor_time_without_a_group_is_measured_and_not_called_unenforced() -> None:
    (said,) = loose_limits(ALL | {"cpu": False})
    assert "measured by the supervisor, not guaranteed" in said
    assert "Not enforced" not in said


def test_what_is_not_enforced_is_named_apart() -> None:
    loose, measured = loose_limits({"wall": True})
    assert loose == "Not enforced for a job as a whole: memory, number of processes, size of files."
    assert "processor time" in measured
