"""A small, sound set of evidence to test with, and a way to sign what no honest signer would.

The keys are public test material: their seeds are one repeated byte.
"""

import json
from typing import NamedTuple

from . import profile
from .artifact import build_result_artifact
from .canonical import receipt_digest
from .envelope import write_envelope
from .keys import PrivateKey
from .pae import pae
from .sign import sign_statement
from .statement import build_statement
from .strictjson import Json

JOB_ID = "0191f8cf-57ef-7c14-a736-9b4b933eb84a"
TENANT = "tenant-a"


def sample_key(number: int = 1) -> PrivateKey:
    """Return the test key of this number (0 to 255); the same number gives the same key."""
    return PrivateKey(bytes([number]) * 32)


def sealed(receipt: dict[str, Json]) -> dict[str, Json]:
    """Return the receipt with its own digest in place."""
    return {**receipt, "receipt_sha256": receipt_digest(receipt)}


def sample_receipt(**changes: Json) -> dict[str, Json]:
    """Return a sealed minimal receipt with these members changed or added."""
    chain: Json = {"version": 1, "events": 3, "complete": True, "head": "ab" * 32}
    receipt: dict[str, Json] = {
        "version": 1,
        "job_id": JOB_ID,
        "outcome": "succeeded",
        "exit_code": 0,
        "event_chain": chain,
    }
    return sealed({**receipt, **changes})


class Evidence(NamedTuple):
    """What a verifier is handed, and the key that it pinned."""

    key: PrivateKey
    receipt_json: bytes
    artifact: bytes
    statement: bytes
    envelope: bytes

    def __repr__(self) -> str:
        return "Evidence()"


def sample_evidence(key: PrivateKey | None = None, **receipt_changes: Json) -> Evidence:
    """Build artifact, statement and envelope of one job the way a gateway does."""
    signer = sample_key() if key is None else key
    receipt = sample_receipt(**receipt_changes)
    artifact = build_result_artifact(
        job_id=JOB_ID,
        tenant=TENANT,
        receipt_sha256=str(receipt["receipt_sha256"]),
        status=str(receipt["outcome"]),
        exit_code=0,
        created_at_ms=1_700_000_000_000,
        started_at_ms=1_700_000_000_010,
        finished_at_ms=1_700_000_000_060,
        stdout="42\n",
        stderr="",
        truncated=False,
        violations=(),
    )
    receipt_json = json.dumps(receipt).encode()
    statement = build_statement(
        execution_id=JOB_ID,
        tenant=TENANT,
        subject_name=profile.result_subject_name(JOB_ID),
        media_type=profile.RESULT_MEDIA_TYPE,
        artifact=artifact,
        receipt_json=receipt_json,
    )
    return Evidence(signer, receipt_json, artifact, statement, sign_statement(statement, [signer]))


def sign_anything(
    payload: bytes, *keys: PrivateKey, payload_type: str = profile.PAYLOAD_TYPE
) -> bytes:
    """Sign any bytes under any type, unchecked: what a hostile or broken producer might send."""
    message = pae(payload_type, payload)
    return write_envelope(payload_type, payload, [(key.key_id, key.sign(message)) for key in keys])
