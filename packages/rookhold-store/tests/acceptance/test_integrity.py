"""Lines S20, S33 and S34: what a verification reads, and what it finds."""

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from rookhold_store import Accept, Store, Sweep
from rookhold_store.compact import compact
from rookhold_store.testing import Jobs, TickingClock, anything_binds
from rookhold_store.testing.specimen import Made, binding, unguarded
from rookhold_store.verify import unproved, verify
from rookhold_types.jobs import JobFile, JobSpec

MIB = 1024 * 1024


def read_so_far() -> int:
    with Path("/proc/self/io").open(encoding="ascii") as file:
        return int(next(line for line in file if line.startswith("rchar")).split()[1])


def test_s20_a_reopen_of_large_rows_reads_no_payload_and_a_verification_reads_all(
    path: Path,
) -> None:
    content = "QUJD" * (MIB // 2)  # 2 MiB of base64
    with Store.open(path, binding=anything_binds, clock=TickingClock()) as store:
        jobs = Jobs(store)
        for _ in range(5):
            spec = JobSpec(
                language="python",
                code="pass",
                files=(JobFile(path="input/a", content_base64=content),),
            )
            job_id = jobs.running(spec=spec)
            jobs.append(job_id, "x" * MIB)
            jobs.finalise(job_id)
            store.call(jobs.attestation(job_id, result_artifact=b"a" * (4 * MIB)))
    size = path.stat().st_size
    assert size > 30 * MIB
    before = read_so_far()
    with Store.open(path, binding=anything_binds, clock=TickingClock(10**7)) as store:
        assert store.read.probe()
    assert read_so_far() - before < size / 10
    before = read_so_far()
    assert list(verify(path, binding=anything_binds)) == []
    assert read_so_far() - before > size / 2


def test_s33_a_deleted_event_is_refused_or_else_named_by_job_and_seq(made: Made) -> None:
    with closing(apsw.Connection(str(made.path))) as db, pytest.raises(apsw.ConstraintError):
        db.execute("DELETE FROM events WHERE job_id = ? AND seq = 3", (made.attested,))
    assert list(verify(made.path, binding=binding)) == []
    with unguarded(made.path) as db:
        db.execute("DELETE FROM events WHERE job_id = ? AND seq = 3", (made.attested,))
    found = list(verify(made.path, binding=binding))
    assert (made.attested, 3, "events.seq") in {(f.job_id, f.seq, f.place) for f in found}


@pytest.mark.parametrize(
    ("place", "statement"),
    [
        ("job_storage_usage.retained_bytes", "retained_bytes = retained_bytes + 1"),
        ("job_storage_usage.reserved_bytes", "reserved_bytes = 1"),
    ],
)
def test_s34_an_edited_account_is_reported(made: Made, place: str, statement: str) -> None:
    with unguarded(made.path) as db:
        db.execute(f"UPDATE job_storage_usage SET {statement} WHERE job_id = ?", (made.attested,))
    found = list(verify(made.path, binding=binding))
    assert (place, made.attested) in {(item.place, item.job_id) for item in found}


@pytest.mark.parametrize("table", ["storage_usage_total", "tenant_storage_usage"])
def test_s34_an_edited_total_is_reported(made: Made, table: str) -> None:
    with unguarded(made.path) as db:
        db.execute(f"UPDATE {table} SET charged_bytes = charged_bytes + 1")
    found = list(verify(made.path, binding=binding))
    assert {item.place for item in found} == {f"{table}.charged_bytes"}


def test_s34_an_edited_admitted_memory_is_reported(made: Made) -> None:
    with unguarded(made.path) as db:
        db.execute("UPDATE jobs SET admitted_mem_mb = 128 WHERE job_id = ?", (made.attested,))
    (found,) = verify(made.path, binding=binding)
    assert found.job_id == made.attested
    assert "jobs.admitted_mem_mb" in found.problem


def test_s34_a_status_that_disagrees_with_the_finished_event_is_reported(made: Made) -> None:
    with unguarded(made.path) as db:
        db.execute("UPDATE jobs SET status = 'failed' WHERE job_id = ?", (made.pending,))
    found = list(verify(made.path, binding=binding))
    assert ("jobs.status", made.pending) in {(item.place, item.job_id) for item in found}


def test_s34_a_sound_file_has_no_finding_and_what_cannot_be_proved_is_said(made: Made) -> None:
    assert list(verify(made.path, binding=binding)) == []
    said = " ".join(unproved.SENTENCES)
    for limit in ("no whole job is missing", "unfinished job", "rewritten consistently"):
        assert limit in said


def test_s34_a_store_under_way_is_sound_too(store: Store) -> None:
    jobs = Jobs(store)
    first = jobs.acceptance(key="k")
    assert isinstance(first, Accept)
    jobs.submit(first)
    jobs.start(first.job_id)
    jobs.append(first.job_id, "line")
    assert list(verify(store.path, binding=anything_binds)) == []


def test_s5_a_compaction_works_on_what_a_prune_left(path: Path) -> None:
    with Store.open(path, binding=anything_binds, clock=TickingClock()) as store:
        jobs = Jobs(store)
        for _ in range(20):
            job_id = jobs.running()
            jobs.append(job_id, *("x" * 10_000 for _ in range(10)))
            jobs.finalise(job_id)
        while store.call(Sweep(now_ms=10**9, age_ms=0)).more_remaining:
            pass
        waiting = jobs.accept()
    done = compact(path)
    assert done.bytes_after < done.bytes_before / 4
    with Store.open(path, binding=anything_binds) as store:
        assert store.read.summary(None, waiting) is not None
    assert list(verify(path, binding=anything_binds)) == []
