"""Random operations on a few jobs: the same dice and the same past give the same operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

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
    RetryAttestations,
    Start,
    Sweep,
    Swept,
    WaiveAttestation,
)
from rookhold_types.jobs import JobSpec, fingerprint
from rookhold_types.receipts import seal_receipt
from rookhold_types.states import TERMINAL, JobStatus

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from rookhold_store.store import Store
    from rookhold_store.testing.model import Model

TENANTS: Final = ("acme", "globex")
KEYS: Final = (None, None, "k1", "k2", "k3")
SPECS: Final = (JobSpec(language="python", code="1"), JobSpec(language="bash", code="é\n" * 40))
TEXTS: Final = ("", "a line", "é\u0000\U0001f600", "x" * 300)
NOBODY: Final = "nobody"
_WEIGHTS: Final[dict[type[Operation[Any]], int]] = {
    Accept: 5,
    Start: 4,
    Append: 5,
    Finalise: 4,
    CancelQueued: 2,
    RecoverRunning: 2,
    PersistAttestation: 3,
    DeferAttestation: 1,
    WaiveAttestation: 1,
    FailAttestation: 1,
    RetryAttestations: 1,
    Sweep: 1,
}


def signed(op: Operation[Any], store: Store) -> Operation[Any]:
    """Give an attestation the receipt that the store has; another one if it has none."""
    if not isinstance(op, PersistAttestation):
        return op
    row = store.read.get(None, op.job_id)
    stored = None if row is None else row.receipt_json
    return structs.replace(op, receipt_json=stored or seal_receipt({"job_id": op.job_id}).text)


class Traffic:
    """Makes operations up; `number` makes new ids differ from those of another traffic."""

    def __init__(self, dice: random.Random, *, number: int = 0, now_ms: int = 10**12) -> None:
        self._dice = dice
        self._number = number
        self._made = 0
        self.now_ms = now_ms

    def kind(self) -> type[Operation[Any]]:
        return self._dice.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]

    def operation(
        self, jobs: Sequence[str], kind: type[Operation[Any]] | None = None
    ) -> Operation[Any]:
        """Return an operation on one of these jobs, or on nobody's, or one that makes a job.

        An attestation comes without the receipt that it signs: that is the store's to say.
        """
        dice = self._dice
        kind = kind or self.kind()
        self.now_ms += dice.randrange(20)
        now_ms = self.now_ms
        job_id = dice.choice([*jobs, NOBODY]) if jobs else NOBODY
        if kind is Accept:
            return self._acceptance()
        if kind is Append:
            texts = [dice.choice(TEXTS) for _ in range(dice.randrange(4))]
            events = [("stdout", {"line": text, "eol": True}) for text in texts]
            return Append(job_id=job_id, events=events, now_ms=now_ms)
        if kind is Finalise:
            return self._ending(job_id)
        if kind is CancelQueued:
            return CancelQueued(tenant=dice.choice(TENANTS), job_id=job_id, now_ms=now_ms)
        if kind is PersistAttestation:
            return PersistAttestation(
                job_id=job_id,
                tenant=dice.choice(TENANTS),
                receipt_json=b"",
                result_media_type="application/json",
                result_artifact=b"artifact of " + job_id.encode(),
                envelope=dice.choice((b"envelope of ", b"other envelope of ")) + job_id.encode(),
                key_id="key-1",
                now_ms=now_ms,
            )
        if kind is DeferAttestation:
            return DeferAttestation(job_id=job_id, now_ms=now_ms, delay_ms=dice.choice((100, 9000)))
        if kind is WaiveAttestation:
            return WaiveAttestation(job_id=job_id)
        if kind is FailAttestation:
            code = dice.choice(("too_large", "null_head"))
            return FailAttestation(job_id=job_id, code=code, now_ms=now_ms, profile="1")
        if kind is RetryAttestations:
            ids = dice.choice((None, (job_id,)))
            return RetryAttestations(job_ids=ids, now_ms=now_ms)
        if kind is Sweep:
            age_ms, most = dice.choice((0, 50, 400)), dice.choice((1, 64))
            return Sweep(now_ms=now_ms, age_ms=age_ms, max_jobs=most)
        plain: Any = kind  # Start, RecoverRunning
        made: Operation[Any] = plain(job_id=job_id, now_ms=now_ms)
        return made

    def _acceptance(self) -> Accept:
        self._made += 1
        spec = self._dice.choice(SPECS)
        return Accept(
            job_id=f"job-{self._number}-{self._made}",
            tenant=self._dice.choice(TENANTS),
            language=spec.language,
            spec=spec.stored(),
            admitted_mem_mb=256,
            now_ms=self.now_ms,
            fingerprint=fingerprint(spec),
            idempotency_key=self._dice.choice(KEYS),
        )

    def _ending(self, job_id: str) -> Finalise:
        dice = self._dice
        texts = [dice.choice(TEXTS) for _ in range(dice.randrange(3))]
        return Finalise(
            job_id=job_id,
            status=JobStatus(dice.choice(sorted(TERMINAL))),
            exit_code=dice.choice((None, 0, -(2**31))),
            now_ms=self.now_ms,
            duration_ms=dice.randrange(1000),
            receipt=dice.choice(({"note": "é"}, {"outcome": "a lie", "events": 0}, "no object")),
            events=[("stderr", {"line": text, "eol": False}) for text in texts],
            effective_spec=dice.choice((None, {"storage_version": 2})),
        )


class Life:
    """The operations between an open and a crash, in the groups in which they are submitted."""

    def __init__(self, model: Model, dice: random.Random, number: int) -> None:
        self._model = model
        self._dice = dice
        self._traffic = Traffic(dice, number=number, now_ms=10**12 + number * 10**6)

    def group(self) -> list[Operation[Any]]:
        """Return what is submitted together, which depends on what the model holds now.

        A sweep comes alone: it has a commit of its own, after what else waits. So does what needs
        to know a receipt.
        """
        jobs = sorted(self._model.jobs)
        kinds = [self._traffic.kind() for _ in range(self._dice.randrange(1, 8))]
        if kinds[0] in (Sweep, PersistAttestation):
            return [self._traffic.operation(jobs, kinds[0])]
        together = [kind for kind in kinds if kind not in (Sweep, PersistAttestation)]
        return [self._traffic.operation(jobs, kind) for kind in together]

    def replay(self, count: int, swept: Sequence[tuple[int, int]]) -> list[Operation[Any]]:
        """Do the first `count` operations; return those of the last group that were not done.

        `swept` are the jobs and the events that each sweep among them deleted.
        """
        sweeps = iter(swept)
        while True:
            group = self.group()
            for done, op in enumerate(group):
                if count == 0:
                    return group[done:]
                jobs, events = next(sweeps) if isinstance(op, Sweep) else (0, 0)
                answer = Swept(jobs_deleted=jobs, events_deleted=events, more_remaining=False)
                self._model.apply(op, answer)
                count -= 1
