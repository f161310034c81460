"""What a launcher that is root does not do for a server, whatever the server says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rookhold_exec.launcher.orders import OrderError, check
from rookhold_exec.launcher.stage import stage

GOOD = {
    "job": "0123456789abcdef",
    "slot": 1,
    "directory": "",
    "script": "job.py",
    "outputs": ["output/a/b"],
}


def taken(*, below: str = "", **change: object) -> bool:
    try:
        check(GOOD | change, workers=2, directory=below)
    except OrderError:
        return False
    return True


def test_a_job_of_a_slot_of_ours_is_taken() -> None:
    assert taken()
    assert taken(slot=0)


@pytest.mark.parametrize("slot", [-1, -210_000, 2, 1 << 32, "0", None])
def test_no_uid_but_those_of_the_slots_is_given(slot: object) -> None:
    assert not taken(slot=slot)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../../x", "a/b", "a" * 65, "A", "a b", "a\n", "ä", b"abc", 7, None]
)
def test_a_name_leads_to_no_other_directory_or_group(name: object) -> None:
    assert not taken(job=name)


def test_a_directory_is_the_job_s_own() -> None:
    root = "/var/lib/jobs"
    own = f"{root}/job-{GOOD['job']}"
    assert taken(below=root, directory=own)
    for other in ("", "/etc", f"{own}/..", f"{root}/job-another", None):
        assert not taken(below=root, directory=other)


def test_where_jobs_have_no_directory_none_is_taken() -> None:
    assert not taken(directory="/work")


OUTSIDE = ["", "/etc/passwd", "../x", "output/../../x", "a/..", "./x", "a//b", "a/", b"a", None]


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_path_leads_out_of_the_job_s_directory(path: object) -> None:
    assert not taken(script=path)
    assert not taken(outputs=["output/good", path])


@pytest.mark.parametrize("path", OUTSIDE)
def test_nor_does_one_of_the_files_that_follow_the_order(tmp_path: Path, path: object) -> None:
    work = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with pytest.raises(OSError, match="outside of the job's directory"):
            stage(work, "job.py", {"code": b"", "files": [(path, b"x")]}, [], -1)
    finally:
        os.close(work)
