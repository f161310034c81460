import apsw
import pytest

from rookhold_store import (
    CancelQueued,
    DeferAttestation,
    FailAttestation,
    RecoverRunning,
    RetryAttestations,
    Store,
    WaiveAttestation,
)
from rookhold_store.accounting import (
    RESERVE_ACCEPTED,
    RESERVE_PENDING,
    findings,
    recount,
    row_bytes,
)
from rookhold_store.testing import Jobs
from rookhold_types.jobs import JobSpec

MIB = 1024 * 1024


def ledger(raw: apsw.Connection, job_id: str) -> tuple[int, int]:
    retained, reserved = raw.execute(
        "SELECT retained_bytes, reserved_bytes FROM job_storage_usage WHERE job_id = ?", (job_id,)
    ).get
    return retained, reserved


def test_a_key_costs_its_own_row_to_the_byte(
    store: Store, jobs: Jobs, raw: apsw.Connection
) -> None:
    plain = ledger(raw, jobs.accept(tenant="tenant"))
    keyed_id = jobs.accept(tenant="tenant", key="a-key")
    keyed = ledger(raw, keyed_id)
    assert keyed[0] - plain[0] == 64 + len("tenant") + len("a-key") + 64 + len(keyed_id)
    assert keyed[1] == plain[1] == RESERVE_ACCEPTED


def test_growth_eats_the_reserve_to_its_floor_and_then_the_charge(
    store: Store, jobs: Jobs, raw: apsw.Connection
) -> None:
    job_id = jobs.running()
    charge = sum(ledger(raw, job_id))
    assert charge == ledger(raw, jobs.accept())[0] + RESERVE_ACCEPTED
    big = "x" * MIB
    for _ in range(10):
        jobs.append(job_id, big)
    retained, reserved = ledger(raw, job_id)
    assert retained + reserved == charge
    assert reserved > RESERVE_PENDING
    for _ in range(3):
        jobs.append(job_id, big)
    retained, reserved = ledger(raw, job_id)
    assert reserved == RESERVE_PENDING
    assert retained + reserved > charge
    jobs.finalise(job_id)
    assert ledger(raw, job_id)[1] == RESERVE_PENDING
    assert findings(raw) == []


def test_the_reserve_follows_the_outbox(store: Store, jobs: Jobs, raw: apsw.Connection) -> None:
    job_id = jobs.finished()

    def reserved() -> int:
        assert findings(raw) == []
        return ledger(raw, job_id)[1]

    assert reserved() == RESERVE_PENDING
    store.call(DeferAttestation(job_id=job_id, now_ms=1, delay_ms=100))
    assert reserved() == RESERVE_PENDING
    store.call(FailAttestation(job_id=job_id, code="too_large", now_ms=1, profile="1"))
    assert reserved() == 0
    store.call(RetryAttestations(job_ids=None, now_ms=1))
    assert reserved() == RESERVE_PENDING
    store.call(jobs.attestation(job_id))
    assert reserved() == 0
    assert store.read.charged_bytes("acme") == ledger(raw, job_id)[0]
    waived = jobs.finished()
    store.call(WaiveAttestation(job_id=waived))
    assert ledger(raw, waived)[1] == 0
    assert findings(raw) == []


def test_every_life_of_a_job_is_charged_exactly(
    store: Store, jobs: Jobs, raw: apsw.Connection
) -> None:
    spec = JobSpec(language="node", code="console.log('é€😀')", stdin="ü")
    ids = [jobs.accept(spec=spec, key=f"k{n}", tenant=f"t{n % 2}") for n in range(6)]
    for job_id in ids[1:]:
        jobs.start(job_id)
    store.call(CancelQueued(tenant="t0", job_id=ids[0], now_ms=store.clock()))
    jobs.append(ids[2], "naïve", "\x00")
    jobs.finalise(ids[2], receipt={"é": "ü"}, effective_spec={"a": "€"})
    store.call(RecoverRunning(job_id=ids[3], now_ms=store.clock()))
    jobs.finalise(ids[4], receipt=[1])
    store.call(jobs.attestation(ids[4]))
    store.call(FailAttestation(job_id=ids[2], code="ungültig", now_ms=1, profile="1"))
    assert findings(raw) == []
    assert {usage.tenant for usage in recount(raw).values()} == {"t0", "t1"}
    assert store.read.charged_bytes() == store.read.charged_bytes("t0") + store.read.charged_bytes(
        "t1"
    )


def test_what_was_refused_costs_nothing(store: Store, jobs: Jobs, raw: apsw.Connection) -> None:
    jobs.accept(key="k")
    before = store.read.charged_bytes()
    jobs.submit(jobs.acceptance(key="k"))
    futures = [
        store.submit(jobs.acceptance(key="k", spec=JobSpec(language="bash", code="x"))),
        store.submit(jobs.acceptance(tenant=" ")),
    ]
    assert all(future.exception(timeout=30) is not None for future in futures)
    assert store.read.charged_bytes() == before
    assert raw.execute("SELECT count(*) FROM tenant_storage_usage").get == 1
    assert findings(raw) == []


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("UPDATE job_storage_usage SET retained_bytes = retained_bytes + 1", "retained_bytes"),
        ("UPDATE job_storage_usage SET reserved_bytes = 1", "reserved_bytes"),
        ("UPDATE storage_usage_total SET charged_bytes = 1", "storage_usage_total"),
        ("UPDATE tenant_storage_usage SET charged_bytes = 1", "tenant_storage_usage"),
        ("DELETE FROM tenant_storage_usage", "tenant_storage_usage"),
        ("INSERT INTO tenant_storage_usage VALUES ('globex', 5)", "tenant_storage_usage"),
        (
            "DROP TRIGGER job_storage_usage_no_delete; DELETE FROM job_storage_usage",
            "job_storage_usage",
        ),
        (
            "DROP TRIGGER jobs_identity; UPDATE jobs SET admitted_mem_mb = 4096",
            "requested_mem_mb",
        ),
        (
            'DROP TRIGGER events_no_update; UPDATE events SET data_json = \'{"long":"er"}\'',
            "retained_bytes",
        ),
        (
            "DROP TRIGGER idempotency_keys_no_delete; DELETE FROM idempotency_keys",
            "retained_bytes",
        ),
    ],
    ids=lambda value: value[:60],
)
def test_a_recount_finds_every_kind_of_false_entry(
    store: Store, jobs: Jobs, raw: apsw.Connection, statement: str, place: str
) -> None:
    jobs.finished(key="k")
    assert findings(raw) == []
    raw.execute(statement)
    assert any(place in finding.place for finding in findings(raw))


def test_a_rows_charge_counts_utf8_bytes() -> None:
    assert row_bytes("é", "€", "😀", b"\x00\xff", None) == 64 + 2 + 3 + 4 + 2
