"""Changes of the credentials file: one at a time, each as a whole, for whoever runs the server."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from rookhold_server.errors import (
    CredentialEndedError,
    CredentialExistsError,
    CredentialsBusyError,
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
from rookhold_server.identity.secret_files import SecretFileError, check_for, read_secret_file
from rookhold_server.identity.structured import Pepper, new_key_id, new_token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rookhold_server.identity.scopes import Scope

_LOCK_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.05
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE: Final = 0o600


class Owner(NamedTuple):
    """Who a file that is made new belongs to."""

    uid: int
    gid: int


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
        with self._lock():
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
        with self._lock():
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
        with self._lock():
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
            self._put(file, f"{pepper.hex()}\n".encode(), into=_place_new)
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
        self._put(self._file, data, into=_place)

    def _put(self, file: Path, data: bytes, *, into: Callable[[int, str, str], None]) -> None:
        """Have the content in its place at once and as a whole, durably."""
        with _folder(file) as folder:
            owner = self._owner_of(file.name, folder)
            name = f".{file.name}.{secrets.token_hex(8)}"
            descriptor = os.open(name, _CREATE, _MODE, dir_fd=folder)
            try:
                with os.fdopen(descriptor, "wb") as new:
                    _give(new.fileno(), owner)
                    os.fchmod(new.fileno(), _MODE)
                    new.write(data)
                    new.flush()
                    os.fsync(new.fileno())
                into(folder, name, file.name)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
            os.fsync(folder)

    def _owner_of(self, name: str, folder: int) -> Owner | None:
        """A file that is there keeps its owner; it is no link, as it has just been read."""
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return self._owner
        return Owner(found.st_uid, found.st_gid)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Keep others from changing it; the file beside it stays for the next time."""
        with _folder(self._file) as folder:
            name = f".{self._file.name}.lock"
            descriptor = self._open_lock(name, folder)
            try:
                _wait_for(descriptor)
                yield
            finally:
                os.close(descriptor)

    def _open_lock(self, name: str, folder: int) -> int:
        try:
            descriptor = os.open(name, _CREATE, _MODE, dir_fd=folder)
        except FileExistsError:
            flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            return os.open(name, flags, dir_fd=folder)
        _give(descriptor, self._owner_of(self._file.name, folder))
        return descriptor


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


@contextlib.contextmanager
def _folder(file: Path) -> Iterator[int]:
    """Yield the directory's descriptor; what goes wrong with a file in it is told as ours."""
    try:
        folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield folder
        finally:
            os.close(folder)
    except OSError as exc:
        why = os.strerror(exc.errno or 0)  # the exception's own text repeats the path
        raise UnusableCredentialsError(f"the file cannot be used ({why})") from None


def _place(folder: int, name: str, final: str) -> None:
    os.replace(name, final, src_dir_fd=folder, dst_dir_fd=folder)


def _place_new(folder: int, name: str, final: str) -> None:
    """Never in the place of another: a pepper that is lost takes every credential with it."""
    os.link(name, final, src_dir_fd=folder, dst_dir_fd=folder)


def _give(descriptor: int, owner: Owner | None) -> None:
    found = os.fstat(descriptor)
    if owner is not None and owner != (found.st_uid, found.st_gid):
        os.fchown(descriptor, *owner)


def _wait_for(descriptor: int) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise UnusableCredentialsError("the lock beside the credentials file is no regular file")
    end = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise CredentialsBusyError("somebody else is changing the file") from None
            time.sleep(_LOOK_SECONDS)
        else:
            return
