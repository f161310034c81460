"""Before it opens, the gVisor backend looks at runsc, at the root and at the host."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from gvisor import executor, opened, settings, stable, surveyed

from rookhold_exec.backends import gvisor as backend
from rookhold_exec.backends import runsc
from rookhold_exec.backends.gvisor import Gvisor
from rookhold_exec.errors import ExecutorUnavailableError, RuntimeChangedError
from rookhold_exec.rootfs import RootfsError
from rookhold_exec.settings import ExecSettings

pytestmark = [pytest.mark.root, pytest.mark.x86_64]
needs_all = [pytest.mark.runsc, pytest.mark.rootfs, pytest.mark.groups("memory", "pids")]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder to which nobody but root has the way."""
    with tempfile.TemporaryDirectory(prefix="rookhold-test-", dir="/run") as name:
        yield Path(name)


def fake(place: Path, script: str, mode: int = 0o755) -> str:
    path = place / "runsc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(mode)
    return str(path)


def test_all_that_is_missing_is_named_at_once() -> None:
    asked = ExecSettings(production=True, runsc_platform="ptrace")
    with pytest.raises(ExecutorUnavailableError) as refused:
        Gvisor(asked, "").survey()
    for part in ("ROOKHOLD_GVISOR_RUNSC", "ROOKHOLD_ROOTFS", "ptrace"):
        assert part in str(refused.value)


@pytest.mark.rootfs
def test_a_root_without_a_pinned_digest_is_refused() -> None:
    asked = ExecSettings(rootfs=settings("ptrace").rootfs)
    with pytest.raises(ExecutorUnavailableError, match="ROOKHOLD_GVISOR_ROOTFS_SHA256"):
        Gvisor(asked, "")._reviewed_root()


@pytest.mark.rootfs
def test_a_root_off_its_pinned_digest_is_refused_by_its_own_code() -> None:
    with pytest.raises(RootfsError) as refused:
        Gvisor(settings("ptrace", runsc="/none", rootfs_sha256="0" * 64), "")._reviewed_root()
    assert refused.value.code == "rootfs_changed"


def test_ptrace_is_for_development() -> None:
    with pytest.raises(ExecutorUnavailableError):
        Gvisor(ExecSettings(production=True, runsc_platform="ptrace"), "")._platform()
    assert Gvisor(ExecSettings(runsc_platform="ptrace"), "")._platform() == {}
    assert Gvisor(ExecSettings(production=True), "")._platform() == {}


def test_kvm_needs_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_KVM", "/dev/no-such-device")
    with pytest.raises(ExecutorUnavailableError, match="systrap"):
        Gvisor(ExecSettings(runsc_platform="kvm"), "")._platform()


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o644])
def test_a_runsc_that_others_can_change_or_nobody_can_run_is_refused(
    place: Path, mode: int
) -> None:
    with pytest.raises(ExecutorUnavailableError):
        runsc.examine(fake(place, "echo runsc version 1", mode))


def test_a_runsc_of_another_account_is_refused(place: Path) -> None:
    path = fake(place, "echo runsc version 1")
    os.chown(path, 12345, 12345)
    with pytest.raises(ExecutorUnavailableError):
        runsc.examine(path)


def test_a_link_or_a_folder_of_others_on_the_way_is_refused(place: Path) -> None:
    path = fake(place, "echo runsc version 1")
    link = place / "link"
    link.symlink_to(path)
    open_to_all = place / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    inner = fake(open_to_all, "echo runsc version 1")
    for refused in (str(link), inner, "runsc", f"{place}/../{place.name}/runsc", f"{place}/none"):
        with pytest.raises(ExecutorUnavailableError):
            runsc.examine(refused)
    assert runsc.examine(path).version == "1"


def test_a_runsc_that_hangs_or_fails_is_refused_in_time(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runsc, "_SECONDS", 0.3)
    for script in ("exec sleep 30", "exit 1"):
        with pytest.raises(ExecutorUnavailableError):
            runsc.examine(fake(place, script))


def test_a_runsc_that_never_stops_talking_is_refused_before_it_fills_memory(place: Path) -> None:
    path = fake(place, "exec yes 'runsc version 1'")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ExecutorUnavailableError, match="in time"):
        runsc.examine(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


def test_a_runsc_without_a_flag_that_is_needed_is_refused(place: Path) -> None:
    path = fake(place, '[ "$1" = flags ] && echo "  -root string" || echo "runsc version 1"')
    with pytest.raises(ExecutorUnavailableError, match="oci-seccomp"):
        Gvisor(ExecSettings(runsc=path), "")._runtime()


@pytest.mark.runsc
def test_the_runsc_of_this_host_is_fit() -> None:
    found = runsc.examine(stable())
    assert found.flags >= {"root", "network", "platform", "debug-log", "oci-seccomp"}
    assert found.identity == runsc.identity(stable())


@needs_all[0]
@needs_all[1]
@needs_all[2]
def test_a_runsc_that_is_replaced_or_touched_runs_no_job(place: Path) -> None:
    copy = place / "runsc"
    copy.write_bytes(Path(stable()).read_bytes())
    copy.chmod(0o755)
    found = {**surveyed("ptrace")["found"], "runsc": str(copy)}
    found["runsc_identity"] = list(runsc.identity(str(copy)))
    known = {"note": "", "found": found}
    harness = opened("ptrace", node="none", python="none", surveyed=known)
    try:
        assert harness.run("bash", "echo 1").stdout == b"1\n"
        found["runsc_identity"][-1] += 1  # as if the server knew of another file than the launcher
        with pytest.raises(RuntimeChangedError):
            harness.run("bash", "echo 1")
        os.utime(copy)
        found["runsc_identity"] = list(runsc.identity(str(copy)))
        with pytest.raises(RuntimeChangedError):  # now it is the launcher that sees it
            harness.run("bash", "echo 1")
        copy.unlink()
        with pytest.raises(RuntimeChangedError):
            harness.run("bash", "echo 1")
    finally:
        harness.close()


@needs_all[0]
@needs_all[1]
@needs_all[2]
def test_a_launcher_that_is_told_of_another_root_or_of_a_job_as_root_does_not_come_up() -> None:
    known = surveyed("ptrace")["found"]
    for told in (
        {**known, "rootfs_identity": [1, 2]},
        {**known, "runsc_identity": [1, 2, 3, 4, 5]},
    ):
        with pytest.raises(ExecutorUnavailableError):
            opened("ptrace", surveyed={"note": "", "found": told})
    for account in ({"gvisor_uid": 0}, {"gvisor_gid": 0}):
        unopened = executor("ptrace", **account)
        unopened._know()
        assert 0 in (unopened.hello()["job_uid"], unopened.hello()["job_gid"])
        with pytest.raises(ExecutorUnavailableError):
            opened("ptrace", **account)
