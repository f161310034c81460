"""What the environment may say, and how a server refuses what it may not."""

import os
from pathlib import Path

import pytest

from rookhold_server.config.address import Address
from rookhold_server.config.settings import Settings, read_settings
from rookhold_server.config.variables import PARSERS
from rookhold_server.errors import SettingError

HOME = {"HOME": "/home/somebody"}
SECRET = "hunter2-hunter2-hunter2"


def read(**variables: str) -> Settings:
    return read_settings(HOME | {f"ROOKHOLD_{name}": text for name, text in variables.items()})


def refusal(**variables: str) -> tuple[str, str]:
    """Code and variable; and whatever it says, it shows no value."""
    with pytest.raises(SettingError) as caught:
        read(**variables)
    for name, text in variables.items():
        assert name == "ENV" or len(text) < 3 or text not in str(caught.value)
    assert caught.value.variable in str(caught.value)
    return caught.value.code, caught.value.variable


def test_the_defaults_are_those_of_the_contract() -> None:
    settings = read()
    cpus = max(2, len(os.sched_getaffinity(0)))
    assert settings.production is False
    assert settings.address == Address("127.0.0.1", 7300)
    assert settings.workers == settings.tenant_concurrency == cpus
    assert settings.rate_per_minute == 1200
    assert settings.tenant_queue_capacity == 64
    assert (settings.max_job_mem_mb, settings.memory_budget_mb) == (1024, 4096)
    assert settings.sandbox == "auto"
    assert settings.sandbox_uid_base == 210_000
    assert settings.seccomp is True
    assert settings.interpreters == {"python": "python3", "node": "node", "bash": "bash"}
    assert (settings.rootfs, settings.rootfs_sha256, settings.user) == (None, None, None)
    assert (settings.runsc, settings.runsc_platform) == (None, "systrap")
    assert (settings.gvisor_uid, settings.gvisor_gid) == (65534, 65534)
    assert (settings.log_format, settings.log_level) == ("compact", "info")
    assert settings.database == Path("/home/somebody/.local/state/rookhold/rookhold.db")
    assert settings.jobs_root == Path("/home/somebody/.local/state/rookhold/jobs")
    assert settings.signing_key_file is None
    assert settings.api_keys.find("rookhold-dev-key").tenant == "local"


def test_what_is_kept_for_how_long_is_configured() -> None:
    assert (read().retention_hours, read().sweep_interval_seconds) == (168, 3600)
    assert read(RETENTION_HOURS="0").retention_hours == 0
    settings = read(RETENTION_HOURS="87600", SWEEP_INTERVAL_SECS="60")
    assert (settings.retention_hours, settings.sweep_interval_seconds) == (87_600, 60)


def test_how_much_is_kept_is_configured() -> None:
    settings = read()
    assert (settings.storage_global_mb, settings.storage_tenant_mb) == (16_384, 4096)
    assert settings.storage_free_reserve_mb == 1024
    settings = read(STORAGE_GLOBAL_MB="128", STORAGE_TENANT_MB="64", STORAGE_FREE_RESERVE_MB="0")
    assert (settings.storage_global_mb, settings.storage_tenant_mb) == (128, 64)
    assert settings.storage_free_reserve_mb == 0
    assert read(STORAGE_GLOBAL_MB="128", STORAGE_TENANT_MB="128").storage_tenant_mb == 128


def test_a_tenants_quota_is_not_above_everybodys_also_where_it_is_the_default() -> None:
    refused = ("setting_conflict", "ROOKHOLD_STORAGE_TENANT_MB")
    assert refusal(STORAGE_GLOBAL_MB="128", STORAGE_TENANT_MB="129") == refused
    assert refusal(STORAGE_GLOBAL_MB="4095") == refused


def test_concurrency_follows_the_workers() -> None:
    assert read(WORKERS="7").tenant_concurrency == 7
    assert read(WORKERS="7", TENANT_CONCURRENCY="2").tenant_concurrency == 2


def test_state_lives_below_xdg_if_that_is_absolute() -> None:
    assert read_settings({"XDG_STATE_HOME": "/s"}).database == Path("/s/rookhold/rookhold.db")
    relative = read_settings(HOME | {"XDG_STATE_HOME": "s"})
    assert relative.database == Path("/home/somebody/.local/state/rookhold/rookhold.db")


def test_no_home_is_a_refusal_only_where_it_is_needed() -> None:
    with pytest.raises(SettingError) as caught:
        read_settings({})
    assert caught.value.code == "setting_required"
    named = {"ROOKHOLD_DB": "/d/rookhold.db", "ROOKHOLD_JOBS_ROOT": "/d/jobs"}
    assert read_settings(named).state_directory is None


def test_production_keeps_its_state_in_var_lib() -> None:
    settings = read(ENV="production", ATTESTATION_MODE="off")
    assert settings.database == Path("/var/lib/rookhold/rookhold.db")
    assert settings.jobs_root == Path("/var/lib/rookhold/jobs")
    assert settings.log_format == "json"


