import hashlib
import json

import apsw
import pytest

from rookhold_store import (
    Accept,
    Accepted,
    IdempotencyConflictError,
    InvalidOperationError,
    Participation,
    RecordRefusedError,
    Replayed,
    Store,
)
from rookhold_store.testing import Jobs
from rookhold_types.canonical import canonical
from rookhold_types.errors import CanonicalError, RookholdError
from rookhold_types.events import check_chain
from rookhold_types.ids import new_job_id
from rookhold_types.jobs import JobSpec, fingerprint

OTHER = JobSpec(language="bash", code="true")


def changed(op: Accept, **values: object) -> Accept:
    return Accept(**{**{name: getattr(op, name) for name in op.__struct_fields__}, **values})


def nothing_stored(raw: apsw.Connection) -> bool:
    tables = ("jobs", "events", "job_storage_usage", "idempotency_keys", "tenant_storage_usage")
    return all(raw.execute(f"SELECT count(*) FROM {table}").get == 0 for table in tables)


def test_acceptance_stores_row_event_and_spec_together(store: Store, jobs: Jobs) -> None:
    op = jobs.acceptance()
    answer = store.call(op)
    assert isinstance(answer, Accepted)
    row = store.read.get("acme", op.job_id)
    assert row is not None
    assert (row.status, row.started_at_ms, row.finished_at_ms) == ("queued", None, None)
    assert row.created_at_ms == answer.created_at_ms == op.now_ms
    assert row.spec_json.encode() == canonical(op.spec)
    events = store.read.events_after(op.job_id)
    assert events == (answer.event,)
    assert events[0].data == {
        "status": "queued",
        "tenant": "acme",
        "language": "python",
        "requested_spec_sha256": op.fingerprint,
    }
    assert check_chain(op.job_id, events).complete


def test_a_key_used_again_for_the_same_request_answers_with_the_first_job(
    store: Store, jobs: Jobs
) -> None:
    first = jobs.acceptance(key="k")
    store.call(first)
    assert store.call(jobs.acceptance(key="k")) == Replayed(job_id=first.job_id)
    assert len(store.read.list_jobs("acme")) == 1
    known = store.read.find_key("acme", "k")
    assert known is not None
    assert (known.job_id, known.request_sha256) == (first.job_id, first.fingerprint)


def test_a_key_used_for_another_request_conflicts_and_stores_nothing(
    store: Store, jobs: Jobs
) -> None:
    store.call(jobs.acceptance(key="k"))
    with pytest.raises(IdempotencyConflictError) as caught:
        store.call(jobs.acceptance(key="k", spec=OTHER))
    assert caught.value.code == "idempotency_key_reused"
    assert len(store.read.list_jobs("acme")) == 1


def test_tenants_do_not_share_keys(store: Store, jobs: Jobs) -> None:
    assert isinstance(store.call(jobs.acceptance(key="k")), Accepted)
    assert isinstance(store.call(jobs.acceptance(key="k", tenant="globex", spec=OTHER)), Accepted)
    assert store.read.find_key("initech", "k") is None


def test_a_key_survives_a_reopen(store: Store, jobs: Jobs) -> None:
    job_id = jobs.accept(key="k")
    store.close()
    with Store.open(store.path) as again:
        assert again.call(Jobs(again).acceptance(key="k")) == Replayed(job_id=job_id)
        with pytest.raises(IdempotencyConflictError):
            again.call(Jobs(again).acceptance(key="k", spec=OTHER))


def test_one_key_raced_by_many_makes_one_job(store: Store, jobs: Jobs) -> None:
    futures = [store.submit(jobs.acceptance(key="k")) for _ in range(40)]
    answers = [future.result(timeout=30) for future in futures]
    made = [answer for answer in answers if isinstance(answer, Accepted)]
    assert len(made) == 1
    assert len({answer.job_id for answer in answers if isinstance(answer, Replayed)}) == 1
    assert len(store.read.list_jobs("acme")) == 1


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"tenant": " "}, InvalidOperationError),
        ({"tenant": "x" * 129}, InvalidOperationError),
        ({"language": ""}, InvalidOperationError),
        ({"job_id": "\t"}, InvalidOperationError),
        ({"admitted_mem_mb": 15}, InvalidOperationError),
        ({"admitted_mem_mb": 4097}, InvalidOperationError),
        ({"now_ms": -1}, InvalidOperationError),
        ({"idempotency_key": ""}, InvalidOperationError),
        ({"idempotency_key": "k" * 129}, InvalidOperationError),
        ({"fingerprint": "0" * 64}, InvalidOperationError),
        ({"spec": ["not", "an", "object"]}, InvalidOperationError),
        ({"spec": {"code": 1.5}}, CanonicalError),
        ({"spec": {"code": "\ud800"}}, CanonicalError),
    ],
    ids=str,
)
def test_a_malformed_acceptance_is_refused_and_leaves_nothing(
    store: Store,
    jobs: Jobs,
    raw: apsw.Connection,
    changes: dict[str, object],
    refusal: type[RookholdError],
) -> None:
    with pytest.raises(refusal):
        store.call(changed(jobs.acceptance(key="k"), **changes))
    assert nothing_stored(raw)


