"""The signal calls of the C module: the `signal` module brings enum along, which costs memory."""

from __future__ import annotations

from _signal import (  # type: ignore[import-not-found]
    SIG_BLOCK,
    SIG_DFL,
    SIG_SETMASK,
    SIGCHLD,
    SIGHUP,
    SIGINT,
    SIGKILL,
    SIGPIPE,
    SIGTERM,
    SIGXFSZ,
    pidfd_send_signal,
    pthread_sigmask,
    signal,
)

__all__ = [
    "SIGCHLD",
    "SIGHUP",
    "SIGINT",
    "SIGKILL",
    "SIGPIPE",
    "SIGTERM",
    "SIGXFSZ",
    "SIG_BLOCK",
    "SIG_DFL",
    "SIG_SETMASK",
    "pidfd_send_signal",
    "pthread_sigmask",
    "signal",
]
