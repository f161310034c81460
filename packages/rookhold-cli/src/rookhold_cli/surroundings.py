"""What the environment says of this computer: whether it is production, where state is kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def is_production(environ: Mapping[str, str]) -> bool:
    """Say whether a gateway with these variables would be one in production."""
    return environ.get("ROOKHOLD_ENV", "").strip().lower() in {"prod", "production", "release"}


def state_directories(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield where state of ours may be kept; a development gateway takes the first."""
    for name, below in (("XDG_STATE_HOME", "rookhold"), ("HOME", ".local/state/rookhold")):
        if (home := environ.get(name, "")).startswith("/"):  # a relative path counts as unset
            yield Path(home, below)
