"""Where a soak run says its figures: on the terminal, and in a log if a folder is named for it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER = os.environ.get("ROOKHOLD_SOAK_LOG", "")


@pytest.fixture
def say(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[[str], None]]:
    """Say one line: always to the log, and on the terminal where the run is a soak."""
    lines: list[str] = []

    def keep(line: str) -> None:
        lines.append(line)
        request.node.user_properties.append(("said", line))  # for whoever reports from a VM

    yield keep
    name = request.node.name.replace("/", "-")
    if FOLDER and lines:
        folder = Path(FOLDER)
        folder.mkdir(parents=True, exist_ok=True)
        stamp = time.strftime("%Y%m%d-%H%M%S")
        (folder / f"{stamp}-{name}.log").write_text("\n".join(lines) + "\n", "utf-8")
    if request.node.get_closest_marker("soak"):
        with capsys.disabled():
            print(f"\n{lines[-1] if lines else name}")
    else:
        print("\n".join(lines))
