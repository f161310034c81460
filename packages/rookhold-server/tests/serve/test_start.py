"""How a server starts, and how it refuses to."""

import json
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Server = Callable[..., Any]
SECRET = "do-not-show-this-anywhere"


def test_a_fresh_development_server_is_ready_and_honest(server: Server) -> None:
    running = server(MAX_JOB_MEM_MB="512").start()
    assert running.call("GET", "/readyz") == (200, {"ok": True})
    assert running.call("GET", "/v1/whoami")[1]["tenant"] == "acme"
    capabilities = running.call("GET", "/v1/capabilities")[1]
    execution = capabilities["execution"]
    assert (execution["backend"], execution["isolation_class"]) == ("off", "none")
    assert (execution["isolated"], execution["networking"]) == (False, "host")
    assert execution["controls"] == []
    assert capabilities["limits"]["mem_mb_max"] == 512
    assert capabilities["attestations"]["enabled"] is False
    status = running.call("GET", "/v1/status")[1]
    assert status["environment"] == "development"
    assert status["storage_ready"] is True
    scheduler = status["scheduler"]
    assert (scheduler["queue_capacity"], scheduler["queue_depth"]) == (64, 0)
    assert scheduler["workers"] == max(2, len(os.sched_getaffinity(0)))
    assert f"listening on http://{running.address}" in running.log
    state = running.home / ".local/state/rookhold"
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert running.stop() == 0


def test_without_keys_the_public_one_works_and_is_announced(server: Server) -> None:
    running = server(API_KEYS="").start()
    assert running.call("GET", "/v1/whoami", key="rookhold-dev-key")[1]["tenant"] == "local"
    assert "DEVELOPMENT ONLY" in running.log
    assert running.stop() == 0


@pytest.mark.parametrize(
    ("settings", "code", "variable"),
    [
        ({"TLS_CERT_FILE": SECRET}, "setting_required", "ROOKHOLD_TLS_KEY_FILE"),
        ({"API_KEYS": f"a:{SECRET},b:{SECRET}"}, "setting_invalid", "ROOKHOLD_API_KEYS"),
        ({"ADDR": "0.0.0.0:0", "SANDBOX": "auto"}, "setting_unsafe", "ROOKHOLD_ADDR"),
        (
            {"ENV": "release", "API_KEYS": f"a:{SECRET}"},
            "setting_required",
            "ROOKHOLD_ATTESTATION_MODE",
        ),
        ({"ENV": SECRET}, "setting_invalid", "ROOKHOLD_ENV"),
        ({"READY_FD": "99"}, "setting_invalid", "ROOKHOLD_READY_FD"),
        ({"CREDENTIALS_FILE": SECRET}, "setting_required", "ROOKHOLD_CREDENTIAL_PEPPER_FILE"),
        (
            {"CREDENTIALS_FILE": SECRET, "CREDENTIAL_PEPPER_FILE": SECRET},
            "setting_invalid",
            "ROOKHOLD_CREDENTIAL_PEPPER_FILE",
        ),
        ({"OIDC_ISSUER": f"https://{SECRET}"}, "setting_required", "ROOKHOLD_OIDC_AUDIENCE"),
        (
            {
                "OIDC_ISSUER": f"https://{SECRET}.invalid",
                "OIDC_AUDIENCE": f"https://{SECRET}.invalid",
                "OIDC_JWKS_URL": f"https://{SECRET}.invalid/keys",
                "OIDC_TENANT_MAP": f"{SECRET}=a",
            },
            "oidc_provider_unavailable",
            "ROOKHOLD_OIDC_JWKS_URL",
        ),
        ({"SANDBOX": "no-such-provider"}, "unknown_backend", None),
        ({"SANDBOX": "gvisor"}, "setting_required", "ROOKHOLD_ROOTFS"),
    ],
)
def test_a_refused_start_names_the_variable_and_shows_no_value(
    server: Server, settings: dict[str, str], code: str, variable: str | None
) -> None:
    refused = server(**settings)
    assert refused.run() == 1
    assert f"code={code}" in refused.log
    if variable is not None:
        assert variable in refused.log
    assert SECRET not in refused.log
    assert str(refused.home) not in refused.log
    assert "Traceback" not in refused.log


@pytest.mark.x86_64
@pytest.mark.parametrize("backend", ["namespaces", "gvisor"])
def test_a_backend_that_was_named_and_cannot_be_had_stops_the_start(
    server: Server, backend: str, tmp_path: Path
) -> None:
    refused = server(
        SANDBOX=backend,
        ROOTFS=str(tmp_path / "nothing-here"),
        GVISOR_RUNSC=str(tmp_path / "nor-here"),
        GVISOR_ROOTFS_SHA256="0" * 64,
    )
    assert refused.run() == 1
    assert "refused to start" in refused.log
    assert "internal_error" not in refused.log
    assert str(tmp_path) not in refused.log


