"""Which valid settings may not be served: exposure, production, and what isolates the jobs."""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING

from rookhold_server.errors import RequiredSettingError, UnsafeSettingError
from rookhold_types.isolation import IsolationClass

if TYPE_CHECKING:
    from rookhold_server.config.address import Address
    from rookhold_server.config.settings import Settings


def check_settings(settings: Settings, *, effective_uid: int) -> None:
    """What can be told before anything is opened; refuses with the variable to change."""
    check_exposure(settings, settings.address)
    _check_complete(settings)
    if not settings.production:
        return
    keys = settings.api_keys
    if keys.is_default and settings.credentials_file is None and settings.oidc is None:
        raise RequiredSettingError(
            "ROOKHOLD_API_KEYS",
            "production needs credentials: these, ROOKHOLD_CREDENTIALS_FILE or ROOKHOLD_OIDC_*",
        )
    if keys.any_bare:
        raise UnsafeSettingError("ROOKHOLD_API_KEYS", "production needs tenant:key in every entry")
    if keys.any_public or keys.any_short:
        raise UnsafeSettingError(
            "ROOKHOLD_API_KEYS", "production refuses public development keys and short ones"
        )
    encrypted = settings.certificate_file is not None or settings.tls_terminated_by_proxy
    if not settings.address.is_loopback and not encrypted:
        raise UnsafeSettingError(
            "ROOKHOLD_ADDR",
            "plain HTTP beyond loopback needs ROOKHOLD_TLS_CERT_FILE, or a proxy that ends TLS and "
            "ROOKHOLD_TLS_TERMINATED_BY_PROXY",
        )
    if not settings.seccomp:
        raise UnsafeSettingError("ROOKHOLD_SECCOMP", "production does not run without the filter")
    if settings.runsc_platform == "ptrace":
        raise UnsafeSettingError(
            "ROOKHOLD_GVISOR_PLATFORM", "ptrace is for development; production takes systrap or kvm"
        )
    if effective_uid == 0 and settings.user is None:
        raise RequiredSettingError(
            "ROOKHOLD_USER", "production as root needs an account for the HTTP server to run as"
        )


def _check_complete(settings: Settings) -> None:
    """A backend that was named needs what only the operator can name; `auto` passes it by.

    Where the platform has no such backend at all, that is said instead, when it is chosen.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return
    needed = {
        "namespaces": (("ROOKHOLD_ROOTFS", settings.rootfs),),
        "gvisor": (
            ("ROOKHOLD_ROOTFS", settings.rootfs),
            ("ROOKHOLD_GVISOR_RUNSC", settings.runsc),
            ("ROOKHOLD_GVISOR_ROOTFS_SHA256", settings.rootfs_sha256),
        ),
    }
    for variable, value in needed.get(settings.sandbox, ()):
        if value is None:
            raise RequiredSettingError(variable, f"the backend {settings.sandbox} needs it")


def check_exposure(
    settings: Settings, address: Address, *, isolation_class: IsolationClass | None = None
) -> None:
    """Development on an address others can reach; `isolation_class` once the backend is known.

    Asked of the declared address first, of the bound one later.
    """
    if settings.production or settings.allow_public_dev or address.is_loopback:
        return
    reason = None
    if settings.api_keys.any_public:
        reason = "a public development key"
    elif settings.api_keys.any_short:
        reason = "an API key under 16 characters"
    elif isolation_class is IsolationClass.NONE or settings.sandbox in {"off", "namespaces-dev"}:
        reason = "a backend of isolation class none"
    if reason is not None:
        raise UnsafeSettingError(
            "ROOKHOLD_ADDR",
            f"beyond loopback with {reason}; ROOKHOLD_UNSAFE_ALLOW_PUBLIC_DEV acknowledges it",
        )


def check_backend(settings: Settings, address: Address, isolation_class: IsolationClass) -> None:
    """After the backend was chosen and the listener bound."""
    check_exposure(settings, address, isolation_class=isolation_class)
    if not settings.production or isolation_class is not IsolationClass.NONE:
        return
    if settings.sandbox == "auto":
        raise UnsafeSettingError(
            "ROOKHOLD_SANDBOX", "this host offers no backend of an isolation class to auto"
        )
    if not settings.allow_naive:
        raise UnsafeSettingError(
            "ROOKHOLD_SANDBOX",
            "a backend of isolation class none; ROOKHOLD_UNSAFE_ALLOW_NAIVE acknowledges it",
        )
