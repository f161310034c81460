"""Starting one process from the root one: which descriptors it keeps, and who it is."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from rookhold_exec.launcher.kernel import (
    PR_SET_NO_NEW_PRIVS,
    close_from,
    drop_bounding_set,
    drop_capabilities,
    prctl,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NOT_STARTED = 126  # exit status of a child that could not become what it was to be
CODE = "not_started"  # not an error class: those load what the root process does not
_LAST_CAPABILITY = 63  # more than any kernel has; dropping one that is not there does nothing


class Identity(NamedTuple):
    """The ids of an account that is not root's."""

    uid: int
    gid: int


def begin(
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    keep: Sequence[int] = (),
    at: Mapping[int, int] | None = None,
    identity: Identity | None = None,
    session: bool = True,
) -> int:
    """Start it and return its pid. With `session` no signal of our terminal reaches it.

    Beside its standard streams it has the descriptors `keep`, and each of `at` under the number
    that is its key. With an `identity` it has no privilege left and cannot get one. This process is
    small and has one thread, so that a fork of it is cheap and safe.
    """
    pid = os.fork()
    if pid == 0:
        if session:
            os.setsid()
        _become(argv, environment, keep, at or {}, identity)
    return pid


def _become(
    argv: Sequence[str],
    environment: Mapping[str, str],
    keep: Sequence[int],
    at: Mapping[int, int],
    identity: Identity | None,
) -> NoReturn:
    try:
        close_from(3, on_exec=True)
        for target, fd in at.items():
            os.dup2(fd, target)
        for fd in (*keep, *at):
            os.set_inheritable(fd, True)
        if identity is not None:
            _give_up(identity)
        # Ignored ones would be inherited by the exec, and by every job after it.
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if signal.getsignal(number) is not None:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(argv[0], list(argv), environment)  # noqa: S606 - argv is ours
    except OSError as error:
        text = f"refused to start: a process cannot be started ({error.strerror}) code={CODE}"
        os.write(2, text.encode() + b"\n")
    finally:
        os._exit(NOT_STARTED)


def _give_up(identity: Identity) -> None:
    uid, gid = identity
    os.setgroups([])
    drop_bounding_set(_LAST_CAPABILITY)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    drop_capabilities()
    prctl(PR_SET_NO_NEW_PRIVS, 1)