def test_a_job_id_is_used_once_even_by_another_tenant(store: Store, jobs: Jobs) -> None:
    job_id = jobs.accept()
    with pytest.raises(RecordRefusedError):
        store.call(jobs.acceptance(job_id=job_id, tenant="globex", spec=OTHER))
    assert [row.tenant for row in store.read.list_jobs(None)] == ["acme"]


class Guest:
    """Rows of another layer, in a table of its own."""

    def __init__(self, *, refuse: bool = False) -> None:
        self.refuse = refuse
        self.seen: list[Participation] = []

    def apply(self, db: apsw.Connection, context: Participation) -> None:
        self.seen.append(context)
        db.execute("INSERT INTO gov_note VALUES (?, ?)", (context.job_id, context.event.event_hash))
        if self.refuse:
            raise BudgetExhaustedError("the budget is used up")


class BudgetExhaustedError(RookholdError):
    code = "budget_exhausted"


@pytest.fixture
def guests(raw: apsw.Connection) -> apsw.Connection:
    raw.execute("CREATE TABLE gov_note (job_id TEXT, event_hash TEXT) STRICT")
    return raw


def test_a_participants_rows_share_the_acceptance(
    store: Store, jobs: Jobs, guests: apsw.Connection
) -> None:
    guest = Guest()
    op = jobs.acceptance(participants=[guest])
    answer = store.call(op)
    assert isinstance(answer, Accepted)
    assert guests.execute("SELECT * FROM gov_note").fetchall() == [
        (op.job_id, answer.event.event_hash)
    ]
    assert [context.status for context in guest.seen] == ["queued"]


def test_a_participant_that_refuses_undoes_the_acceptance_alone(
    store: Store, jobs: Jobs, guests: apsw.Connection
) -> None:
    refused = store.submit(jobs.acceptance(key="k", participants=[Guest(refuse=True)]))
    other = store.submit(jobs.acceptance(tenant="globex"))
    with pytest.raises(BudgetExhaustedError):
        refused.result(timeout=30)
    other.result(timeout=30)
    assert store.read.list_jobs("acme") == ()
    assert store.read.find_key("acme", "k") is None
    assert len(store.read.list_jobs("globex")) == 1
    assert guests.execute("SELECT count(*) FROM gov_note").get == 0


def test_a_replay_asks_no_participant(store: Store, jobs: Jobs, guests: apsw.Connection) -> None:
    guest = Guest()
    store.call(jobs.acceptance(key="k"))
    store.call(jobs.acceptance(key="k", participants=[guest]))
    assert guest.seen == []


def test_a_large_spec_is_stored_to_the_byte(store: Store, jobs: Jobs) -> None:
    spec = JobSpec(language="python", code="#\u0000é\n" * 150_000)
    job_id = jobs.accept(spec=spec)
    row = store.read.get("acme", job_id)
    assert row is not None
    assert hashlib.sha256(row.spec_json.encode()).hexdigest() == fingerprint(spec)
    assert json.loads(row.spec_json)["code"] == spec.code


def test_an_unknown_message_is_refused(store: Store) -> None:
    with pytest.raises(InvalidOperationError):
        store.submit("accept").result(timeout=30)  # type: ignore[arg-type]


def test_ids_of_one_process_list_in_the_order_of_their_making(store: Store, jobs: Jobs) -> None:
    ids = [jobs.accept() for _ in range(20)]
    assert [row.job_id for row in store.read.list_jobs("acme")] == ids[::-1]
    assert new_job_id() > ids[-1]
