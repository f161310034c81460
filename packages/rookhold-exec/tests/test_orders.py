"""What a launcher that is root does not do for a server, whatever the server says."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookhold_exec.launcher.orders import OrderError, check, check_streams
from rookhold_exec.launcher.stage import stage

GOOD = {
    "job": "0123456789abcdef",
    "slot": 1,
    "directory": "",
    "script": "job.py",
    "outputs": ["output/a/b"],
    "argv": [b"/usr/bin/python3", b"job.py"],
    "environment": {b"HOME": b"/tmp"},
    "wall_ms": 10_000,
    "cpu_seconds": 5,
    "mem_bytes": 256 << 20,
    "processes": 128,
    "file_bytes": 16 << 20,
    "space_bytes": 64 << 20,
    "inodes": 16_384,
}
NUMBERS = [name for name, value in GOOD.items() if isinstance(value, int) and name != "slot"]


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


@pytest.mark.parametrize("name", NUMBERS)
def test_a_limit_is_a_number_that_can_be_reckoned_with(name: str) -> None:
    assert taken(**{name: 1})
    for other in (-1, 1 << 54, "1", b"1", [None] * 9, {}, None):
        assert not taken(**{name: other})


@pytest.mark.parametrize("name", ["space_bytes", "inodes"])
def test_no_file_system_of_a_job_is_without_a_limit(name: str) -> None:
    assert not taken(**{name: 0})


@pytest.mark.parametrize("argv", [[], None, b"ls", "sh", {b"sh": b""}, ["sh"], [b"sh", 1], 7])
def test_a_command_is_made_of_bytes(argv: object) -> None:
    assert not taken(argv=argv)


@pytest.mark.parametrize(
    "environment", [None, [], [b"A=1"], {"A": b"1"}, {b"A": "1"}, {b"A": None}, 7]
)
def test_an_environment_is_made_of_bytes(environment: object) -> None:
    assert taken(environment={})
    assert not taken(environment=environment)


@pytest.mark.parametrize("outputs", [None, "output/a", {"output/a": 1}, 7, b"a"])
def test_outputs_are_a_list(outputs: object) -> None:
    assert not taken(outputs=outputs)


@pytest.fixture
def kinds(tmp_path: Path) -> Iterator[dict[str, int]]:
    read, write = os.pipe()
    one, other = socket.socketpair()
    fds = {
        "read": read,
        "write": write,
        "file": os.memfd_create("stdin"),
        "directory": os.open(tmp_path, os.O_RDONLY),
        "path": os.open(tmp_path, os.O_PATH),
        "device": os.open(os.devnull, os.O_RDWR),
        "socket": one.detach(),
        "other": other.detach(),
    }
    yield fds
    for fd in fds.values():
        os.close(fd)


@pytest.mark.parametrize(
    ("streams", "good"),
    [
        ("write write", True),
        ("write write file", True),
        ("write write read", True),
        pytest.param("", False, id="none"),
        ("write", False),
        ("write write file file", False),
        ("directory write", False),
        ("write path", False),
        ("file write", False),
        ("write socket", False),
        ("write write directory", False),
        ("write write path", False),
        ("write write socket", False),
        ("write write device", False),
    ],
)
def test_a_job_s_streams_are_pipes_and_lead_nowhere(
    kinds: dict[str, int], streams: str, good: bool
) -> None:
    fds = [kinds[name] for name in streams.split()]
    if good:
        check_streams(fds)
        return
    with pytest.raises(OrderError):
        check_streams(fds)


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
