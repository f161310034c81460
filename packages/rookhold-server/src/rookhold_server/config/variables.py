"""Every variable of the contract, and what its text must be."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from rookhold_exec.select import full_name
from rookhold_server.config import oidc, tracing, values
from rookhold_server.config.address import parse_address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PREFIX: Final = "ROOKHOLD_"

_ENVIRONMENTS: Final = MappingProxyType(
    {
        **dict.fromkeys(("prod", "production", "release"), True),
        **dict.fromkeys(("dev", "development", "test"), False),
    }
)
_SECCOMP: Final = MappingProxyType(
    {
        **dict.fromkeys(("auto", "on"), True),
        **dict.fromkeys(("off", "none", "disabled", "false", "0"), False),
    }
)
_SIGNING: Final = MappingProxyType(
    {
        **dict.fromkeys(("sign", "signed", "on", "enabled"), True),
        **dict.fromkeys(("off", "disabled", "none"), False),
    }
)


def _backend(text: str) -> str:
    if not text.isprintable() or any(c.isspace() for c in text):
        raise values.MalformedValueError("must be auto or the name of a backend")
    return full_name(text)


# What each variable's text must be. Meaning and defaults are in `settings`.
PARSERS: Final[Mapping[str, Callable[[str], Any]]] = MappingProxyType(
    {
        "ROOKHOLD_CONFIG_FILE": values.path,
        "ROOKHOLD_ENV": values.word_choice(_ENVIRONMENTS),
        "ROOKHOLD_ADDR": parse_address,
        "ROOKHOLD_TLS_CERT_FILE": values.path,
        "ROOKHOLD_TLS_KEY_FILE": values.path,
        "ROOKHOLD_TLS_TERMINATED_BY_PROXY": values.boolean,
        "ROOKHOLD_USER": values.account,
        "ROOKHOLD_DB": values.path,
        "ROOKHOLD_JOBS_ROOT": values.absolute_path,
        "ROOKHOLD_STORAGE_GLOBAL_MB": values.integer(128, 1_048_576),
        "ROOKHOLD_STORAGE_TENANT_MB": values.integer(64, 1_048_576),
        "ROOKHOLD_STORAGE_FREE_RESERVE_MB": values.integer(0, 1_048_576),
        "ROOKHOLD_RETENTION_HOURS": values.integer(0, 87_600),
        "ROOKHOLD_SWEEP_INTERVAL_SECS": values.integer(60, 86_400),
        "ROOKHOLD_LOG_FORMAT": values.choice(
            {"json": "json", "compact": "compact", "text": "compact"}
        ),
        "ROOKHOLD_LOG_LEVEL": values.choice(
            {word: word for word in ("debug", "info", "warning", "error")}
        ),
        "ROOKHOLD_WORKERS": values.integer(1, 256),
        "ROOKHOLD_TENANT_CONCURRENCY": values.integer(1, 256),
        "ROOKHOLD_TENANT_WEIGHTS": values.tenant_weights,
        "ROOKHOLD_TENANT_QUEUE_CAPACITY": values.integer(1, 1024),
        "ROOKHOLD_RATE_PER_MIN": values.integer(1, 1_000_000),
        "ROOKHOLD_MAX_JOB_MEM_MB": values.integer(16, 4096),
        "ROOKHOLD_MEMORY_BUDGET_MB": values.integer(16, 1_048_576),
        "ROOKHOLD_SANDBOX": _backend,
        "ROOKHOLD_ROOTFS": values.absolute_path,
        "ROOKHOLD_SANDBOX_UID_BASE": values.integer(1, values.LAST_ID),
        "ROOKHOLD_SECCOMP": values.choice(_SECCOMP),
        "ROOKHOLD_GVISOR_RUNSC": values.absolute_path,
        "ROOKHOLD_GVISOR_ROOTFS_SHA256": values.sha256,
        "ROOKHOLD_GVISOR_PLATFORM": values.choice(
            {word: word for word in ("systrap", "kvm", "ptrace")}
        ),
        "ROOKHOLD_GVISOR_UID": values.integer(1, values.LAST_ID),
        "ROOKHOLD_GVISOR_GID": values.integer(1, values.LAST_ID),
        "ROOKHOLD_PYTHON": values.executable,
        "ROOKHOLD_NODE": values.executable,
        "ROOKHOLD_BASH": values.executable,
        "ROOKHOLD_UNSAFE_ALLOW_NAIVE": values.boolean,
        "ROOKHOLD_UNSAFE_ALLOW_PUBLIC_DEV": values.boolean,
        "ROOKHOLD_API_KEYS": str,  # parsed by `identity.api_keys`, which knows the environment
        "ROOKHOLD_CREDENTIALS_FILE": values.path,
        "ROOKHOLD_CREDENTIAL_PEPPER_FILE": values.path,
        **oidc.PARSERS,
        "ROOKHOLD_METRICS_TOKEN": values.token,
        **tracing.PARSERS,
        "ROOKHOLD_ATTESTATION_MODE": values.word_choice(_SIGNING),
        "ROOKHOLD_ATTESTATION_KEY_FILE": values.path,
        "ROOKHOLD_READY_FD": values.integer(3, 65535),
        "ROOKHOLD_LIFELINE_FD": values.integer(3, 65535),
        "ROOKHOLD_SUPERVISOR_FD": values.integer(3, 65535),
    }
)

# Between a parent and its gateway, not for operators.
INTERNAL: Final = frozenset({"ROOKHOLD_READY_FD", "ROOKHOLD_LIFELINE_FD", "ROOKHOLD_SUPERVISOR_FD"})

# Client commands read these under the same prefix; the server neither reads nor warns.
CLIENT_ONLY: Final = frozenset({"ROOKHOLD_BASE_URL", "ROOKHOLD_API_KEY"})
