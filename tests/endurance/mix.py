"""Everything a gateway is asked for at once, by many clients that never rest for long.

Each actor is a thread that goes on until `ended`; what goes wrong in one is kept and ends all.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streams import EventSource, WebSocket

if TYPE_CHECKING:
    from collections.abc import Callable

    from crowd import Crowd

    from rookhold import Rookhold

TENANTS = ("ada", "ben", "cyd", "dee")
SUBMITTERS = 6
FOLLOWERS = 40  # of streams, half of each kind
STUCK = 10
STUCK_SECONDS = 6.0  # a little longer than the server has patience with a peer that does not read
FLOOD_SECONDS = 10.0
TICKS = "for n in $(seq 200); do echo tick $n; sleep 0.1; done"
FLOOD = """
import os
line = b"x" * 4000 + b"\\n"
for _ in range(300):
    for stream in (1, 2):
        os.write(stream, line)
"""
WAIT_SECONDS = 120


@dataclass(frozen=True)
class Kind:
    language: str
    code: str
    ends: str = "succeeded"
    weight: int = 4
    more: dict[str, Any] = field(default_factory=dict)


KINDS = (
    Kind("python", "print('hello')", weight=12),
    Kind("python", "import sys; sys.stdout.write('\\u00e9' * 40000); sys.exit(3)", "failed"),
    Kind("python", "import os; os.write(1, bytes(range(256)) * 40)"),
    Kind("python", "for n in range(2000): print(n)"),
    Kind("node", "console.log('hello')", weight=4),
    Kind("node", "console.error('no'); process.exit(2)", "failed", weight=2),
    Kind("bash", "echo hello", weight=16),
    Kind("bash", "cat input/a - > output/b", more={
        "files": {"input/a": b"a" * 5000}, "stdin": "in", "outputs": ("output/b",)
    }),
    Kind("bash", "kill -SEGV $$; sleep 9", "failed", weight=2),
    Kind("bash", "(setsid sleep 60 &); echo left", weight=2),
    Kind("bash", "echo up; sleep 0.4", weight=8),
    Kind("bash", "sleep 60", "timed_out", weight=1, more={"limits": {"wall_seconds": 1}}),
)  # fmt: skip


class Mix:
    """The actors, what they did, and what went wrong."""

    def __init__(self, crowd: Crowd, seed: str) -> None:
        self.crowd = crowd
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.ended = threading.Event()
        self._seed = seed
        self._lock = threading.Lock()
        self._ticking: dict[str, str] = {}
        self._flooding: dict[str, str] = {}
        offered = crowd.client(TENANTS[0]).capabilities().languages
        self._kinds = [kind for kind in KINDS if kind.language in offered]
        self._threads = [
            *(self._actor(self._submit, TENANTS[n % len(TENANTS)]) for n in range(SUBMITTERS)),
            *(self._actor(self._tick, tenant) for tenant in TENANTS),
            *(
                self._actor(self._follow, TENANTS[n % len(TENANTS)], n % 8 < len(TENANTS))
                for n in range(FOLLOWERS)
            ),
            # A tenant may have 16 streams, and one that was just dropped may still count.
            *(self._actor(self._stick, TENANTS[n % len(TENANTS)]) for n in range(STUCK)),
            self._actor(self._flood),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let everybody finish what they are at, and wait for it."""
        self.ended.set()
        for thread in self._threads:
            thread.join(WAIT_SECONDS)
            if thread.is_alive():
                self.faults.append(f"{thread.name} does not come to an end")

    def done(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def _actor(self, act: Callable[..., None], *arguments: object) -> threading.Thread:
        number = self.counts.total()  # none has begun to count
        name = f"{act.__name__} {arguments}"

        def run() -> None:
            dice = random.Random(f"{self._seed} {name} {number} {threading.get_ident()}")
            try:
                while not self.ended.is_set():
                    act(dice, *arguments)
            except Exception as error:  # noqa: BLE001 - whatever it is, the run has failed
                self.faults.append(f"{name}: {type(error).__name__}: {error}")
                self.ended.set()

        return threading.Thread(target=run, name=name, daemon=True)

    def _submit(self, dice: random.Random, tenant: str) -> None:
        """One job, from its submission to whatever this client wants of it."""
        client = self.crowd.client(tenant)
        kind = dice.choices(self._kinds, [kind.weight for kind in self._kinds])[0]
        job_id = client.submit(kind.language, kind.code, **kind.more).job_id
        self.done("submitted")
        match dice.choices(("wait", "cancel", "leave", "poll"), (60, 15, 15, 10))[0]:
            case "wait":
                self._expect(client.wait(job_id, WAIT_SECONDS).status, kind)
            case "cancel":
                time.sleep(dice.choice((0, 0.005, 0.05, 0.3)))
                client.cancel(job_id)
                self._expect(client.wait(job_id, WAIT_SECONDS).status, kind, "cancelled")
            case "poll":
                client.result(job_id, 0)
                client.result(job_id, 1)
            case _:
                self.done("left alone")
        self._look(dice, client, job_id)
        self.ended.wait(dice.uniform(0, 0.4))

    def _expect(self, status: str, kind: Kind, *also: str) -> None:
        if status not in (kind.ends, *also):
            raise AssertionError(f"{kind.code[:40]} ended {status}")
        self.done(status)

    def _look(self, dice: random.Random, client: Rookhold, job_id: str) -> None:
        for look in dice.sample(
            (
                lambda: client.job(job_id),
                lambda: list(client.events(job_id)),
                lambda: next(client.jobs(page_size=dice.choice((1, 50, 500)))),
                lambda: client.status(),
                lambda: client.capabilities(),
                lambda: client.ready(),
            ),
            2,
        ):
            look()
            self.done("looks")

    def _tick(self, dice: random.Random, tenant: str) -> None:
        """A job that prints for a while, for those who follow."""
        del dice
        client = self.crowd.client(tenant)
        job_id = client.submit("bash", TICKS, limits={"wall_seconds": 60}).job_id
        self._ticking[tenant] = job_id
        while not client.result(job_id, 1).finished:
            if self.ended.is_set():
                client.cancel(job_id)

    def _follow(self, dice: random.Random, tenant: str, websocket: bool) -> None:
        """One stream of the job that ticks now, to its end."""
        job_id = self._ticking.get(tenant)
        before = getattr(threading.current_thread(), "followed", None)
        if job_id is None or job_id == before:
            self.ended.wait(dice.uniform(0.05, 0.2))
            return
        threading.current_thread().followed = job_id  # type: ignore[attr-defined]
        address, headers = self._door(tenant)
        if websocket:
            socket = WebSocket(address, f"/v1/jobs/{job_id}/stream", headers)
            self._begun(socket)
            events = [(event["seq"], event["kind"]) for event in socket.events()]
            closed: object = socket.closed_with
            socket.close()
        else:
            source = EventSource(address, f"/v1/jobs/{job_id}/events", headers)
            self._begun(source)
            frames = [json.loads(frame["data"]) for frame in source.frames() if "data" in frame]
            events = [(event["seq"], event["kind"]) for event in frames]
            closed = None
            source.close()
        if [seq for seq, _ in events] != list(range(1, len(events) + 1)):
            raise AssertionError("a stream has a gap")
        if closed is not None or events[-1][1] != "finished":
            raise AssertionError(f"a stream ended {closed} after {events[-1]}")
        self.done("streams")

    def _door(self, tenant: str) -> tuple[str, dict[str, str]]:
        gateway = self.crowd.gateway
        return gateway.address, {"Authorization": f"Bearer {self.crowd.key(tenant)}"}

    def _begun(self, stream: WebSocket | EventSource) -> None:
        if stream.status not in (101, 200):
            raise AssertionError(f"a stream was refused: {stream.status} {stream.code}")

    def _flood(self, dice: random.Random) -> None:
        """Megabytes of output of one tenant after another."""
        lacking = [tenant for tenant in TENANTS if tenant not in self._flooding]
        tenant = dice.choice(lacking or TENANTS)
        client = self.crowd.client(tenant)
        job_id = client.submit("python", FLOOD).job_id
        client.wait(job_id, WAIT_SECONDS)
        self._flooding[tenant] = job_id
        self.done("floods")
        if not lacking:
            self.ended.wait(FLOOD_SECONDS)

    def _stick(self, dice: random.Random, tenant: str) -> None:
        """Ask for megabytes and read none of them."""
        job_id = self._flooding.get(tenant)
        if job_id is None:
            self.ended.wait(dice.uniform(0.05, 0.2))
            return
        address, headers = self._door(tenant)
        stream = WebSocket(address, f"/v1/jobs/{job_id}/stream", headers, window=4096)
        self._begun(stream)
        self.ended.wait(STUCK_SECONDS)
        self.done("stuck")
        stream.close()
