"""The credentials in force: read at start, and again whenever the file says something new."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from rookhold_server.errands import Errands
from rookhold_server.errors import InvalidSettingError, UnsafeSettingError
from rookhold_server.identity.credentials import (
    FILE,
    FILE_BYTES_MAX,
    PEPPER,
    PEPPER_FILE_BYTES_MAX,
    CredentialSet,
    CredentialsFileError,
    parse_credentials,
    parse_pepper,
)
from rookhold_server.identity.secret_files import (
    SecretFileError,
    Stamp,
    UnsafeSecretFileError,
    read_secret_file,
    stamp_of,
)
from rookhold_server.identity.structured import parts
from rookhold_server.identity.withdrawals import Withdrawals
from rookhold_server.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rookhold_server.identity.principal import Principal
    from rookhold_server.identity.scopes import Scope
    from rookhold_server.identity.structured import Pepper

_log = logging.getLogger(__name__)

CHANGED: Final = "credentials_changed"  # how the log calls a new set
KEPT: Final = "credentials_kept"  # and a file that was not taken
LOOK_SECONDS: Final = 1.0


class LiveCredentials:
    """One set at a time; a request sees the old one or the new one, never some of each."""

    def __init__(
        self,
        file: Path,
        pepper_file: Path,
        *,
        strict: bool,
        clock: Callable[[], int],
        look_seconds: float = LOOK_SECONDS,
        nobodys: str | None = None,
    ) -> None:
        """Read both files; raises SettingError. The pepper is never read again.

        A file that is read later is not taken if it makes the token `nobodys` somebody's.
        """
        self._file = file
        self._strict = strict
        self._clock = clock
        self._look_seconds = look_seconds
        self._nobodys = nobodys
        self._errands = Errands("credentials", 1)
        self._asked = anyio.Event()
        self.withdrawals = Withdrawals(self._stands)
        self._pepper = _read_pepper(pepper_file, strict=strict)
        try:
            self._set, self._seen = self._read()
            self._told, self._told_ms = self._set, clock()
        except UnsafeSecretFileError as exc:
            raise UnsafeSettingError(FILE, str(exc)) from None
        except (SecretFileError, CredentialsFileError) as exc:
            raise InvalidSettingError(FILE, str(exc)) from None

    def lookup(self, token: str) -> Principal | None:
        """Who it is, None if it is of another form; Refusal `invalid_api_key` if nobody's.

        A token of our form is never asked for elsewhere, so that nothing gets around a revocation.
        """
        if parts(token) is None:
            return None
        if (principal := self._set.find(token, self._clock())) is None:
            raise Refusal("invalid_api_key")
        return principal

    def reload(self) -> None:
        """Have the file read now, also if it looks as before. From the loop alone."""
        self._asked.set()

    async def watch(self) -> None:
        """Follow the file for ever."""
        while True:
            with anyio.move_on_after(self._look_seconds):
                await self._asked.wait()
            look = partial(self._look, asked=self._asked.is_set())
            self._asked = anyio.Event()
            await self._errands.run(look)
            self._tell()

    def _tell(self) -> None:
        """Have it asked again who stands, where somebody may have ceased to."""
        now_ms = self._clock()
        if self._set is not self._told or self._set.revokes_between(self._told_ms, now_ms):
            self.withdrawals.look_again()
        self._told, self._told_ms = self._set, now_ms

    def _stands(self, principal: Principal, scope: Scope) -> bool:
        return self._set.stands(principal, scope, self._clock())

    def _look(self, *, asked: bool) -> None:
        """Take a new state of the file, or keep the old set and say why."""
        stamp = stamp_of(self._file)
        if stamp == self._seen and not asked:
            return
        self._seen = stamp  # a bad file is told of once, not at every look
        try:
            found, self._seen = self._read()
            self._check(found)
            self._set = found
        except (SecretFileError, CredentialsFileError) as exc:
            _log.error(
                "%s: %s; the credentials read before stay in force", FILE, exc, extra={"code": KEPT}
            )
            return
        except Exception as exc:  # noqa: BLE001 - a fault of ours must not end the server
            _log.error("credentials could not be read", exc_info=exc, extra={"code": KEPT})
            return
        _log.info("credentials read again", extra={"code": CHANGED, "entries": len(self._set)})

    def _check(self, found: CredentialSet) -> None:
        """The start looks at every kind of credential; only this kind can come later."""
        if self._nobodys is not None and found.find(self._nobodys, self._clock()) is not None:
            raise CredentialsFileError("holds the token of ROOKHOLD_METRICS_TOKEN as a credential")

    def _read(self) -> tuple[CredentialSet, Stamp | None]:
        data, stamp = read_secret_file(self._file, bytes_max=FILE_BYTES_MAX, strict=self._strict)
        return CredentialSet(parse_credentials(data), self._pepper), stamp


def _read_pepper(file: Path, *, strict: bool) -> Pepper:
    try:
        data, _ = read_secret_file(file, bytes_max=PEPPER_FILE_BYTES_MAX, strict=strict)
        return parse_pepper(data)
    except UnsafeSecretFileError as exc:
        raise UnsafeSettingError(PEPPER, str(exc)) from None
    except (SecretFileError, CredentialsFileError) as exc:
        raise InvalidSettingError(PEPPER, str(exc)) from None
