"""Verification and backup on a disk that fails: never a file called sound that was not read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from faults.disk import FaultyDisk, How

from rookhold_store import StoreError
from rookhold_store.backup import backup
from rookhold_store.stats import stats
from rookhold_store.testing.specimen import Made, binding, make
from rookhold_store.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

    from rookhold_store.verify import Finding


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("looking") / "state" / "jobs.db")


def test_a_read_that_fails_is_never_a_sound_file(made: Made) -> None:
    with FaultyDisk(made.path) as disk:
        assert list(verify(made.path, binding=binding)) == []
        calls = len(disk.calls)
    assert calls > 20
    told = 0
    for number in range(1, calls + 1, 3):
        with FaultyDisk(made.path) as disk:
            disk.fail_at(number, How.EIO, on=True)
            found: list[Finding] | None = None
            try:
                found = list(verify(made.path, binding=binding))
            except StoreError:
                told += 1
            assert not disk.failed or found != []
            told += bool(found)
    assert told > calls / 6


def test_a_backup_of_a_disk_that_fails_to_read_is_none(made: Made, tmp_path: Path) -> None:
    with FaultyDisk(made.path) as disk:
        backup(made.path, tmp_path / "whole.db", binding=binding)
        calls = len(disk.calls)
    (tmp_path / "whole.db").unlink()
    for number in range(1, calls + 1, 3):
        with FaultyDisk(made.path) as disk:
            disk.fail_at(number, How.EIO, on=True)
            with pytest.raises(StoreError):
                backup(made.path, tmp_path / "copy.db", binding=binding)
            assert disk.failed
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", [How.EIO, How.ENOSPC, How.SHORT])
def test_a_backup_to_a_disk_that_fails_to_write_leaves_nothing(
    made: Made, tmp_path: Path, how: How
) -> None:
    for number in (2, 9, 30):
        with FaultyDisk(tmp_path / ".copy.db.partial") as disk:
            disk.fail_at(number, how, on=True)
            with pytest.raises(StoreError) as refused:
                backup(made.path, tmp_path / "copy.db", binding=binding)
            assert disk.failed
        assert refused.value.code in ("storage_unavailable", "storage_reserve")
        assert list(tmp_path.iterdir()) == []


def test_counts_of_a_disk_that_fails_are_none(made: Made) -> None:
    with FaultyDisk(made.path) as disk:
        disk.fail(How.EIO, "read")
        with pytest.raises(StoreError) as refused:
            stats(made.path)
    assert refused.value.code == "storage_unavailable"
