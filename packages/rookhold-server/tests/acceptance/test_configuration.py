"""How a server is configured: the lines of the acceptance list, by their numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from gateway import Gateway
from issuer import AUDIENCE

from rookhold_server.config.guards import check_backend, check_exposure, check_settings
from rookhold_server.config.settings import Settings, read_settings
from rookhold_server.errors import SettingError
from rookhold_server.identity.keeping import Keeper
from rookhold_server.identity.opening import open_identity
from rookhold_types.isolation import IsolationClass

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 60
VALUE = "a-value-that-nobody-may-see"
KEYS = {"API_KEYS": f"acme:{VALUE}"}
PRODUCTION = {
    **KEYS,
    "ENV": "production",
    "ATTESTATION_MODE": "off",
    "SANDBOX": "namespaces",
    "ROOTFS": f"/srv/{VALUE}",
}
PROVIDER = {
    "OIDC_ISSUER": f"https://{VALUE}.example",
    "OIDC_AUDIENCE": AUDIENCE,
    "OIDC_JWKS_URL": f"https://{VALUE}.example/keys",
    "OIDC_TENANT_MAP": f"{VALUE}=acme",
}

# Sections 3 and 4 of the contract, as far as a setting tells it; what takes a file, a provider or a
# host to find out is in the tests of those. The variable that is named, and what was set.
REFUSED: list[tuple[str, dict[str, str]]] = [
    ("CREDENTIAL_PEPPER_FILE", {"CREDENTIALS_FILE": f"/{VALUE}"}),
    ("CREDENTIALS_FILE", {"CREDENTIAL_PEPPER_FILE": f"/{VALUE}"}),
    *((name, {**PROVIDER, name: ""}) for name in PROVIDER),
    *((name, {**PROVIDER, name: f"http://{VALUE}"}) for name in PROVIDER if "MAP" not in name),
    ("OIDC_TENANT_MAP", {**PROVIDER, "OIDC_TENANT_MAP": VALUE}),
    ("OIDC_ALGORITHMS", {**PROVIDER, "OIDC_ALGORITHMS": f"HS256,{VALUE}"}),
    ("OIDC_ISSUER", {"OIDC_TENANT_CLAIM": VALUE}),
    ("API_KEYS", {"API_KEYS": f":{VALUE}"}),
    ("API_KEYS", {"API_KEYS": f"acme:,acme:{VALUE}"}),
    ("API_KEYS", {"API_KEYS": f"a b:{VALUE}"}),
    ("API_KEYS", {"API_KEYS": f"a:{VALUE},b:{VALUE}"}),
    ("API_KEYS", {"API_KEYS": ", ,"}),
    ("ATTESTATION_KEY_FILE", {"ATTESTATION_MODE": "sign"}),
    ("ATTESTATION_MODE", {"ATTESTATION_MODE": "off", "ATTESTATION_KEY_FILE": f"/{VALUE}"}),
    ("ATTESTATION_MODE", {"ATTESTATION_MODE": VALUE}),
    ("MAX_JOB_MEM_MB", {"MAX_JOB_MEM_MB": "2048", "MEMORY_BUDGET_MB": "1024"}),
    ("WORKERS", {"WORKERS": VALUE}),
    ("ENV", {"ENV": VALUE}),
    ("ADDR", {"ADDR": "0.0.0.0:7300"}),
    ("ADDR", {"ADDR": "0.0.0.0:7300", "API_KEYS": "acme:short"}),
    ("ADDR", {"ADDR": "0.0.0.0:7300", "SANDBOX": "off", **KEYS}),
    ("API_KEYS", {**PRODUCTION, "API_KEYS": ""}),
    ("API_KEYS", {**PRODUCTION, "API_KEYS": VALUE}),
    ("API_KEYS", {**PRODUCTION, "API_KEYS": "acme:rookhold-dev-key"}),
    ("API_KEYS", {**PRODUCTION, "API_KEYS": "acme:short", "UNSAFE_ALLOW_PUBLIC_DEV": "1"}),
    ("ATTESTATION_MODE", {**PRODUCTION, "ATTESTATION_MODE": ""}),
    (
        "ATTESTATION_KEY_FILE",
        {**PRODUCTION, "ATTESTATION_MODE": "on", "ATTESTATION_KEY_FILE": VALUE},
    ),
    ("ADDR", {**PRODUCTION, "ADDR": "0.0.0.0:7300"}),
    ("USER", PRODUCTION),
    ("SECCOMP", {**PRODUCTION, "SECCOMP": "off"}),
    ("GVISOR_PLATFORM", {**PRODUCTION, "GVISOR_PLATFORM": "ptrace"}),
    ("SANDBOX", {**PRODUCTION, "SANDBOX": "namespaces-dev", "USER": "4711"}),
    ("SANDBOX", {**PRODUCTION, "SANDBOX": "auto", "USER": "4711", "UNSAFE_ALLOW_NAIVE": "1"}),
]


def read(variables: dict[str, str], **others: str) -> Settings:
    named = {f"ROOKHOLD_{name}": text for name, text in variables.items()}
    return read_settings({"HOME": "/home/somebody", **named, **others})


def judged(variables: dict[str, str], *, uid: int = 1000) -> None:
    """Do what a start does before it opens anything; the host offers no isolation."""
    settings = read(variables)
    check_settings(settings, effective_uid=uid)
    check_exposure(settings, settings.address)
    check_backend(settings, settings.address, IsolationClass.NONE)


@pytest.mark.parametrize(("named", "variables"), REFUSED, ids=str)
def test_c1_each_refusal_names_the_variable_and_shows_no_value(
    named: str, variables: dict[str, str]
) -> None:
    with pytest.raises(SettingError) as caught:
        judged(variables, uid=0 if named == "USER" else 1000)
    assert caught.value.variable == f"ROOKHOLD_{named}"
    assert f"ROOKHOLD_{named}" in str(caught.value)
    assert VALUE not in str(caught.value)


@pytest.mark.parametrize(
    ("named", "variables"),
    [
        ("OIDC_JWKS_URL", {**PROVIDER, "OIDC_JWKS_URL": f"https://{VALUE}.invalid/"}),
        (
            "CREDENTIAL_PEPPER_FILE",
            {"CREDENTIALS_FILE": f"/{VALUE}", "CREDENTIAL_PEPPER_FILE": f"/{VALUE}"},
        ),
        ("API_KEYS", {"API_KEYS": f"a:{VALUE},b:{VALUE}"}),
    ],
)
def test_c1_a_process_that_is_refused_ends_with_1(
    tmp_path: Path, named: str, variables: dict[str, str]
) -> None:
    settings = {f"ROOKHOLD_{name}": text for name, text in variables.items()}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "rookhold_server"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **settings},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert f"refused to start: ROOKHOLD_{named}: " in line
    assert VALUE not in line


@pytest.mark.parametrize(
    "changes",
    [
        {"scopes": ["jobs:*"]},
        {"key_id": "first"},
        {"comment": "x"},
        {"created_at_ms": 2, "expires_at_ms": 1},
        {"created_at_ms": 2, "revoked_at_ms": 1},
    ],
)
def test_c5_a_credentials_file_that_breaks_a_rule_is_refused(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    file, pepper = tmp_path / "credentials.json", tmp_path / "pepper"
    keeper = Keeper(file, pepper)
    for name in ("first", "second"):
        keeper.create(tenant="acme", principal=None, scopes=(), now_ms=1, key_id=name)
    settings = read({"CREDENTIALS_FILE": str(file), "CREDENTIAL_PEPPER_FILE": str(pepper)})
    anyio.run(open_identity, settings)
    document = json.loads(file.read_bytes())
    document["credentials"][1] |= changes
    file.write_text(json.dumps(document))
    with pytest.raises(SettingError) as caught:
        anyio.run(open_identity, settings)
    assert (caught.value.code, caught.value.variable) == (
        "setting_invalid",
        "ROOKHOLD_CREDENTIALS_FILE",
    )
    assert document["credentials"][1]["digest_hmac_sha256"] not in str(caught.value)


def test_c2_only_our_own_variable_means_production() -> None:
    assert not read({}, COOP_ENV="production", NODE_ENV="production").production
    assert read({"ENV": "release", "ATTESTATION_MODE": "off"}).production


def exposed(variables: dict[str, str]) -> bool:
    try:
        judged(variables)
    except SettingError as refused:
        assert_is_the_address(refused)
        return True
    return False


def assert_is_the_address(refused: SettingError) -> None:
    assert refused.variable == "ROOKHOLD_ADDR"


def test_c3_localhost_is_loopback_and_beyond_it_a_public_key_is_refused() -> None:
    assert not exposed({"ADDR": "localhost:7300", "SANDBOX": "off"})
    everywhere: dict[str, Any] = {"ADDR": "0.0.0.0:7300"}
    for variables in ({}, {**KEYS, "SANDBOX": "off"}, {**KEYS, "SANDBOX": "namespaces-dev"}, KEYS):
        assert exposed(everywhere | variables)
        assert not exposed(everywhere | variables | {"UNSAFE_ALLOW_PUBLIC_DEV": "true"})


def test_c4_without_settings_workers_are_the_cpus_and_the_rate_is_1200(tmp_path: Path) -> None:
    workers = max(2, len(os.sched_getaffinity(0)))
    settings = read({})
    assert settings.workers == settings.tenant_concurrency == workers
    assert settings.rate_per_minute == 1200
    with Gateway(tmp_path / "home", sandbox="off") as gateway, gateway.client() as client:
        assert client.status().scheduler["workers"] == workers


def world_readable(root: Path) -> Path:
    root.mkdir(mode=0o755)
    return root


def behind_a_link(root: Path) -> Path:
    (root / "real").mkdir(parents=True, mode=0o700)
    (root / "link").symlink_to("real")
    return root / "link" / "jobs"


def shared_by_all(root: Path) -> Path:
    del root
    return Path("/var/lib")


def as_it_is(path: Path) -> list[object]:
    """What a server could have changed of it, or of the nearest thing above that is there."""
    found: list[object] = []
    for each in (path, *path.parents):
        if each.exists() or each.is_symlink():
            status = each.lstat()
            found.append((each, status.st_mode, status.st_uid, status.st_mtime_ns))
            break
    return found


@pytest.mark.parametrize("make", [world_readable, behind_a_link, shared_by_all])
def test_c9_an_unsafe_jobs_root_is_refused_and_left_as_it_was(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    jobs = make(tmp_path / "place")
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    before = as_it_is(jobs)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "rookhold_server"],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "ROOKHOLD_SANDBOX": "off",
            "ROOKHOLD_ADDR": "127.0.0.1:0",
            "ROOKHOLD_JOBS_ROOT": str(jobs),
        },
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if "refused to start" in line]
    assert "code=unsafe_jobs_root" in line
    assert str(jobs) not in done.stderr
    assert as_it_is(jobs) == before
