"""Which credentials and providers may be configured, and what refuses the start."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from issuer import AUDIENCE, Issuer

from rookhold_attestation import AttestationError, PrivateKey
from rookhold_server.config.guards import check_settings
from rookhold_server.config.settings import Settings, read_settings
from rookhold_server.errors import SettingError
from rookhold_server.identity.keeping import Keeper
from rookhold_server.identity.opening import open_identity

if TYPE_CHECKING:
    from collections.abc import Iterator

OIDC = {
    "OIDC_ISSUER": "https://issuer.example/realms/one",
    "OIDC_AUDIENCE": AUDIENCE,
    "OIDC_JWKS_URL": "https://issuer.example:8443/keys",
    "OIDC_TENANT_MAP": "org-1=acme, org-2=acme,https://x/y=other",
}
FILES = {"CREDENTIALS_FILE": "/k/credentials.json", "CREDENTIAL_PEPPER_FILE": "/k/pepper"}
PRODUCTION = {
    "ENV": "production",
    "ATTESTATION_MODE": "off",
    "SANDBOX": "namespaces",
    "ROOTFS": "/srv/rookhold/rootfs",
}


def read(variables: dict[str, str]) -> Settings:
    environ = {f"ROOKHOLD_{name}": text for name, text in variables.items()}
    return read_settings({"HOME": "/home/somebody"} | environ)


def refusal(variables: dict[str, str]) -> tuple[str, str]:
    """Code and variable; what it says shows no value."""
    with pytest.raises(SettingError) as caught:
        read(variables)
    for text in variables.values():
        assert len(text) < 6 or text not in str(caught.value)
    return caught.value.code, caught.value.variable.removeprefix("ROOKHOLD_")


def test_the_defaults_of_access_tokens_are_those_of_the_contract() -> None:
    found = read(OIDC).oidc
    assert found is not None
    assert found.issuer == "https://issuer.example/realms/one"
    assert found.tenants == {"org-1": "acme", "org-2": "acme", "https://x/y": "other"}
    assert found.tenant_claim == "tenant_id"
    assert found.algorithms == ("RS256", "ES256", "EdDSA")
    assert (found.ttl_seconds, found.max_age_seconds) == (300, 3600)
    assert read({}).oidc is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *((name, "x") for name in OIDC),
        ("OIDC_TENANT_CLAIM", "org"),
        ("OIDC_ALGORITHMS", "RS256"),
        ("OIDC_JWKS_TTL_SECONDS", "60"),
        ("OIDC_MAX_TOKEN_AGE_SECONDS", "60"),
    ],
)
def test_any_of_them_makes_four_mandatory(name: str, text: str) -> None:
    code, missing = refusal({name: text})
    assert code == "setting_required"
    assert missing in OIDC.keys() - {name}


@pytest.mark.parametrize("missing", OIDC)
def test_each_of_the_four_is_mandatory(missing: str) -> None:
    without = {name: text for name, text in OIDC.items() if name != missing}
    assert refusal(without) == ("setting_required", missing)


@pytest.mark.parametrize("name", ["OIDC_ISSUER", "OIDC_AUDIENCE", "OIDC_JWKS_URL"])
@pytest.mark.parametrize(
    "text",
    [
        "http://issuer.example",
        "HTTPS://issuer.example",
        "issuer.example",
        "https://",
        "https:///path",
        "https://user@issuer.example",
        "https://user:word@issuer.example",
        "https://@issuer.example",
        "https://issuer.example/?x=1",
        "https://issuer.example/?",
        "https://issuer.example/#x",
        "https://issuer.example:99999",
        "https://issuer.example:port",
        "https://[::1",
        "https://issuer.example/a b",
        "https://issuer.example/\u00e9",
        "https://issuer.example\\x",
        " https://issuer.example",
        "https://issuer.example/" + "x" * 2048,
    ],
)
def test_an_address_is_https_and_nothing_but_a_place(name: str, text: str) -> None:
    assert refusal(OIDC | {name: text}) == ("setting_invalid", name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("OIDC_TENANT_MAP", ","),
        ("OIDC_TENANT_MAP", "org-1"),
        ("OIDC_TENANT_MAP", "=acme"),
        ("OIDC_TENANT_MAP", "org-1="),
        ("OIDC_TENANT_MAP", "a=b=c"),
        ("OIDC_TENANT_MAP", "org 1=acme"),
        ("OIDC_TENANT_MAP", "org-1=acme,org-1=other"),
        ("OIDC_TENANT_MAP", "org-1=acme,"),
        ("OIDC_TENANT_CLAIM", "a b"),
        ("OIDC_TENANT_CLAIM", "x" * 129),
        *(("OIDC_TENANT_CLAIM", name) for name in ("iss", "sub", "aud", "exp", "jti", "scope")),
        ("OIDC_TENANT_CLAIM", "client_id"),
        ("OIDC_ALGORITHMS", ","),
        ("OIDC_ALGORITHMS", "HS256"),
        ("OIDC_ALGORITHMS", "RS256,HS512"),
        ("OIDC_ALGORITHMS", "none"),
        ("OIDC_ALGORITHMS", "rs256"),
        ("OIDC_ALGORITHMS", "RS256,RS256"),
        ("OIDC_JWKS_TTL_SECONDS", "59"),
        ("OIDC_JWKS_TTL_SECONDS", "3601"),
        ("OIDC_MAX_TOKEN_AGE_SECONDS", "59"),
        ("OIDC_MAX_TOKEN_AGE_SECONDS", "86401"),
    ],
)
def test_what_is_malformed_or_out_of_range_is_refused(name: str, text: str) -> None:
    assert refusal(OIDC | {name: text}) == ("setting_invalid", name)


@pytest.mark.parametrize("given", FILES)
def test_file_and_pepper_come_together(given: str) -> None:
    [missing] = FILES.keys() - {given}
    assert refusal({given: FILES[given]}) == ("setting_required", missing)


@pytest.mark.parametrize("others", [FILES, OIDC, FILES | OIDC])
def test_with_other_credentials_nobody_may_use_the_public_key(others: dict[str, str]) -> None:
    settings = read(others)
    assert settings.api_keys.find("rookhold-dev-key") is None
    assert not settings.api_keys.any_public
    check_settings(read(others | {"ADDR": "0.0.0.0:7300"}), effective_uid=1000)


@pytest.mark.parametrize("others", [FILES, OIDC])
def test_production_needs_one_kind_of_credentials(others: dict[str, str]) -> None:
    with pytest.raises(SettingError) as caught:
        check_settings(read(PRODUCTION), effective_uid=1000)
    assert caught.value.code == "setting_required"
    check_settings(read(PRODUCTION | others), effective_uid=1000)


def test_a_provider_that_does_not_answer_refuses_the_start(tmp_path: Path) -> None:
    with Issuer(tmp_path, e="ES256") as issuer:
        environ = {name: text for name, text in issuer.settings().items() if "OIDC" in name}
        settings = read_settings({"HOME": "/home/somebody"} | environ)
        with pytest.raises(SettingError) as caught:  # its certificate is not trusted here
            anyio.run(open_identity, settings)
        assert issuer.requests == 0
    assert caught.value.code == "oidc_provider_unavailable"
    assert caught.value.variable == "ROOKHOLD_OIDC_JWKS_URL"
    assert str(issuer.port) not in str(caught.value)


@pytest.fixture
def keys() -> Iterator[Path]:
    """A directory in which production may keep them: credentials, pepper and signing key."""
    above = next(Path(p) for p in ("/var/lib", "/run", str(Path.home())) if os.access(p, os.W_OK))
    place = Path(tempfile.mkdtemp(prefix="rookhold-test-", dir=above)) / "keys"
    place.mkdir(mode=0o700)
    keeper = Keeper(place / "credentials.json", place / "pepper")
    keeper.create(tenant="acme", principal=None, scopes=(), now_ms=1)
    PrivateKey.generate().save(place / "signing.pem")
    yield place
    shutil.rmtree(place.parent)


NAMED = {
    "credentials.json": "CREDENTIALS_FILE",
    "pepper": "CREDENTIAL_PEPPER_FILE",
    "signing.pem": "ATTESTATION_KEY_FILE",
}


def start(keys: Path, **changes: str) -> str:
    """Open what a production server opens of them: 'starts', or the code that refuses it.

    Whatever it says, it names no file.
    """
    variables = {variable: str(keys / name) for name, variable in NAMED.items()}
    production = PRODUCTION | {"ATTESTATION_MODE": "on"}
    try:
        settings = read(production | variables | changes)
        check_settings(settings, effective_uid=1000)
        assert settings.signing_key_file is not None
        PrivateKey.load(settings.signing_key_file)
        anyio.run(open_identity, settings)
    except SettingError as error:
        said, answer = str(error), f"{error.code} {error.variable.removeprefix('ROOKHOLD_')}"
    except AttestationError as error:
        said, answer = str(error), error.code
    else:
        return "starts"
    assert str(keys) not in said
    return answer


def expected(name: str, code: str) -> str:
    return code if name == "signing.pem" else f"setting_unsafe {NAMED[name]}"


def test_c7_private_files_start_production(keys: Path) -> None:
    assert start(keys) == "starts"


@pytest.mark.parametrize("name", NAMED)
def test_c7_production_refuses_a_loose_mode(keys: Path, name: str) -> None:
    (keys / name).chmod(0o640)
    assert start(keys) == expected(name, "unsafe_key_file_permissions")


@pytest.mark.root
@pytest.mark.parametrize("name", NAMED)
def test_c7_production_refuses_another_owner(keys: Path, name: str) -> None:
    os.chown(keys / name, 4711, 4711)
    assert start(keys) == expected(name, "unsafe_key_file_owner")


@pytest.mark.parametrize("name", NAMED)
def test_c7_production_refuses_a_relative_path(
    keys: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(keys)
    answer = start(keys, **{NAMED[name]: name})
    kind = "setting_invalid" if name == "signing.pem" else "setting_unsafe"
    assert answer == f"{kind} {NAMED[name]}"


@pytest.mark.parametrize("name", NAMED)
def test_c7_production_refuses_a_loose_directory_above(keys: Path, name: str) -> None:
    other = keys.parent / "loose"
    other.mkdir()
    (other / name).touch(mode=0o600)
    (other / name).write_bytes((keys / name).read_bytes())
    path = {NAMED[name]: str(other / name)}
    assert start(keys, **path) == "starts"
    other.chmod(0o777)
    assert start(keys, **path) == expected(name, "unsafe_key_file_permissions")


@pytest.mark.parametrize("name", NAMED)
def test_c7_production_refuses_a_link(keys: Path, name: str) -> None:
    real = (keys / name).rename(keys / "real")
    (keys / name).symlink_to(real)
    assert start(keys) == expected(name, "unsafe_key_file_type")
