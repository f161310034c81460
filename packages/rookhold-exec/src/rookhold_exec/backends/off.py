"""No sandbox at all: a plain process in a directory of the host, which claims the wall limit alone.

The server's own user runs the job. It is for a developer who trusts the code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from rookhold_exec import interpreters
from rookhold_exec.backends.launched import LaunchedExecutor
from rookhold_exec.errors import ExecutorUnavailableError
from rookhold_types.isolation import Backend
from rookhold_types.limits import LimitEnforcement

if TYPE_CHECKING:
    from rookhold_exec.settings import ExecSettings


class Off(LaunchedExecutor):
    """Every job in a directory `job-<id>` under the jobs root, removed afterwards."""

    backend: ClassVar[Backend] = Backend.OFF
    launched_as_root: ClassVar[bool] = False

    def __init__(self, settings: ExecSettings, note: str) -> None:
        if settings.jobs_root is None:
            raise ExecutorUnavailableError("the backend off needs a jobs root")
        super().__init__(settings, note)
        self._root = settings.jobs_root

    def hello(self) -> dict[str, Any]:
        return {"mode": "off", "seccomp": None, "places": [], "uid_base": 0, "faults": []}

    def path(self) -> str:
        own = self._settings.path
        return f"{interpreters.SYSTEM_PATH}:{own}" if own else interpreters.SYSTEM_PATH

    def locate(self, name: str) -> str | None:
        return interpreters.find(name, self.path())

    def directory(self, name: str) -> str:
        return f"{self._root}/job-{name}"

    def enforcement(self, controls: tuple[str, ...]) -> LimitEnforcement:
        return LimitEnforcement(wall=True)
