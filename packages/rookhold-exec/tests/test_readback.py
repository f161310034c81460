"""Judging a payload's mountinfo: a control is named only if all of it is there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rookhold_exec.launcher import readback

SPACE = b"mode=0755,size=1048576,nr_inodes=64"
ROOT = "10 9 8:1 /srv/root\\040fs / ro,nosuid,nodev,relatime - ext4 /dev/sda1 rw"
DEV = "11 10 0:5 / /dev ro,nosuid,noexec - tmpfs dev rw,size=64k"
PROC = "12 10 0:6 / /proc ro,nosuid,nodev,noexec - proc proc rw,hidepid=invisible"
MASK = "13 12 0:5 /null /proc/kcore ro,nosuid,noexec - tmpfs dev rw,size=64k"
OWN = [
    "14 10 0:7 / /tmp rw,nosuid,nodev - tmpfs job rw,size=1024k,nr_inodes=64",
    "15 10 0:7 /work /work rw,nosuid,nodev - tmpfs job rw,size=1024k,nr_inodes=64",
    "16 11 0:7 /shm /dev/shm rw,nosuid,nodev - tmpfs job rw,size=1024k,nr_inodes=64",
    "17 14 0:7 /tmp /tmp rw,nosuid,nodev - tmpfs job rw,size=1024k,nr_inodes=64",
]
PLACES = frozenset({b"/", b"/dev", b"/proc", b"/proc/kcore", b"/tmp", b"/work", b"/dev/shm"})
ALL = ["read-only-root", "private-rootfs", "workspace-quota"]


def judged(lines: list[str], **setup: Any) -> list[str]:
    setup = {
        "sealed": True,
        "root_place": (b"8:1", b"/srv/root fs"),
        "mount_points": PLACES,
        **setup,
    }
    text = "\n".join(lines).encode()
    return readback._mounts(text, SPACE, SimpleNamespace(**setup))  # type: ignore[arg-type]


def test_a_whole_sandbox_has_all_three() -> None:
    assert judged([ROOT, DEV, PROC, MASK, *OWN]) == ALL


@pytest.mark.parametrize(
    ("changed", "lost"),
    [
        (ROOT.replace("8:1", "8:2"), ["private-rootfs"]),
        (ROOT.replace("/srv", "/srv2"), ["private-rootfs"]),
        (ROOT.replace("\\040fs", "\\040fs//deleted"), ["private-rootfs"]),
        (ROOT.replace("ro,nosuid", "rw,nosuid"), ["read-only-root"]),
        (ROOT.replace("nosuid,", ""), ["read-only-root"]),
        (ROOT.replace("nodev,", ""), ["read-only-root"]),
    ],
)
def test_another_root_or_a_weaker_one_loses_its_control(changed: str, lost: list[str]) -> None:
    seen = judged([changed, DEV, PROC, MASK, *OWN])
    assert [each for each in ALL if each not in seen] == lost


def test_anything_mounted_over_the_root_is_another_root() -> None:
    over = "18 10 0:9 / / ro,nosuid,nodev - tmpfs other rw"
    assert "private-rootfs" not in judged([ROOT, over, DEV, PROC, MASK, *OWN])


def test_one_mount_too_many_or_too_few_is_no_private_root() -> None:
    host = "19 10 8:1 /home /mnt ro,nosuid,nodev - ext4 /dev/sda1 rw"
    assert "private-rootfs" not in judged([ROOT, DEV, PROC, MASK, *OWN, host])
    assert "private-rootfs" not in judged([ROOT, DEV, PROC, *OWN])
    assert "private-rootfs" not in judged([ROOT, PROC, MASK, *OWN])


def test_a_root_that_nobody_reviewed_is_never_private() -> None:
    seen = judged([ROOT, DEV, PROC, MASK, *OWN], root_place=None, mount_points=frozenset())
    assert seen == ["read-only-root", "workspace-quota"]


@pytest.mark.parametrize("line", [DEV, PROC, MASK])
def test_anything_else_that_can_be_written_is_no_read_only_root(line: str) -> None:
    lines = [each.replace(" ro,", " rw,") if each == line else each for each in (DEV, PROC, MASK)]
    assert "read-only-root" not in judged([ROOT, *lines, *OWN])


def test_a_development_sandbox_may_leave_proc_as_the_kernel_has_it() -> None:
    lines = [ROOT, DEV, PROC.replace(" ro,", " rw,"), *OWN]
    assert "read-only-root" in judged(lines, sealed=False, root_place=None)


@pytest.mark.parametrize(
    "changed",
    [
        OWN[1].replace("0:7", "0:8"),
        OWN[1].replace("1024k", "2048k"),
        OWN[1].replace("nr_inodes=64", "nr_inodes=65"),
    ],
)
def test_a_space_of_another_size_or_in_parts_is_no_quota(changed: str) -> None:
    assert "workspace-quota" not in judged([ROOT, DEV, PROC, MASK, OWN[0], changed, *OWN[2:]])
