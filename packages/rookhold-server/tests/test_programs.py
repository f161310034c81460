"""Whether an account could make root run something of its own."""

import os
import site
import sys
from pathlib import Path

import pytest

from rookhold_server.errors import ConflictingSettingError
from rookhold_server.supervisor.account import Account
from rookhold_server.supervisor.programs import can_change, check_programs

NOBODY = 51_234


def account(*, uid: int = NOBODY, gid: int = NOBODY) -> Account:
    return Account(uid, gid, "", "")


def test_an_account_that_can_change_none_of_our_files_is_taken() -> None:
    check_programs(account())


def test_the_owner_of_what_root_runs_is_refused() -> None:
    owner = Path(__file__).stat().st_uid
    with pytest.raises(ConflictingSettingError, match="ROOKHOLD_USER"):
        check_programs(account(uid=owner))


def test_a_place_that_modules_could_come_from_counts_before_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    with pytest.raises(ConflictingSettingError):
        check_programs(account())
    monkeypatch.undo()
    check_programs(account())
    monkeypatch.setattr(site, "ENABLE_USER_SITE", True)
    monkeypatch.setattr(site, "USER_SITE", str(tmp_path / ".local/lib/site-packages"))
    with pytest.raises(ConflictingSettingError):
        check_programs(account())


@pytest.mark.parametrize(
    ("mode", "its_group", "changes"),
    [
        (0o644, True, False),
        (0o664, False, False),
        (0o664, True, True),
        (0o646, False, True),
    ],
)
def test_a_file_is_changed_by_its_mode(
    tmp_path: Path, mode: int, its_group: bool, changes: bool
) -> None:
    path = tmp_path / "module.py"
    path.touch()
    path.chmod(mode)
    gid = path.stat().st_gid if its_group else NOBODY
    assert can_change(str(path), account(gid=gid)) is changes
    assert can_change(str(path), account(uid=os.geteuid()))


@pytest.mark.parametrize(("mode", "changes"), [(0o755, False), (0o777, True), (0o1777, False)])
def test_what_lies_in_a_directory_is_replaced_unless_it_is_sticky(
    tmp_path: Path, mode: int, changes: bool
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(mode)
    assert can_change(str(folder), account()) is changes


def test_a_link_is_its_owner_s_alone(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to("/nowhere")
    assert not can_change(str(link), account())
    assert can_change(str(link), account(uid=os.geteuid()))
    assert not can_change(str(tmp_path / "missing"), account())
