"""Changes of the credentials file: one at a time, each as a whole, for whoever runs the server."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from rookhold_server.errors import (
    CredentialEndedError,
    CredentialExistsError,
    InvalidCredentialsError,
    MalformedCredentialError,
    UnknownCredentialError,
    UnusableCredentialsError,
)
from rookhold_server.identity.credentials import (
    FILE,
    FILE_BYTES_MAX,
    PEPPER,
    PEPPER_FILE_BYTES_MAX,
    Credential,
    CredentialsFileError,
    broken_rule,
    encode_credentials,
    parse_credentials,
    parse_pepper,
)
from rookhold_server.identity.private_files import Owner, locked, write_anew, write_first
from rookhold_server.identity.secret_files import SecretFileError, check_for, read_secret_file
from rookhold_server.identity.structured import Pepper, new_key_id, new_token

if TYPE_CHECKING:
    from pathlib import Path

    from rookhold_server.identity.scopes import Scope


class Made(NamedTuple):
    """A credential and the only copy of its token."""

    credential: Credential
    token: str


class Rotated(NamedTuple):
    made: Made
    replaced: Credential


class Keeper:
    """One credentials file. A file that is rewritten keeps its owner and is 0600 afterwards."""

    def __init__(
        self, file: Path, pepper_file: Path | None = None, *, owner: Owner | None = None
    ) -> None:
        """`pepper_file` is needed where a token is made; `owner` is whose new files are."""
        self._file = file
        self._pepper_file = pepper_file
        self._owner = owner

    def entries(self) -> tuple[Credential, ...]:
        return self._entries(missing_is_empty=False)

    def create(
        self,
        *,
        tenant: str,
        principal: str | None,
        scopes: tuple[Scope, ...],
        now_ms: int,
        lifetime_ms: int | None = None,
        key_id: str | None = None,
    ) -> Made:
        """Add one; makes the file and the pepper if neither is there. The principal may be the id.

        Raises a CredentialsError.
        """
        with locked(self._file, owner=self._owner):
            entries = self._entries(missing_is_empty=True)
            pepper = self._pepper(may_be_made=not entries)
            made = _make(
                entries,
                pepper,
                key_id=key_id,
                tenant=tenant,
                principal=principal,
                scopes=scopes,
                now_ms=now_ms,
                lifetime_ms=lifetime_ms,
            )
            self._write((*entries, made.credential))
        return made

    def revoke(self, key_id: str, *, at_ms: int) -> Credential:
        """End its authority then; a revocation that comes earlier already stays."""
        with locked(self._file, owner=self._owner):
            entries = self._entries(missing_is_empty=False)
            ended = _ended(_find(entries, key_id), at_ms)
            self._write(tuple(ended if entry.key_id == key_id else entry for entry in entries))
        return ended

    def rotate(
        self,
        key_id: str,
        *,
        now_ms: int,
        overlap_ms: int,
        lifetime_ms: int | None = None,
        new_key_id: str | None = None,
    ) -> Rotated:
        """Make one that may do the same, and end the old one after the overlap.

        Without a lifetime of its own it lives as long as the old one was to live.
        """
        with locked(self._file, owner=self._owner):
            entries = self._entries(missing_is_empty=False)
            old = _find(entries, key_id)
            if not old.is_alive(now_ms):
                raise CredentialEndedError("this credential has ended; create another one")
            if lifetime_ms is None and old.expires_at_ms is not None:
                lifetime_ms = old.expires_at_ms - old.created_at_ms
            made = _make(
                entries,
                self._pepper(may_be_made=False),
                key_id=new_key_id,
                tenant=old.tenant_id,
                principal=old.principal_id,
                scopes=old.scopes,
                now_ms=now_ms,
                lifetime_ms=lifetime_ms,
            )
            ended = _ended(old, now_ms + overlap_ms)
            kept = tuple(ended if entry.key_id == key_id else entry for entry in entries)
            self._write((*kept, made.credential))
        return Rotated(made, ended)

    def unfit_for_production(self) -> list[tuple[str, str]]:
        """Return variable and broken rule of each file that a server of its owner would refuse."""
        found = []
        for variable, file in ((FILE, self._file), (PEPPER, self._pepper_file)):
            if file is None:
                continue
            try:
                check_for(file, file.stat().st_uid)
            except SecretFileError as exc:
                found.append((variable, str(exc)))
            except OSError:
                found.append((variable, "cannot be read"))
        return found

    def _entries(self, *, missing_is_empty: bool) -> tuple[Credential, ...]:
        if missing_is_empty and not os.path.lexists(self._file):
            return ()
        try:
            data, _ = read_secret_file(self._file, bytes_max=FILE_BYTES_MAX, strict=False)
        except SecretFileError as exc:
            raise UnusableCredentialsError(f"the credentials file {exc}") from None
        try:
            return parse_credentials(data)
        except CredentialsFileError as exc:
            raise InvalidCredentialsError(f"the credentials file {exc}") from None

    def _pepper(self, *, may_be_made: bool) -> Pepper:
        """Another pepper would verify none of the credentials that there are."""
        if (file := self._pepper_file) is None:
            raise UnusableCredentialsError("a pepper file is needed to make a token")
        if may_be_made and not os.path.lexists(file):
            pepper = Pepper.new()
            write_first(file, f"{pepper.hex()}\n".encode(), owner=self._owner)
            return pepper
        try:
            data, _ = read_secret_file(file, bytes_max=PEPPER_FILE_BYTES_MAX, strict=False)
        except SecretFileError as exc:
            raise UnusableCredentialsError(f"the pepper file {exc}") from None
        try:
            return parse_pepper(data)
        except CredentialsFileError as exc:
            raise InvalidCredentialsError(f"the pepper file {exc}") from None

    def _write(self, entries: tuple[Credential, ...]) -> None:
        data = encode_credentials(entries)
        try:
            parse_credentials(data)  # whatever we were told, a server must take what we write
        except CredentialsFileError as exc:
            raise InvalidCredentialsError(f"the credentials file would not do: it {exc}") from None
        write_anew(self._file, data, owner=self._owner)


def _make(
    entries: tuple[Credential, ...],
    pepper: Pepper,
    *,
    key_id: str | None,
    tenant: str,
    principal: str | None,
    scopes: tuple[Scope, ...],
    now_ms: int,
    lifetime_ms: int | None,
) -> Made:
    key_id = key_id or new_key_id()
    if any(entry.key_id == key_id for entry in entries):
        raise CredentialExistsError("another credential has this key id", key_id=key_id)
    token = new_token(key_id)
    credential = Credential(
        key_id=key_id,
        tenant_id=tenant,
        principal_id=key_id if principal is None else principal,
        digest_hmac_sha256=pepper.verifier(token).hex(),
        scopes=scopes,
        created_at_ms=now_ms,
        expires_at_ms=None if lifetime_ms is None else now_ms + lifetime_ms,
    )
    if (rule := broken_rule(credential)) is not None:
        raise MalformedCredentialError(rule)
    return Made(credential, token)


def _find(entries: tuple[Credential, ...], key_id: str) -> Credential:
    for entry in entries:
        if entry.key_id == key_id:
            return entry
    raise UnknownCredentialError("no credential has this key id")


def _ended(entry: Credential, at_ms: int) -> Credential:
    """With a clock that was set back it may seem to end before it began."""
    at_ms = max(at_ms, entry.created_at_ms)
    if entry.revoked_at_ms is not None and entry.revoked_at_ms <= at_ms:
        return entry
    return replace(entry, revoked_at_ms=at_ms)
