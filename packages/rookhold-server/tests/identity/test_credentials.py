"""What a credentials file may hold, and what of it counts when."""

import contextlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookhold_server.identity import credentials
from rookhold_server.identity.credentials import (
    Credential,
    CredentialSet,
    CredentialsFileError,
    encode_credentials,
    parse_credentials,
    parse_pepper,
)
from rookhold_server.identity.structured import Pepper

PEPPER = Pepper(bytes(range(32)))
TOKEN = "rookhold_ci-1_" + "s" * 43
DIGEST = PEPPER.verifier(TOKEN).hex()


def entry(**changes: Any) -> dict[str, Any]:
    """Return a good one; a change to `...` takes the member away."""
    whole = {
        "key_id": "ci-1",
        "tenant_id": "acme",
        "principal_id": "ci-bot",
        "digest_hmac_sha256": DIGEST,
        "scopes": ["jobs:submit"],
        "created_at_ms": 1000,
        "expires_at_ms": None,
        "revoked_at_ms": None,
        **changes,
    }
    return {name: value for name, value in whole.items() if value is not ...}


def document(*entries: dict[str, Any], **changes: Any) -> bytes:
    return json.dumps({"version": 1, "credentials": list(entries), **changes}).encode()


def test_the_sample_of_the_contract_is_taken() -> None:
    [found] = parse_credentials(document(entry()))
    assert (found.key_id, found.tenant_id, found.principal_id) == ("ci-1", "acme", "ci-bot")
    assert found.ends_at_ms is None


@pytest.mark.parametrize(
    "changes",
    [
        {"expires_at_ms": ..., "revoked_at_ms": ...},
        {"scopes": []},
        {"digest_hmac_sha256": DIGEST.upper()},
        {"created_at_ms": 0, "expires_at_ms": 1},
        {"revoked_at_ms": 1000},
        {"tenant_id": "!" * 128},
        {"key_id": "0" * 64},
    ],
)
def test_the_rules_allow(changes: dict[str, Any]) -> None:
    assert parse_credentials(document(entry(**changes)))


REFUSED: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"{",
    "an array": b"[]",
    "a byte-order mark": b"\xef\xbb\xbf" + document(entry()),
    "not UTF-8": document(entry()).replace(b"acme", b"acm\xe9"),
    "something after": document(entry()) + b"{}",
    "another version": document(entry(), version=2),
    "version as text": document(entry(), version="1"),
    "no version": json.dumps({"credentials": [entry()]}).encode(),
    "no credential": document(),
    "no list": document(credentials={}),
    "an extra member": document(entry(), comment="x"),
    "a repeated member": document(entry()).replace(
        b'{"version": 1', b'{"version": 1, "version": 1'
    ),
    "a repeated member of an entry": document(entry()).replace(
        b'"key_id": "ci-1"', b'"key_id": "ci-1", "key_id": "ci-1"'
    ),
    "too many": document(*(entry(key_id=str(number)) for number in range(10_001))),
    "larger than 1 MiB": document(entry()) + b" " * 1024 * 1024,
    "a repeated id": document(entry(), entry(tenant_id="other")),
    **{
        f"an entry with {name}": document(entry(**changes))
        for name, changes in {
            "an extra member": {"comment": "x"},
            "no key_id": {"key_id": ...},
            "no tenant": {"tenant_id": ...},
            "no principal": {"principal_id": ...},
            "no digest": {"digest_hmac_sha256": ...},
            "no scopes": {"scopes": ...},
            "no creation": {"created_at_ms": ...},
            "an empty key_id": {"key_id": ""},
            "an underscore in key_id": {"key_id": "ci_1"},
            "a long key_id": {"key_id": "x" * 65},
            "a key_id of other digits": {"key_id": "\u0661"},
            "an empty tenant": {"tenant_id": ""},
            "a space in the tenant": {"tenant_id": "a b"},
            "a long tenant": {"tenant_id": "x" * 129},
            "a quote in the principal": {"principal_id": 'a"b'},
            "a backslash in the principal": {"principal_id": "a\\b"},
            "a short digest": {"digest_hmac_sha256": DIGEST[1:]},
            "a long digest": {"digest_hmac_sha256": DIGEST + "0"},
            "a digest and a line end": {"digest_hmac_sha256": DIGEST + "\n"},
            "a digest of other letters": {"digest_hmac_sha256": "g" * 64},
            "an unknown scope": {"scopes": ["jobs:submit", "jobs:*"]},
            "scopes as text": {"scopes": "jobs:submit"},
            "a creation before 1970": {"created_at_ms": -1},
            "a creation as text": {"created_at_ms": "1"},
            "a creation that is no integer": {"created_at_ms": 1.5},
            "an expiry at its creation": {"expires_at_ms": 1000},
            "a revocation before its creation": {"revoked_at_ms": 999},
            "a time beyond exact numbers": {"expires_at_ms": 2**53},
        }.items()
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_is_refused_as_a_whole_for(name: str) -> None:
    with pytest.raises(CredentialsFileError) as caught:
        parse_credentials(REFUSED[name])
    assert DIGEST not in str(caught.value)
    assert "acme" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_entry_is_named_by_its_place() -> None:
    with pytest.raises(CredentialsFileError, match="entry 2: expires_at_ms"):
        parse_credentials(document(entry(), entry(key_id="b", expires_at_ms=1)))


@settings(max_examples=60, deadline=None)
@given(
    st.binary(max_size=300)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from([*entry(), "version", "credentials"]) | st.text(max_size=8), inner
            )
        ),
        max_leaves=12,
    )
)
def test_no_content_breaks_the_parser(content: Any) -> None:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    for whole in (data, document(entry()).replace(b'"ci-bot"', data)):
        with contextlib.suppress(CredentialsFileError):
            assert parse_credentials(whole)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([*entry()]),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text()),
)
def test_an_entry_that_is_taken_keeps_every_rule(member: str, value: Any) -> None:
    try:
        [found] = parse_credentials(document(entry(**{member: value})))
    except CredentialsFileError:
        return
    assert 1 <= len(found.key_id) <= 64
    assert found.key_id.isascii()
    assert len(bytes.fromhex(found.digest_hmac_sha256)) == 32
    assert found.created_at_ms >= 0
    assert found.expires_at_ms is None or found.expires_at_ms > found.created_at_ms
    assert found.revoked_at_ms is None or found.revoked_at_ms >= found.created_at_ms


