"""Confusing what brings back the outputs: kinds, links, names, sizes, modes, changes."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hostile.target import SLOW

from rookhold_exec.executor import InputFile
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from hostile.target import Target

    from rookhold_exec.executor import Report

MIB = 1 << 20
SPECIAL = ("os.mkfifo", "socket.")


def reasons(report: Report) -> dict[str, str]:
    """Return why each output did not come, by its path."""
    return {each.path: each.reason for each in report.uncollected}


def contents(report: Report) -> dict[str, bytes]:
    return {each.path: each.content for each in report.collected}


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        ("os.mkfifo('x')", "not_regular"),
        ("socket.socket(socket.AF_UNIX).bind('x')", "not_regular"),
        ("os.mkdir('x')", "not_regular"),
        ("os.symlink('/etc/passwd', 'x')", "link"),
        ("os.symlink('../../../../etc/passwd', 'x')", "link"),
        ("os.symlink('good', 'x')", "link"),
        ("os.symlink('x', 'x')", "link"),
        ("os.symlink('nowhere', 'x')", "link"),
        ("os.symlink('/proc/self/environ', 'x')", "link"),
        ("os.symlink('/proc/1/environ', 'x')", "link"),
        ("os.symlink('/proc/self/fd/0', 'x')", "link"),
        ("os.symlink('/dev/zero', 'x')", "link"),
        ("os.symlink('/work/job.py', 'x')", "link"),
        ("os.link('../job.py', 'x')", "link"),
        ("os.link('good', 'x')", "link"),
        ("open('x', 'w').close(); os.chmod('x', 0)", "unreadable"),
        ("open('x', 'wb').truncate(3 << 20)", "too_large"),
        ("open('x', 'wb').write(bytes((2 << 20) + 1))", "too_large"),
        ("pass", "missing"),
    ],
    ids=[
        "a_pipe", "a_socket", "a_directory", "a_link_to_a_file_of_the_system", "a_link_upwards",
        "a_link_to_another_output", "a_link_to_itself", "a_link_to_nothing",
        "a_link_to_the_environment", "a_link_to_the_supervisor", "a_link_to_an_open_file",
        "a_link_to_a_device", "a_link_to_the_source", "another_name_of_the_source",
        "another_name_of_an_output", "unreadable", "mostly_holes", "one_byte_too_long", "missing",
    ],
)  # fmt: skip
def test_an_output_is_not_brought_that_is(target: Target, make: str, reason: str) -> None:
    code = f"import socket\nos.chdir('output')\nopen('good', 'w').write('good')\n{make}\n"
    names = ("output/x", "output/good", "output/last")
    code += "open('last', 'w').write('last')\n"
    report = target.run("python", code, outputs=names).report
    # What gVisor's kernel keeps to itself is not on the host, where the outputs are taken.
    expected = "missing" if target.gvisor and make.startswith(SPECIAL) else reason
    assert reasons(report).pop("output/x") == expected
    assert contents(report)["output/last"] == b"last"
    assert report.status is JobStatus.SUCCEEDED, "what is missing makes no other verdict"
    for content in contents(report).values():
        assert content in {b"good", b"last"}


@pytest.mark.parametrize(
    "make",
    [
        "os.symlink('/etc', 'output/d')",
        "os.symlink('..', 'output/d')",
        "os.symlink('/proc/self/root/etc', 'output/d')",
        "os.symlink('/', 'output/d')",
        "os.symlink('/proc/self/cwd', 'output/d')",
    ],
    ids=["to_the_system", "upwards", "through_proc", "to_the_root", "to_where_it_is"],
)
def test_no_directory_on_the_way_may_be_a_link(target: Target, make: str) -> None:
    code = f"os.rmdir('output/d')\n{make}\nopen('/work/passwd', 'w').write('own')\n"
    report = target.run("python", code, outputs=("output/d/passwd",)).report
    assert contents(report) == {}
    assert reasons(report) == {"output/d/passwd": "link"}


@pytest.mark.parametrize(
    "make",
    [
        "os.symlink('/etc', 'output')",
        "os.symlink('elsewhere', 'output')",
        "os.mkdir('elsewhere/down'); os.symlink('elsewhere/down/..', 'output')",
        "os.symlink('/proc/self/root/etc', 'output')",
    ],
    ids=["to_the_system", "beside_it", "there_and_back", "through_proc"],
)
def test_the_output_directory_itself_may_not_be_a_link(target: Target, make: str) -> None:
    code = (
        "os.mkdir('elsewhere')\nopen('elsewhere/passwd', 'w').write('own')\n"
        f"os.rmdir('output')\n{make}\n"
    )
    report = target.run("python", code, outputs=("output/passwd",)).report
    assert contents(report) == {}
    assert reasons(report) == {"output/passwd": "link"}


def test_an_output_directory_that_is_gone_is_only_missing(target: Target) -> None:
    code = "os.rmdir('output')\nopen('output', 'w').write('a file')\n"
    report = target.run("python", code, outputs=("output/a", "output/b")).report
    assert reasons(report) == {"output/a": "missing", "output/b": "missing"}


def test_an_input_comes_back_under_no_other_name(target: Target) -> None:
    code = """
