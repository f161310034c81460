"""The disk fails at every single call of whole lives of jobs (make soak), at some each day."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from faults.disk import FaultyDisk, How
from faults.life import Life, close_running

from rookhold_store import Store, left_log, upkeep
from rookhold_store.errors import StorageFullError, StorageUnavailableError
from rookhold_store.testing import Jobs, TickingClock, anything_binds

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY = Path("/dev/shm")
SEED = os.environ.get("ROOKHOLD_FAULT_SEED", "")
A_FEW = 24  # places in a life at which the disk fails, each day


@pytest.fixture(autouse=True)
def short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the log run into the file, and begin anew, many times in one life."""
    monkeypatch.setattr(upkeep, "CHECKPOINT_PAGES", 24)
    monkeypatch.setattr(upkeep, "LONG_PAGES", 48)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Return a folder for many small databases; a real sync adds nothing, its failure is made."""
    memory = MEMORY if os.access(MEMORY, os.W_OK) else tmp_path
    home = Path(tempfile.mkdtemp(prefix="rookhold-disk-", dir=memory))
    yield home
    shutil.rmtree(home)


def opened(path: Path) -> Store:
    return Store.open(path, binding=anything_binds, clock=TickingClock())


def lived(path: Path) -> FaultyDisk:
    """Return what a life without any failure asks of the disk, from the first open to the close."""
    with FaultyDisk(path) as disk:
        life = Life()
        with opened(path) as store:
            life.run(store, Jobs(store))
    assert life.failed == 0
    assert life.problems(path) == []
    return disk


def life_with_failure(place: Path, number: int, how: How, *, on: bool) -> list[str]:
    """Live with a failure at that call, heal, go on, reopen; return all that is wrong."""
    path = place / f"{number}-{how}-{on}" / "jobs.db"
    life, found = Life(), []
    with FaultyDisk(path) as disk:
        disk.fail_at(number, how, on=on)
        rule = disk.rule
        try:
            store = opened(path)
        except StorageUnavailableError:
            life.failed += 1
        else:
            jobs = Jobs(store)
            life.run(store, jobs)
            if disk.failed:  # or the failure is for the close
                disk.heal()
                found += after_healing(life, store, jobs)
                disk.rule = rule if on else None
            store.close()
        where = f"{disk.failed[0][0] if disk.failed else number}, {how}{' on' if on else ''}"
        disk.heal()
    opened(path).close()  # and that works
    found += life.problems(path)
    with opened(path) as store:
        close_running(store)
        found += after_healing(life, store, Jobs(store))
    found += life.problems(path)
    shutil.rmtree(path.parent)
    return [f"{where}: {text}" for text in found]


def after_healing(life: Life, store: Store, jobs: Jobs) -> list[str]:
    """Return what a store cannot do although the disk is well again."""
    before = life.failed
    again = Life()
    again.run(store, jobs)
    life.promised |= again.promised
    life.lines |= again.lines
    if again.failed:
        return [f"{again.failed} calls fail though the disk is well, {before} did before"]
    return again.wrong


def numbers(total: int, count: int | None, dice: random.Random) -> list[int]:
    if count is None or count >= total:
        return list(range(1, total + 1))
    return sorted(dice.sample(range(1, total + 1), count))


def campaign(place: Path, count: int | None) -> None:
    seed = SEED or secrets.token_hex(4)
    print(f"seed {seed}")
    dice = random.Random(seed)
    total = len(lived(place / "well" / "jobs.db").calls)
    wrong: list[str] = []
    for how in (How.EIO, How.ENOSPC, How.SHORT):
        for on in (False, True):
            for number in numbers(total, count and count // 6, dice):
                wrong += life_with_failure(place, number, how, on=on)
    assert wrong == []


def test_the_disk_fails_at_some_calls_of_a_life(place: Path) -> None:
    campaign(place, A_FEW)


@pytest.mark.soak
def test_the_disk_fails_at_every_call_of_a_life(place: Path) -> None:
    campaign(place, None)


def append_a_lot(jobs: Jobs, job_id: str) -> None:
    """Write more than 4096 pages: the index of a log that a reader holds has to grow for that."""
    for _ in range(100):
        jobs.append(job_id, *["x" * 16_000] * 16)


@pytest.mark.parametrize(
    ("how", "kind"),
    [(How.ENOSPC, "write"), (How.ENOSPC, "shm"), (How.EDQUOT, "write")],
    ids=["full", "full for the index of the log", "over quota"],
)
def test_no_space_is_told_as_such_and_is_over_when_there_is_some(
    place: Path, how: How, kind: str
) -> None:
    with FaultyDisk(place / "s" / "jobs.db") as disk, opened(disk.path) as store:
        jobs = Jobs(store)
        running = jobs.running()
        with store.reader() as view:
            view.last_seq(running)
            disk.fail(how, kind)
            with pytest.raises(StorageFullError):
                append_a_lot(jobs, running)
        disk.heal()
        assert jobs.append(running, "there is space")
        assert jobs.finalise(running) is not None


# What a lost supply leaves, after syncs that failed.


def unlucky(disk: FaultyDisk, dice: random.Random, share: float) -> None:
    """Let this share of all syncs fail, each of which forgets what it was for."""
    disk.rule = lambda call: How.LOST if call.kind == "sync" and dice.random() < share else None


def try_to_open(path: Path, attempts: int = 50) -> Store:
    for _ in range(attempts - 1):
        try:
            return opened(path)
        except StorageUnavailableError:
            continue
    return opened(path)


def life_with_lost_syncs(place: Path, seed: str) -> list[str]:
    """Live, lose syncs, die at any time and live on; then lose the supply. Return what is wrong."""
    dice = random.Random(seed)
    life, stores = Life(), []
    path = place / "0" / "jobs.db"
    with FaultyDisk(path) as disk:
        for turn in range(dice.randint(1, 4)):
            if turn:
                path = place / str(turn) / "jobs.db"
                disk.after_kill(path)
            share = dice.choice((0, 0.1, 0.5))
            if turn:
                unlucky(disk, dice, share)
            stores.append(try_to_open(path))
            unlucky(disk, dice, share)
            for _ in range(dice.randint(1, 3)):
                life.run(stores[-1], Jobs(stores[-1]))
        path = place / "end" / "jobs.db"
        disk.after_power_cut(path, dice)
        disk.heal()
    try:
        opened(path).close()
        return [f"seed {seed}: {text}" for text in life.problems(path)]
    finally:
        for store in stores:
            store.close()


def answered_after_a_lost_sync_and_a_kill(place: Path) -> bool:
    """A sync fails, the process dies, the next one answers; does that survive the lost supply?"""
    dice = random.Random(0)
    first, second, third = (place / name / "jobs.db" for name in "123")
    with FaultyDisk(first) as disk:
        doomed = opened(first)
        disk.fail(How.LOST, "sync")
        with pytest.raises(StorageUnavailableError):
            Jobs(doomed).accept()
        disk.heal()
        disk.after_kill(second)
        heir = opened(second)
        job_id = Jobs(heir).accept()
        disk.after_power_cut(third, dice)
    doomed.close()
    heir.close()
    with opened(third) as store:
        return store.read.get(None, job_id) is not None


def test_what_a_dead_process_could_not_sync_costs_nothing_that_the_next_one_answers(
    place: Path,
) -> None:
    assert answered_after_a_lost_sync_and_a_kill(place)


def test_it_would_if_the_log_were_taken_as_it_is_found(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_log, "make_durable", lambda db: None)
    assert not answered_after_a_lost_sync_and_a_kill(place)


def lost_syncs(place: Path, count: int) -> None:
    seed = SEED or secrets.token_hex(4)
    wrong: list[str] = []
    for number in range(count):
        wrong += life_with_lost_syncs(place / str(number), f"{seed}-{number}")
        shutil.rmtree(place / str(number))
    assert wrong == []


def test_what_was_answered_survives_a_power_cut_after_syncs_that_failed(place: Path) -> None:
    lost_syncs(place, 10)


@pytest.mark.soak
def test_what_was_answered_survives_many_power_cuts(place: Path) -> None:
    lost_syncs(place, 1000)
