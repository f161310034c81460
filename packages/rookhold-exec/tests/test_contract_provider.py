"""A provider from elsewhere: found by its name, held to the contract, and caught when it lies."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from rookhold_exec.errors import UnknownBackendError
from rookhold_exec.executor import Executor
from rookhold_exec.select import choose_backend
from rookhold_exec.settings import ExecSettings
from rookhold_exec.testing import ExecutorContract, Harness

SOURCE = Path(__file__).with_name("provider_sample.py")


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("provider_sample", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["provider_sample"] = module
    spec.loader.exec_module(module)
    return module


sample = _load()


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[None]:
    """A distribution that brings the provider, as an installer would leave it on the path."""
    information = tmp_path / "sample_provider-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: sample-provider\n")
    (information / "entry_points.txt").write_text(
        "[rookhold.executors]\nsample = provider_sample:make\n"
    )
    sys.path.insert(0, str(tmp_path))
    yield
    sys.path.remove(str(tmp_path))


@pytest.mark.root
@pytest.mark.linux_ns
class TestSampleProvider(ExecutorContract):
    @classmethod
    def make(cls, directory: Path) -> Executor:
        return sample.SampleExecutor(ExecSettings(jobs_root=str(directory)))


def test_a_provider_is_found_by_its_name(installed: None) -> None:
    executor = choose_backend("sample", ExecSettings())
    assert executor.posture.backend == "sample"


def test_a_name_that_nobody_provides_is_refused(installed: None) -> None:
    with pytest.raises(UnknownBackendError):
        choose_backend("simple", ExecSettings())


def test_auto_never_takes_a_provider(installed: None, tmp_path: Path) -> None:
    executor = choose_backend("auto", ExecSettings(jobs_root=str(tmp_path)))
    assert not isinstance(executor, sample.SampleExecutor)


LIES = [
    {"controls": ("network-namespace",), "network_allowed": False, "networking": "disabled"},
    {"controls": ("seccomp",), "seccomp": True},
    {"controls": ("capabilities-dropped",)},
    {"controls": ("no-new-privileges",)},
    {"controls": ("read-only-root",)},
    {"controls": ("user-namespace",)},
    {"controls": ("rlimits",)},
    {"controls": ("workspace-quota",)},
    {"bootstrap_ready": False},
]


@pytest.mark.root
@pytest.mark.linux_ns
@pytest.mark.parametrize("lie", LIES, ids=lambda lie: str(next(iter(lie.values()))))
def test_a_provider_that_lies_is_caught(lie: dict[str, object], tmp_path: Path) -> None:
    harness = Harness(sample.liar(**lie)(ExecSettings(jobs_root=str(tmp_path))))
    contract = TestSampleProvider()
    try:
        with pytest.raises(AssertionError):
            contract.test_what_is_claimed_is_there_when_looked_for_from_inside(harness)
    finally:
        harness.close()


@pytest.mark.root
@pytest.mark.linux_ns
def test_a_provider_whose_evidence_contradicts_itself_is_caught(tmp_path: Path) -> None:
    contract = TestSampleProvider()
    for lie in ({"isolated": True}, {"seccomp": True}, {"network_allowed": False}):
        harness = Harness(sample.liar(**lie)(ExecSettings(jobs_root=str(tmp_path))))
        try:
            with pytest.raises(AssertionError):
                contract.test_the_members_of_the_evidence_agree(harness)
        finally:
            harness.close()
