"""Programs are found as a job would find them: inside, and only what everybody may run."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_rootfs import make, write

from rookhold_exec.rootfs import find_in


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make(tmp_path / "root")


def test_a_bare_name_is_looked_for_on_the_path_of_jobs(root: Path) -> None:
    assert find_in(str(root), "python3") == "/usr/bin/python3"
    assert find_in(str(root), "perl") is None


def test_an_absolute_name_stands_for_itself_through_links_inside(root: Path) -> None:
    assert find_in(str(root), "/bin/bash") == "/bin/bash"
    assert find_in(str(root), "/sbin/bash") is None


def test_a_relative_name_is_nothing(root: Path) -> None:
    assert find_in(str(root), "bin/bash") is None
    assert find_in(str(root), "../bash") is None


def test_a_link_to_an_absolute_target_leads_within(root: Path) -> None:
    (root / "usr/bin/py").symlink_to("/usr/bin/node")
    assert find_in(str(root), "py") == "/usr/bin/py"


@pytest.mark.parametrize("target", ["/etc/rookhold-outside", "../../../../../../outside"])
def test_no_link_leads_out(root: Path, tmp_path: Path, target: str) -> None:
    write(tmp_path / "outside", b"", mode=0o755)
    (root / "usr/bin/out").symlink_to(target)
    assert find_in(str(root), "out") is None


def test_dots_above_the_root_stay_at_the_root(root: Path) -> None:
    (root / "usr/bin/up").symlink_to("../../../../usr/bin/node")
    assert find_in(str(root), "up") == "/usr/bin/up"


def test_a_loop_ends(root: Path) -> None:
    (root / "usr/bin/one").symlink_to("two")
    (root / "usr/bin/two").symlink_to("one")
    assert find_in(str(root), "one") is None


def test_a_directory_or_a_file_that_may_not_be_run_is_no_program(root: Path) -> None:
    (root / "usr/bin/folder").mkdir()
    write(root / "usr/bin/private", b"", mode=0o700)
    write(root / "usr/bin/text", b"", mode=0o644)
    assert [find_in(str(root), name) for name in ("folder", "private", "text")] == [None] * 3
    assert find_in(str(root), "a\0b") is None
