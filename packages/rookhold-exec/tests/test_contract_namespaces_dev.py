from pathlib import Path

import pytest

from rookhold_exec.executor import Executor
from rookhold_exec.select import choose_backend
from rookhold_exec.settings import ExecSettings
from rookhold_exec.testing import ExecutorContract


@pytest.mark.linux_ns
class TestNamespacesDev(ExecutorContract):
    @classmethod
    def make(cls, directory: Path) -> Executor:
        return choose_backend("namespaces-dev", ExecSettings())
