"""Whole lives of jobs over the store, so many of them at once; and the statements they come to."""

from __future__ import annotations

import queue
import time
from typing import TYPE_CHECKING, Any

import apsw

from rookhold_store import (
    Accept,
    Append,
    Finalise,
    Participation,
    PersistAttestation,
    Start,
    Store,
)
from rookhold_store.testing import anything_binds
from rookhold_store.testing.population import EFFECTIVE_SPEC, RECEIPT
from rookhold_types.ids import new_job_id
from rookhold_types.jobs import JobSpec, fingerprint
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from rookhold_store import Operation

BATCHES = 4  # of output, each of so many records
RECORDS = 8
OPERATIONS = 4 + BATCHES
_SPEC = JobSpec(language="python", code="print('hello')\n" * 20)
_STORED, _FINGERPRINT = _SPEC.stored(), fingerprint(_SPEC)


class _Receipt:
    """Learns the receipt in the transaction that makes it."""

    text = ""

    def apply(self, db: apsw.Connection, context: Participation) -> None:
        del db
        self.text = context.receipt_json or ""


def life(store: Store) -> Iterator[Operation[Any]]:
    """Yield the operations of one job, each when the one before it is on the disk."""
    job_id = new_job_id()
    yield Accept(
        job_id=job_id,
        tenant="acme",
        language=_SPEC.language,
        spec=_STORED,
        admitted_mem_mb=256,
        now_ms=store.clock(),
        fingerprint=_FINGERPRINT,
        idempotency_key=job_id,
    )
    yield Start(job_id=job_id, now_ms=store.clock())
    for batch in range(BATCHES):
        events = [
            ("stdout", {"line": f"batch {batch}, line {n} of what a job prints", "eol": True})
            for n in range(RECORDS)
        ]
        yield Append(job_id=job_id, events=events, now_ms=store.clock())
    receipt = _Receipt()
    yield Finalise(
        job_id=job_id,
        status=JobStatus.SUCCEEDED,
        exit_code=0,
        now_ms=store.clock(),
        duration_ms=80,
        receipt=RECEIPT,
        effective_spec=EFFECTIVE_SPEC,
        participants=(receipt,),
    )
    yield PersistAttestation(
        job_id=job_id,
        tenant="acme",
        receipt_json=receipt.text,
        result_media_type="application/json",
        result_artifact=b"artifact of " + job_id.encode() + b" " * 700,
        envelope=b"envelope of " + job_id.encode() + b" " * 1400,
        key_id="key-1",
        now_ms=store.clock(),
    )


def run(store: Store, lives: int, at_once: int) -> float:
    """Live through so many jobs, `at_once` of them under way at any time; return lives a second.

    One thread submits whatever is ready for its next step, as a server's loop does.
    """
    ended: queue.SimpleQueue[tuple[Iterator[Operation[Any]], Future[Any]]] = queue.SimpleQueue()

    def step(one: Iterator[Operation[Any]]) -> bool:
        operation = next(one, None)
        if operation is None:
            return False
        store.submit(operation).add_done_callback(lambda future: ended.put((one, future)))
        return True

    waiting = (life(store) for _ in range(lives))
    began = time.perf_counter()
    under_way = sum(step(one) for _, one in zip(range(at_once), waiting, strict=False))
    while under_way:
        one, future = ended.get()
        future.result()
        if not step(one):
            following = next(waiting, None)
            under_way += (following is not None and step(following)) - 1
    return lives / (time.perf_counter() - began)


class Script:
    """What one run wrote, statement by statement and transaction by transaction."""

    def __init__(self) -> None:
        self.transactions: list[list[tuple[str, list[tuple[Any, ...]]]]] = []

    def note(self, sql: str, bindings: tuple[Any, ...]) -> None:
        verb = sql.split(None, 1)[0].upper()
        if verb == "BEGIN":
            self.transactions.append([])
        elif verb in {"INSERT", "UPDATE", "DELETE"}:
            statements = self.transactions[-1]
            if statements and statements[-1][0] == sql:
                statements[-1][1].append(bindings)
            else:
                statements.append((sql, [bindings]))


class Bare:
    """The same SQLite with the same schema and settings, and nothing of the store in between."""

    def __init__(self, path: Path) -> None:
        Store.open(path).close()
        self._db = apsw.Connection(str(path), statementcachesize=200)
        for setting in (
            "synchronous = FULL",
            "foreign_keys = ON",
            "secure_delete = FAST",
            "recursive_triggers = ON",
            "temp_store = MEMORY",
        ):
            self._db.execute(f"PRAGMA {setting}")
        self._db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)

    def play(self, script: Script) -> float:
        """Write it; return the seconds."""
        db = self._db
        began = time.perf_counter()
        for statements in script.transactions:
            db.execute("BEGIN IMMEDIATE")
            for sql, rows in statements:
                if len(rows) == 1:
                    db.execute(sql, rows[0])
                else:
                    db.executemany(sql, rows)
            db.execute("COMMIT")
        return time.perf_counter() - began

    def close(self) -> None:
        self._db.close()


def recorded(path: Path, lives: int, at_once: int, into: Script) -> Generator[None]:
    """Yield after each run of so many lives on a store of its own whose writes are noted."""
    listened: list[apsw.Connection] = []

    def listen(db: apsw.Connection) -> None:
        listened.append(db)

    apsw.connection_hooks.append(listen)
    try:
        store = Store.open(path, binding=anything_binds)
    finally:
        apsw.connection_hooks.remove(listen)
    with store:

        def trace(_: apsw.Cursor, sql: str, bindings: Any) -> bool:
            into.note(sql, tuple(bindings or ()))
            return True

        listened[0].exec_trace = trace
        while True:
            into.transactions.clear()
            run(store, lives, at_once)
            yield