told["link"] = attempted(os.link, "input/given", "output/x")
told["move"] = attempted(os.rename, "input/given", "output/y")
told["symlink"] = attempted(os.symlink, "../input/given", "output/z")
"""
    files = (InputFile(path="input/given", content=b"given"),)
    outputs = ("output/x", "output/z")
    report = target.run("python", code, files=files, outputs=outputs).report
    assert contents(report) == {}
    assert set(reasons(report)) == {"output/x", "output/z"}
    assert reasons(report)["output/z"] == "link"


@pytest.mark.parametrize("mode", [0o000, 0o200, 0o100, 0o600])
def test_a_shut_directory_is_not_opened_for_the_job(target: Target, mode: int) -> None:
    code = f"open('output/d/x', 'w').write('x')\nos.chmod('output/d', {mode})\n"
    report = target.run("python", code, outputs=("output/d/x",)).report
    brought = mode & 0o100
    assert contents(report) == ({"output/d/x": b"x"} if brought else {})
    assert reasons(report) == ({} if brought else {"output/d/x": "unreadable"})


def test_a_file_that_is_all_hole_is_measured_by_its_length(target: Target) -> None:
    code = "open('output/x', 'wb').truncate(500 << 20)\n"
    limits = target.limits(max_file_mb=512)
    result = target.run("python", code, outputs=("output/x",), limits=limits)
    assert reasons(result.report) == {"output/x": "too_large"}
    assert result.seconds < 10 * SLOW


def test_outputs_together_are_limited(target: Target) -> None:
    code = "for n in range(5): open(f'output/{n}', 'wb').write(bytes(2 << 20))\n"
    names = tuple(f"output/{n}" for n in range(5))
    report = target.run("python", code, outputs=names).report
    assert set(contents(report)) == {"output/0", "output/1"}
    assert set(reasons(report).values()) == {"total_too_large"}


def test_hostile_names_beside_an_output_change_nothing(target: Target) -> None:
    code = r"""
names = [b"a\nb", b"\xff\xfe", b"\x1b[31mred", b"x" * 255, b" ", b"-rf", b"*", b"\\", b"\x7f",
         "\u202egpj.exe".encode(), b"$(id)", b"'\"", b"..."]
for name in names:
    open(b"output/" + name, "wb").write(name)
    os.mkdir(b"output/d/" + name)
open("output/d/good", "w").write("good")
"""
    report = target.run("python", code, outputs=("output/d/good",)).report
    assert report.status is JobStatus.SUCCEEDED
    assert contents(report) == {"output/d/good": b"good"}


@pytest.mark.parametrize(
    "name",
    ["x" * 200, "sp ace", "ünï-漢字-العربية", "-rf", "*", "a;b$(c)`d`", ".hidden", "%s%n", "..."],
    ids=["long", "space", "letters", "option", "glob", "shell", "hidden", "format", "dots"],
)  # fmt: skip
def test_an_output_of_any_allowed_name_is_that_file_and_no_other(target: Target, name: str) -> None:
    code = f"open('output/' + {name!r}, 'w').write('it')\nopen('output/other', 'w').write('no')\n"
    report = target.run("python", code, outputs=(f"output/{name}",)).report
    assert contents(report) == {f"output/{name}": b"it"}


def test_a_tree_too_deep_to_walk_holds_up_nothing(target: Target) -> None:
    code = """
open("output/good", "w").write("good")
os.chdir("output")
for _ in range(5000):
    os.mkdir("d")
    os.chdir("d")
