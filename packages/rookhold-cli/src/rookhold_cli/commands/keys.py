"""`rookhold keys`: who may use a gateway, as its credentials file says it."""

from __future__ import annotations

import os
import re
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from rookhold_cli import output
from rookhold_cli.absence import is_absent
from rookhold_cli.commands.jobs import when
from rookhold_cli.errors import CommandError, FilesError, UsageError
from rookhold_cli.exits import Exit
from rookhold_cli.extras import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WHAT: Final = "the credentials of a gateway"
_FILE: Final = "ROOKHOLD_CREDENTIALS_FILE"
_PEPPER: Final = "ROOKHOLD_CREDENTIAL_PEPPER_FILE"
_USER: Final = "ROOKHOLD_USER"
# As the server has them; a test holds the two together.
SCOPES: Final = ("jobs:submit", "jobs:read", "jobs:cancel", "service:read", "metrics:read")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_TIME: Final = re.compile(r"([0-9]{1,5})([smhdw])")
_USAGE_CODES: Final = frozenset(
    {"credential_unknown", "credential_exists", "credential_ended", "credential_malformed"}
)  # every other refusal is one of files


class _KeysRefusedError(CommandError):
    """The credentials file stays as it is."""

    def __init__(self, message: str, status: Exit) -> None:
        super().__init__(message)
        self.exit = status  # type: ignore[misc] # one class, as many ends as there are codes


