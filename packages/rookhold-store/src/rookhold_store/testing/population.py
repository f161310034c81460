"""A store with a past, for tests and benchmarks: any number of jobs, made by the real operations.

Everything but the hash chains' ids follows from a seed. What is unfinished, unsigned or given up
is the same few jobs however many are retained, as in a server whose queue is short.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import deque
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from rookhold_store.operations import (
    Accept,
    Append,
    CancelQueued,
    DeferAttestation,
    FailAttestation,
    Finalise,
    Operation,
    PersistAttestation,
    RecoverRunning,
    Start,
)
from rookhold_store.schema import expected_objects
from rookhold_store.store import Store
from rookhold_store.testing import anything_binds
from rookhold_types.ids import IdSource
from rookhold_types.jobs import JobSpec, fingerprint
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    import apsw

    from rookhold_store.operations import Participation

START_MS: Final = 1_700_000_000_000
STEP_MS: Final = 400  # between two acceptances
FEW: Final = 64  # jobs that each small tenant has at most
UNFINISHED: Final = 24  # the last jobs: still queued or running
UNSIGNED: Final = 64  # those before them: still waiting for a signature, or given up
_AHEAD: Final = 512  # jobs under way at once, so that commits are shared
_LONG_EVERY: Final = 500  # one job in so many has a long history
_LONG_BATCHES: Final = 4

LARGE_TENANTS: Final = ("acme", "globex", "initech", "umbrella")
LANGUAGES: Final = ("python", "python", "python", "bash", "bash", "node")
_ENDINGS: Final = (
    *((JobStatus.SUCCEEDED, 0),) * 16,
    (JobStatus.FAILED, 1),
    (JobStatus.FAILED, 2),
    (JobStatus.TIMED_OUT, None),
    (JobStatus.OOM_KILLED, 137),
)

# About as large as those that a server's worker makes.
EFFECTIVE_SPEC: Final[dict[str, Any]] = {
    "storage_version": 2,
    "limits": dict.fromkeys(
        ("allow_network", "cpu_seconds", "max_file_mb", "max_pids", "mem_mb", "wall_seconds"), 15
    ),
    "requirements": {"minimum_isolation": "none"},
    "files": [],
    "outputs": [],
    "runtime": None,
    "isolation_class": "linux-shared-kernel",
}
RECEIPT: Final[dict[str, Any]] = {
    "killed_by": None,
    "evidence_complete": True,
    "code_sha256": "a" * 64,
    "stdin_sha256": "b" * 64,
    "policy_sha256": "c" * 64,
    "controls": ["user-namespace", "pid-namespace", "network-namespace", "seccomp", "rlimits"],
    "resource_usage": {"wall_time_ms": 80, "samples": [[n, n, n] for n in range(16)]},
}

Batch: TypeAlias = tuple[tuple[str, dict[str, Any]], ...]


class Spec(Struct, frozen=True):
    """What many jobs were asked to do, with what an acceptance says of it."""

    language: str
    stored: dict[str, Any]
    fingerprint: str


class Life(Struct, frozen=True, kw_only=True):
    """What will happen to one job."""

    job_id: str
    tenant: str
    spec: Spec
    accepted_ms: int
    key: str | None
    batches: tuple[Batch, ...]
    ending: JobStatus | None  # None: it still waits or runs
    exit_code: int | None
    cancelled_before_start: bool = False
    recovered: bool = False
    starts: bool = True
    signing: str = "signed"  # or pending, deferred, failed


def key_of(number: int) -> str:
    """Return the idempotency key of the job with this number, if it has one."""
    return f"request-{number:08d}"


class Population:
    """The lives of `jobs` jobs, one after another, from a seed."""

    def __init__(self, jobs: int, *, seed: int = 1, start_ms: int = START_MS) -> None:
        self.jobs = jobs
        self.end_ms = start_ms + jobs * STEP_MS
        self._random = Random(seed)  # noqa: S311  # not for secrets
        self._now_ms = start_ms
        self._ids = IdSource(lambda: self._now_ms, self._random.randbytes)
        self._start_ms = start_ms
        self._specs = {name: _specs(name, self._random) for name in sorted(set(LANGUAGES))}
        sizes = (1, 1, 2, 3, 8)
        self._batches = [_batch(self._random, sizes[n % len(sizes)]) for n in range(500)]
        self._long = tuple(_batch(self._random, 256) for _ in range(_LONG_BATCHES))

    def life(self, number: int) -> Life:
        """Return the next life; numbers are to be asked for in order."""
        random = self._random
        self._now_ms = self._start_ms + number * STEP_MS
        from_end = self.jobs - number
        language = random.choice(LANGUAGES)
        ended: tuple[JobStatus | None, int | None] = random.choice(_ENDINGS)
        kind = random.random()
        starts, signing = True, "signed"
        if from_end <= UNFINISHED:
            ended, starts = (None, None), from_end % 3 == 0
        elif from_end <= UNFINISHED + UNSIGNED:
            signing = ("pending", "deferred", "failed", "pending")[from_end % 4]
        return Life(
            job_id=self._ids.new(),
            tenant=_tenant(number, random),
            spec=random.choice(self._specs[language]),
            accepted_ms=self._now_ms,
            key=key_of(number) if random.random() < 0.3 else None,
            batches=self._output(number) if starts else (),
            ending=ended[0],
            exit_code=ended[1],
            cancelled_before_start=from_end > UNFINISHED and kind < 0.03,
            recovered=from_end > UNFINISHED and 0.03 <= kind < 0.04,
            starts=starts,
            signing=signing,
        )

    def _output(self, number: int) -> tuple[Batch, ...]:
        if number % _LONG_EVERY == _LONG_EVERY // 2:
            return self._long
        return (self._random.choice(self._batches),)


def _tenant(number: int, random: Random) -> str:
    """Most jobs are those of a few tenants; of small ones there are as many as it takes."""
    if number % 8 == 7:
        return f"small-{number // 8 // FEW:05d}"
    return LARGE_TENANTS[min(int(random.expovariate(1.0)), len(LARGE_TENANTS) - 1)]


def _specs(language: str, random: Random) -> list[Spec]:
    sizes = (60, 120, 240, 480, 960)
    specs = [
        JobSpec(language=language, code="# " + _text(random, size), stdin=_text(random, 40))
        for size in sizes
    ]
    return [Spec(language, spec.stored(), fingerprint(spec)) for spec in specs]


def _text(random: Random, size: int) -> str:
    return random.randbytes(size // 2 + 1).hex()[:size]


def _batch(random: Random, records: int) -> Batch:
    return tuple(
        (
            "stderr" if random.random() < 0.1 else "stdout",
            {"line": _text(random, random.randrange(8, 100)), "eol": True},
        )
        for _ in range(records)
    )


def kept(directory: Path, jobs: int, *, seed: int = 1) -> Path:
    """Return a store of so many jobs, made at the first call and kept for those after it.

    Its name follows from what it depends on; it is to be copied, never opened where it is.
    """
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for name, made in sorted(expected_objects().items()):
        digest.update(f"{name}\0{made.sql}\0".encode())
    path = directory / f"population-{jobs}-{seed}-{digest.hexdigest()[:16]}.db"
    if not path.exists():
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="population-", dir=directory) as work:
            made_at = Path(work) / "store.db"
            with Store.open(made_at, binding=anything_binds) as store:
                populate(store, jobs, seed=seed)
            made_at.replace(path)
    return path


class _Receipt:
    """Learns the receipt where it is made, so that nobody has to read it back."""

    text = ""

    def apply(self, db: apsw.Connection, context: Participation) -> None:
        del db
        self.text = context.receipt_json or ""


def populate(
    store: Store,
    jobs: int,
    *,
    seed: int = 1,
    progress: Callable[[int], object] | None = None,
) -> Population:
    """Fill an empty store; its binding check must take any attestation.

    `progress` is told, now and then, how many jobs are done.
    """
    population = Population(jobs, seed=seed)
    ahead: deque[_Submitted] = deque()
    for number in range(jobs):
        ahead.append(_Submitted(store, population.life(number)))
        if len(ahead) > _AHEAD:
            ahead[-_AHEAD // 2].sign()
            ahead.popleft().settle()
        if progress is not None and number % 1000 == 0:
            progress(number)
    for submitted in ahead:
        submitted.sign()
        submitted.settle()
    return population


def _acceptance(life: Life) -> Accept:
    return Accept(
        job_id=life.job_id,
        tenant=life.tenant,
        language=life.spec.language,
        spec=life.spec.stored,
        admitted_mem_mb=256,
        now_ms=life.accepted_ms,
        fingerprint=life.spec.fingerprint,
        idempotency_key=life.key,
    )


def _end(life: Life, receipt: _Receipt) -> Finalise:
    ending = life.ending or JobStatus.ERROR
    return Finalise(
        job_id=life.job_id,
        status=ending,
        exit_code=life.exit_code,
        now_ms=life.accepted_ms + 100,
        duration_ms=80,
        receipt=RECEIPT,
        effective_spec=EFFECTIVE_SPEC,
        participants=(receipt,),
    )


def _attestation(life: Life, receipt_json: str) -> PersistAttestation:
    return PersistAttestation(
        job_id=life.job_id,
        tenant=life.tenant,
        receipt_json=receipt_json,
        result_media_type="application/json",
        result_artifact=b"artifact of " + life.job_id.encode() + b" " * 400,
        envelope=b"envelope of " + life.job_id.encode() + b" " * 900,
        key_id="key-1",
        now_ms=life.accepted_ms + 200,
    )


class _Submitted:
    """One life on its way: everything up to its end is queued at once, in order."""

    def __init__(self, store: Store, life: Life) -> None:
        self._store = store
        self._life = life
        self._receipt = _Receipt()
        self._futures: list[Future[Any]] = []
        self._signed = False
        self._submit(_acceptance(life))
        if life.cancelled_before_start:
            self._submit(
                CancelQueued(
                    tenant=life.tenant,
                    job_id=life.job_id,
                    now_ms=life.accepted_ms + 5,
                    participants=(self._receipt,),
                )
            )
        elif life.starts:
            self._run()

    def _run(self) -> None:
        life, now = self._life, self._life.accepted_ms
        self._submit(Start(job_id=life.job_id, now_ms=now + 10))
        for at, batch in enumerate(life.batches):
            self._submit(Append(job_id=life.job_id, events=batch, now_ms=now + 20 + at))
        if life.recovered:
            recovery = RecoverRunning(
                job_id=life.job_id, now_ms=now + 100, participants=(self._receipt,)
            )
            self._submit(recovery)
        elif life.ending is not None:
            self._submit(_end(life, self._receipt))

    def _submit(self, operation: Operation[Any]) -> None:
        self._futures.append(self._store.submit(operation))

    def sign(self) -> None:
        """Wait for the end and begin the last step, once."""
        if self._signed:
            return
        self._signed = True
        self.settle()
        life, now = self._life, self._life.accepted_ms + 200
        if life.ending is None:
            return
        if life.signing == "signed":
            self._submit(_attestation(life, self._receipt.text))
        elif life.signing == "deferred":
            self._submit(DeferAttestation(job_id=life.job_id, now_ms=now, delay_ms=60_000))
        elif life.signing == "failed":
            self._submit(
                FailAttestation(
                    job_id=life.job_id, code="artifact_too_large", now_ms=now, profile="1"
                )
            )

    def settle(self) -> None:
        """Wait for what was submitted; raises what failed."""
        for future in self._futures:
            future.result()
        self._futures.clear()
