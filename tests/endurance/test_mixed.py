"""Everything at once, for moments or minutes: the server ends with what it held before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from endurance.mixed import run
from isolating import NAMESPACES_DEV

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = list(NAMESPACES_DEV.marks)


def test_a_moment_of_mixed_load_leaves_what_was_there(
    tmp_path: Path, say: Callable[[str], None]
) -> None:
    home = tmp_path / "home"
    sandbox = NAMESPACES_DEV.name
    found = run(home, warm=0.5, seconds=1, every=0.4, say=say, idle=1, sandbox=sandbox)
    # Caches fill at first; only minutes show whether memory stays where it is.
    assert [fault for fault in found if not fault.startswith("memory at rest")] == []


@pytest.mark.soak
def test_minutes_of_mixed_load_leave_what_was_there(
    tmp_path: Path, say: Callable[[str], None]
) -> None:
    home = tmp_path / "home"
    assert run(home, warm=60, seconds=180, every=5, say=say, sandbox=NAMESPACES_DEV.name) == []
