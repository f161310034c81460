"""One gateway, and whoever guards its jobs killed at random moments of a job's life."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from faults.leftovers import Leftovers, descriptors, threads
from faults.victims import alive, born, bury, children, family, kill_if, launcher_of, noted
from gateway import Gateway, eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from isolating import Isolating

    from rookhold.results import JobDetail

WORKERS = 2
GONE_SECONDS = 30.0
MEASURED = 5
SIZE = 500_000
JOB = (
    f"echo began; head -c {SIZE} /dev/zero > output/first; sleep 0.05;"
    f" head -c {SIZE} /dev/zero > output/second; echo over"
)
OUTPUTS = ("output/first", "output/second")
LIMITS = {"wall_seconds": 120, "mem_mb": 128}
ROLES = ("launcher", "supervisor", "runtime", "sandbox", "gofer")
# How a receipt names the end of a job whose guardians were killed; the last one if that was after
# its own end, while its outputs were on their way.
HURT = (None, "requested_output_unavailable")


class Assault:
    """Raises AssertionError at the first thing that is wrong; `say` hears of each kill."""

    def __init__(
        self, home: Path, jobs: Path, backend: Isolating, seed: str, say: Callable[[str], None]
    ) -> None:
        self.dice = random.Random(seed)
        self.say = say
        self.backend = backend
        uid_base = 700_000 + os.getpid() % 10_000 * 16
        self.gateway = Gateway(
            home,
            sandbox=backend.name,
            ROOKHOLD_WORKERS=str(WORKERS),
            ROOKHOLD_SANDBOX_UID_BASE=str(uid_base),
            ROOKHOLD_RATE_PER_MIN="1000000",
            **backend.settings(),
        )
        self.gateway.jobs_root = jobs
        self.left = Leftovers(self.gateway, uid_base=uid_base, workers=WORKERS)
        self.own = set(children(os.getpid()))
        self.struck: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.back: list[float] = []  # seconds from a kill to the end of the next job

    def run(self, kills: int) -> str:
        """Strike that many times; returns one line that says what came of it."""
        began = time.monotonic()
        with self.gateway, self.gateway.client() as client:
            assert self.gateway.process is not None
            self.server = self.gateway.process.pid
            self.client = client
            life = self._life()
            self._look()
            before = descriptors(self.server), threads(self.server)
            roles = self._roles()
            while self.struck.total() < kills:
                assert time.monotonic() - began < 600 + 20 * kills, "too seldom anybody to kill"
                self._round(self.dice.choice(roles), self._moment(life))
            self._look()
            assert eventually(GONE_SECONDS, lambda: len(descriptors(self.server)) <= len(before[0]))
            assert threads(self.server) <= before[1] + 8  # a pool grows and shrinks a little
        assert self.left.after_the_end() == [], self.left.after_the_end()
        told = ", ".join(f"{role} {count}" for role, count in sorted(self.struck.items()))
        ends = ", ".join(f"{end} {count}" for end, count in sorted(self.ends.items()))
        return (
            f"{self.backend.name}: {self.struck.total()} kills in {time.monotonic() - began:.0f} s"
            f" ({told}); of the jobs: {ends}; until the next had run: median"
            f" {statistics.median(self.back):.2f} s, longest {max(self.back):.2f} s"
        )

    def _submit(self) -> str:
        limits = self.backend.limits(**LIMITS)
        return self.client.submit("bash", JOB, outputs=OUTPUTS, limits=limits).job_id

    def _life(self) -> float:
        """Return how long a job takes that nobody disturbs, from submission to its end."""
        spans = []
        for _ in range(MEASURED):
            detail = self._finished(self._submit())
            assert detail.status == "succeeded", detail.receipt
            assert detail.finished_at_ms is not None
            spans.append((detail.finished_at_ms - detail.created_at_ms) / 1000)
        return statistics.median(spans)

    def _moment(self, life: float) -> float:
        """Draw one from a job's life, every third from its beginning, which is short."""
        return self.dice.uniform(0, life * self.dice.choice((0.2, 1.1, 1.1)))

    def _finished(self, job_id: str) -> JobDetail:
        self.client.wait(job_id, 120)
        return self.client.job(job_id)

    def _roles(self) -> list[str]:
        """Return who there is to kill on this backend, as a running job shows."""
        held = self.client.submit("bash", "echo up; sleep 60", limits=self.backend.limits(**LIMITS))
        assert eventually(60, lambda: self.client.result(held.job_id).stdout)
        roles = [role for role in ROLES if self._victims(role)]
        self.client.cancel(held.job_id)
        self._finished(held.job_id)
        return roles

    def _victims(self, role: str) -> list[int]:
        launcher = launcher_of(self.server)
        if launcher is None:
            return []
        if role == "launcher":
            return [launcher]
        supervisors = children(launcher)
        if role == "supervisor":
            return supervisors
        below = [pid for one in supervisors for pid in family(one)[1:]]
        return [pid for pid in below if _role(pid) == role]

    def _round(self, role: str, delay: float) -> None:
        launcher = launcher_of(self.server)
        if launcher is not None:
            self.left.note_launcher(launcher)
        job_id = self._submit()
        time.sleep(delay)
        doomed = noted(self._victims(role)[:1])
        if not doomed:  # not yet, or no longer
            assert self._finished(job_id).status == "succeeded"
            return
        [victim] = doomed
        if role == "launcher":
            doomed |= noted(family(victim))
        began = time.monotonic()
        if not kill_if(victim, lambda: born(victim) == doomed[victim]):
            assert self._finished(job_id).status == "succeeded"
            return
        self.struck[role] += 1
        self.say(f"{self.struck.total()}: {role} after {delay:.3f} s")
        ended = self._judge(self._finished(job_id))
        self.ends[ended] += 1
        following = self.client.run("bash", "echo next", wait_seconds=60)
        assert (following.status, following.stdout) == ("succeeded", "next\n")
        self.back.append(time.monotonic() - began)
        self.say(f"{self.struck.total()}: {ended}")
        assert eventually(GONE_SECONDS, lambda: not alive(doomed)), f"outlived by {alive(doomed)}"
        self._look()

    def _judge(self, detail: JobDetail) -> str:
        """Say how the job ended, which is as an error or, if it was quicker, well."""
        receipt = detail.receipt
        assert receipt is not None
        assert (receipt["outcome"], receipt["job_id"]) == (detail.status, detail.job_id)
        if detail.status == "succeeded":
            sizes = [each["size_bytes"] for each in receipt["artifacts"]]
            assert sizes == [SIZE, SIZE], "succeeded, but not whole"
            return "unhurt"
        assert (detail.status, detail.killed_by in HURT) == ("error", True), receipt
        if detail.killed_by is not None:
            return "error in collection"
        return "error while it ran" if receipt["controls"] else "error in set-up"

    def _look(self) -> None:
        """Nothing is left of any job, nor of any launcher but the one that is there."""
        launcher = launcher_of(self.server)
        if launcher is not None:
            self.left.note_launcher(launcher)
        eventually(GONE_SECONDS, lambda: not self.left.when_idle())
        assert self.left.when_idle() == [], self.left.when_idle()
        bury(self.own | {self.server})


def _role(pid: int) -> str:
    """Tell by its command line what a process below a supervisor is."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    name = arguments[0].rpartition(b"/")[2]
    if name.startswith(b"runsc-sandbox") or b"boot" in arguments:
        return "sandbox"
    if name.startswith(b"runsc-gofer") or b"gofer" in arguments:
        return "gofer"
    return "runtime" if b"runsc" in name or b"--root" in b" ".join(arguments) else ""
