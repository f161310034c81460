"""How a gVisor job ended is taken from the log of its runsc, or not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookhold_exec.launcher.gvisor.ending import ending

LINES = b"I1 main.go:1] start\n%bI1 main.go:2] Exiting with status: %b\n"
SECOND_HAND = b'W1 sandbox.go:9] Wait RPC to container "c" failed: EOF. Will try something else.\n'


def write(place: Path, text: bytes, panic: bytes | None = None) -> tuple[str, str]:
    (place / "runsc.log.20260101-000000.000000.run.txt").write_bytes(text)
    beside = place.parent / f"{place.name}.panic"
    if panic is not None:
        beside.write_bytes(panic)
    return str(place), str(beside)


@pytest.mark.parametrize("status", [0, 9, 15, 36608, 35072])
def test_the_wait_status_is_taken_as_it_is_told(tmp_path: Path, status: int) -> None:
    assert ending(*write(tmp_path, LINES % (b"", b"%d" % status))) == status


@pytest.mark.parametrize(
    "text",
    [
        LINES % (b"", b"-9"),
        LINES % (b"", b"9") + b"W1 main.go:3] and more\n",
        b"I1 main.go:1] start\n",
        b"",
    ],
)
def test_a_log_that_does_not_end_with_a_status_tells_nothing(tmp_path: Path, text: bytes) -> None:
    assert ending(*write(tmp_path, text)) is None


def test_without_a_log_nothing_is_told(tmp_path: Path) -> None:
    assert ending(str(tmp_path), "") is None
    assert ending(str(tmp_path / "none"), "") is None


def test_the_end_of_the_sandbox_stands_for_that_of_its_workload(tmp_path: Path) -> None:
    assert ending(*write(tmp_path, LINES % (SECOND_HAND, b"768"))) == 768
    assert ending(*write(tmp_path, LINES % (SECOND_HAND, b"768"), b"")) == 768


def test_a_sandbox_that_was_killed_or_broke_tells_nothing(tmp_path: Path) -> None:
    assert ending(*write(tmp_path, LINES % (SECOND_HAND, b"9"))) is None
    assert ending(*write(tmp_path, LINES % (SECOND_HAND, b"512"), b"panic: no memory")) is None