@pytest.mark.parametrize("word", ["prod", "production", "release", " Release "])
def test_only_these_words_mean_production(word: str) -> None:
    assert read(ENV=word, ATTESTATION_MODE="off").production is True


@pytest.mark.parametrize("word", ["", "dev", "development", "test", "DEV"])
def test_these_mean_development(word: str) -> None:
    assert read(ENV=word).production is False


def test_no_other_variable_switches_production_on() -> None:
    others = {"COOP_ENV": "production", "NODE_ENV": "production", "ENV": "production"}
    assert read_settings(HOME | others).production is False


def test_empty_means_unset() -> None:
    empty = dict.fromkeys(PARSERS, "")
    assert read_settings(HOME | empty) == read_settings(HOME)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ENV", "staging"),
        ("ADDR", "7300"),
        ("ADDR", "example.org:80"),
        ("ADDR", "127.0.0.1"),
        ("ADDR", "127.0.0.1:65536"),
        ("ADDR", "::1:80"),
        ("ADDR", "999.0.0.1:80"),
        ("ADDR", "127.0.0.1:80 "),
        ("TLS_TERMINATED_BY_PROXY", "maybe"),
        ("JOBS_ROOT", "relative/jobs"),
        ("JOBS_ROOT", "/a/../b"),
        ("JOBS_ROOT", "/a/./b"),
        ("RETENTION_HOURS", "87601"),
        ("RETENTION_HOURS", "-1"),
        ("STORAGE_GLOBAL_MB", "127"),
        ("STORAGE_GLOBAL_MB", "1048577"),
        ("STORAGE_TENANT_MB", "63"),
        ("STORAGE_TENANT_MB", "1048577"),
        ("STORAGE_FREE_RESERVE_MB", "-1"),
        ("STORAGE_FREE_RESERVE_MB", "1048577"),
        ("SWEEP_INTERVAL_SECS", "59"),
        ("SWEEP_INTERVAL_SECS", "86401"),
        ("LOG_FORMAT", "xml"),
        ("LOG_LEVEL", "verbose"),
        ("WORKERS", "0"),
        ("WORKERS", "257"),
        ("WORKERS", " 2"),
        ("WORKERS", "2.0"),
        ("WORKERS", "0x2"),
        ("WORKERS", "+2"),
        ("WORKERS", "٢"),
        ("TENANT_CONCURRENCY", "257"),
        ("TENANT_WEIGHTS", "a=0"),
        ("TENANT_WEIGHTS", "a=101"),
        ("TENANT_WEIGHTS", "a=1,a=2"),
        ("TENANT_WEIGHTS", "a"),
        ("TENANT_WEIGHTS", "=1"),
        ("TENANT_QUEUE_CAPACITY", "1025"),
        ("RATE_PER_MIN", "1000001"),
        ("MAX_JOB_MEM_MB", "15"),
        ("MAX_JOB_MEM_MB", "4097"),
        ("MEMORY_BUDGET_MB", "1048577"),
        ("SANDBOX", "two words"),
        ("SANDBOX_UID_BASE", "0"),
        ("SANDBOX_UID_BASE", "4294967294"),
        ("SECCOMP", "maybe"),
        ("USER", "0"),
        ("USER", "00"),
        ("USER", "4294967295"),
        ("USER", "two words"),
        ("USER", "-rookhold"),
        ("ROOTFS", "rootfs"),
        ("ROOTFS", "/srv/../rootfs"),
        ("GVISOR_RUNSC", "runsc"),
        ("GVISOR_ROOTFS_SHA256", "ab" * 31),
        ("GVISOR_ROOTFS_SHA256", "gg" * 32),
        ("GVISOR_ROOTFS_SHA256", "ab" * 32 + "\n"),
        ("GVISOR_PLATFORM", "hypervisor"),
        ("GVISOR_UID", "0"),
        ("GVISOR_GID", "0"),
        ("GVISOR_GID", "4294967295"),
        ("PYTHON", " python3"),
        ("UNSAFE_ALLOW_NAIVE", "ja"),
        ("UNSAFE_ALLOW_PUBLIC_DEV", "2"),
        ("ATTESTATION_MODE", "perhaps"),
        ("READY_FD", "2"),
        ("LIFELINE_FD", "x"),
        ("API_KEYS", ":key-of-a-tenant-a"),
        ("API_KEYS", "two words:key-of-a-tenant-a"),
        ("API_KEYS", 'quo"te:key-of-a-tenant-a'),
        ("API_KEYS", "tenant:"),
        ("API_KEYS", "tenant:a key with spaces"),
        ("API_KEYS", f"a:{SECRET},b:{SECRET}"),
        ("API_KEYS", " , ,"),
    ],
)
def test_what_does_not_parse_or_is_out_of_range_is_refused(name: str, text: str) -> None:
    assert refusal(**{name: text}) == ("setting_invalid", f"ROOKHOLD_{name}")


def test_a_job_may_not_be_allowed_more_memory_than_there_is_for_all() -> None:
    assert refusal(MAX_JOB_MEM_MB="512", MEMORY_BUDGET_MB="256") == (
        "setting_conflict",
        "ROOKHOLD_MAX_JOB_MEM_MB",
    )


