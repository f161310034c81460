"""The optional configuration file: the same names as the environment, which wins."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rookhold_server.config.values import MalformedValueError
from rookhold_server.config.variables import INTERNAL, PARSERS
from rookhold_server.errors import InvalidSettingError, UnsafeSettingError
from rookhold_server.identity.secret_files import (
    SecretFileError,
    UnsafeSecretFileError,
    read_secret_file,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE: Final = "ROOKHOLD_CONFIG_FILE"
BYTES_MAX: Final = 256 * 1024
_ENV: Final = "ROOKHOLD_ENV"
_NAME: Final = re.compile(r"[A-Za-z_]{1,64}")
_PLACE: Final = re.compile(r"at line (\d+), column (\d+)")


def gathered(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` with what the file it names adds to it, and without the name of the file.

    Raises a SettingError that shows neither a value nor a path. Whether the file must be one that
    nobody else can read or replace depends on its own say too: on `ROOKHOLD_ENV`.
    """
    told = from_file(environ)
    return {**told, **{name: text for name, text in environ.items() if text and name != FILE}}


def from_file(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what the file says, whether or not the environment says otherwise."""
    named = environ.get(FILE, "")
    if not named:
        return {}
    path = Path(named)
    told = _settings(_read(path, strict=False))  # only to learn how the file is to be judged
    try:
        production = PARSERS[_ENV](environ.get(_ENV) or told.get(_ENV) or "dev")
    except MalformedValueError as exc:
        raise InvalidSettingError(_ENV, str(exc)) from None
    return _settings(_read(path, strict=True)) if production else told


def _read(path: Path, *, strict: bool) -> bytes:
    try:
        return read_secret_file(path, bytes_max=BYTES_MAX, strict=strict)[0]
    except UnsafeSecretFileError as exc:
        raise UnsafeSettingError(FILE, str(exc)) from None
    except SecretFileError as exc:
        raise InvalidSettingError(FILE, str(exc)) from None


def _settings(data: bytes) -> dict[str, str]:
    try:
        document = tomllib.loads(data.decode())
    except UnicodeDecodeError:
        raise InvalidSettingError(FILE, "is not UTF-8") from None
    except tomllib.TOMLDecodeError as exc:
        place = _PLACE.search(str(exc))
        where = f" (line {place[1]}, column {place[2]})" if place else ""
        raise InvalidSettingError(FILE, f"is not TOML{where}") from None
    except RecursionError:
        raise InvalidSettingError(FILE, "has values nested too deeply") from None
    except ValueError:  # Python makes no number of that many digits
        raise InvalidSettingError(FILE, "has a number that is too long") from None
    return {name: _text(name, value) for name, value in document.items()}


def _text(name: str, value: object) -> str:
    if name not in PARSERS.keys() - INTERNAL or name == FILE:
        told = f" ({name})" if _NAME.fullmatch(name) else ""
        raise InvalidSettingError(FILE, f"has a name that is no setting of such a file{told}")
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return _digits(name, value)
        case str():
            return value
        case _:
            raise InvalidSettingError(name, "must be a text, an integer or a boolean")


def _digits(name: str, number: int) -> str:
    try:
        return str(number)
    except ValueError:  # written in another base it may be longer than Python tells in ours
        raise InvalidSettingError(name, "is a number that is too long") from None
