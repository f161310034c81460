"""Rookhold attestations: sign a job's receipt, verify it offline, with nothing of Rookhold near.

Names are loaded on first use, so that importing this package costs nothing and asking the command
line for help does not load the cryptography.
"""

TYPE_CHECKING = False  # as typing's, which asking for help does not need
if TYPE_CHECKING:
    from .artifact import ArtifactDigest, build_result_artifact
    from .binding import binds
    from .errors import AttestationError
    from .keys import PrivateKey, PublicKey
    from .sign import sign_result, sign_statement
    from .statement import Statement, build_statement
    from .verify import Policy, Verified, verify_envelope
    from .waivers import waiver_code

_HOMES = {
    "ArtifactDigest": "artifact",
    "AttestationError": "errors",
    "Policy": "verify",
    "PrivateKey": "keys",
    "PublicKey": "keys",
    "Statement": "statement",
    "Verified": "verify",
    "binds": "binding",
    "build_result_artifact": "artifact",
    "build_statement": "statement",
    "sign_result": "sign",
    "sign_statement": "sign",
    "verify_envelope": "verify",
    "waiver_code": "waivers",
}

__all__ = [
    "ArtifactDigest",
    "AttestationError",
    "Policy",
    "PrivateKey",
    "PublicKey",
    "Statement",
    "Verified",
    "binds",
    "build_result_artifact",
    "build_statement",
    "sign_result",
    "sign_statement",
    "verify_envelope",
    "waiver_code",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value