class _Lifetime(click.ParamType):  # type: ignore[type-arg] # generic in newer versions only
    """`30m`, `12h`, `90d` or `52w`, in milliseconds; plain `0` too."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = "0s" if value == "0" else str(value)
        if (found := _TIME.fullmatch(text)) is None:
            self.fail("write 30m, 12h, 90d or 52w", param, ctx)
        return int(found[1]) * _UNITS[found[2]] * 1000


def _place(option: str, variable: str) -> Callable[[Any], Any]:
    return click.option(
        option,
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="PATH",
        help=f"Default: what {variable} names, as a variable or in a gateway's file.",
    )


_file = _place("--file", _FILE)
_pepper = _place("--pepper-file", _PEPPER)
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group("keys")
def command() -> None:
    """Make, list, revoke and rotate the credentials of a gateway.

    They are in one file, which holds no secret: of each token it has a digest that only the pepper
    beside it lets one check. A running gateway takes a change up within a second. Where the files
    are may also stand in the TOML file that ROOKHOLD_CONFIG_FILE names.

    \b
    Examples:
      export ROOKHOLD_CREDENTIALS_FILE=/etc/rookhold/keys/credentials.json
      export ROOKHOLD_CREDENTIAL_PEPPER_FILE=/etc/rookhold/keys/pepper
      rookhold keys create --tenant acme --all-scopes --expires-in 90d
      rookhold keys list
      rookhold keys rotate ci-1 --overlap 24h
      rookhold keys revoke ci-1
    """  # noqa: D301 - as in `run`


@command.command("create", short_help="Make a credential and print its token, once.")
@click.option("--tenant", required=True, help="Whose jobs it is about.")
@click.option(
    "--principal", help="Who uses it, as evidence and whoami say it. Default: the key id."
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(SCOPES),
    help="What it may do. Repeatable.",
)
@click.option("--all-scopes", is_flag=True, help="It may do everything in its tenant.")
@click.option(
    "--expires-in", type=_Lifetime(), help="How long it lives: 12h, 90d. Default: for ever."
)
@click.option("--key-id", metavar="NAME", help="A name of letters, digits and -. Default: random.")
@click.option("--owner", metavar="ACCOUNT", help=f"Whose new files are. As root: {_USER}.")
@_file
@_pepper
@_json
def create(
    tenant: str,
    principal: str | None,
    scopes: tuple[str, ...],
    all_scopes: bool,
    expires_in: int | None,
    key_id: str | None,
    owner: str | None,
    file: Path | None,
    pepper_file: Path | None,
    as_json: bool,
) -> None:
    """Make a credential and print its token. Nobody can show the token again.

    Makes the file and the pepper, mode 0600, if neither is there.

    \b
    Examples:
      rookhold keys create --tenant acme --all-scopes --expires-in 90d --json
      rookhold keys create --tenant acme --scope jobs:submit --scope jobs:read --scope service:read

    `rookhold run` needs jobs:submit, jobs:read and service:read; `rookhold cancel` jobs:cancel.
    """  # noqa: D301 - as in `run`
    if bool(scopes) == all_scopes:
        raise UsageError(f"name what it may do: --all-scopes, or --scope for each of {_scopes()}")
    if expires_in == 0:
        raise UsageError("--expires-in 0 would make a credential that nobody can use")
    kinds = load("rookhold_server.identity.scopes", what=_WHAT, extra="server")
    wanted = [kinds.Scope(name) for name in SCOPES if all_scopes or name in scopes]
    keeper = _keeper(file, pepper_file, owner=owner, makes_tokens=True, makes_files=True)
    with _refusals():
        made = keeper.create(
            tenant=tenant,
            principal=principal,
            scopes=tuple(wanted),
            now_ms=_now_ms(),
            lifetime_ms=expires_in,
            key_id=key_id,
        )
    _tell_new(made, as_json=as_json)
    _judge(keeper)


@command.command("list", short_help="Show every credential and how it stands.")
@_file
@_json
def list_(file: Path | None, as_json: bool) -> None:
    """Show every credential of the file, and whether it is still of use. No secret is in it."""
    keeper = _keeper(file, None)
    now_ms = _now_ms()
    with _refusals():
        entries = keeper.entries()
    if as_json:
        output.as_json({"credentials": [_facts(entry, now_ms) for entry in entries]})
        return
    output.table(
        ("key", "tenant", "principal", "scopes", "created", "ends", "state"),
        (_row(entry, now_ms) for entry in entries),
    )


@command.command("revoke", short_help="End a credential.")
@click.argument("key_id", metavar="KEY")
@click.option("--in", "delay", type=_Lifetime(), default="0", help="Not now but then: 1h, 7d.")
@_file
@_json
def revoke(key_id: str, delay: int, file: Path | None, as_json: bool) -> None:
    """End a credential. Its entry stays, so that its name is never used for another.

    \b
    Examples:
      rookhold keys revoke ci-1
      rookhold keys revoke ci-1 --in 7d
    """  # noqa: D301 - as in `run`
    keeper = _keeper(file, None)
    now_ms = _now_ms()
    with _refusals():
        ended = keeper.revoke(key_id, at_ms=now_ms + delay)
    if as_json:
        output.as_json(_facts(ended, now_ms))
    else:
        output.say(f"{key_id} ends {_moment(ended, now_ms)}")


@command.command("rotate", short_help="Replace a credential by one that may do the same.")
@click.argument("key_id", metavar="KEY")
@click.option(
    "--overlap",
    type=_Lifetime(),
    default="1h",
    show_default=True,
    help="How long the old one goes on; 0 ends it now.",
)
@click.option("--expires-in", type=_Lifetime(), help="Default: as long as the old one was to live.")
@click.option("--key-id", "new_key_id", metavar="NAME", help="Of the new one. Default: random.")
@_file
@_pepper
@_json
def rotate(
    key_id: str,
    overlap: int,
    expires_in: int | None,
    new_key_id: str | None,
    file: Path | None,
    pepper_file: Path | None,
    as_json: bool,
) -> None:
    """Make a credential that may do what KEY may, print its token, and end KEY after the overlap.

    \b
    Examples:
      rookhold keys rotate ci-1 --overlap 24h
      rookhold keys rotate ci-1 --overlap 0 --key-id ci-2
    """  # noqa: D301 - as in `run`
    if expires_in == 0:
        raise UsageError("--expires-in 0 would make a credential that nobody can use")
    keeper = _keeper(file, pepper_file, makes_tokens=True)
    now_ms = _now_ms()
    with _refusals():
        rotated = keeper.rotate(
            key_id,
            now_ms=now_ms,
            overlap_ms=overlap,
            lifetime_ms=expires_in,
            new_key_id=new_key_id,
        )
    _tell_new(rotated.made, as_json=as_json, replaced=_facts(rotated.replaced, now_ms))
    if not as_json:
        output.say(f"the old one, {key_id}, ends {_moment(rotated.replaced, now_ms)}")


def _keeper(
    file: Path | None,
    pepper_file: Path | None,
    *,
    owner: str | None = None,
    makes_tokens: bool = False,
    makes_files: bool = False,
) -> Any:
    module = load("rookhold_server.identity.keeping", what=_WHAT, extra="server")
    file = file or _named(_FILE)
    if makes_tokens:
        pepper_file = pepper_file or _named(_PEPPER)
    if file is None:
        raise UsageError(f"name the credentials file: --file, or {_FILE}")
    if makes_tokens and pepper_file is None:
        raise UsageError(f"name the pepper file: --pepper-file, or {_PEPPER}")
    if makes_files:
        for place in (file.parent, pepper_file and pepper_file.parent):
            if place is not None and is_absent(place):
                raise FilesError(f"the directory {place} does not exist; make it first")
    elif is_absent(file):
        raise FilesError(
            f"there is no credentials file {file} yet; `rookhold keys create` makes it"
        )
    return module.Keeper(file, pepper_file, owner=_owner(owner))


def _named(variable: str) -> Path | None:
    text = _setting(variable)
    return Path(text) if text else None


def _setting(name: str) -> str | None:
    """What a gateway that is started here would take for it."""
    module = load("rookhold_server.config.file", what=_WHAT, extra="server")
    errors = load("rookhold_server.errors", what=_WHAT, extra="server")
    try:
        told: str | None = module.gathered(os.environ).get(name)
    except errors.SettingError as exc:
        raise FilesError(f"{exc} ({exc.code})") from exc
    return told


def _owner(named: str | None) -> Any:
    """As root new files are the account's that serves, or they could not be read there."""
    if named is None and os.geteuid() == 0:
        named = _setting(_USER) or None
    if named is None:
        return None
    accounts = load("rookhold_server.supervisor.account", what=_WHAT, extra="server")
    errors = load("rookhold_server.errors", what=_WHAT, extra="server")
    try:
        account = accounts.find(named)
    except errors.SettingError as exc:
        raise UsageError(f"--owner: {exc}") from exc
    files = load("rookhold_server.identity.private_files", what=_WHAT, extra="server")
    return files.Owner(account.uid, account.gid)


