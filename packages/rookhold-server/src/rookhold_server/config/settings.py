"""The settings of one server process, from its environment and the file that it names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from rookhold_server.config.address import Address
from rookhold_server.config.file import gathered
from rookhold_server.config.oidc import OidcSettings, read_oidc
from rookhold_server.config.tracing import TracingSettings, read_tracing
from rookhold_server.config.values import Hidden, MalformedValueError
from rookhold_server.config.variables import CLIENT_ONLY, PARSERS, PREFIX
from rookhold_server.errors import (
    ConflictingSettingError,
    InvalidSettingError,
    RequiredSettingError,
)
from rookhold_server.identity.api_keys import ApiKeys, parse_api_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

_PRODUCTION_STATE: Final = Path("/var/lib/rookhold")
_INTERPRETERS: Final = {"python": "python3", "node": "node", "bash": "bash"}


class Settings(Struct, frozen=True, kw_only=True):
    """Parsed and in range; `guards` says whether the combination may be served."""

    production: bool
    address: Address
    certificate_file: Path | None  # both or neither
    certificate_key_file: Path | None
    tls_terminated_by_proxy: bool
    user: str | None  # the account that a server started as root gives itself up for
    state_directory: Path | None  # where development keeps its state; None if nothing is kept there
    database: Path
    jobs_root: Path
    storage_global_mb: int
    storage_tenant_mb: int
    storage_free_reserve_mb: int  # 0 turns the check of the disk off
    retention_hours: int  # 0 keeps for ever
    sweep_interval_seconds: int
    log_format: str
    log_level: str
    workers: int
    tenant_concurrency: int
    tenant_weights: dict[str, int]
    tenant_queue_capacity: int
    rate_per_minute: int
    max_job_mem_mb: int
    memory_budget_mb: int
    sandbox: str
    rootfs: Path | None
    sandbox_uid_base: int
    seccomp: bool
    runsc: Path | None
    rootfs_sha256: str | None
    runsc_platform: str
    gvisor_uid: int
    gvisor_gid: int
    interpreters: dict[str, str]
    allow_naive: bool
    allow_public_dev: bool
    api_keys: ApiKeys
    credentials_file: Path | None  # both or neither
    pepper_file: Path | None
    oidc: OidcSettings | None
    metrics_token: Hidden | None
    tracing: TracingSettings | None  # None where traces go nowhere
    signing_key_file: Path | None
    ready_fd: int | None
    lifeline_fd: int | None
    supervisor_fd: int | None  # of the root process that started this one
    unknown_variables: tuple[str, ...]


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Refuses the first variable that is malformed or contradicts another."""
    environ = gathered(environ)
    given = {name: text for name, text in environ.items() if name.startswith(PREFIX)}
    value = _Parsed(given)
    production: bool = value("ROOKHOLD_ENV", False)
    workers: int = value("ROOKHOLD_WORKERS", min(256, max(2, len(os.sched_getaffinity(0)))))
    state_directory = None if production else _state_directory(environ, given)
    state = state_directory or _PRODUCTION_STATE
    credentials_file, pepper_file = _pair(
        value, "ROOKHOLD_CREDENTIALS_FILE", "ROOKHOLD_CREDENTIAL_PEPPER_FILE"
    )
    certificate, certificate_key = _pair(value, "ROOKHOLD_TLS_CERT_FILE", "ROOKHOLD_TLS_KEY_FILE")
    oidc = read_oidc(given.keys(), value)
    settings = Settings(
        production=production,
        address=value("ROOKHOLD_ADDR", Address("127.0.0.1", 7300)),
        certificate_file=certificate,
        certificate_key_file=certificate_key,
        tls_terminated_by_proxy=value("ROOKHOLD_TLS_TERMINATED_BY_PROXY", False),
        state_directory=state_directory,
        user=value("ROOKHOLD_USER", None),
        database=value("ROOKHOLD_DB", state / "rookhold.db"),
        jobs_root=value("ROOKHOLD_JOBS_ROOT", state / "jobs"),
        storage_global_mb=value("ROOKHOLD_STORAGE_GLOBAL_MB", 16_384),
        storage_tenant_mb=value("ROOKHOLD_STORAGE_TENANT_MB", 4096),
        storage_free_reserve_mb=value("ROOKHOLD_STORAGE_FREE_RESERVE_MB", 1024),
        retention_hours=value("ROOKHOLD_RETENTION_HOURS", 168),
        sweep_interval_seconds=value("ROOKHOLD_SWEEP_INTERVAL_SECS", 3600),
        log_format=value("ROOKHOLD_LOG_FORMAT", "json" if production else "compact"),
        log_level=value("ROOKHOLD_LOG_LEVEL", "info"),
        workers=workers,
        tenant_concurrency=value("ROOKHOLD_TENANT_CONCURRENCY", workers),
        tenant_weights=value("ROOKHOLD_TENANT_WEIGHTS", {}),
        tenant_queue_capacity=value("ROOKHOLD_TENANT_QUEUE_CAPACITY", 64),
        rate_per_minute=value("ROOKHOLD_RATE_PER_MIN", 1200),
        max_job_mem_mb=value("ROOKHOLD_MAX_JOB_MEM_MB", 1024),
        memory_budget_mb=value("ROOKHOLD_MEMORY_BUDGET_MB", 4096),
        sandbox=value("ROOKHOLD_SANDBOX", "auto"),
        rootfs=value("ROOKHOLD_ROOTFS", None),
        sandbox_uid_base=value("ROOKHOLD_SANDBOX_UID_BASE", 210_000),
        seccomp=value("ROOKHOLD_SECCOMP", True),
        runsc=value("ROOKHOLD_GVISOR_RUNSC", None),
        rootfs_sha256=value("ROOKHOLD_GVISOR_ROOTFS_SHA256", None),
        runsc_platform=value("ROOKHOLD_GVISOR_PLATFORM", "systrap"),
        gvisor_uid=value("ROOKHOLD_GVISOR_UID", 65_534),
        gvisor_gid=value("ROOKHOLD_GVISOR_GID", 65_534),
        interpreters={
            language: value(f"ROOKHOLD_{language.upper()}", default)
            for language, default in _INTERPRETERS.items()
        },
        allow_naive=value("ROOKHOLD_UNSAFE_ALLOW_NAIVE", False),
        allow_public_dev=value("ROOKHOLD_UNSAFE_ALLOW_PUBLIC_DEV", False),
        api_keys=parse_api_keys(
            given.get("ROOKHOLD_API_KEYS"),
            production=production,
            others=credentials_file is not None or oidc is not None,
        ),
        credentials_file=credentials_file,
        pepper_file=pepper_file,
        oidc=oidc,
        metrics_token=value("ROOKHOLD_METRICS_TOKEN", None),
        tracing=read_tracing(value),
        signing_key_file=_signing_key_file(value, production=production),
        ready_fd=value("ROOKHOLD_READY_FD", None),
        lifeline_fd=value("ROOKHOLD_LIFELINE_FD", None),
        supervisor_fd=value("ROOKHOLD_SUPERVISOR_FD", None),
        unknown_variables=tuple(sorted(given.keys() - PARSERS.keys() - CLIENT_ONLY)),
    )
    _check_ranges_together(settings)
    return settings


