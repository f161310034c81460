"""`rookhold dev`: serve, on loopback, with keys that ask for no preparation."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final

import click

from rookhold_cli import gateway, output
from rookhold_cli.errors import CommandError, GatewayStartError, UsageError
from rookhold_cli.extras import load
from rookhold_cli.surroundings import is_production, state_directories

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# Credentials of a real gateway have no place in one that accepts a public key.
_SET_ASIDE: Final = (
    "ROOKHOLD_API_KEYS",
    "ROOKHOLD_CREDENTIALS_FILE",
    "ROOKHOLD_CREDENTIAL_PEPPER_FILE",
    "ROOKHOLD_UNSAFE_ALLOW_PUBLIC_DEV",
)
_PROVIDER: Final = "ROOKHOLD_OIDC_"  # and so have those who give out access tokens to one
_HOST: Final = "127.0.0.1"
_KEY_NAME: Final = "signing-key.pem"


class StateError(CommandError):
    """The directory for development state cannot be used."""


@click.command("dev")
@click.option("--port", type=click.IntRange(0, 65535), default=7300, show_default=True)
def command(port: int) -> int:
    """Serve a gateway for trying things out: this computer only, a public key, signed evidence.

    Never for code of strangers, never for other people: everybody on this computer can use it.
    """
    server = load("rookhold_server.serve", what="serving a gateway", extra="server")
    environment, told = prepare(os.environ, port)
    _check_port(port)
    os.environ.clear()
    os.environ.update(environment)
    for line in told:
        output.say(line)
    ended: int = server.main([])
    return ended


def _check_port(port: int) -> None:
    """Say in the words of this command what the server would say in those of its settings."""
    try:
        socket.create_server((_HOST, port)).close()
    except OSError as exc:
        why = os.strerror(exc.errno or 0)  # the exception's own text repeats the address
        raise GatewayStartError(
            f"port {port} cannot be used ({why}); is a gateway running there already?"
            " Another one: --port"
        ) from exc


def prepare(environ: Mapping[str, str], port: int) -> tuple[dict[str, str], list[str]]:
    """Return the server's environment and what to say about it; makes the signing key if needed."""
    if is_production(environ):
        raise UsageError("ROOKHOLD_ENV says production; use `rookhold serve` there")
    aside = [name for name in environ if name in _SET_ASIDE or name.startswith(_PROVIDER)]
    kept = {name: text for name, text in environ.items() if name not in aside}
    kept["ROOKHOLD_ADDR"] = f"{_HOST}:{port}"
    told = [
        "DEVELOPMENT gateway, on this computer only",
        f"it accepts the PUBLIC key {gateway.DEVELOPMENT_KEY}: anybody on this computer can use it",
    ]
    if missed := sorted(name for name in aside if environ[name]):
        told.append(f"not used here: {', '.join(missed)}")
    if environ.get("ROOKHOLD_ATTESTATION_KEY_FILE"):
        told.append("evidence is signed with the key of ROOKHOLD_ATTESTATION_KEY_FILE")
    elif environ.get("ROOKHOLD_ATTESTATION_MODE", "").strip().lower() in {
        "off",
        "disabled",
        "none",
    }:
        told.append("evidence is NOT signed: ROOKHOLD_ATTESTATION_MODE says so")
    else:
        path, made = _signing_key(environ)
        kept["ROOKHOLD_ATTESTATION_KEY_FILE"] = str(path)
        told.append(f"evidence is signed with {'a NEW key' if made else 'the key'} in {path}")
    if port:
        here = gateway.Target(f"http://{_HOST}:{port}", gateway.DEVELOPMENT_KEY)
        told.append(f"use it from another terminal with {here.settings}")
    return kept, told


def _signing_key(environ: Mapping[str, str]) -> tuple[Path, bool]:
    """Return the state directory's signing key and whether it was made just now."""
    keys = load("rookhold_attestation.keys", what="signing evidence", extra="server")
    directory = next(state_directories(environ), None)
    if directory is None:
        raise UsageError("neither XDG_STATE_HOME nor HOME says where to keep development state")
    path = directory / _KEY_NAME
    judge = load("rookhold_server.config.state_directory", what="serving", extra="server")
    ours = load("rookhold_types.errors", what="serving", extra="server")
    theirs = load("rookhold_attestation.errors", what="serving", extra="server")
    try:
        judge.ensure_state_directory(directory)
        if path.exists():
            return path, False
        keys.PrivateKey.generate().save(path)
    except (ours.RookholdError, theirs.AttestationError) as exc:
        raise StateError(f"{directory}: {exc} ({exc.code})") from exc
    return path, True
