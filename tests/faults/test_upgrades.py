"""The disk fails, or the supply is lost, while an older database is upgraded."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from faults.disk import FaultyDisk, How
from faults.platter import PAGE

from rookhold_store import Store
from rookhold_store.errors import StorageUnavailableError
from rookhold_store.schema import read_objects
from rookhold_store.testing.lineage import make_specimen, names_its_tenant

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY = Path("/dev/shm")
SEED = os.environ.get("ROOKHOLD_FAULT_SEED", "")
VERSIONS = (1, 2, 3, 4, 0)  # the last of the first accounting revision; 0: new, without some rules
NOW = 9_000_000
A_FEW = 12  # places in each version's upgrade, each day
MANY = 600  # of some hundred, each with another failure


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    memory = MEMORY if os.access(MEMORY, os.W_OK) else tmp_path
    home = Path(tempfile.mkdtemp(prefix="rookhold-upgrade-", dir=memory))
    yield home
    shutil.rmtree(home)


def opened(path: Path) -> Store:
    return Store.open(path, binding=names_its_tenant, clock=lambda: NOW)


def contents(path: Path) -> dict[str, Any]:
    """Return all that a closed file holds."""
    db = apsw.Connection(str(path))
    try:
        objects = read_objects(db)
        tables = [name for name, made in objects.items() if made.kind == "table"]
        return {
            "objects": objects,
            "user_version": db.pragma("user_version"),
            "integrity": db.pragma("integrity_check"),
            **{name: sorted(db.execute(f"SELECT * FROM {name}"), key=repr) for name in tables},
        }
    finally:
        db.close()


class Upgrade:
    """One version's file, and what its upgrade comes to where nothing fails."""

    def __init__(self, place: Path, version: int) -> None:
        self.place = place
        self.old = place / "old" / "jobs.db"
        make_specimen(self.old, version or 4)
        if not version:
            opened(self.old).close()
            db = apsw.Connection(str(self.old))
            db.execute("DROP TRIGGER events_no_update; DROP INDEX jobs_by_tenant")
            db.close()
        well = self.copied("well")
        with FaultyDisk(well) as disk:
            opened(well).close()
        self.calls = len(disk.calls)
        self.new = contents(well)
        assert self.new["user_version"] == 4
        assert self.new["integrity"] == "ok"
        self.before = contents(self.old)

    def copied(self, name: str) -> Path:
        path = self.place / name / "jobs.db"
        path.parent.mkdir(mode=0o700)
        shutil.copy(self.old, path)
        return path

    def failing(self, number: int, how: How, *, on: bool) -> list[str]:
        """Upgrade with a failure at that call, heal, look, and open again."""
        where = f"call {number}, {how}{' on' if on else ''}"
        path = self.copied(f"{number}-{how}-{on}")
        with FaultyDisk(path) as disk:
            disk.fail_at(number, how, on=on)
            with suppress(StorageUnavailableError):  # nothing else may come of a bad disk
                opened(path).close()
            disk.heal()
        return [f"{where}: {text}" for text in self._verdict(path)]

    def cut(self, number: int, dice: random.Random) -> list[str]:
        """Lose the supply at that call, with some of what was not synced on the disk."""
        path = self.copied(f"{number}-cut")
        left = path.parent / "left" / "jobs.db"
        with FaultyDisk(path) as disk:
            kept, content = disk.platters[""], path.read_bytes()
            kept.size = len(content)
            kept.pages = {
                at // PAGE: content[at : at + PAGE] for at in range(0, len(content), PAGE)
            }
            disk.fail_at(number, How.EIO, on=True)
            with suppress(StorageUnavailableError):  # nothing else may come of a bad disk
                opened(path).close()
            disk.after_power_cut(left, dice)
            disk.heal()
        return [f"supply lost at call {number}: {text}" for text in self._verdict(left)]

    def _verdict(self, path: Path) -> list[str]:
        found = contents(path)
        wrong = []
        if found not in (self.before, self.new):
            wrong.append(f"neither old nor new, version {found['user_version']}")
        opened(path).close()
        if (again := contents(path)) != self.new:
            differ = [name for name in self.new if again.get(name) != self.new[name]]
            wrong.append(f"opened again, {differ} are not as they should be")
        shutil.rmtree(path.parent)
        return wrong


def campaign(place: Path, version: int, count: int) -> None:
    seed = SEED or secrets.token_hex(4)
    print(f"seed {seed}")
    dice = random.Random(f"{seed}-{version}")
    upgrade = Upgrade(place, version)
    every = range(1, upgrade.calls + 1)

    def some(share: int) -> list[int]:
        return dice.sample(every, min(count // share, len(every)))

    wrong: list[str] = []
    for how in (How.EIO, How.ENOSPC, How.SHORT):
        for on in (False, True):
            for number in some(6):
                wrong += upgrade.failing(number, how, on=on)
    for number in some(2):
        wrong += upgrade.cut(number, dice)
    assert wrong == []


@pytest.mark.parametrize("version", VERSIONS)
def test_an_upgrade_on_a_disk_that_fails_somewhere_is_whole_or_did_not_happen(
    place: Path, version: int
) -> None:
    campaign(place, version, A_FEW)


@pytest.mark.soak
@pytest.mark.parametrize("version", VERSIONS)
def test_an_upgrade_on_a_disk_that_fails_in_many_places_is_whole_or_did_not_happen(
    place: Path, version: int
) -> None:
    campaign(place, version, MANY)