def test_the_uids_of_all_workers_must_exist() -> None:
    assert read(SANDBOX_UID_BASE="4294967200", WORKERS="2").sandbox_uid_base == 4_294_967_200
    assert refusal(SANDBOX_UID_BASE="4294967200", WORKERS="200")[0] == "setting_invalid"


@pytest.mark.parametrize(
    ("text", "host", "loopback"),
    [
        ("localhost:7300", "127.0.0.1", True),
        ("127.8.9.1:7300", "127.8.9.1", True),
        ("[::1]:7300", "::1", True),
        ("0.0.0.0:7300", "0.0.0.0", False),
        ("[::]:7300", "::", False),
        ("192.0.2.1:0", "192.0.2.1", False),
    ],
)
def test_loopback_is_told_from_the_rest(text: str, host: str, *, loopback: bool) -> None:
    address = read(ADDR=text).address
    assert (address.host, address.is_loopback) == (host, loopback)


@pytest.mark.parametrize(
    ("text", "backend"),
    [
        ("none", "off"),
        ("naive", "off"),
        ("ns-dev", "namespaces-dev"),
        ("ns", "namespaces"),
        ("sandbox", "namespaces"),
        ("runsc", "gvisor"),
        ("acme-vm", "acme-vm"),
    ],
)
def test_a_backend_has_its_aliases(text: str, backend: str) -> None:
    assert read(SANDBOX=text).sandbox == backend


@pytest.mark.parametrize("text", ["off", "none", "disabled", "false", "0"])
def test_the_filter_can_be_turned_off_in_development(text: str) -> None:
    assert read(SECCOMP=text).seccomp is False


def test_the_isolated_backends_are_configured() -> None:
    settings = read(
        ROOTFS="/srv/rookhold/rootfs",
        GVISOR_RUNSC="/usr/bin/runsc",
        GVISOR_ROOTFS_SHA256="AB" * 32,
        GVISOR_PLATFORM="kvm",
        GVISOR_UID="4294967294",
        GVISOR_GID="1",
    )
    assert settings.rootfs == Path("/srv/rookhold/rootfs")
    assert settings.runsc == Path("/usr/bin/runsc")
    assert settings.rootfs_sha256 == "ab" * 32
    assert settings.runsc_platform == "kvm"
    assert (settings.gvisor_uid, settings.gvisor_gid) == (4_294_967_294, 1)


@pytest.mark.parametrize("text", ["rookhold", "_rookhold", "svc-rookhold.2", "998"])
def test_the_account_of_the_server_is_a_name_or_a_number(text: str) -> None:
    assert read(USER=text).user == text


def test_the_account_of_the_server_is_never_root() -> None:
    with pytest.raises(SettingError) as caught:
        read(USER="root")
    assert (caught.value.code, caught.value.variable) == ("setting_invalid", "ROOKHOLD_USER")


def test_weights_are_read() -> None:
    assert read(TENANT_WEIGHTS="a=3, b=1").tenant_weights == {"a": 3, "b": 1}


def test_unknown_names_are_kept_for_a_warning_and_client_names_are_not() -> None:
    settings = read(BASE_URL="x", API_KEY="x", WORKRES="2", READY_FD="9", LIFELINE_FD="8")
    assert settings.unknown_variables == ("ROOKHOLD_WORKRES",)
    assert (settings.ready_fd, settings.lifeline_fd) == (9, 8)


@pytest.mark.parametrize(
    ("mode", "key", "production", "outcome"),
    [
        ("", "", False, None),
        ("", "/k.pem", False, Path("/k.pem")),
        ("", "k.pem", False, Path("k.pem")),
        ("", "", True, "ROOKHOLD_ATTESTATION_MODE"),
        ("", "/k.pem", True, Path("/k.pem")),
        ("", "k.pem", True, "ROOKHOLD_ATTESTATION_KEY_FILE"),
        ("sign", "/k.pem", False, Path("/k.pem")),
        (" Enabled", "/k.pem", False, Path("/k.pem")),
        ("on", "", False, "ROOKHOLD_ATTESTATION_KEY_FILE"),
        ("off", "", True, None),
        ("none", "", False, None),
        ("disabled", "/k.pem", False, "ROOKHOLD_ATTESTATION_MODE"),
    ],
)
def test_signing_is_decided_by_mode_and_key_file(
    mode: str, key: str, outcome: Path | str | None, *, production: bool
) -> None:
    variables = {
        "ENV": "production" if production else "dev",
        "ATTESTATION_MODE": mode,
        "ATTESTATION_KEY_FILE": key,
    }
    if isinstance(outcome, str):
        assert refusal(**variables)[1] == outcome
    else:
        assert read(**variables).signing_key_file == outcome


def test_no_printed_form_of_the_settings_shows_a_key() -> None:
    settings = read(API_KEYS=f"a:{SECRET}")
    assert settings.api_keys.find(SECRET) is not None
    assert SECRET not in repr(settings)