def _tell_new(made: Any, *, as_json: bool, replaced: dict[str, Any] | None = None) -> None:
    """The token is all of stdout, so that a script can take it; what is about it goes beside."""
    entry, now_ms = made.credential, made.credential.created_at_ms
    if as_json:
        facts = {**_facts(entry, now_ms), "token": made.token}
        output.as_json(facts if replaced is None else {**facts, "replaced": replaced})
        return
    output.say(
        f"{entry.key_id} of tenant {entry.tenant_id}: {' '.join(entry.scopes) or 'no scope'};"
        f" ends {_moment(entry, now_ms)}"
    )
    output.say("its token follows and is shown this once:")
    output.line(made.token)


def _facts(entry: Any, now_ms: int) -> dict[str, Any]:
    return {
        "key_id": entry.key_id,
        "tenant_id": entry.tenant_id,
        "principal_id": entry.principal_id,
        "scopes": [str(scope) for scope in entry.scopes],
        "created_at_ms": entry.created_at_ms,
        "expires_at_ms": entry.expires_at_ms,
        "revoked_at_ms": entry.revoked_at_ms,
        "state": _state(entry, now_ms),
    }


def _row(entry: Any, now_ms: int) -> tuple[str, ...]:
    return (
        entry.key_id,
        entry.tenant_id,
        entry.principal_id,
        " ".join(entry.scopes),
        _when(entry.created_at_ms),
        "" if entry.ends_at_ms is None else _when(entry.ends_at_ms),
        _state(entry, now_ms),
    )


def _state(entry: Any, now_ms: int) -> str:
    if entry.is_alive(now_ms):
        return "active"
    return "revoked" if entry.ends_at_ms == entry.revoked_at_ms else "expired"


def _moment(entry: Any, now_ms: int) -> str:
    if entry.ends_at_ms is None:
        return "never"
    return "now" if entry.ends_at_ms <= now_ms else _when(entry.ends_at_ms)


def _judge(keeper: Any) -> None:
    """Say now what a gateway in production would say at its start."""
    variables: dict[str, list[str]] = {}
    for variable, rule in keeper.unfit_for_production():
        variables.setdefault(rule, []).append(variable)
    for rule, names in variables.items():
        output.say(f"note: in production a gateway refuses {' and '.join(names)}: it {rule}")


def _when(at_ms: int) -> str:
    try:
        return when(at_ms)
    except (OverflowError, ValueError, OSError):  # a file may name a time that no calendar has
        return f"{at_ms} ms"


def _scopes() -> str:
    return ", ".join(SCOPES)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def _refusals() -> Iterator[None]:
    errors = load("rookhold_server.errors", what=_WHAT, extra="server")
    try:
        yield
    except errors.CredentialsError as exc:
        status = Exit.USAGE if exc.code in _USAGE_CODES else Exit.FILES
        raise _KeysRefusedError(f"{exc} ({exc.code})", status) from exc