@pytest.mark.linux_ns
def test_auto_says_at_the_start_what_it_takes_and_why_nothing_stronger(server: Server) -> None:
    running = server(SANDBOX="auto", NODE="none").start()
    [line] = [line for line in running.log.splitlines() if "backend=namespaces-dev" in line]
    assert "the strongest sandbox that this host offers" in line
    assert "gvisor-oci is not configured (ROOKHOLD_GVISOR_RUNSC)" in line
    assert "namespaces+cgroups-v2+private-rootfs is not configured (ROOKHOLD_ROOTFS)" in line
    assert running.stop() == 0


def test_a_malformed_signing_key_refuses_without_its_content(server: Server) -> None:
    refused = server()
    key = refused.home / "key.pem"
    key.write_text(f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n")
    key.chmod(0o600)
    refused.environment["ROOKHOLD_ATTESTATION_KEY_FILE"] = str(key)
    assert refused.run() == 1
    assert "invalid_key_encoding" in refused.log
    assert SECRET not in refused.log


def test_an_unsafe_state_directory_refuses(server: Server) -> None:
    refused = server()
    state = refused.home / ".local/state/rookhold"
    state.mkdir(parents=True)
    state.chmod(0o777)
    assert refused.run() == 1
    assert "code=unsafe_state_directory" in refused.log
    assert list(state.iterdir()) == []


def test_a_second_server_on_the_database_is_refused(server: Server) -> None:
    running = server().start()
    second = server()
    second.log_file = running.log_file.with_name("second")
    assert second.run() == 1
    assert "code=database_locked" in second.log_file.read_text()
    assert running.call("GET", "/readyz")[0] == 200


def test_a_second_server_on_the_address_never_touches_the_store(
    server: Server, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        database = tmp_path / "elsewhere/rookhold.db"
        refused = server(ADDR=f"127.0.0.1:{taken.getsockname()[1]}", DB=str(database))
        assert refused.run() == 1
        assert "code=address_unavailable" in refused.log
        assert not database.parent.exists()


def test_an_unknown_variable_is_a_warning_by_name_only(server: Server) -> None:
    running = server(WORKRES=SECRET, BASE_URL=SECRET).start()
    assert "ROOKHOLD_WORKRES" in running.log
    assert "ROOKHOLD_BASE_URL" not in running.log
    assert SECRET not in running.log


def test_a_log_line_can_be_json(server: Server) -> None:
    running = server(LOG_FORMAT="json", LOG_LEVEL="debug").start()
    running.call("GET", "/v1/whoami")
    assert running.stop() == 0
    lines = [json.loads(line) for line in running.log.splitlines()]
    assert all({"ts_ms", "level", "logger", "message"} <= line.keys() for line in lines)
    (request,) = [line for line in lines if line.get("route") == "/v1/whoami"]
    assert (request["method"], request["status"]) == ("GET", 200)
    assert "request_id" in request


def test_an_argument_is_a_usage_error(server: Server) -> None:
    assert server().run("--port", "80") == 64


@pytest.mark.root
def test_production_as_root_is_refused(server: Server) -> None:
    refused = server(ENV="production", ATTESTATION_MODE="off", UNSAFE_ALLOW_NAIVE="1")
    assert refused.run() == 1
    assert "ROOKHOLD_USER" in refused.log


NOBODY = 65534


@pytest.fixture
def private_place() -> Iterator[Path]:
    """A directory of NOBODY that only root can reach into: production trusts no temp directory."""
    place = Path(tempfile.mkdtemp(prefix="rookhold-test-", dir="/var/lib"))
    os.chown(place, NOBODY, NOBODY)
    yield place
    shutil.rmtree(place)


@pytest.mark.root
@pytest.mark.readable
def test_production_starts_as_an_unprivileged_account(server: Server, private_place: Path) -> None:
    prepared = server(
        ENV="release",
        ATTESTATION_MODE="off",
        UNSAFE_ALLOW_NAIVE="1",
        DB=str(private_place / "db/rookhold.db"),
        JOBS_ROOT=str(private_place / "jobs"),
    )
    prepared.user = NOBODY
    prepared.home = private_place
    running = prepared.start()
    assert running.call("GET", "/v1/status")[1]["environment"] == "production"
    status, job = running.call("POST", "/v1/jobs", {"language": "bash", "code": "echo $UID"})
    assert status == 201
    result = running.call("GET", f"/v1/jobs/{job['job_id']}/result")[1]
    assert result["stdout"] == f"{NOBODY}\n"
    lines = [json.loads(line) for line in running.log.splitlines()]
    assert any("ROOKHOLD_API_KEYS" in line["message"] for line in lines)
    assert running.stop() == 0
