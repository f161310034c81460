from __future__ import annotations

from typing import TYPE_CHECKING

from rookhold_cli.absence import is_absent

if TYPE_CHECKING:
    from pathlib import Path


def test_only_what_is_surely_not_there_is_absent(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    assert is_absent(tmp_path / "none")
    assert is_absent(tmp_path / "none" / "below")
    for there in ("file", "dangling", "file/below"):
        assert not is_absent(tmp_path / there)
    assert not is_absent(tmp_path / ("x" * 300)), "what the kernel will not look at"
