"""The clones of a start, where there is no room for one more."""

from __future__ import annotations

import errno
import os
import socket
import time
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from rookhold_exec.launcher import spawn, supervisor
from rookhold_exec.launcher.protocol import FAILED, receive_frame

pytestmark = pytest.mark.linux_ns


def test_a_supervisor_that_no_descriptor_is_left_for_is_ended_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(fd: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def supervise(job: Any) -> NoReturn:
        time.sleep(60)
        os._exit(0)

    monkeypatch.setattr(spawn, "raise_descriptor", full)
    job: Any = SimpleNamespace(group=SimpleNamespace(init_in=-1), pid=-1, pidfd=-1)
    with pytest.raises(OSError, match="Too many open files"):
        spawn.start(job, 0, supervise)
    with pytest.raises(ChildProcessError):  # it is dead, and nothing of it is left to wait for
        os.waitpid(job.pid, os.WNOHANG)


def test_a_second_process_that_cannot_be_made_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(flags: int) -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(supervisor, "clone", full)
    ours, theirs = socket.socketpair()
    group = SimpleNamespace(init_in=-1, born_in=-1)
    job: Any = SimpleNamespace(group=group, control=theirs, pid=-1, pidfd=-1)
    with ours, theirs:
        ours.settimeout(30)
        spawn.start(job, 0, supervisor.supervise)
        theirs.close()
        try:
            assert receive_frame(ours) == {"op": FAILED, "stage": "clone"}
        finally:
            os.close(job.pidfd)
            os.waitpid(job.pid, 0)
