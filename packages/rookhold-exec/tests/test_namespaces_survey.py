"""What the backend asks of a host before it starts anything: all that is missing, said at once."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
import small_rootfs

from rookhold_exec import probe
from rookhold_exec.backends.namespaces import Namespaces
from rookhold_exec.errors import ExecutorUnavailableError, UnsupportedPlatformError
from rookhold_exec.rootfs import RootfsError
from rookhold_exec.settings import ExecSettings

if TYPE_CHECKING:
    from pathlib import Path

PLACE = ("v2", 2, "/sys/fs/cgroup/rookhold")
NEEDED = (*probe.NAMESPACES, *probe.CONFINEMENT, *probe.UNIFIED, "seccomp")


def host(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    """Let the host offer everything but these."""
    facts = tuple(
        probe.Fact(control=each, available=each not in missing, why=f"why {each}")
        for each in NEEDED
    )
    unified = None if set(missing) & set(probe.UNIFIED) else PLACE
    report = probe.HostReport(
        root=True, namespaces=True, seccomp=True, places=(), facts=facts, unified=unified
    )
    monkeypatch.setattr(probe, "host", lambda: report)


@pytest.fixture
def rootfs(tmp_path: Path) -> Path:
    return small_rootfs.make(tmp_path / "root")


def test_a_complete_host_is_described(rootfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host(monkeypatch)
    found = Namespaces(ExecSettings(rootfs=str(rootfs)), "").survey()
    assert found["places"] == [PLACE]
    assert found["rootfs"] == str(rootfs)
    status = rootfs.stat()
    assert found["rootfs_identity"] == [status.st_dev, status.st_ino]
    assert len(found["rootfs_sha256"]) == 64
    assert found["interpreters"] == {
        "python3": "/usr/bin/python3",
        "node": "/usr/bin/node",
        "bash": "/usr/bin/bash",
    }


@pytest.mark.parametrize("missing", NEEDED)
def test_each_thing_that_is_missing_is_named(
    rootfs: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    host(monkeypatch, missing)
    with pytest.raises(ExecutorUnavailableError) as caught:
        Namespaces(ExecSettings(rootfs=str(rootfs)), "").survey()
    assert caught.value.code == "executor_unavailable"
    assert f"{missing} (why {missing})" in str(caught.value)


def test_all_that_is_missing_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    host(monkeypatch, "cgroup-v2-memory", "user-namespace")
    with pytest.raises(ExecutorUnavailableError) as caught:
        Namespaces(ExecSettings(), "").survey()
    text = str(caught.value)
    assert all(each in text for each in ("cgroup-v2-memory", "user-namespace", "ROOKHOLD_ROOTFS"))


def test_the_filter_is_not_asked_for_where_it_is_off(
    rootfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(monkeypatch, "seccomp")
    assert Namespaces(ExecSettings(rootfs=str(rootfs), seccomp=False), "").survey()


def test_a_root_that_was_not_pinned_like_that_is_refused_with_its_own_code(
    rootfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(monkeypatch)
    settings = ExecSettings(rootfs=str(rootfs), rootfs_sha256="0" * 64)
    with pytest.raises(RootfsError) as caught:
        Namespaces(settings, "").survey()
    assert caught.value.code == "rootfs_changed"
    assert str(rootfs) not in str(caught.value)


def test_a_root_that_belongs_to_a_job_is_refused(
    rootfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(monkeypatch)
    settings = ExecSettings(rootfs=str(rootfs), uid_base=os.geteuid(), workers=1)
    with pytest.raises(RootfsError) as caught:
        Namespaces(settings, "").survey()
    assert caught.value.code == "rootfs_job_owned"


def test_it_is_for_linux_on_x86_64_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(sys, "platform", "darwin")
        with pytest.raises(UnsupportedPlatformError) as caught:
            Namespaces(ExecSettings(), "").survey()
    assert caught.value.code == "unsupported_platform"
