"""Tells what is not there from what we may not look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def is_absent(path: Path) -> bool:
    """Say whether there is surely nothing of this name; what cannot be looked at may be there."""
    try:
        path.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False
