"""FR-19: evidence of a real job verifies however DSSE lets it be written, and no other way."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from rookhold_attestation import (
    AttestationError,
    Policy,
    PrivateKey,
    PublicKey,
    Verified,
    verify_envelope,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from reports.site import Site


@dataclass(frozen=True)
class Evidence:
    """What a tenant downloads of one job, and the key that it had pinned before."""

    envelope: bytes
    artifact: bytes
    key: PublicKey
    job_id: str

    def verify(self, envelope: bytes) -> Verified:
        policy = Policy(tenant="local")
        return verify_envelope(envelope, artifact=self.artifact, keys=[self.key], policy=policy)

    def edited(self, edit: Callable[[dict[str, Any]], object]) -> bytes:
        envelope = json.loads(self.envelope)
        edit(envelope)
        return json.dumps(envelope).encode()

    def refusal(self, edit: Callable[[dict[str, Any]], object]) -> AttestationError:
        with pytest.raises(AttestationError) as caught:
            self.verify(self.edited(edit))
        return caught.value


@pytest.fixture
def evidence(sandbox: Site) -> Evidence:
    """Evidence with padding, and with what the two alphabets of base64 write differently.

    Jobs are run until the length of one's evidence makes it so.
    """
    key = PrivateKey.load(sandbox.gateway.key_file).public_key
    for count in range(1, 40):
        job_id = sandbox.run("bash", f"printf '%0{count}d' 0 # ~~~~").result.job_id
        envelope = sandbox.client.attestation(job_id, 30).content
        decoded = json.loads(envelope)
        texts = decoded["payload"], decoded["signatures"][0]["sig"]
        if all(text.endswith("=") for text in texts) and {"+", "/"} & set(texts[1]):
            return Evidence(
                envelope, sandbox.client.result_artifact(job_id, 30).content, key, job_id
            )
    raise AssertionError("no such envelope")


def url_safe(text: str) -> str:
    return text.replace("+", "-").replace("/", "_")


def recode(envelope: dict[str, Any], change: Callable[[str], str]) -> None:
    envelope["payload"] = change(envelope["payload"])
    envelope["signatures"][0]["sig"] = change(envelope["signatures"][0]["sig"])


def flip(envelope: dict[str, Any]) -> None:
    payload = bytearray(base64.b64decode(envelope["payload"]))
    payload[len(payload) // 2] ^= 1
    envelope["payload"] = base64.b64encode(payload).decode()


def test_every_honest_form_verifies_and_each_other_is_refused_with_its_reason(
    evidence: Evidence,
) -> None:
    statement = base64.b64decode(json.loads(evidence.envelope)["payload"])
    honest: dict[str, Callable[[dict[str, Any]], object]] = {
        "as it is": lambda e: None,
        "a: url-safe": lambda e: recode(e, url_safe),
        "b: no key id": lambda e: e["signatures"][0].pop("keyid"),
        "c: a wrong key id": lambda e: e["signatures"][0].update(keyid="nonsense"),
        "d: an unknown field": lambda e: e.update(extra={"nested": [1, 2.5]}),
    }
    for edit in honest.values():
        verified = evidence.verify(evidence.edited(edit))
        assert verified.statement_bytes == statement, "the verified bytes are what was signed"
        assert (verified.execution_id, verified.outcome) == (evidence.job_id, "succeeded")

    refused: dict[str, Callable[[dict[str, Any]], object]] = {
        "a: url-safe without padding": lambda e: recode(e, lambda t: url_safe(t).rstrip("=")),
        "e: a flipped bit": flip,
        "f: another type": lambda e: e.update(payloadType="text/plain"),
        "g: no signatures": lambda e: e.update(signatures=[]),
        "h: whitespace": lambda e: recode(e, lambda t: f"{t[:8]} {t[8:]}"),
    }
    errors = {name: evidence.refusal(edit) for name, edit in refused.items()}
    assert {name: error.code for name, error in errors.items()} == {
        "a: url-safe without padding": "invalid_base64",
        "e: a flipped bit": "signature_threshold_not_met",
        "f: another type": "signature_threshold_not_met",
        "g: no signatures": "no_signatures",
        "h: whitespace": "invalid_base64",
    }
    unpadded = errors["a: url-safe without padding"].detail
    assert unpadded["reason"] == "padding is missing or wrong"
    assert errors["h: whitespace"].detail["reason"] != unpadded["reason"]


def test_under_another_key_nothing_of_it_verifies(evidence: Evidence) -> None:
    stranger = PrivateKey.generate().public_key
    with pytest.raises(AttestationError) as caught:
        verify_envelope(evidence.envelope, artifact=evidence.artifact, keys=[stranger])
    assert caught.value.code == "signature_threshold_not_met"
