"""A made-up past is a sound one, and is listed as it is."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookhold_store import Cursor, Store
from rookhold_store.rows import JobSummary
from rookhold_store.testing import anything_binds
from rookhold_store.testing.population import (
    LANGUAGES,
    UNFINISHED,
    UNSIGNED,
    Population,
    kept,
    populate,
)
from rookhold_store.verify import verify
from rookhold_types.states import JobStatus

JOBS = 400


@pytest.fixture
def past(path: Path) -> Iterator[Store]:
    with Store.open(path, binding=anything_binds) as store:
        populate(store, JOBS)
        yield store


def walk(store: Store, **filters: str | None) -> list[JobSummary]:
    rows: list[JobSummary] = []
    cursor: Cursor | None = None
    while page := store.read.list_jobs(None, 60, cursor, **filters):
        rows += page
        cursor = Cursor(page[-1].created_at_ms, page[-1].job_id)
    return rows


def test_a_population_is_sound_and_has_all_sorts_of_jobs(past: Store) -> None:
    jobs = walk(past)
    assert len(jobs) == JOBS
    statuses = Counter(job.status for job in jobs)
    assert set(statuses) == set(JobStatus)
    assert statuses[JobStatus.QUEUED] + statuses[JobStatus.RUNNING] == UNFINISHED
    assert len(past.read.pending_attestations(2**50, 256)) <= UNSIGNED
    assert len({job.tenant for job in jobs}) > 4
    assert list(verify(past.path, binding=anything_binds)) == []


def test_a_list_of_all_tenants_holds_exactly_what_it_is_filtered_by(past: Store) -> None:
    jobs = walk(past)
    for status in (None, *JobStatus):
        for language in (None, *sorted(set(LANGUAGES))):
            wanted = [
                job
                for job in jobs
                if status in (None, job.status) and language in (None, job.language)
            ]
            assert walk(past, status=status, language=language) == wanted


def test_the_same_seed_gives_the_same_lives() -> None:
    one, other, third = (Population(40, seed=seed) for seed in (3, 3, 4))
    lives = [[each.life(number) for number in range(40)] for each in (one, other, third)]
    assert lives[0] == lives[1]
    assert lives[0] != lives[2]


def test_a_population_is_made_once(tmp_path: Path) -> None:
    made = kept(tmp_path / "kept", 20)
    before = made.stat()
    assert kept(tmp_path / "kept", 20) == made
    assert made.stat() == before
    assert [each.name for each in made.parent.iterdir()] == [made.name]
