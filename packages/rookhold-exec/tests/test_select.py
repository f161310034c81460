import importlib
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from rookhold_exec.backends.gvisor import Gvisor
from rookhold_exec.backends.namespaces import Namespaces
from rookhold_exec.backends.namespaces_dev import NamespacesDev
from rookhold_exec.backends.off import Off
from rookhold_exec.errors import (
    ExecutorUnavailableError,
    UnknownBackendError,
    UnsupportedPlatformError,
)
from rookhold_exec.select import choose_backend, open_chosen
from rookhold_exec.settings import ExecSettings
from rookhold_types.isolation import Backend


@pytest.mark.parametrize("name", ["off", "none", "naive"])
def test_off_has_three_names(name: str, tmp_path: Path) -> None:
    executor = choose_backend(name, ExecSettings(jobs_root=str(tmp_path)))
    assert isinstance(executor, Off)
    assert executor.posture.note.startswith("no sandbox")


@pytest.mark.parametrize("name", ["namespaces-dev", "ns-dev"])
def test_namespaces_dev_has_two_names(name: str) -> None:
    assert isinstance(choose_backend(name, ExecSettings()), NamespacesDev)


@pytest.mark.linux_ns
def test_auto_takes_the_strongest_and_says_why(tmp_path: Path) -> None:
    executor = choose_backend("auto", ExecSettings(jobs_root=str(tmp_path)))
    assert isinstance(executor, NamespacesDev)
    assert executor.posture.note


def test_auto_without_namespaces_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    executor = choose_backend("auto", ExecSettings(jobs_root=str(tmp_path)))
    assert isinstance(executor, Off)
    assert "darwin" in executor.posture.note


@pytest.mark.parametrize("name", ["namespaces", "ns", "sandbox"])
def test_namespaces_has_three_names(name: str) -> None:
    executor = choose_backend(name, ExecSettings())
    assert type(executor) is Namespaces
    assert executor.posture.note


@pytest.mark.parametrize("name", ["namespaces", "ns", "sandbox"])
def test_an_isolated_backend_is_refused_on_other_machines(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uname = os.uname()
    other = os.uname_result((*uname[:4], "aarch64"))
    monkeypatch.setattr(os, "uname", lambda: other)
    with pytest.raises(UnsupportedPlatformError) as caught:
        choose_backend(name, ExecSettings())
    assert caught.value.code == "unsupported_platform"


def complete(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a backend find its host complete."""
    module = importlib.import_module(f"rookhold_exec.backends.{backend}")
    monkeypatch.setattr(getattr(module, backend.title()), "survey", lambda _: {"seen": 1})


def test_auto_takes_the_namespaces_if_they_are_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    complete("namespaces", monkeypatch)
    executor = choose_backend("auto", ExecSettings(rootfs="/srv/rootfs"))
    assert type(executor) is Namespaces
    note = executor.posture.note
    assert "gvisor-oci is not configured (ROOKHOLD_GVISOR_RUNSC)" in note
    assert executor._settings.surveyed == {"note": note, "found": {"seen": 1}}


@pytest.mark.linux_ns
def test_auto_falls_back_in_development_and_says_what_was_lacking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ExecSettings(rootfs=str(tmp_path / "none"), jobs_root=str(tmp_path))
    executor = choose_backend("auto", settings)
    assert type(executor) is NamespacesDev
    assert "gvisor-oci is not configured" in executor.posture.note
    assert str(Backend.NAMESPACES) in executor.posture.note
    assert str(tmp_path) not in executor.posture.note


def test_auto_never_falls_back_in_production(tmp_path: Path) -> None:
    for settings in (
        ExecSettings(production=True, jobs_root=str(tmp_path)),
        ExecSettings(production=True, jobs_root=str(tmp_path), rootfs=str(tmp_path / "none")),
    ):
        with pytest.raises(ExecutorUnavailableError) as caught:
            choose_backend("auto", settings)
        assert caught.value.code == "executor_unavailable"
        assert str(Backend.NAMESPACES) in str(caught.value)
        assert str(Backend.GVISOR) in str(caught.value)


def failing_to_open(backend: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a backend find its host complete, and fail when it is opened; returns what was tried."""
    complete(backend, monkeypatch)
    tried: list[str] = []

    async def fail(_: object) -> None:
        tried.append(backend)
        raise ExecutorUnavailableError("does not hold here what it promises: read-only-root")

    module = importlib.import_module(f"rookhold_exec.backends.{backend}")
    monkeypatch.setattr(getattr(module, backend.title()), "open", fail)
    return tried


@pytest.mark.linux_ns
def test_auto_passes_over_what_does_not_open_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = [failing_to_open(backend, monkeypatch) for backend in ("gvisor", "namespaces")]
    settings = ExecSettings(rootfs="/srv/rootfs", runsc="/usr/bin/runsc", jobs_root=str(tmp_path))

    async def scenario() -> None:
        first = choose_backend("auto", settings)
        assert isinstance(first, Gvisor)
        executor = await open_chosen("auto", first, settings)
        try:
            assert type(executor) is NamespacesDev
            assert executor.posture.languages
            note = executor.posture.note
            assert note.count("does not hold here what it promises: read-only-root") == len(tried)
            assert str(Backend.GVISOR) in note
            assert str(Backend.NAMESPACES) in note
        finally:
            await executor.close()

    anyio.run(scenario)
    assert tried == [["gvisor"], ["namespaces"]]


@pytest.mark.parametrize("production", [False, True])
def test_a_backend_that_was_named_is_never_replaced(
    monkeypatch: pytest.MonkeyPatch, *, production: bool
) -> None:
    failing_to_open("gvisor", monkeypatch)
    complete("namespaces", monkeypatch)
    settings = ExecSettings(rootfs="/srv/rootfs", runsc="/usr/bin/runsc", production=production)
    executor = choose_backend("runsc", settings)
    with pytest.raises(ExecutorUnavailableError, match="read-only-root"):
        anyio.run(open_chosen, "runsc", executor, settings)


def test_auto_in_production_is_refused_if_nothing_isolated_opens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = [failing_to_open(backend, monkeypatch) for backend in ("gvisor", "namespaces")]
    settings = ExecSettings(rootfs="/srv/rootfs", runsc="/usr/bin/runsc", production=True)
    executor = choose_backend("auto", settings)
    with pytest.raises(ExecutorUnavailableError, match="no isolated backend is complete"):
        anyio.run(open_chosen, "auto", executor, settings)
    assert tried == [["gvisor"], ["namespaces"]]


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UnknownBackendError) as caught:
        choose_backend("strong", ExecSettings())
    assert caught.value.code == "unknown_backend"


def test_off_needs_a_place_for_its_jobs() -> None:
    with pytest.raises(ExecutorUnavailableError):
        choose_backend("off", ExecSettings())


def test_the_launcher_imports_nothing_heavy() -> None:
    """Each module is memory in every supervisor, and pages that it copies at every start."""
    source = Path(choose_backend.__code__.co_filename).parents[1]
    code = (
        f"import sys; sys.path.insert(0, {str(source)!r}); import rookhold_exec.launcher.main; "
        "print(*sorted(m for m in sys.modules if not m.startswith('rookhold_exec')))"
    )
    argv = [sys.executable, "-I", "-S", "-c", code]
    loaded = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    heavy = {
        "typing",
        "enum",
        "re",
        "json",
        "logging",
        "asyncio",
        "contextlib",
        "pathlib",
        "msgspec",
    }
    assert not heavy & set(loaded)
