"""The root file system that is built from Debian packages is fit, complete and always the same."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rookhold_exec.rootfs import find_in, verify
from rookhold_types.runtimes import PACKS

pytestmark = pytest.mark.rootfs

SLOTS = range(210_000, 210_064)


def test_it_verifies_and_offers_every_pack(rootfs_path: Path) -> None:
    found = verify(str(rootfs_path), uids=SLOTS)
    assert found.packs == tuple(PACKS.values())
    assert verify(str(rootfs_path), pinned=found.digest, uids=SLOTS) == found


def test_it_holds_every_interpreter(rootfs_path: Path) -> None:
    assert find_in(str(rootfs_path), "python3") == "/usr/bin/python3"
    assert find_in(str(rootfs_path), "node") == "/usr/bin/node"
    assert find_in(str(rootfs_path), "bash") == "/usr/bin/bash"
    assert find_in(str(rootfs_path), "rookhold") is None
