"""FR-14: equal submissions under one key make one job, however many, whenever the server dies.

About acceptance, which no backend has a part in: one is enough. It is a gateway of its own, since
it is killed.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import pytest
from faults.book import Book
from gateway import Gateway, eventually
from invariants import problems
from isolating import NAMESPACES_DEV
from reports.site import SETTINGS

from rookhold.errors import ApiError, RookholdError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rookhold.results import SubmittedJob

pytestmark = list(NAMESPACES_DEV.marks)
AT_ONCE = 20
CRASHES, SOAK_CRASHES = 4, 40
CODE = "echo ran"
Answers = list["SubmittedJob | RookholdError"]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path / "home", sandbox=NAMESPACES_DEV.name, **SETTINGS) as gateway:
        yield gateway


def submit_at_once(gateway: Gateway, key: str, codes: Sequence[str]) -> Answers:
    """Submit all of them in the same moment, each over a connection of its own."""
    answers: Answers = []
    ready = threading.Barrier(len(codes))

    def submit(code: str) -> None:
        with gateway.client() as client:
            client.health()  # connected
            ready.wait(60)
            try:
                answers.append(client.submit("bash", code, idempotency_key=key))
            except RookholdError as error:
                answers.append(error)

    threads = [threading.Thread(target=submit, args=(code,)) for code in codes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == len(codes)
    return answers


def accepted(answers: Answers) -> list[SubmittedJob]:
    assert not [each for each in answers if isinstance(each, RookholdError)]
    return [each for each in answers if not isinstance(each, RookholdError)]


def ran_once(gateway: Gateway, job_id: str) -> None:
    with gateway.client() as client:
        assert client.wait(job_id, 60).stdout == "ran\n"
        kinds = [event.kind for event in client.events(job_id)]
    assert kinds == ["accepted", "started", "stdout", "finished"]


def all_jobs(gateway: Gateway, **who: Any) -> list[str]:
    with gateway.client(**who) as client:
        return [job.job_id for job in client.jobs()]


def test_twenty_equal_submissions_make_one_job_that_runs_once(gateway: Gateway) -> None:
    answers = accepted(submit_at_once(gateway, "one-key", [CODE] * AT_ONCE))
    assert len({answer.job_id for answer in answers}) == 1
    assert sorted(answer.replayed for answer in answers) == [False] + [True] * (AT_ONCE - 1)
    ran_once(gateway, answers[0].job_id)
    assert all_jobs(gateway) == [answers[0].job_id]
    assert gateway.stop() == 0
    assert problems(gateway.database, [answers[0].job_id]) == []


def test_of_twenty_different_ones_the_first_wins_and_the_others_are_told(gateway: Gateway) -> None:
    answers = submit_at_once(gateway, "one-key", [f"echo {n}" for n in range(AT_ONCE)])
    refused = [each for each in answers if isinstance(each, RookholdError)]
    assert len(refused) == AT_ONCE - 1
    for error in refused:
        assert isinstance(error, ApiError)
        assert error.code == "idempotency_key_reused"
    assert len(all_jobs(gateway)) == 1


def test_the_same_key_of_another_tenant_is_another_job(gateway: Gateway) -> None:
    with gateway.client() as client, gateway.client(tenant="other") as other:
        first = client.submit("bash", CODE, idempotency_key="one-key")
        second = other.submit("bash", CODE, idempotency_key="one-key")
        assert first.job_id != second.job_id
        assert not second.replayed
        assert other.wait(second.job_id, 60).stdout == "ran\n"
    assert all_jobs(gateway) == [first.job_id]
    assert all_jobs(gateway, tenant="other") == [second.job_id]


def crash_under_submissions(gateway: Gateway, key: str, dice: random.Random) -> None:
    """Kill the server while one submission is on its way, then send that again."""
    with Book(gateway.database) as book:
        before = len(book.job_ids())
        with gateway.client(timeout=20) as client:
            client.health()
            sending = threading.Thread(target=_ignoring, args=(client, key))
            sending.start()
            if dice.random() < 0.7:  # between its commit and its answer, or just after
                assert eventually(60, lambda: len(book.job_ids()) > before)
            else:
                sending.join(dice.uniform(0, 0.01))
            gateway.kill()
            sending.join(60)
    gateway.start()
    [again] = accepted(submit_at_once(gateway, key, [CODE]))
    with gateway.client() as client:
        ended = client.wait(again.job_id, 60)
    # One that ran when the server died is not run again; one that was queued runs now.
    assert (ended.status, ended.stdout) == ("succeeded", "ran\n") or ended.status == "error"


def _ignoring(client: Any, key: str) -> None:
    try:
        client.submit("bash", CODE, idempotency_key=key)
    except RookholdError:
        return  # whether there is a job now is what the retry shows


def run_crashes(gateway: Gateway, count: int) -> None:
    dice = random.Random(14)
    for number in range(count):
        crash_under_submissions(gateway, f"key-{number}", dice)
        assert len(all_jobs(gateway)) == number + 1, "not zero and not two"
    jobs = all_jobs(gateway)
    assert gateway.stop() == 0
    assert problems(gateway.database, jobs) == []


def test_a_crash_between_acceptance_and_answer_leaves_one_job(gateway: Gateway) -> None:
    run_crashes(gateway, CRASHES)


@pytest.mark.soak
def test_many_crashes_between_acceptance_and_answer_leave_one_job_each(gateway: Gateway) -> None:
    run_crashes(gateway, SOAK_CRASHES)
