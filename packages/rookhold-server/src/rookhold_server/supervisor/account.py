"""The account that the server runs as."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, NamedTuple

from rookhold_server.errors import ConflictingSettingError, InvalidSettingError

if TYPE_CHECKING:
    from rookhold_server.config.settings import Settings

USER = "ROOKHOLD_USER"


class Account(NamedTuple):
    """`home` is empty for a number that nobody gave a name."""

    uid: int
    gid: int
    name: str
    home: str

    def environment(self) -> dict[str, str]:
        """Return what an environment says of it."""
        if not self.home:
            return {}
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}


def find(text: str) -> Account:
    """Return the account of this name or number; never one with root's uid or group."""
    try:
        entry = pwd.getpwuid(int(text)) if text.isdigit() else pwd.getpwnam(text)
        account = Account(entry.pw_uid, entry.pw_gid, entry.pw_name, entry.pw_dir)
    except KeyError:
        if not text.isdigit():
            raise InvalidSettingError(USER, "there is no account of this name") from None
        account = Account(int(text), int(text), "", "")
    if account.uid == 0 or account.gid == 0:
        raise InvalidSettingError(USER, "must be an account without root's uid and group")
    return account


def check_apart(account: Account, settings: Settings) -> None:
    """Refuse an account that jobs would be: they could do to the server what it can do itself."""
    slots = range(settings.sandbox_uid_base, settings.sandbox_uid_base + settings.workers)
    for variable, uids in (
        ("ROOKHOLD_SANDBOX_UID_BASE", slots),
        ("ROOKHOLD_GVISOR_UID", range(settings.gvisor_uid, settings.gvisor_uid + 1)),
    ):
        if account.uid in uids:
            raise ConflictingSettingError(variable, "gives jobs the uid of ROOKHOLD_USER")


def check_account(text: str | None) -> None:
    """Refuse a server that is not the account it is to run as, and that cannot become it."""
    if text is not None and find(text).uid != os.geteuid():
        raise ConflictingSettingError(
            USER, "names another account, and only a server that root starts can become it"
        )
