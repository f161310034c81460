"""The contract, on the namespace backend in a reviewed root: here with any groups, or as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reviewed import ANY_GROUPS, VERSION_2, settings, surveyed

from rookhold_exec.select import choose_backend
from rookhold_exec.testing import ExecutorContract

if TYPE_CHECKING:
    from pathlib import Path

    from rookhold_exec.executor import Executor


class TestNamespaces(ExecutorContract):
    pytestmark = VERSION_2.marks

    @classmethod
    def make(cls, directory: Path) -> Executor:
        [kind] = VERSION_2.values
        return choose_backend("namespaces", settings(surveyed=surveyed(kind)))


class TestWithGroupsOfVersion1(ExecutorContract):
    pytestmark = ANY_GROUPS.marks

    @classmethod
    def make(cls, directory: Path) -> Executor:
        [kind] = ANY_GROUPS.values
        return kind(settings(surveyed=surveyed(kind)), "for a test")