"""
    result = target.run("python", code, outputs=("output/good",))
    assert contents(result.report) == {"output/good": b"good"}
    assert result.seconds < 20 * SLOW


def test_a_directory_of_thousands_holds_up_nothing(target: Target) -> None:
    code = """
for n in range(15000):
    os.symlink("x", f"output/{n}")
open("output/good", "w").write("good")
"""
    result = target.run("python", code, outputs=("output/good",))
    assert contents(result.report) == {"output/good": b"good"}
    assert result.seconds < 20 * SLOW


def test_a_file_that_changes_all_the_time_is_brought_as_it_was_at_the_end(target: Target) -> None:
    code = """
import time
if os.fork() == 0:
    os.setsid()
    while True:
        for letter in b"ab":
            with open("output/x.new", "wb") as file:
                file.write(bytes([letter]) * (1 << 20))
            os.rename("output/x.new", "output/x")
while not os.path.exists("output/x"):
    time.sleep(0.01)
time.sleep(0.2)
"""
    report = target.run("python", code, outputs=("output/x",)).report
    assert report.status is JobStatus.SUCCEEDED
    (content,) = contents(report).values()
    assert len(content) == MIB
    assert len(set(content)) == 1


def test_names_that_are_exchanged_all_the_time_bring_no_file_from_elsewhere(
    target: Target,
) -> None:
    secret = f"outside-{secrets.token_hex(8)}"
    outside = Path(f"/tmp/{secret}")
    outside.write_text(secret)
    code = f"""
RENAMEAT2, HERE, EXCHANGE = 316, -100, 2
os.symlink("/tmp", "output/link")
open("output/d/{secret}", "w").write("own")
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        while True:
            libc.syscall(RENAMEAT2, HERE, b"output/d", HERE, b"output/link", EXCHANGE)
import time
time.sleep(0.3)
"""
    try:
        report = target.run("python", code, outputs=(f"output/d/{secret}",)).report
    finally:
        outside.unlink()
    assert contents(report) in ({}, {f"output/d/{secret}": b"own"})
    assert reasons(report) in ({}, {f"output/d/{secret}": "link"})


def test_a_lease_or_a_lock_on_an_output_holds_up_nothing(target: Target) -> None:
    code = """
import fcntl
fd = os.open("output/x", os.O_RDWR | os.O_CREAT)
os.write(fd, b"x")
fcntl.flock(fd, fcntl.LOCK_EX)
fcntl.lockf(fd, fcntl.LOCK_EX)
os.chmod("output/x", 0o2644)
lease = os.open("output/x", os.O_RDONLY)
attempted(fcntl.fcntl, lease, fcntl.F_SETLEASE, fcntl.F_RDLCK)
if os.fork() == 0:
    signal.pause()
"""
    result = target.run("python", code, outputs=("output/x",))
    assert contents(result.report) == {"output/x": b"x"}
    assert result.seconds < 15 * SLOW


def test_times_out_of_any_calendar_hold_up_nothing(target: Target) -> None:
    code = """
open("output/x", "w").write("x")
for when in (-(1 << 40), 1 << 40, -1):
    attempted(os.utime, "output/x", (when, when))
"""
    report = target.run("python", code, outputs=("output/x",)).report
    assert contents(report) == {"output/x": b"x"}


def test_attributes_of_an_output_are_not_brought_and_harm_nothing(target: Target) -> None:
    code = """
open("output/x", "w").write("x")
attempted(os.setxattr, "output/x", "user.rookhold", b"v" * 1000)
attempted(os.setxattr, "output/x", "system.posix_acl_access", bytes(28))
attempted(os.setxattr, "output/x", "trusted.overlay.redirect", b"/etc")
attempted(os.setxattr, "output/x", "security.capability", bytes(20))
os.chmod("output/x", 0o7777)
"""
    report = target.run("python", code, outputs=("output/x",)).report
    assert contents(report) == {"output/x": b"x"}


@pytest.mark.root
def test_outputs_leave_nothing_on_the_disk_of_the_host(target: Target) -> None:
    before = {str(path) for path in Path("/tmp").iterdir()}
    name = secrets.token_hex(8)
    code = f"open('output/{name}', 'wb').write(bytes(1 << 20))\n"
    report = target.run("python", code, outputs=(f"output/{name}",)).report
    assert len(contents(report)) == 1
    added = {str(path) for path in Path("/tmp").iterdir()} - before
    assert not [path for path in added if name in path or "rookhold" in path]
    assert not Path(name).exists()
