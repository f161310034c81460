"""Runtime packs of an executor: those of its root file system, for the languages that work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rookhold_exec.backends.launched import LaunchedExecutor
from rookhold_exec.errors import CapabilityUnavailableError
from rookhold_exec.executor import SandboxPlan
from rookhold_exec.interpreters import Interpreter
from rookhold_exec.settings import ExecSettings
from rookhold_types.isolation import Backend
from rookhold_types.limits import LimitEnforcement, Limits
from rookhold_types.runtimes import PACKS

if TYPE_CHECKING:
    from typing import ClassVar

CONTROLS = ("private-rootfs",)


class Offering(LaunchedExecutor):
    """An executor that was opened, with two languages and a root file system of two packs."""

    backend: ClassVar[Backend] = Backend.GVISOR

    def __init__(self) -> None:
        super().__init__(ExecSettings(), "")
        for language in ("python", "node"):
            self._interpreters[language] = Interpreter(language, f"/usr/bin/{language}", "1")

    def packs(self) -> tuple[str, ...]:
        return (PACKS["python"], PACKS["bash"])

    def enforcement(self, controls: tuple[str, ...]) -> LimitEnforcement:
        del controls
        return LimitEnforcement.none()


class Classless(Offering):
    backend: ClassVar[Backend] = Backend.NAMESPACES_DEV


def plan(language: str, **more: Any) -> SandboxPlan:
    return SandboxPlan(job_id="job", language=language, code=b"", limits=Limits(), **more)


def test_a_posture_lists_what_is_offered_for_languages_that_work() -> None:
    assert Offering().posture.runtime_packs == (PACKS["python"],)


def test_a_job_that_asked_for_none_is_said_to_have_run_in_its_languages_own() -> None:
    executor = Offering()
    assert executor._observed(plan("python"), CONTROLS).runtime_pack == PACKS["python"]
    assert executor._observed(plan("node"), CONTROLS).runtime_pack is None


def test_without_a_class_no_pack_is_claimed() -> None:
    assert Classless()._observed(plan("python"), CONTROLS).runtime_pack is None


def test_the_pack_that_was_asked_for_is_taken_where_it_is_offered() -> None:
    Offering()._refuse(plan("python", runtime=PACKS["python"]))


@pytest.mark.parametrize(
    ("language", "asked"),
    [
        ("node", PACKS["node"]),
        ("python", PACKS["bash"]),
        ("python", "python:latest"),
        ("python", ""),
    ],
    ids=["not offered", "of another language", "unknown", "empty"],
)
def test_a_pack_that_is_not_offered_refuses_the_plan(language: str, asked: str) -> None:
    with pytest.raises(CapabilityUnavailableError) as caught:
        Offering()._refuse(plan(language, runtime=asked))
    assert caught.value.capability == "runtime pack"
