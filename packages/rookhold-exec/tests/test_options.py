"""What is said of each backend on this host, and what production does not do without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from rookhold_exec import probe
from rookhold_exec.backends.gvisor import Gvisor
from rookhold_exec.errors import ExecutorUnavailableError
from rookhold_exec.options import Option, options
from rookhold_exec.settings import ExecSettings
from rookhold_types.isolation import Backend

GVISOR, NAMESPACES, DEVELOPMENT, OFF = (
    str(each) for each in (Backend.GVISOR, Backend.NAMESPACES, Backend.NAMESPACES_DEV, Backend.OFF)
)


def shown(settings: ExecSettings) -> dict[str, Option]:
    return {each.backend: each for each in options(settings)}


@pytest.fixture
def without_version_2(monkeypatch: pytest.MonkeyPatch) -> None:
    report = replace(probe.host(), unified=None)
    monkeypatch.setattr(probe, "host", lambda: report)


def lacks(settings: ExecSettings) -> str:
    with pytest.raises(ExecutorUnavailableError) as caught:
        Gvisor(settings, "").survey()
    return str(caught.value)


def test_they_come_from_the_strongest_to_none() -> None:
    found = shown(ExecSettings())
    assert list(found) == [GVISOR, NAMESPACES, DEVELOPMENT, OFF]
    classes = [each.isolation_class for each in found.values()]
    assert classes == ["gvisor-application-kernel", "linux-shared-kernel", "none", "none"]
    assert found[OFF].available
    assert all(each.available == (not each.why) for each in found.values())


@pytest.mark.x86_64
def test_what_only_the_operator_can_name_is_missing_and_how_to_get_it_is_said() -> None:
    found = shown(ExecSettings())
    assert "ROOKHOLD_GVISOR_RUNSC" in found[GVISOR].why
    for backend in (GVISOR, NAMESPACES):
        assert "ROOKHOLD_ROOTFS" in found[backend].why
        assert "rookhold rootfs build" in found[backend].why


def test_no_path_of_the_operator_s_is_repeated(tmp_path: Path) -> None:
    place = tmp_path / "somewhere-of-mine"
    settings = ExecSettings(rootfs=str(place / "root"), runsc=str(place / "runsc"))
    for each in options(settings):
        assert str(tmp_path) not in each.why


def test_on_another_machine_there_is_no_isolated_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    other = os.uname_result((*os.uname()[:4], "aarch64"))
    monkeypatch.setattr(os, "uname", lambda: other)
    found = shown(ExecSettings())
    assert "x86-64" in found[GVISOR].why
    assert "x86-64" in found[NAMESPACES].why


@pytest.mark.x86_64
@pytest.mark.usefixtures("without_version_2")
def test_gvisor_needs_version_2_groups_in_production_alone() -> None:
    assert "version 2" in lacks(ExecSettings(production=True))
    assert "version 2" not in lacks(ExecSettings())


@pytest.mark.x86_64
def test_the_platform_ptrace_is_for_development_alone() -> None:
    assert "ptrace" in lacks(ExecSettings(production=True, runsc_platform="ptrace"))
    assert "ptrace" not in lacks(ExecSettings(runsc_platform="ptrace"))