def read_database(environ: Mapping[str, str]) -> Path:
    """Return where a server with these variables has its database; nothing else is looked at."""
    environ = gathered(environ)
    given = {name: text for name, text in environ.items() if name.startswith(PREFIX)}
    value = _Parsed(given)
    if "ROOKHOLD_DB" not in given and not value("ROOKHOLD_ENV", False):
        return (_state_directory(environ, given) or _PRODUCTION_STATE) / "rookhold.db"
    database: Path = value("ROOKHOLD_DB", _PRODUCTION_STATE / "rookhold.db")
    return database


def read_quotas(environ: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return the overall and the tenant's storage quota in MiB, as far as they are set."""
    value = _Parsed(gathered(environ))
    return value("ROOKHOLD_STORAGE_GLOBAL_MB", None), value("ROOKHOLD_STORAGE_TENANT_MB", None)


class _Parsed:
    """The parsed value of a variable, or the default where it is unset or empty."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def __call__(self, name: str, default: Any) -> Any:
        text = self._given.get(name)
        if text is None:
            return default
        try:
            return PARSERS[name](text)
        except MalformedValueError as exc:
            raise InvalidSettingError(name, str(exc)) from None


def _state_directory(environ: Mapping[str, str], given: Mapping[str, str]) -> Path | None:
    if "ROOKHOLD_DB" in given and "ROOKHOLD_JOBS_ROOT" in given:
        return None
    # A relative XDG path counts as unset (XDG base directory specification 0.8).
    if (xdg := environ.get("XDG_STATE_HOME", "")).startswith("/"):
        return Path(xdg) / "rookhold"
    if (home := environ.get("HOME", "")).startswith("/"):
        return Path(home) / ".local/state/rookhold"
    unset = "ROOKHOLD_DB" if "ROOKHOLD_DB" not in given else "ROOKHOLD_JOBS_ROOT"
    raise RequiredSettingError(unset, "needed where neither XDG_STATE_HOME nor HOME is set")


def _pair(value: _Parsed, one: str, other: str) -> tuple[Path | None, Path | None]:
    """Two files of which neither is of use alone; what is in them is read by whoever serves."""
    first: Path | None = value(one, None)
    second: Path | None = value(other, None)
    if first is not None and second is None:
        raise RequiredSettingError(other, f"needed with {one}")
    if second is not None and first is None:
        raise RequiredSettingError(one, f"needed with {other}")
    return first, second


def _signing_key_file(value: _Parsed, *, production: bool) -> Path | None:
    """The key to sign with, or None for off; the table of attestation.md, section 13."""
    mode: bool | None = value("ROOKHOLD_ATTESTATION_MODE", None)
    key_file: Path | None = value("ROOKHOLD_ATTESTATION_KEY_FILE", None)
    if mode is False and key_file is not None:
        raise ConflictingSettingError(
            "ROOKHOLD_ATTESTATION_MODE", "off together with ROOKHOLD_ATTESTATION_KEY_FILE"
        )
    if mode is True and key_file is None:
        raise RequiredSettingError("ROOKHOLD_ATTESTATION_KEY_FILE", "needed for signing")
    if production and mode is None and key_file is None:
        raise RequiredSettingError(
            "ROOKHOLD_ATTESTATION_MODE",
            "production needs a decision: off, or a key in ROOKHOLD_ATTESTATION_KEY_FILE",
        )
    if production and key_file is not None and not key_file.is_absolute():
        raise InvalidSettingError(
            "ROOKHOLD_ATTESTATION_KEY_FILE", "must be an absolute path in production"
        )
    return key_file


def _check_ranges_together(settings: Settings) -> None:
    if settings.max_job_mem_mb > settings.memory_budget_mb:
        raise ConflictingSettingError(
            "ROOKHOLD_MAX_JOB_MEM_MB", "must not be above ROOKHOLD_MEMORY_BUDGET_MB"
        )
    if settings.storage_tenant_mb > settings.storage_global_mb:
        raise ConflictingSettingError(
            "ROOKHOLD_STORAGE_TENANT_MB",
            "must not be above ROOKHOLD_STORAGE_GLOBAL_MB, also where it has its default",
        )
    if settings.sandbox_uid_base > 4_294_967_294 - settings.workers:
        raise InvalidSettingError(
            "ROOKHOLD_SANDBOX_UID_BASE", "must leave room for one uid for each worker"
        )
