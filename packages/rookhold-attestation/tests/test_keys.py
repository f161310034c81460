import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookhold_attestation import PrivateKey, PublicKey
from rookhold_attestation.errors import (
    InvalidKeyEncodingError,
    KeyFileTooLargeError,
    RandomnessUnavailableError,
)
from rookhold_attestation.testing import sample_key

# Source: the key of the profile's published vector; its seed is public test material.
SEED = bytes(range(32))
KEY_ID = "sha256:56475aa75463474c0285df5dbf2bcab73da651358839e9b77481b2eab107708c"
PRIVATE_PEM = (
    "-----BEGIN PRIVATE KEY-----\n"
    "MC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n"
    "-----END PRIVATE KEY-----\n"
)
PUBLIC_PEM = (
    "-----BEGIN PUBLIC KEY-----\n"
    "MCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=\n"
    "-----END PUBLIC KEY-----\n"
)
# One base64 character stands for six bits, so these change exactly one field of the DER.
OTHER_ALGORITHM = PUBLIC_PEM.replace("MCowBQYDK2Vw", "MCowBQYDK2Vx")
WITH_VERSION_ONE = PRIVATE_PEM.replace("MC4CAQAw", "MC4CAQEw")


def test_a_key_has_its_one_text_and_its_id() -> None:
    key = PrivateKey(SEED)
    assert key.to_pem() == PRIVATE_PEM
    assert key.public_key.to_pem() == PUBLIC_PEM
    assert key.key_id == key.public_key.key_id == KEY_ID
    assert len(KEY_ID) == 71


@given(st.binary(min_size=32, max_size=32))
def test_every_key_is_read_back_from_its_text(seed: bytes) -> None:
    key = PrivateKey(seed)
    assert PrivateKey.from_pem(key.to_pem()).public_key == key.public_key
    assert PublicKey.from_pem(key.public_key.to_pem()) == key.public_key


def variants(pem: str) -> list[str]:
    begin, body, end = pem.splitlines()
    return [
        "",
        pem.replace("\n", "\r\n"),
        pem.replace("\n", "\r"),
        pem + "\n",
        "\n" + pem,
        pem.removesuffix("\n"),
        " " + pem,
        "\ufeff" + pem,
        "comment\n" + pem,
        pem + pem,
        f"{begin}\n{body[:40]}\n{body[40:]}\n{end}\n",
        f"{begin}\n{body} \n{end}\n",
        f"{begin}\n\n{body}\n{end}\n",
        f"{begin}\nHeader: x\n\n{body}\n{end}\n",
        f"{begin}\n{body[:-4]}\n{end}\n",
        f"{begin}\n{body}AAAA\n{end}\n",
        f"{begin}\n{body.replace('+', '-').replace('/', '_')}*\n{end}\n",
        f"{begin}\n{end}\n",
        f"{begin}\n",
        body,
        pem.lower(),
        pem.replace("KEY-----", "KEY ----"),
        pem.replace(" KEY", " ENCRYPTED KEY"),
        pem.replace("BEGIN", "END"),
    ]


@pytest.mark.parametrize("index", range(len(variants(PRIVATE_PEM))))
def test_any_other_spelling_is_refused(index: int) -> None:
    with pytest.raises(InvalidKeyEncodingError) as caught:
        PrivateKey.from_pem(variants(PRIVATE_PEM)[index])
    assert caught.value.detail["kind"] == "private"
    with pytest.raises(InvalidKeyEncodingError) as caught:
        PublicKey.from_pem(variants(PUBLIC_PEM)[index])
    assert caught.value.detail["kind"] == "public"


@pytest.mark.parametrize("pem", [PUBLIC_PEM, WITH_VERSION_ONE])
def test_what_is_not_a_version_0_ed25519_private_key_is_refused(pem: str) -> None:
    with pytest.raises(InvalidKeyEncodingError):
        PrivateKey.from_pem(pem)


@pytest.mark.parametrize("pem", [PRIVATE_PEM, OTHER_ALGORITHM])
def test_what_is_not_an_ed25519_public_key_is_refused(pem: str) -> None:
    with pytest.raises(InvalidKeyEncodingError):
        PublicKey.from_pem(pem)


def test_a_url_safe_spelling_of_a_public_key_is_refused() -> None:
    assert "/" in PUBLIC_PEM
    with pytest.raises(InvalidKeyEncodingError):
        PublicKey.from_pem(PUBLIC_PEM.replace("/", "_"))


def test_a_small_order_public_key_is_refused_as_a_file_and_as_bytes() -> None:
    identity = b"\x01" + bytes(31)
    with pytest.raises(InvalidKeyEncodingError):
        PublicKey(identity)
    der_line = "MCowBQYDK2VwAyEAAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
    with pytest.raises(InvalidKeyEncodingError):
        PublicKey.from_pem(PUBLIC_PEM.replace(PUBLIC_PEM.splitlines()[1], der_line))


def test_a_text_over_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(KeyFileTooLargeError):
        PrivateKey.from_pem("x" * 16_385)
    with pytest.raises(InvalidKeyEncodingError):
        PrivateKey.from_pem("x" * 16_384)


def test_generated_keys_differ() -> None:
    assert PrivateKey.generate().key_id != PrivateKey.generate().key_id


def test_missing_randomness_is_its_own_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_randomness(_size: int) -> bytes:
        raise NotImplementedError

    monkeypatch.setattr("os.urandom", no_randomness)
    with pytest.raises(RandomnessUnavailableError):
        PrivateKey.generate()


def test_a_private_key_shows_and_pickles_nothing_secret() -> None:
    key = PrivateKey(SEED)
    assert repr(key) == f"PrivateKey({KEY_ID})"
    with pytest.raises(TypeError):
        pickle.dumps(key)


def test_no_refusal_repeats_the_text_of_a_key() -> None:
    body = PRIVATE_PEM.splitlines()[1]
    for pem in [PRIVATE_PEM + "\n", PRIVATE_PEM.replace("\n", "\r\n"), WITH_VERSION_ONE]:
        with pytest.raises(InvalidKeyEncodingError) as caught:
            PrivateKey.from_pem(pem)
        assert body[8:] not in f"{caught.value} {caught.value.detail}"


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_a_seed_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(InvalidKeyEncodingError):
        PrivateKey(bytes(size))


def test_equal_public_keys_are_one_member_of_a_set() -> None:
    assert len({sample_key(1).public_key, sample_key(1).public_key}) == 1
    assert sample_key(1).public_key != sample_key(2).public_key
