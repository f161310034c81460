"""The contract of an executor, on each runsc that can be had."""

from __future__ import annotations

from pathlib import Path

import pytest
from gvisor import executor

from rookhold_exec.executor import Executor
from rookhold_exec.testing import ExecutorContract


@pytest.mark.runsc
@pytest.mark.rootfs
@pytest.mark.groups("memory", "pids")
class TestPtrace(ExecutorContract):
    @classmethod
    def make(cls, directory: Path) -> Executor:
        return executor("ptrace")


@pytest.mark.soak  # the other tests of the newer one, in test_gvisor, are for every day
@pytest.mark.runsc("newer")
@pytest.mark.rootfs
@pytest.mark.groups("memory", "pids")
class TestSystrap(ExecutorContract):
    @classmethod
    def make(cls, directory: Path) -> Executor:
        return executor("systrap")
