"""The checks between kills can fail: each fault that a crash could leave is planted, and named."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import apsw
import pytest
from invariants import problems

from rookhold_store import Store
from rookhold_store.testing import Jobs, anything_binds

if TYPE_CHECKING:
    from pathlib import Path

FAULTS = {
    "a job that is gone": ("DELETE FROM jobs WHERE job_id = :job", "not stored"),
    "a job left running": (
        "UPDATE jobs SET status = 'running', finished_at_ms = NULL WHERE job_id = :job",
        "still running",
    ),
    "an end that is missing": (
        "DELETE FROM events WHERE kind = 'finished' AND job_id = :job",
        "events are",
    ),
    "a hole in the history": (
        "DELETE FROM events WHERE kind = 'stdout' AND job_id = :job",
        "where 3 was expected",
    ),
    "an event that says something else": (
        'UPDATE events SET data_json = \'{"line":"43","eol":true}\''
        " WHERE kind = 'stdout' AND job_id = :job",
        "chain breaks",
    ),
    "a receipt that says something else": (
        "UPDATE jobs SET receipt_json = json_set(receipt_json, '$.duration_ms', 8)"
        " WHERE job_id = :job",
        "does not recompute",
    ),
    "a receipt that is missing": (
        "UPDATE jobs SET receipt_json = NULL WHERE job_id = :job",
        "no receipt",
    ),
    "a ledger that forgets": (
        "UPDATE job_storage_usage SET retained_bytes = retained_bytes - 1 WHERE job_id = :job",
        "the ledger says",
    ),
    "a total that forgets": (
        "UPDATE storage_usage_total SET charged_bytes = charged_bytes - 1",
        "total:",
    ),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    path = tmp_path_factory.mktemp("sound") / "state" / "rookhold.db"
    store = Store.open(path, binding=anything_binds)
    jobs = Jobs(store)
    ids = [jobs.finished(key="one"), jobs.finished()]
    store.close()
    return path, ids


def test_a_sound_database_has_no_problems(sound: tuple[Path, list[str]]) -> None:
    path, ids = sound
    assert problems(path, ids) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(
    sound: tuple[Path, list[str]], tmp_path: Path, fault: str
) -> None:
    path, ids = sound
    copy = tmp_path / "rookhold.db"
    shutil.copy(path, copy)
    statement, said = FAULTS[fault]
    db = apsw.Connection(str(copy))
    db.execute("PRAGMA ignore_check_constraints = ON")
    triggers = "SELECT name FROM sqlite_schema WHERE type = 'trigger'"
    for (name,) in db.execute(triggers).fetchall():
        db.execute(f"DROP TRIGGER {name}")  # they refuse all of this; a torn file would not ask
    db.execute(statement, {"job": ids[0]} if ":job" in statement else None)
    db.close()
    assert any(said in problem for problem in problems(copy, ids))
