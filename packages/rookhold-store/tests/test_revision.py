"""The accounting repair: exact ledgers; only what binds its tenant is still an attestation."""

import hashlib
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from rookhold_store import BindingRequiredError, Store, StoreError, Sweep, connection
from rookhold_store.accounting import findings
from rookhold_store.schema import expected_objects, read_objects
from rookhold_store.testing import Jobs, TickingClock, anything_binds
from rookhold_store.testing.lineage import names_its_tenant, unruled
from rookhold_store.verify import verify

OLD = Path(__file__).parent / "files" / "version-4.db"
NOW = 9_000_000
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def old(path: Path) -> Path:
    """A file of version 4 at revision 1, with a bound and an unbound attestation."""
    path.parent.mkdir(mode=0o700)
    shutil.copy(OLD, path)
    return path


def rows(path: Path, sql: str) -> list[Any]:
    db = apsw.Connection(str(path))
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def test_a_bound_attestation_is_kept_and_an_unbound_one_set_aside_byte_for_byte(old: Path) -> None:
    sql = "SELECT * FROM job_attestations ORDER BY job_id"
    bound, unbound = rows(old, sql)
    with Store.open(old, binding=names_its_tenant, clock=lambda: NOW) as store:
        assert store.opening.quarantined == ("unbound",)
        assert rows(old, sql) == [bound]
        (moved,) = rows(
            old,
            "SELECT job_id, result_sha256, envelope_sha256, result_artifact, envelope_json, at_ms,"
            " reason FROM attestation_quarantine",
        )
        assert moved[:5] == (unbound[0], *unbound[5:])
        assert moved[3] == b"no tenant"
        assert hashlib.sha256(moved[3]).hexdigest() == moved[1]
        assert moved[5:] == (NOW, "tenant_not_bound")
        assert store.read.attestation("globex", "unbound") is None
        assert store.read.attestation_status("globex", "unbound") is None
        row = store.read.outbox("unbound")
        job = store.read.get("globex", "unbound")
        assert row is not None
        assert job is not None
        assert row.pending_since_ms == row.next_attempt_ms == job.finished_at_ms
        # The new attestation takes the place of the old one, which stays set aside.
        store.call(Jobs(store).attestation("unbound", result_artifact=b"of tenant globex"))
        attested = store.read.attestation("globex", "unbound")
        assert attested is not None
        assert attested.result_artifact == b"of tenant globex"
        assert findings(store._writer._db) == []
        assert list(verify(old, binding=names_its_tenant)) == []
    assert len(rows(old, "SELECT 1 FROM attestation_quarantine")) == 1


def test_receipts_and_events_are_not_touched_by_the_repair(old: Path) -> None:
    columns = "job_id, CAST(receipt_json AS BLOB), CAST(spec_json AS BLOB), status"
    sql = f"SELECT {columns} FROM jobs ORDER BY job_id"
    before = rows(old, sql), rows(old, "SELECT * FROM events ORDER BY 1, 2")
    Store.open(old, binding=names_its_tenant).close()
    assert (rows(old, sql), rows(old, "SELECT * FROM events ORDER BY 1, 2")) == before


def test_without_a_binding_test_a_file_with_attestations_is_refused_unchanged(old: Path) -> None:
    before = old.read_bytes()
    with pytest.raises(BindingRequiredError):
        Store.open(old)
    assert old.read_bytes() == before
    assert Store.open(old, binding=names_its_tenant).close() is None


def test_without_a_binding_test_a_file_without_attestations_is_repaired(old: Path) -> None:
    db = apsw.Connection(str(old))
    with unruled(db, 4):
        db.execute("DELETE FROM job_attestations")
    db.close()
    with Store.open(old) as store:
        assert store.opening.accounts_repaired
        assert findings(store._writer._db) == []


def test_a_second_open_changes_nothing(old: Path) -> None:
    Store.open(old, binding=names_its_tenant).close()
    before = old.read_bytes()
    with Store.open(old, binding=lambda **_: pytest.fail("asked again")) as store:
        assert not store.opening.accounts_repaired
    assert old.read_bytes() == before


def test_an_attestation_of_another_receipt_than_the_jobs_does_not_bind(old: Path) -> None:
    db = apsw.Connection(str(old))
    with unruled(db, 4):
        db.execute("UPDATE job_attestations SET receipt_sha256 = ?", ("0" * 64,))
    db.close()
    with Store.open(old, binding=anything_binds) as store:
        assert set(store.opening.quarantined) == {"bound", "unbound"}


def test_a_job_whose_removal_has_begun_keeps_what_it_has_until_it_goes(old: Path) -> None:
    db = apsw.Connection(str(old))
    with unruled(db, 4):
        db.execute("INSERT INTO retention_tombstones VALUES ('unbound', 5)")
        db.execute("UPDATE jobs SET receipt_json = NULL WHERE job_id = 'unbound'")
    db.close()
    with Store.open(old, binding=names_its_tenant) as store:
        assert store.opening.quarantined == ()
        assert findings(store._writer._db) == []


@pytest.mark.parametrize(
    "spoil",
    [
        "UPDATE storage_usage_total SET charged_bytes = 1",
        "UPDATE tenant_storage_usage SET charged_bytes = 0",
        "DELETE FROM tenant_storage_usage",
        "INSERT INTO tenant_storage_usage VALUES ('nobody', 5)",
        "UPDATE job_storage_usage SET retained_bytes = 0, reserved_bytes = 7",
        "UPDATE job_storage_usage SET requested_mem_mb = 4096",
        "DELETE FROM job_storage_usage WHERE tenant = 'acme'",
        "DELETE FROM storage_usage_total",
    ],
)
def test_whatever_the_ledger_said_before_it_is_exact_afterwards(old: Path, spoil: str) -> None:
    db = apsw.Connection(str(old))
    with unruled(db, 4):
        db.execute(spoil)
    db.close()
    with Store.open(old, binding=names_its_tenant, clock=TickingClock(NOW)) as store:
        assert findings(store._writer._db) == []
        assert read_objects(store._writer._db) == expected_objects()
        Jobs(store).finished(tenant="globex")
        assert findings(store._writer._db) == []


def test_after_the_last_job_is_gone_nothing_is_charged(old: Path) -> None:
    with Store.open(old, binding=names_its_tenant, clock=TickingClock(NOW)) as store:
        jobs = Jobs(store)
        for queued in store.read.queued_page():
            jobs.start(queued.job_id)
        for job_id in store.read.running_ids(100):
            jobs.finalise(job_id)
        while store.call(Sweep(now_ms=NOW + DAY_MS, age_ms=0)).jobs_deleted:
            pass
        assert store.read.charged_bytes() == 0
    assert rows(old, "SELECT * FROM tenant_storage_usage") == []


def test_a_failed_commit_of_the_repair_leaves_revision_1(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = old.read_bytes()
    opens = connection.open_existing

    def failing(file: Path) -> apsw.Connection:
        db = opens(file)
        db.set_commit_hook(lambda: True)
        return db

    monkeypatch.setattr(connection, "open_existing", failing)
    with pytest.raises(StoreError):
        Store.open(old, binding=names_its_tenant)
    assert old.read_bytes() == before
