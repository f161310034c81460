"""Kill after kill on one gateway, with every invariant looked at between them."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from faults.book import Book
from faults.leftovers import Leftovers, descriptors, threads
from faults.moments import ALL, DECK, LAUNCHER, SANDBOX, SERVER, Moments, seen
from faults.past import Past
from faults.programs import LONG, offered
from faults.traffic import TENANTS, Traffic
from faults.verdicts import verdict
from faults.victims import alive, bury, children, family, kill_child, launcher_of, noted
from gateway import Gateway, eventually
from invariants import problems, problems_with_job

from rookhold_attestation import PublicKey, binds
from rookhold_store.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WORKERS: Final = 2
IDLE_EVERY: Final = 5  # kills between two looks at a gateway that does nothing
OLD_JOBS: Final = 150  # for each sweep that is interrupted
SETTLE_SECONDS: Final = 120.0
GONE_SECONDS: Final = 60.0


class Campaign:
    """One gateway and the kills it meets; `run` raises AssertionError with all that is wrong."""

    def __init__(self, home: Path, sandbox: str, seed: str, say: Callable[[str], None]) -> None:
        self.seed = seed
        self._sandbox = sandbox
        self._say = say
        self._dice = random.Random(seed)
        uid_base = 400_000 + os.getpid() % 10_000 * 16
        self.gateway = Gateway(
            home,
            sandbox=sandbox,
            ROOKHOLD_WORKERS=str(WORKERS),
            ROOKHOLD_SANDBOX_UID_BASE=str(uid_base),
            ROOKHOLD_RATE_PER_MIN="100000",
        )
        self._key = PublicKey.from_pem(self._public_key())
        self._leftovers = Leftovers(self.gateway, uid_base=uid_base, workers=WORKERS)
        self._own = set(children(os.getpid()))
        self._past = Past(self.gateway.database)
        self.kills: Counter[tuple[str, str]] = Counter()
        self.missed = self.hurt = self.jobs = 0
        self._hurt_at_most = 0
        self._judged: set[str] = set()
        self._baseline: tuple[int, list[str], int] | None = None

    def _public_key(self) -> str:
        from rookhold_attestation import PrivateKey

        return PrivateKey.load(self.gateway.key_file).public_key.to_pem()

    def run(self, kills: int) -> str:
        """Kill that many times; returns one line that says what was done."""
        began = time.monotonic()
        self.gateway.start()
        self._offered = self._languages()
        programs = offered(self._sandbox, self._offered)
        self.traffic = Traffic(self.gateway, random.Random(self.seed + "/traffic"), programs)
        try:
            with Book(self.gateway.database) as self._book:
                self._idle()
                deck: list[tuple[str, str]] = []
                while sum(self.kills.values()) < kills:
                    deck = deck or self._shuffled()
                    self._round(*deck.pop())
                    if sum(self.kills.values()) % IDLE_EVERY == 0:
                        self._idle()
                self._idle()
                self._stop()
        except BaseException as error:
            self._say(f"{error!r}\n{self._tail_of_log()}")
            raise
        finally:
            self.traffic.end()
            if self.gateway.process is not None and self.gateway.process.poll() is None:
                self.gateway.kill()
        seconds = time.monotonic() - began
        return (
            f"{self._sandbox} seed {self.seed}: {sum(self.kills.values())} kills"
            f" ({self.missed} beside their moment), {self.jobs} jobs, {self.hurt} hurt,"
            f" {seconds:.0f} s"
        )

    def _languages(self) -> tuple[str, ...]:
        with self.gateway.client() as client:
            return tuple(sorted(client.capabilities().languages))

    def _shuffled(self) -> list[tuple[str, str]]:
        # A job without a sandbox whose every guardian dies at once is out of anybody's reach.
        deck = [card for card in DECK if self._sandbox != "off" or card[0] != ALL]
        self._dice.shuffle(deck)
        return deck

    # One kill.

    def _round(self, victim: str, moment: str) -> None:
        assert self.gateway.process is not None
        server = self.gateway.process.pid
        launcher = self._launcher(server)
        self._leftovers.note_launcher(launcher)
        self.traffic.flow()
        moments = Moments(self.traffic, self._book, self._dice, launcher)
        came = moments.wait(moment)
        doomed = noted(family(launcher)) if victim != SANDBOX else {}
        struck = self._strike(victim, moment, server, launcher, moments.first)
        self.kills[victim, moment] += 1
        self.missed += not came
        began = time.monotonic()
        if moment == "starting-up":
            self._restart(victim)
        elif moment == "sweeping":
            self._interrupt_a_sweep()
            self._restart()
        elif victim in (SERVER, ALL):
            self._restart()
        elif victim == LAUNCHER:
            self._new_launcher(server, launcher, again=moment == "restarting")
        if not eventually(GONE_SECONDS, lambda: not alive(doomed)):
            self._fail(f"after {victim}/{moment}: outlived by {alive(doomed)}")
        waited = self._settle()
        self._say(
            f"{sum(self.kills.values())}: {victim}/{moment}{'' if came else ' (missed)'}"
            f"{'' if struck else ' (nobody there)'}, back and settled"
            f" {waited} jobs in {time.monotonic() - began:.1f} s"
        )

    def _launcher(self, server: int) -> int:
        eventually(GONE_SECONDS, lambda: launcher_of(server) is not None)
        launcher = launcher_of(server)
        if launcher is None:
            self._fail("the server has no launcher")
        return launcher

    def _strike(
        self, victim: str, moment: str, server: int, launcher: int, first: int | None
    ) -> bool:
        """Kill; says whether anybody was there. Counts how many jobs that may cost."""
        firsts = children(launcher)
        if moment == "starting-up":
            victim = SERVER
        if victim == SANDBOX:
            if first not in firsts:
                first = self._dice.choice(firsts) if firsts else None
            self._hurt_at_most += 1
            return first is not None and kill_child(launcher, first)
        self._hurt_at_most += WORKERS
        if victim == LAUNCHER:
            return kill_child(server, launcher)
        if moment == "stopping":
            assert self.gateway.process is not None
            self.gateway.process.send_signal(signal.SIGTERM)
            time.sleep(self._dice.uniform(0, 0.4))
        self.gateway.kill()
        if victim == ALL:
            kill_child(os.getpid(), launcher)
            for pid in firsts:
                kill_child(os.getpid(), pid)
        return True

    def _restart(self, second: str | None = None) -> None:
        """Start again, with a second victim on the way; then send again what was not answered."""
        self.traffic.pause()
        if second is None:
            self.gateway.start()
        else:
            self._start_and_strike(second)
        assert self.gateway.process is not None
        self._note_launcher_of(self.gateway.process.pid)
        self._baseline = None
        if self._languages() != self._offered:
            self._fail(f"of {self._offered} only {self._languages()} are offered now")
        if found := self.traffic.retry_after_crash():
            self._fail(*found)
        self.traffic.flow()

    def _interrupt_a_sweep(self) -> None:
        """Have the next server find old jobs, and kill it while it removes them."""
        self.traffic.pause()
        self._past.add(OLD_JOBS)
        before = self._past.left(self._book)
        ready = self.gateway.begin()
        assert self.gateway.process is not None
        self.missed += not seen(lambda: self._past.left(self._book) < before)
        time.sleep(self._dice.uniform(0, 0.02))
        self._note_launcher_of(self.gateway.process.pid)
        self.gateway.kill()
        os.close(ready)
        self._hurt_at_most += WORKERS

    def _start_and_strike(self, victim: str) -> None:
        ready = self.gateway.begin()
        assert self.gateway.process is not None
        server = self.gateway.process.pid
        if victim == SERVER:
            time.sleep(self._dice.uniform(0, 0.7))
            self._note_launcher_of(server)
            self.gateway.kill()
            os.close(ready)
            self._hurt_at_most += WORKERS
            self.gateway.start()
            return
        launcher = self._launcher(server)
        self._leftovers.note_launcher(launcher)
        time.sleep(self._dice.uniform(0, 0.3))
        firsts = children(launcher)
        if victim == LAUNCHER:
            kill_child(server, launcher)
        elif firsts:
            kill_child(launcher, firsts[0])
        self._hurt_at_most += WORKERS
        try:
            self.gateway.await_ready(ready)
        except AssertionError:  # it may refuse to start without a launcher; it does so in order
            self.gateway.start()

    def _new_launcher(self, server: int, old: int, *, again: bool) -> None:
        def renewed() -> bool:
            return launcher_of(server) not in (None, old)

        if not eventually(GONE_SECONDS, renewed):
            self._fail("no new launcher")
        if again:
            second = self._launcher(server)
            self._leftovers.note_launcher(second)
            kill_child(server, second)
            self._hurt_at_most += WORKERS
            self._new_launcher(server, second, again=False)
        self._note_launcher_of(server)

    def _note_launcher_of(self, server: int) -> None:
        if (launcher := launcher_of(server)) is not None:
            self._leftovers.note_launcher(launcher)

    def _settle(self) -> int:
        """Wait until what was open at the kill is over, while the stream goes on."""
        waiting = self._book.open_jobs()
        self._await(lambda: all(self._book.over(job) for job in waiting), "jobs never end")
        found = [text for job in waiting for text in problems_with_job(self._book.db, job)]
        self._await(lambda: not self._leftovers.strays(), "strays stay")
        if found:
            self._fail(*found)
        return len(waiting)

    # Nothing runs.

    def _idle(self) -> None:
        """Let everything end, and look at what is left: nothing, and every slot is free."""
        self.traffic.pause()
        self._await(self._all_over, "jobs never end")
        self._try_every_slot()
        self._await(lambda: not self._book.unsigned(), "jobs are never signed")
        assert self.gateway.process is not None
        server = self.gateway.process.pid
        self._note_launcher_of(server)
        if not eventually(GONE_SECONDS, lambda: not self._leftovers.when_idle()):
            self._fail(*self._leftovers.when_idle())
        self._check_server(server)
        self._judge()
        bury(self._own | {server})

    def _all_over(self) -> bool:
        self.traffic.cancel_due()
        return self._book.count_open() == 0

    def _try_every_slot(self) -> None:
        """As many jobs as there are workers run at the same time: no slot and no permit is lost."""
        sent = [self.traffic.note(LONG) for _ in range(WORKERS)]
        for each in sent:
            self.traffic.submit(each)
        self._await(lambda: self._book.count_running() == WORKERS, "not every worker works")
        for each in sent:
            self.traffic.cancel(each)
        self._await(self._all_over, "jobs never end")
        for tenant in TENANTS:
            self._await(lambda tenant=tenant: self._has_nothing(tenant), f"{tenant} has a slot")
        self.traffic.disconnect()

    def _has_nothing(self, tenant: str) -> bool:
        scheduler = self.traffic.client(tenant).status().scheduler
        return (scheduler["queue_depth"], scheduler["running"]) == (0, 0)

    def _check_server(self, server: int) -> None:
        """Its descriptors and threads are as they were when it was first idle."""
        if self._baseline is None or self._baseline[0] != server:
            self._baseline = (server, descriptors(server), threads(server))
            return
        _, before, count = self._baseline
        if not eventually(GONE_SECONDS, lambda: len(descriptors(server)) <= len(before)):
            gained = Counter(descriptors(server)) - Counter(before)
            self._fail(f"the server holds {dict(gained)} more")
        if threads(server) > count + 8:  # a pool grows and shrinks a little
            self._fail(f"the server had {count} threads, and has {threads(server)}")

    def _judge(self) -> None:
        found = self.traffic.problems()
        for sent in self.traffic.sent:
            if sent.job_id is None or sent.job_id in self._judged:
                continue
            self._judged.add(sent.job_id)
            hurt, wrong = verdict(self._book, sent, self._key)
            self.hurt += hurt
            found += wrong + problems_with_job(self._book.db, sent.job_id)
        if self.hurt > self._hurt_at_most:
            found.append(f"{self.hurt} jobs were hurt, at most {self._hurt_at_most} may be")
        if found:
            self._fail(*found)

    def _stop(self) -> None:
        assert self.gateway.process is not None
        self._await(lambda: self._past.gone(self._book), "old jobs are not removed")
        if (status := self.gateway.stop()) != 0:
            self._fail(f"the last stop returned {status}")
        accepted = self.traffic.job_ids()
        self.jobs = len(accepted)
        found = problems(self.gateway.database, accepted)
        found += [repr(each) for each in verify(self.gateway.database, binding=binds)]
        if extra := set(self._book.job_ids()) - set(accepted):
            found.append(f"jobs that nobody sent: {sorted(extra)}")
        bury(self._own)
        if not eventually(GONE_SECONDS, lambda: not self._leftovers.after_the_end()):
            found += self._leftovers.after_the_end()
        if found:
            self._fail(*found)

    def _await(self, condition: Callable[[], bool], otherwise: str) -> None:
        def over() -> bool:
            assert self.gateway.process is not None
            if (status := self.gateway.process.poll()) is not None:
                self._fail(f"the server ended by itself, with {status}")
            return condition()

        if not eventually(SETTLE_SECONDS, over):
            open_now = [(job, self._book.status(job)) for job in self._book.open_jobs()]
            self._fail(f"{otherwise}: open {open_now}, {self._leftovers.strays()}")

    def _fail(self, *found: str) -> None:
        raise AssertionError(f"seed {self.seed}, {dict(self.kills)}:\n" + "\n".join(found[:40]))

    def _tail_of_log(self) -> str:
        return "\n".join(self.gateway.log.read_text("utf-8").splitlines()[-15:])
