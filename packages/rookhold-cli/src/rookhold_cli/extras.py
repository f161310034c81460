"""Loads what only an extra installs, or says in one line which extra that is."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from .errors import MissingExtraError


def present(module: str) -> bool:
    """Say whether the top-level package of `module` is installed, without importing it."""
    return find_spec(module.partition(".")[0]) is not None


def require(module: str, *, what: str, extra: str) -> None:
    """Refuse if `module` is not installed; for before anything is said or made."""
    if not present(module):
        raise MissingExtraError(what, extra)


def load(module: str, *, what: str, extra: str) -> Any:
    """Import `module`; a missing package is a refusal, a broken one stays an error."""
    require(module, what=what, extra=extra)
    return import_module(module)
