"""The settings in force, for people: each with where it came from, no secret among them."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from rookhold_server.config.file import FILE, from_file
from rookhold_server.config.settings import Settings, read_settings
from rookhold_server.config.variables import INTERNAL, PARSERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HIDDEN: Final = "<hidden>"
_SECRET: Final = frozenset({"ROOKHOLD_API_KEYS", "ROOKHOLD_METRICS_TOKEN", "ROOKHOLD_OTEL_HEADERS"})
_ORIGIN_ALONE: Final = frozenset({"ROOKHOLD_OTEL_ENDPOINT"})

# Where a setting that nobody gave has its value. One that is absent here has none by default.
_DEFAULTS: Final[Mapping[str, Callable[[Settings], Any]]] = MappingProxyType(
    {
        "ROOKHOLD_ENV": lambda s: "production" if s.production else "development",
        "ROOKHOLD_ADDR": lambda s: s.address,
        "ROOKHOLD_TLS_TERMINATED_BY_PROXY": lambda s: s.tls_terminated_by_proxy,
        "ROOKHOLD_DB": lambda s: s.database,
        "ROOKHOLD_JOBS_ROOT": lambda s: s.jobs_root,
        "ROOKHOLD_STORAGE_GLOBAL_MB": lambda s: s.storage_global_mb,
        "ROOKHOLD_STORAGE_TENANT_MB": lambda s: s.storage_tenant_mb,
        "ROOKHOLD_STORAGE_FREE_RESERVE_MB": lambda s: s.storage_free_reserve_mb,
        "ROOKHOLD_RETENTION_HOURS": lambda s: s.retention_hours,
        "ROOKHOLD_SWEEP_INTERVAL_SECS": lambda s: s.sweep_interval_seconds,
        "ROOKHOLD_LOG_FORMAT": lambda s: s.log_format,
        "ROOKHOLD_LOG_LEVEL": lambda s: s.log_level,
        "ROOKHOLD_WORKERS": lambda s: s.workers,
        "ROOKHOLD_TENANT_CONCURRENCY": lambda s: s.tenant_concurrency,
        "ROOKHOLD_TENANT_QUEUE_CAPACITY": lambda s: s.tenant_queue_capacity,
        "ROOKHOLD_RATE_PER_MIN": lambda s: s.rate_per_minute,
        "ROOKHOLD_MAX_JOB_MEM_MB": lambda s: s.max_job_mem_mb,
        "ROOKHOLD_MEMORY_BUDGET_MB": lambda s: s.memory_budget_mb,
        "ROOKHOLD_SANDBOX": lambda s: s.sandbox,
        "ROOKHOLD_SANDBOX_UID_BASE": lambda s: s.sandbox_uid_base,
        "ROOKHOLD_SECCOMP": lambda s: "on" if s.seccomp else "off",
        "ROOKHOLD_GVISOR_PLATFORM": lambda s: s.runsc_platform,
        "ROOKHOLD_GVISOR_UID": lambda s: s.gvisor_uid,
        "ROOKHOLD_GVISOR_GID": lambda s: s.gvisor_gid,
        "ROOKHOLD_PYTHON": lambda s: s.interpreters["python"],
        "ROOKHOLD_NODE": lambda s: s.interpreters["node"],
        "ROOKHOLD_BASH": lambda s: s.interpreters["bash"],
        "ROOKHOLD_UNSAFE_ALLOW_NAIVE": lambda s: s.allow_naive,
        "ROOKHOLD_UNSAFE_ALLOW_PUBLIC_DEV": lambda s: s.allow_public_dev,
        "ROOKHOLD_API_KEYS": lambda s: "the public key" if s.api_keys.any_public else None,
        "ROOKHOLD_OTEL_SAMPLE_PERCENT": lambda s: s.tracing and s.tracing.sample_percent,
        "ROOKHOLD_ATTESTATION_MODE": lambda s: "off" if s.signing_key_file is None else "sign",
    }
)


class Shown(Struct, frozen=True, kw_only=True):
    """`source` is `environment`, `file`, `default` or `unset`; only an unset one has no value."""

    name: str
    value: str | None
    source: str


def shown(environ: Mapping[str, str]) -> tuple[Shown, ...]:
    """Return every setting; raises what a start with this environment would be refused for."""
    settings = read_settings(environ)
    told = from_file(environ)
    return tuple(_one(name, settings, environ, told) for name in PARSERS if name not in INTERNAL)


def unknown(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of variables that look like settings and are none; a typing error, often."""
    return read_settings(environ).unknown_variables


def _one(
    name: str, settings: Settings, environ: Mapping[str, str], told: Mapping[str, str]
) -> Shown:
    for source, given in (("environment", environ), ("file", told)):
        if text := given.get(name, ""):
            return Shown(name=name, value=_told(name, text), source=source)
    default = _DEFAULTS[name](settings) if name in _DEFAULTS and name != FILE else None
    if default is None:
        return Shown(name=name, value=None, source="unset")
    text = str(default).lower() if isinstance(default, bool) else str(default)
    return Shown(name=name, value=text, source="default")


def _told(name: str, text: str) -> str:
    """Return what may be seen of a value; some collectors have their key in the path."""
    if name in _SECRET:
        return HIDDEN
    if name in _ORIGIN_ALONE:
        address = urlsplit(text)
        path = f"/{HIDDEN}" if address.path.strip("/") else address.path
        return f"{address.scheme}://{address.netloc.rpartition('@')[2]}{path}"
    return text
