"""Signing a statement into an envelope."""

from collections.abc import Sequence

from . import profile
from .envelope import write_envelope
from .errors import (
    DuplicateSigningKeyError,
    KeyIdCollisionError,
    NoSigningKeysError,
    TooManySignaturesError,
)
from .keys import PrivateKey
from .pae import pae
from .statement import check_signable, compose


def sign_statement(statement: bytes, keys: Sequence[PrivateKey]) -> bytes:
    """Return the envelope bytes; the statement is signed exactly as given, after every check.

    Ed25519 is deterministic, so the same statement and keys give the same bytes.
    """
    if not keys:
        raise NoSigningKeysError
    if len(keys) > profile.SIGNATURES_MAX:
        raise TooManySignaturesError(max=profile.SIGNATURES_MAX)
    check_signable(statement)
    by_id: dict[str, PrivateKey] = {}
    for key in keys:
        if (known := by_id.get(key.key_id)) is not None:
            same = known.public_key == key.public_key
            raise DuplicateSigningKeyError if same else KeyIdCollisionError
        by_id[key.key_id] = key
    message = pae(profile.PAYLOAD_TYPE, statement)
    signed = [(key_id, key.sign(message)) for key_id, key in by_id.items()]
    return write_envelope(profile.PAYLOAD_TYPE, statement, signed)


def sign_result(
    *,
    execution_id: str,
    tenant: str,
    subject_name: str,
    media_type: str,
    artifact: bytes,
    receipt_json: bytes,
    keys: Sequence[PrivateKey],
) -> bytes:
    """Return the envelope of `sign_statement(build_statement(...), keys)`.

    What those refuse is refused; what is built is checked once, where it is signed.
    """
    statement = compose(
        execution_id=execution_id,
        tenant=tenant,
        subject_name=subject_name,
        media_type=media_type,
        artifact=artifact,
        receipt_json=receipt_json,
    )
    return sign_statement(statement, keys)
