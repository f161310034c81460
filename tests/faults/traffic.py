"""A stream of random jobs from two tenants, and an exact memory of what was promised to them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from faults.book import Book
from faults.programs import Program, pick

from rookhold.errors import ApiError, RookholdError

if TYPE_CHECKING:
    import random

    from gateway import Gateway

    from rookhold import Rookhold

TENANTS = ("local", "other")
OPEN_MAX = 5  # jobs that are not over; then the stream waits
REQUEST_SECONDS = 20.0


@dataclass
class Sent:
    """One submission. `job_id` is None until an answer was received: the job may exist or not."""

    key: str
    tenant: str
    program: Program
    job_id: str | None = None
    cancel_asked: bool = False


class Traffic:
    """Runs in its own thread while it is not paused; everything sent has an idempotency key."""

    def __init__(
        self, gateway: Gateway, dice: random.Random, programs: tuple[Program, ...]
    ) -> None:
        self._gateway = gateway
        self._dice = dice
        self._programs = programs
        self.sent: list[Sent] = []
        self._lock = threading.Lock()
        self._clients: dict[str, Rookhold] = {}
        self._flowing = threading.Event()
        self._still = threading.Event()
        self._over = False
        self._cancels: list[tuple[float, Sent]] = []
        self._problems: list[str] = []
        self._thread = threading.Thread(target=self._work, name="traffic", daemon=True)
        self._still.set()
        self._thread.start()

    # For the thread that kills.

    def flow(self) -> None:
        self._still.clear()
        self._flowing.set()

    def pause(self) -> None:
        """Return once nothing is being sent and every connection is closed."""
        self._flowing.clear()
        if not self._still.wait(REQUEST_SECONDS * 2):
            raise AssertionError("a request hangs")
        self.disconnect()

    def disconnect(self) -> None:
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()

    def end(self) -> None:
        self._over = True
        self._flowing.set()
        self._thread.join(REQUEST_SECONDS * 2)
        self.disconnect()

    def client(self, tenant: str) -> Rookhold:
        with self._lock:
            if tenant not in self._clients:
                self._clients[tenant] = self._gateway.client(tenant=tenant, timeout=REQUEST_SECONDS)
            return self._clients[tenant]

    def note(self, program: Program) -> Sent:
        """Make up a submission and remember it, before anything of it is sent."""
        with self._lock:
            sent = Sent(f"key-{len(self.sent)}", self._dice.choice(TENANTS), program)
            self.sent.append(sent)
        return sent

    def submit(self, sent: Sent) -> bool:
        """Send it, or send it again; whether the server knew its key already."""
        program = sent.program
        answer = self.client(sent.tenant).submit(
            program.language,
            program.code,
            stdin=program.stdin,
            limits=program.limits,
            files=program.files,
            outputs=program.outputs,
            idempotency_key=sent.key,
        )
        if sent.job_id not in (None, answer.job_id):
            self._problems.append(f"{sent.key}: was {sent.job_id}, then {answer.job_id}")
        if sent.job_id is None and program.cancel_after is not None:
            due = time.monotonic() + self._dice.uniform(0, program.cancel_after)
            self._cancels.append((due, sent))
        sent.job_id = answer.job_id
        return answer.replayed

    def cancel(self, sent: Sent) -> None:
        assert sent.job_id is not None
        sent.cancel_asked = True
        self.client(sent.tenant).cancel(sent.job_id)

    def retry_after_crash(self) -> list[str]:
        """Send again what was never answered and some of what was; return what is wrong then.

        Call it while paused. Afterwards every submission has its job id.
        """
        unanswered = [sent for sent in self.sent if sent.job_id is None]
        answered = [sent for sent in self.sent if sent.job_id is not None]
        for sent in unanswered:
            self.submit(sent)
        for sent in [*answered[-3:], *self._dice.sample(answered, min(2, len(answered)))]:
            if not self.submit(sent):
                self._problems.append(f"{sent.key}: its answered submission was forgotten")
        if answered:
            self._reuse(self._dice.choice(answered))
        return self.problems()

    def _reuse(self, sent: Sent) -> None:
        try:
            self.client(sent.tenant).submit("bash", "echo other", idempotency_key=sent.key)
        except ApiError as refused:
            if refused.code == "idempotency_key_reused":
                return
        self._problems.append(f"{sent.key}: taken for another job")

    def problems(self) -> list[str]:
        found, self._problems = self._problems, []
        return found

    def job_ids(self) -> list[str]:
        return [sent.job_id for sent in self.sent if sent.job_id is not None]

    # The stream's own thread.

    def _work(self) -> None:
        while not self._over:
            if not self._flowing.is_set():
                self._still.set()
                self._flowing.wait()
                continue
            with Book(self._gateway.database) as book:
                self._stream(book)
        self._still.set()

    def _stream(self, book: Book) -> None:
        while self._flowing.is_set() and not self._over:
            if book.count_open() >= OPEN_MAX:
                time.sleep(0.005)
            else:
                self._send_one()
            self.cancel_due()

    def _send_one(self) -> None:
        sent = self.note(pick(self._dice, self._programs))
        try:
            self.submit(sent)
        except (RookholdError, OSError):
            time.sleep(0.01)  # the server is dead, or says no; its key is tried again later

    def cancel_due(self) -> None:
        """Ask for the cancels whose time has come; one that a crash swallows is asked again."""
        now = time.monotonic()
        for when, sent in [each for each in self._cancels if each[0] <= now]:
            self._cancels.remove((when, sent))
            try:
                self.cancel(sent)
            except (RookholdError, OSError):
                self._cancels.append((now + 0.1, sent))
