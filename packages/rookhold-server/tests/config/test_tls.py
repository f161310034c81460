"""Which certificate and key a start takes."""

import os
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import made
from cryptography.hazmat.primitives import serialization

from rookhold_server.config.settings import read_settings
from rookhold_server.config.tls import listener_tls
from rookhold_server.errors import SettingError

CERT, KEY = "ROOKHOLD_TLS_CERT_FILE", "ROOKHOLD_TLS_KEY_FILE"


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return made(tmp_path)


def context(certificate: Path, key: Path, **more: str) -> ssl.SSLContext | None:
    environ = {"HOME": "/nowhere", CERT: str(certificate), KEY: str(key), **more}
    return listener_tls(read_settings(environ))


def refusal(certificate: Path, key: Path, **more: str) -> tuple[str, str]:
    with pytest.raises(SettingError) as caught:
        context(certificate, key, **more)
    assert str(certificate.parent) not in str(caught.value)
    return caught.value.code, caught.value.variable


PRODUCTION = {"ROOKHOLD_ENV": "production", "ROOKHOLD_ATTESTATION_MODE": "off"}


def test_without_files_the_listener_is_plain() -> None:
    assert listener_tls(read_settings({"HOME": "/nowhere"})) is None


def test_a_pair_is_taken_and_old_versions_are_not_spoken(pair: tuple[Path, Path]) -> None:
    tls = context(*pair)
    assert tls is not None
    assert tls.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("given", [CERT, KEY])
def test_one_file_without_the_other_is_refused(given: str) -> None:
    with pytest.raises(SettingError) as caught:
        read_settings({"HOME": "/nowhere", given: "/some/file"})
    assert caught.value.code == "setting_required"
    assert caught.value.variable == ({CERT, KEY} - {given}).pop()


def test_a_key_of_another_certificate_is_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    _, other = made(tmp_path, "other")
    assert refusal(pair[0], other) == ("setting_conflict", KEY)


def test_files_that_cannot_be_read_or_are_none_are_refused(pair: tuple[Path, Path]) -> None:
    certificate, key = pair
    absent, noise = certificate.with_name("absent"), certificate.with_name("noise")
    noise.write_text("noise")
    assert refusal(absent, key) == ("setting_invalid", CERT)
    assert refusal(certificate, absent) == ("setting_invalid", KEY)
    assert refusal(noise, key) == ("setting_invalid", CERT)
    assert refusal(certificate, noise) == ("setting_invalid", KEY)
    assert refusal(key, certificate)[0] == "setting_invalid"  # the one for the other


def test_a_link_is_refused(pair: tuple[Path, Path]) -> None:
    link = pair[1].with_name("link")
    link.symlink_to(pair[1])
    assert refusal(pair[0], link) == ("setting_unsafe", KEY)


def test_a_key_with_a_password_is_refused_and_nobody_asked(pair: tuple[Path, Path]) -> None:
    key = serialization.load_pem_private_key(pair[1].read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"password")
    pair[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
    )
    assert refusal(*pair) == ("setting_invalid", KEY)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that only we may change, and so is everything above it."""
    above = next(Path(p) for p in ("/var/lib", "/run", str(Path.home())) if os.access(p, os.W_OK))
    with tempfile.TemporaryDirectory(prefix="rookhold-test-", dir=above) as made:
        yield Path(made)


def test_production_wants_a_key_that_nobody_else_can_read(place: Path) -> None:
    certificate, key = made(place)
    certificate.chmod(0o644)  # that others may read it is no harm
    assert context(certificate, key, **PRODUCTION) is not None
    key.chmod(0o640)
    assert refusal(certificate, key, **PRODUCTION) == ("setting_unsafe", KEY)
    key.chmod(0o600)
    certificate.chmod(0o664)
    assert refusal(certificate, key, **PRODUCTION) == ("setting_unsafe", CERT)