def test_what_is_written_is_read_again() -> None:
    entries = parse_credentials(document(entry(), entry(key_id="b", expires_at_ms=2000, scopes=[])))
    data = encode_credentials(entries)
    assert parse_credentials(data) == entries
    assert data.count(b"\n") == 4  # one entry on a line


@pytest.mark.parametrize(
    ("expires", "revoked", "end"),
    [
        (None, None, None),
        (2000, None, 2000),
        (None, 3000, 3000),
        (2000, 3000, 2000),
        (4000, 3000, 3000),
    ],
)
def test_authority_ends_at_the_earlier_of_expiry_and_revocation(
    expires: int | None, revoked: int | None, end: int | None
) -> None:
    held = parse_credentials(document(entry(expires_at_ms=expires, revoked_at_ms=revoked)))
    known = CredentialSet(held, PEPPER)
    found = known.find(TOKEN, 1999 if end is None else end - 1)
    assert found is not None
    assert found.expires_at_ms == end
    assert (known.find(TOKEN, 2**60 if end is None else end) is None) is (end is not None)


def test_a_token_is_who_its_entry_says() -> None:
    held = parse_credentials(document(entry(scopes=["jobs:read", "jobs:submit"])))
    found = CredentialSet(held, PEPPER).find(TOKEN, 5000)
    assert found is not None
    assert (found.tenant, found.principal_id, found.credential_id) == ("acme", "ci-bot", "ci-1")
    assert (found.auth_method, found.scopes) == ("api_key", {"jobs:submit", "jobs:read"})


def test_another_pepper_secret_or_id_is_nobody() -> None:
    held = parse_credentials(document(entry()))
    known = CredentialSet(held, PEPPER)
    assert CredentialSet(held, Pepper(bytes(32))).find(TOKEN, 5000) is None
    assert known.find(TOKEN + "s", 5000) is None
    assert known.find(TOKEN.replace("ci-1", "ci-2"), 5000) is None
    assert known.find(DIGEST, 5000) is None


def test_every_failure_takes_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    really = hmac.compare_digest

    def counting(known: bytes, given: bytes) -> bool:
        steps.append(len(known) * 1000 + len(given))
        return really(known, given)

    held = parse_credentials(
        document(entry(), entry(key_id="dead", expires_at_ms=2000), entry(key_id="b"))
    )
    known = CredentialSet(held, PEPPER)
    monkeypatch.setattr(credentials.hmac, "compare_digest", counting)
    for token in (TOKEN, TOKEN + "x", *(TOKEN.replace("ci-1", name) for name in ("no", "dead"))):
        steps.clear()
        known.find(token, 5000)
        assert steps == [32_032]


def test_a_credential_shows_its_name_alone() -> None:
    [found] = parse_credentials(document(entry()))
    known = CredentialSet((found,), PEPPER)
    for text in (repr(found), str(found), repr((found,)), repr(known)):
        assert DIGEST not in text
    assert isinstance(found, Credential)


@pytest.mark.parametrize("text", ["0f" * 32, "0F" * 32, f"  {'0f' * 32}\n"])
def test_a_pepper_is_64_digits_with_space_around(text: str) -> None:
    assert parse_pepper(text.encode()).hex() == "0f" * 32


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0f" * 31,
        b"0f" * 33,
        b"0g" * 32,
        b"0x" + b"0f" * 31,
        b"\xff" * 64,
        ("\u0661" * 64).encode(),
        b"0f" * 32 + b" " * 4096,
        b"0f" * 16 + b" " + b"0f" * 16,
    ],
)
def test_anything_else_is_no_pepper(data: bytes) -> None:
    with pytest.raises(CredentialsFileError) as caught:
        parse_pepper(data)
    assert "0f0f" not in str(caught.value)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=80))
def test_no_bytes_break_the_pepper(data: bytes) -> None:
    with contextlib.suppress(CredentialsFileError):
        parse_pepper(data)
