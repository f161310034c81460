"""What the listener speaks TLS with: a chain, its key, and the versions that are still good."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from rookhold_server.errors import ConflictingSettingError, InvalidSettingError, UnsafeSettingError
from rookhold_server.identity.secret_files import (
    SecretFileError,
    UnsafeSecretFileError,
    read_secret_file,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rookhold_server.config.settings import Settings

CERTIFICATE: Final = "ROOKHOLD_TLS_CERT_FILE"
KEY: Final = "ROOKHOLD_TLS_KEY_FILE"
_BYTES_MAX: Final = 256 * 1024
# Of TLS 1.2 only what HTTP/2 allows (RFC 9113, appendix A); those of 1.3 are all good.
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"


def listener_tls(settings: Settings) -> ssl.SSLContext | None:
    """Return None for a plain listener. Raises a SettingError that shows neither path nor content.

    The files are read once; a renewed certificate is served from the next start on.
    """
    certificate, key = settings.certificate_file, settings.certificate_key_file
    if certificate is None or key is None:
        return None
    _check(CERTIFICATE, certificate, strict=settings.production, public=True)
    _check(KEY, key, strict=settings.production, public=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["h2", "http/1.1"])
    _load(context, certificate, key)
    return context


def _check(variable: str, path: Path, *, strict: bool, public: bool) -> None:
    try:
        read_secret_file(path, bytes_max=_BYTES_MAX, strict=strict, public=public)
    except UnsafeSecretFileError as exc:
        raise UnsafeSettingError(variable, str(exc)) from None
    except SecretFileError as exc:
        raise InvalidSettingError(variable, str(exc)) from None


def _load(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Tell apart what OpenSSL found wrong as far as its own words allow."""
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except _EncryptedKeyError:
        raise InvalidSettingError(KEY, "must hold a private key without a password") from None
    except ssl.SSLError as exc:
        if exc.reason == "KEY_VALUES_MISMATCH":
            raise ConflictingSettingError(
                KEY, f"is not the key of the certificate in {CERTIFICATE}"
            ) from None
        # OpenSSL reads the certificate first, and what it says of a file without one is no guide.
        variable = KEY if _has_certificate(certificate) else CERTIFICATE
        raise InvalidSettingError(variable, "is not PEM that OpenSSL can use") from None
    except OSError:
        raise InvalidSettingError(CERTIFICATE, "cannot be read together with its key") from None


def _has_certificate(path: Path) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)
    except (ssl.SSLError, OSError):
        return False
    return True


class _EncryptedKeyError(Exception):
    """Nobody is there to type a password."""


def _no_password() -> str:
    raise _EncryptedKeyError
