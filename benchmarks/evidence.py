"""What evidence costs: hashing, sealing, signing, verifying, beside an interpreter's own start."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING

from benchmarks.figures import median
from rookhold_attestation import Policy, build_result_artifact, sign_statement, verify_envelope
from rookhold_attestation.testing import JOB_ID, TENANT, sample_evidence
from rookhold_store import chain
from rookhold_types.receipts import seal_receipt

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.figures import Book
    from benchmarks.sizes import Sizes

MIB = bytes(1 << 20)


def measure(book: Book, sizes: Sizes, interpreter_ms: float) -> None:
    """`interpreter_ms` is the bare start of python in this run."""
    table = book.table(
        "Evidence",
        "microseconds of one thread, medians; the share is of one bare start of python",
        "step",
        "us",
        "of a start",
    )
    for name, work in _steps().items():
        times = []
        for _ in range(sizes.evidence_rounds):
            began = time.perf_counter()
            work()
            times.append((time.perf_counter() - began) * 1e6)
        middle = book.put(f"evidence.{name}", median(times))
        table.add(name, middle, f"{middle / interpreter_ms / 10:.2f} %")


def _steps() -> dict[str, Callable[[], object]]:
    sample = sample_evidence()
    receipt = {"job_id": JOB_ID, "limits": dict.fromkeys("abcdef", 1), "controls": ["x"] * 14}
    lines = [("stdout", {"line": f"line {n} of output", "eol": True}) for n in range(254)]
    one = [chain.draft("stdout", {"line": "hello", "eol": True})]
    return {
        "SHA-256 of 1 MiB": lambda: hashlib.sha256(MIB).digest(),
        "link one event": lambda: chain.link(JOB_ID, chain.GENESIS, one, 1_700_000_000_000),
        "draft and link 254 events": lambda: chain.link(
            JOB_ID, chain.GENESIS, [chain.draft(*line) for line in lines], 1_700_000_000_000
        ),
        "seal a receipt": lambda: seal_receipt(dict(receipt)),
        "build a result artifact": lambda: build_result_artifact(
            job_id=JOB_ID,
            tenant=TENANT,
            receipt_sha256="ab" * 32,
            status="succeeded",
            exit_code=0,
            created_at_ms=1_700_000_000_000,
            started_at_ms=1_700_000_000_010,
            finished_at_ms=1_700_000_000_060,
            stdout="hello\n",
            stderr="",
            truncated=False,
            violations=(),
        ),
        "sign a statement": lambda: sign_statement(sample.statement, [sample.key]),
        "verify an envelope": lambda: verify_envelope(
            sample.envelope,
            artifact=sample.artifact,
            keys=[sample.key.public_key],
            policy=Policy(tenant=TENANT),
        ),
    }
