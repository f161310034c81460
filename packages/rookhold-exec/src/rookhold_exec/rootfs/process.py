"""One command whose end is certain: after its time, or when the one who reads it goes away."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, Final

from rookhold_exec.rootfs.errors import BuilderMissingError, BuildFailedError, BuildTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

_GRACE_SECONDS: Final = 15  # for its own clean-up, of mounts and temporary files
_POLL_SECONDS: Final = 0.02
_LINES_KEPT: Final = 200


class BoundedProcess:
    """A process group that is gone when the `with` block is left; `said` is its last stderr."""

    def __init__(
        self,
        argv: list[str],
        environment: dict[str, str],
        tell: Callable[[str], None],
        *,
        seconds: float,
    ) -> None:
        self.said: list[str] = []
        self._argv = argv
        self._environment = environment
        self._tell = tell
        self._late = False
        self._started: subprocess.Popen[bytes] | None = None
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._killing = threading.Lock()
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    @property
    def stdout(self) -> BinaryIO:
        stream = self._process.stdout
        assert stream is not None  # noqa: S101 - for the type checker
        return stream  # type: ignore[return-value]

    def finish(self) -> None:
        """Read and wait to its end, which must be a success."""
        while self.stdout.read(1 << 20):
            pass
        ended = self._ended(os.WEXITED)
        self._listener.join()
        if ended is None or ended.si_code != os.CLD_EXITED or ended.si_status != 0:
            raise BuildFailedError

    def __enter__(self) -> BoundedProcess:
        # Started by a thread: a signal that interrupts us here must not lose what was started.
        starter = threading.Thread(target=self._start)
        try:
            starter.start()
            starter.join()
            self._listener.start()
            self._timer.start()
        except BaseException:
            starter.join()
            self._end()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._end()
        if self._late and isinstance(error, BuildFailedError):
            raise BuildTimeoutError from error

    def _start(self) -> None:
        with suppress(OSError):
            self._started = subprocess.Popen(  # noqa: S603 - found by name, without a shell
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                cwd="/",
                start_new_session=True,
            )

    @property
    def _process(self) -> subprocess.Popen[bytes]:
        if self._started is None:
            raise BuilderMissingError
        return self._started

    @property
    def _stderr(self) -> BinaryIO:
        stream = self._process.stderr
        assert stream is not None  # noqa: S101 - for the type checker
        return stream  # type: ignore[return-value]

    def _listen(self) -> None:
        with suppress(BuilderMissingError), self._stderr as stream:
            for raw in stream:
                line = raw.decode("utf-8", "replace").rstrip()
                self.said = [*self.said[1 - _LINES_KEPT :], line]
                self._tell(line)

    def _expire(self) -> None:
        self._late = True
        self._kill()

    def _end(self) -> None:
        self._timer.cancel()
        if self._started is None:
            return
        self._kill()
        self.stdout.close()
        if self._listener.ident is None:
            self._stderr.close()
        else:
            self._listener.join()

    def _kill(self) -> None:
        """Ask its group to end, then make it; whoever outlives the first process is killed too."""
        with self._killing:
            if self._process.returncode is not None:
                return
            # Not reaped before all are killed: until then nobody else can get the group's number.
            deadline = time.monotonic() + _GRACE_SECONDS
            if self._ended(os.WEXITED | os.WNOHANG) is None:
                os.killpg(self._process.pid, signal.SIGTERM)
            while time.monotonic() < deadline and not self._ended(os.WEXITED | os.WNOHANG):
                time.sleep(_POLL_SECONDS)
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _ended(self, how: int) -> os.waitid_result | None:
        with suppress(ChildProcessError):  # the timer was here first
            return os.waitid(os.P_PID, self._process.pid, how | os.WNOWAIT)
        return None
