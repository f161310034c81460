"""The named moments at which a process is killed, each waited for where it shows from outside."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from faults.programs import COLLECTED, FLOOD, LONG, QUICK, Program
from faults.victims import children, first_process_of

from rookhold.errors import RookholdError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from faults.book import Book
    from faults.traffic import Sent, Traffic

SERVER, LAUNCHER, SANDBOX, ALL = "server", "launcher", "sandbox", "all"
WAIT_SECONDS: Final = 30.0  # behind other jobs in the queue, on a busy machine
_LOOK_SECONDS: Final = 0.0003

# What can be seen to matter to whom. At "starting-up" a server is killed too, and the kill is for
# what starts again; at "restarting" the launcher that comes back is killed as well. At "stopping"
# the server has been told to stop a moment before. At "sweeping" the one that comes next finds old
# jobs, and is killed while it removes them.
BY_VICTIM: Final[dict[str, tuple[str, ...]]] = {
    SERVER: (
        "random",
        "accepting",
        "just-accepted",
        "starting",
        "running",
        "flooding",
        "finalising",
        "signing",
        "cancelling",
        "stopping",
        "starting-up",
        "sweeping",
        "sweeping",
    ),
    LAUNCHER: (
        "random",
        "just-accepted",
        "starting",
        "running",
        "flooding",
        "collecting",
        "finalising",
        "cancelling",
        "restarting",
        "starting-up",
    ),
    SANDBOX: (
        "random",
        "starting",
        "running",
        "flooding",
        "collecting",
        "cancelling",
        "starting-up",
    ),
    ALL: ("random", "running", "collecting"),
}
DECK: Final = tuple((victim, moment) for victim, all_of in BY_VICTIM.items() for moment in all_of)


class Moments:
    """Waits for a moment; `first` is then the first process of the job that made it, if known."""

    def __init__(self, traffic: Traffic, book: Book, dice: random.Random, launcher: int) -> None:
        self._traffic = traffic
        self._book = book
        self._dice = dice
        self._launcher = launcher
        self.first: int | None = None

    def wait(self, moment: str) -> bool:
        """Return when it is there; False if it could not be seen, and another has come."""
        method = getattr(self, "_" + moment.replace("-", "_"))
        return bool(method())

    def _random(self) -> bool:
        time.sleep(self._dice.uniform(0, 0.8))
        return True

    _starting_up = _restarting = _stopping = _sweeping = _random

    def _accepting(self) -> bool:
        sent = self._traffic.note(QUICK)
        thread = threading.Thread(target=self._submit_unwatched, args=(sent,), daemon=True)
        thread.start()
        time.sleep(self._dice.uniform(0, 0.006))
        return sent.job_id is None

    def _submit_unwatched(self, sent: Sent) -> None:
        with suppress(RookholdError, OSError):
            self._traffic.submit(sent)

    def _just_accepted(self) -> bool:
        self._bait(QUICK)
        return True

    def _starting(self) -> bool:
        known = set(children(self._launcher))
        self._bait(QUICK)

        def appeared() -> bool:
            new = set(children(self._launcher)) - known
            self.first = min(new, default=None)
            return bool(new)

        return seen(appeared)

    def _running(self) -> bool:
        return self._shows_output(LONG, 3) is not None

    def _flooding(self) -> bool:
        return self._shows_output(FLOOD, 300) is not None

    def _cancelling(self) -> bool:
        sent = self._shows_output(LONG, 3)
        if sent is None:
            return False
        self._traffic.cancel(sent)
        return True

    def _collecting(self) -> bool:
        """The job's own processes are gone, its first one is still there."""
        first = self._followed(COLLECTED)
        return first is not None and seen(lambda: not children(first), 5) and self._has(first)

    def _finalising(self) -> bool:
        """Its first process is gone, and the job is not over."""
        first = self._followed(QUICK)
        if first is None:
            return False
        seen(lambda: not self._has(first), 5)
        self.first = None
        return not self._book.over(self._last)

    def _signing(self) -> bool:
        job_id = self._bait(QUICK)
        return seen(lambda: self._book.over(job_id)) and self._book.waits_for_signature(job_id)

    def _bait(self, program: Program) -> str:
        sent = self._traffic.note(program)
        self._traffic.submit(sent)
        assert sent.job_id is not None
        self._last = sent.job_id
        return sent.job_id

    def _has(self, first: int) -> bool:
        return first in children(self._launcher)

    def _followed(self, program: Program) -> int | None:
        """Send a job and return its first process, once that has begun the second one."""
        job_id = self._bait(program)

        def appeared() -> bool:
            self.first = first_process_of(self._launcher, job_id)
            return self.first is not None or self._book.over(job_id)

        return self.first if seen(appeared) else None

    def _shows_output(self, program: Program, events: int) -> Sent | None:
        sent = self._traffic.note(program)
        self._traffic.submit(sent)
        job_id = sent.job_id
        assert job_id is not None
        came = seen(lambda: self._book.events(job_id) >= events)
        self.first = first_process_of(self._launcher, job_id)
        return sent if came and not self._book.over(job_id) else None


def seen(condition: Callable[[], bool], seconds: float = WAIT_SECONDS) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(_LOOK_SECONDS)
    return False
