"""A short root process at the start: it judges the settings and finds out what takes root to know.

It tells the supervisor once how the server and its launchers are to be started, and ends. All that
it had to load goes with it: libraries, the configuration, and the keys that this names.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from typing import TYPE_CHECKING, Any, Final

from rookhold_exec.backends.launched import LaunchedExecutor
from rookhold_exec.launcher.client import hello
from rookhold_exec.launcher.protocol import encode
from rookhold_exec.launcher.spawning import GRANT
from rookhold_exec.select import choose_backend
from rookhold_server import logs
from rookhold_server.config.execution import exec_settings
from rookhold_server.config.guards import check_backend, check_settings
from rookhold_server.config.settings import Settings, read_settings
from rookhold_server.http.transport import bind
from rookhold_server.supervisor.account import Account, check_apart, find
from rookhold_server.supervisor.programs import check_programs
from rookhold_types.errors import RookholdError
from rookhold_types.isolation import BACKEND_FACTS

if TYPE_CHECKING:
    from rookhold_exec.executor import Executor

_log = logging.getLogger("rookhold_server.supervisor")  # it is run as a script

SOCKET_FD: Final = 3


def main() -> int:
    """Tell the supervisor at descriptor 3; 0, or 1 after a refused start."""
    logs.configure("compact", "info")
    with socket.socket(fileno=SOCKET_FD) as supervisor:
        supervisor.set_inheritable(False)
        try:
            settings, account = _settings()
            logs.configure(settings.log_format, settings.log_level)
            _tell(supervisor, settings, account)
        except RookholdError as refused:
            _log.error("refused to start: %s", refused, extra={"code": refused.code})
        except Exception as exc:  # noqa: BLE001 - the last edge: the log is all that is left
            _log.critical("failed", exc_info=exc, extra={"code": "internal_error"})
        else:
            return 0
    return 1


def _settings() -> tuple[Settings, Account]:
    """Read them as the server will: in the environment that its account gets."""
    first = read_settings(os.environ)
    logs.configure(first.log_format, first.log_level)
    account = find(first.user or "")
    os.environ.update(account.environment())
    settings = read_settings(os.environ)
    check_settings(settings, effective_uid=0)
    check_apart(account, settings)
    check_programs(account)
    return settings, account


def _tell(supervisor: socket.socket, settings: Settings, account: Account) -> None:
    executor = choose_backend(settings.sandbox, exec_settings(settings))
    with bind(settings.address) as listener:
        found, order = _order(settings, executor)
        fds = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, listener.fileno().to_bytes(4, "little"))]
        name = executor.backend if isinstance(executor, LaunchedExecutor) else settings.sandbox
        grant = {"op": GRANT, "backend": str(name), "surveyed": found}
        supervisor.sendmsg([encode(grant)], fds)
        plan = {
            "uid": account.uid,
            "gid": account.gid,
            "environment": account.environment(),
            **order,
        }
        supervisor.send(encode(plan))


def _order(settings: Settings, executor: Executor) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return what the server is told of its backend, and how its launchers are started."""
    if not isinstance(executor, LaunchedExecutor):  # a provider's own way needs no launcher of ours
        return None, {"launcher": None, "as_root": 0}
    facts = BACKEND_FACTS[executor.backend]
    check_backend(settings, settings.address, facts.isolation_class)
    found, order = executor.order()
    return found, {"launcher": hello(order), "as_root": int(executor.launched_as_root)}


if __name__ == "__main__":
    sys.exit(main())
