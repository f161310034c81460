"""One committed file of each version: what was once written stays readable."""

import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from rookhold_store import Store
from rookhold_store.accounting import RESERVE_ACCEPTED, RESERVE_PENDING, findings
from rookhold_store.schema import expected_objects, read_objects
from rookhold_store.testing.lineage import make_specimen, names_its_tenant
from rookhold_store.verify import verify

FILES = Path(__file__).parent / "files"
VERSIONS = (1, 2, 3, 4)
NOW = 9_000_000


def committed(version: int) -> Path:
    return FILES / f"version-{version}.db"


def contents(path: Path) -> dict[str, Any]:
    """Return all that a file holds, in an order of its own."""
    db = apsw.Connection(
        f"file:{path}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )
    try:
        objects = read_objects(db)
        tables = [name for name, made in objects.items() if made.kind == "table"]
        return {
            "objects": objects,
            "user_version": db.pragma("user_version"),
            **{name: sorted(db.execute(f"SELECT * FROM {name}"), key=repr) for name in tables},
        }
    finally:
        db.close()


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def old(path: Path, version: int) -> Path:
    path.parent.mkdir(mode=0o700)
    shutil.copy(committed(version), path)
    return path


def test_the_lineage_still_makes_the_committed_files(path: Path, version: int) -> None:
    make_specimen(path, version)
    made, kept = contents(path), contents(committed(version))
    assert made.keys() == kept.keys()
    assert [name for name in made if made[name] != kept[name]] == []
    assert kept["objects"] == expected_objects(version)


def test_a_committed_file_opens_sound_and_at_the_newest_version(old: Path, version: int) -> None:
    with Store.open(old, binding=names_its_tenant, clock=lambda: NOW) as store:
        assert store.opening.upgraded_from == (version if version < 4 else None)
        assert store.opening.accounts_repaired
        assert [str(finding) for finding in verify(old, binding=names_its_tenant)] == []
        assert findings(store._writer._db) == []
        assert read_objects(store._writer._db) == expected_objects()
    again = contents(old)
    with Store.open(old, binding=names_its_tenant) as store:
        assert not store.opening.accounts_repaired
        assert store.opening.quarantined == ()
    assert contents(old) == again


def test_every_row_of_version_1_is_there_in_order(old: Path, version: int) -> None:
    with Store.open(old, binding=names_its_tenant, clock=lambda: NOW) as store:
        db = store._writer._db
        rows = {
            job_id: rest
            for job_id, *rest in db.execute(
                "SELECT job_id, tenant, language, status, created_at_ms, started_at_ms,"
                " finished_at_ms, exit_code, spec_json, admitted_mem_mb, receipt_json"
                " FROM jobs WHERE created_at_ms <= 1000"
            )
        }
        events = db.execute(
            "SELECT job_id, seq, ts_ms, kind, data_json FROM events WHERE hash_version = 0"
            " ORDER BY 1, 2"
        ).fetchall()
    spec = '{"language":"python","limits":{"mem_mb":128}}'
    sound = ["acme", "python", "succeeded", 1000, 2000, 3000, 0, spec, 128, None]

    def but(**changes: Any) -> list[Any]:
        names = (
            "tenant",
            "language",
            "status",
            "created",
            "started",
            "finished",
            "exit",
            "spec",
            "mem",
        )
        return [changes.get(name, value) for name, value in zip((*names, ""), sound, strict=True)]

    when = NOW if version == 1 else 0  # of the step to version 2
    assert rows == {
        "sound": but(),
        "blank-tenant": but(tenant="__legacy_invalid__:blank-tenant"),
        "blob-tenant": but(tenant="__legacy_invalid__:blob-tenant"),
        "blank-language": but(language="unknown"),
        "unknown-status": but(status="error", finished=2000),
        "spec-not-json": but(spec='{"legacy_invalid_spec_json":"print(1)"}', mem=256),
        "spec-blob": but(spec='{"legacy_invalid_spec_json":"blob:hex:00ff"}', mem=256),
        "text-times": but(created=0, started=None, finished=when),
        "exit-code-beyond": but(exit=None),
        "running": but(status="running", started=1000, finished=None),
        "queued": but(status="queued", started=None, finished=None),
    }
    assert events == [
        ("queued", 1, 1000, "accepted", '{ "status" : "queued" }'),
        ("running", 1, 1000, "accepted", '{"status":"queued"}'),
        ("sound", 1, 1000, "accepted", '{"status":"queued"}'),
        ("sound", 2, 2000, "legacy_unknown", '{"legacy_invalid_data_json":"not JSON"}'),
        ("sound", 3, 3000, "finished", '{"legacy_invalid_data_json":"blob:hex:01"}'),
    ]


@pytest.mark.parametrize("version", [2, 3, 4], indirect=True)
def test_reserves_are_those_of_each_jobs_place(old: Path, version: int) -> None:
    with Store.open(old, binding=names_its_tenant, clock=lambda: NOW) as store:
        reserved = dict(
            store._writer._db.execute("SELECT job_id, reserved_bytes FROM job_storage_usage")
        )
        pending = {row.job_id for row in store.read.pending_attestations(NOW)}
    unsigned = {"pending", "unbound"} if version == 4 else {"pending", "unbound", "bound", "waived"}
    assert pending == unsigned
    unfinished = {"waiting", "under-way", "queued", "running"}
    assert {job for job, held in reserved.items() if held == RESERVE_PENDING} == unsigned
    assert {job for job, held in reserved.items() if held == RESERVE_ACCEPTED} == unfinished
    assert (
        sum(held not in (0, RESERVE_PENDING, RESERVE_ACCEPTED) for held in reserved.values()) == 0
    )
