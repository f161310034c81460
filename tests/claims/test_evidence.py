"""What is kept of a job is what it did, and whoever changes it afterwards is found out."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from invariants import chain_link
from isolating import ISOLATING

from rookhold_attestation import AttestationError, PrivateKey, PublicKey, verify_envelope
from rookhold_types.canonical import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from claims.conftest import Gateways
    from claims.jobs import Jobs

    from rookhold.results import Event

    Verify = Callable[["Evidence", bytes, bytes], None]

# Every byte value, an unfinished line, a character that is cut by a read, a long record.
PRINTED = bytes(range(256)) * 20 + "€\r\n".encode() * 40 + b"x" * 40_000
PRINT = """
import os
printed = bytes(range(256)) * 20 + "\\u20ac\\r\\n".encode() * 40 + b"x" * 40_000
at = 0
while at < len(printed):  # under gVisor a full pipe takes a part of what is written, and says so
    at += os.write(1, printed[at:at + 4099])
os.write(2, b"done")
"""


@dataclass(frozen=True)
class Evidence:
    """All that one job leaves behind, and the key to check it with."""

    job_id: str
    stdout: bytes
    events: list[Event]
    receipt: dict[str, Any]
    envelope: bytes
    artifact: bytes
    public_key: PublicKey


def gather(jobs: Jobs) -> Evidence:
    return collect(jobs, jobs.run(PRINT).result.job_id)


def collect(jobs: Jobs, job_id: str) -> Evidence:
    ran = jobs.finish(job_id)
    with jobs.gateway.client() as client:
        return Evidence(
            job_id=job_id,
            stdout=ran.result.stdout_bytes,
            events=list(client.events(job_id)),
            receipt=copy.deepcopy(dict(ran.receipt)),
            envelope=client.attestation(job_id, 30).content,
            artifact=client.result_artifact(job_id, 30).content,
            public_key=PrivateKey.load(jobs.gateway.key_file).public_key,
        )


@pytest.fixture(scope="module", params=[*ISOLATING, "off"])
def evidence(request: pytest.FixtureRequest, gateways: Gateways) -> Evidence:
    return gather(gateways.real(request.param))


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def check_bytes(evidence: Evidence) -> None:
    replayed = b"".join(e.output for e in evidence.events if e.kind == "stdout")
    assert (evidence.stdout, replayed) == (PRINTED, PRINTED), "not what the job printed"


def check_digests(evidence: Evidence) -> None:
    output = evidence.receipt["output"]
    said = [output["stdout_sha256"], output["stdout_seen_sha256"], output["stderr_sha256"]]
    expected = [digest(evidence.stdout), digest(evidence.stdout), digest(b"done")]
    assert said == expected, "not the digests of what was printed"


def check_chain(evidence: Evidence) -> None:
    previous = ""
    for at, event in enumerate(evidence.events, start=1):
        data = canonical(dict(event.data)).decode()
        link = chain_link(evidence.job_id, previous, event.seq, event.ts_ms, event.kind, data)
        whole = (event.seq, event.prev_hash, event.event_hash) == (at, previous, link)
        assert whole, "the chain is broken"
        previous = event.event_hash


def check_end(evidence: Evidence) -> None:
    bound = evidence.receipt["event_chain"]
    last = evidence.events[-1].event_hash
    said = (bound["events"], bound["head"])
    assert said == (len(evidence.events), last), "the receipt binds another history"


def check_receipt_digest(evidence: Evidence) -> None:
    receipt = dict(evidence.receipt)
    said = receipt.pop("receipt_sha256")
    assert digest(canonical(receipt)) == said, "the receipt was changed"


def check_offline(evidence: Evidence, directory: Path) -> None:
    """Verify in a process that has three files and an empty environment."""
    names = {"envelope": evidence.envelope, "subject": evidence.artifact}
    for name, content in names.items():
        (directory / name).write_bytes(content)
    (directory / "key").write_text(evidence.public_key.to_pem())
    (directory / "key").chmod(0o600)
    arguments = ["--envelope", "envelope", "--subject", "subject", "--public-key", "key"]
    done = subprocess.run(
        [sys.executable, "-m", "rookhold_attestation", "verify", *arguments, "--tenant", "local"],
        cwd=directory,
        env={},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, "it was not verified"
    assert json.loads(done.stdout)["execution_id"] == evidence.job_id


def verify(evidence: Evidence, envelope: bytes, artifact: bytes) -> None:
    verify_envelope(envelope, artifact=artifact, keys=[evidence.public_key])


def gullible_about_the_artifact(evidence: Evidence, envelope: bytes, _: bytes) -> None:
    verify(evidence, envelope, evidence.artifact)


def gullible_about_the_signature(_: Evidence, envelope: bytes, artifact: bytes) -> None:
    """Believe what a statement says without looking at who signed it."""
    statement = json.loads(base64.b64decode(json.loads(envelope)["payload"]))
    if statement["subject"][0]["digest"]["sha256"] != digest(artifact):
        raise ValueError("another artifact")


def accepted(check: Verify, evidence: Evidence, envelope: bytes, artifact: bytes) -> bool:
    try:
        check(evidence, envelope, artifact)
    except (AttestationError, ValueError, LookupError):
        return False
    return True


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def places(content: bytes) -> Iterator[int]:
    """Return 200 places in all of it, the first and the last among them."""
    yield from range(0, len(content), max(1, len(content) // 200))
    yield len(content) - 1


def check_artifact_changes(evidence: Evidence, check: Verify) -> None:
    believed = [
        at
        for at in places(evidence.artifact)
        if accepted(check, evidence, evidence.envelope, flipped(evidence.artifact, at))
    ]
    assert accepted(check, evidence, evidence.envelope, evidence.artifact)
    assert believed == [], "a changed artifact was believed"
    assert not accepted(check, evidence, evidence.envelope, evidence.artifact + b" ")


def check_envelope_changes(evidence: Evidence, check: Verify) -> None:
    envelope = json.loads(evidence.envelope)
    signature = envelope["signatures"][0]
    parts: list[tuple[dict[str, str], str]] = [(envelope, "payload"), (signature, "sig")]
    believed = []
    for holder, name in parts:
        whole = holder[name]
        content = base64.b64decode(whole)
        for at in places(content):
            holder[name] = base64.b64encode(flipped(content, at)).decode()
            changed = json.dumps(envelope).encode()
            if accepted(check, evidence, changed, evidence.artifact):
                believed.append((name, at))
        holder[name] = whole
    same = json.dumps(envelope).encode()
    assert accepted(check, evidence, same, evidence.artifact)
    assert believed == [], "a changed statement or signature was believed"


def test_output_byte_for_byte(evidence: Evidence) -> None:
    check_bytes(evidence)


def test_output_byte_for_byte_sabotaged(evidence: Evidence) -> None:
    with pytest.raises(AssertionError, match="not what the job printed"):
        check_bytes(replace(evidence, stdout=flipped(evidence.stdout, 500)))
    events = [replace(e, data={**e.data, "eol": False}) for e in evidence.events]
    with pytest.raises(AssertionError, match="not what the job printed"):
        check_bytes(replace(evidence, events=events))


def test_output_digests(evidence: Evidence) -> None:
    check_digests(evidence)


def test_output_digests_sabotaged(evidence: Evidence) -> None:
    for name in ("stdout_sha256", "stdout_seen_sha256", "stderr_sha256"):
        output = {**evidence.receipt["output"], name: digest(b"other")}
        with pytest.raises(AssertionError, match="not the digests of what was printed"):
            check_digests(replace(evidence, receipt={**evidence.receipt, "output": output}))


def test_event_chain(evidence: Evidence) -> None:
    check_chain(evidence)


def test_event_chain_sabotaged(evidence: Evidence) -> None:
    """Change one event, take one out, put two in another order: each in every place."""
    events = evidence.events
    histories = []
    for at, event in enumerate(events):
        for changed in (
            replace(event, ts_ms=event.ts_ms + 1),
            replace(event, kind=event.kind + "x"),
            replace(event, data={**event.data, "line": "other"}),
        ):
            histories.append([*events[:at], changed, *events[at + 1 :]])
    for at in range(len(events) - 1):
        histories.append(events[:at] + events[at + 1 :])
        histories.append([*events[:at], events[at + 1], events[at], *events[at + 2 :]])
    for history in histories:
        with pytest.raises(AssertionError, match="the chain is broken"):
            check_chain(replace(evidence, events=history))


def test_receipt_binds_history(evidence: Evidence) -> None:
    check_end(evidence)


def test_receipt_binds_history_sabotaged(evidence: Evidence) -> None:
    with pytest.raises(AssertionError, match="binds another history"):
        check_end(replace(evidence, events=evidence.events[:-1]))


def test_receipt_digest(evidence: Evidence) -> None:
    check_receipt_digest(evidence)


def test_receipt_digest_sabotaged(evidence: Evidence) -> None:
    for name in evidence.receipt.keys() - {"receipt_sha256"}:
        changed = {**evidence.receipt, name: "other"}
        with pytest.raises(AssertionError, match="the receipt was changed"):
            check_receipt_digest(replace(evidence, receipt=changed))


def test_offline_verification(evidence: Evidence, tmp_path: Path) -> None:
    check_offline(evidence, tmp_path)


def test_offline_verification_sabotaged(evidence: Evidence, tmp_path: Path) -> None:
    strange = replace(evidence, public_key=PrivateKey.generate().public_key)
    with pytest.raises(AssertionError, match="it was not verified"):
        check_offline(strange, tmp_path)


def test_changed_artifact_refused(evidence: Evidence) -> None:
    check_artifact_changes(evidence, verify)


def test_changed_artifact_refused_sabotaged(evidence: Evidence) -> None:
    with pytest.raises(AssertionError, match="a changed artifact was believed"):
        check_artifact_changes(evidence, gullible_about_the_artifact)


def test_changed_statement_refused(evidence: Evidence) -> None:
    check_envelope_changes(evidence, verify)


def test_changed_statement_refused_sabotaged(evidence: Evidence) -> None:
    with pytest.raises(AssertionError, match="a changed statement or signature was believed"):
        check_envelope_changes(evidence, gullible_about_the_signature)
