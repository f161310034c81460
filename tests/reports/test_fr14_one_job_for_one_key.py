"""FR-14: equal submissions under one key make one job, however many, whenever the server dies.

About acceptance, which no backend has a part in: one is enough. It is a gateway of its own, since
it is killed.
"""

from __future__ import annotations

import http.client
import json
import random
import signal
import socket
import struct
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

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
AT_ONCE, VERY_MANY = 20, 100
CRASHES, SOAK_CRASHES = 2, 40
SOAK_KEYS = 150
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


class Reply(NamedTuple):
    status: int
    job_id: str | None
    location: str | None
    replayed: str | None
    code: str | None


def post(gateway: Gateway, key: str, code: str, *, tenant: str = "local") -> Reply:
    """Submit over a connection of its own, and again as long as the server asks for that."""
    suffix = "" if tenant == "local" else f"-{tenant}"
    headers = {
        "Authorization": f"Bearer {gateway.api_key}{suffix}",
        "Content-Type": "application/json",
        "Idempotency-Key": key,
    }
    body = json.dumps({"language": "bash", "code": code})
    while True:
        with closing(http.client.HTTPConnection(gateway.address, timeout=60)) as connection:
            connection.request("POST", "/v1/jobs", body, headers)
            answer = connection.getresponse()
            told = json.loads(answer.read())
            if not told.get("error", {}).get("retryable"):
                return Reply(
                    answer.status,
                    told.get("job_id"),
                    answer.getheader("location"),
                    answer.getheader("idempotency-replayed"),
                    told.get("error", {}).get("code"),
                )


def post_at_once(gateway: Gateway, requests: Sequence[tuple[str, str, str]]) -> list[Reply]:
    """Submit each of (tenant, key, code) in the same moment; answers are in their order."""
    ready = threading.Barrier(len(requests))

    def submit(request: tuple[str, str, str]) -> Reply:
        tenant, key, code = request
        ready.wait(60)
        return post(gateway, key, code, tenant=tenant)

    with ThreadPoolExecutor(len(requests)) as threads:
        return list(threads.map(submit, requests))


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


def test_a_hundred_equal_requests_make_one_job_and_one_of_them_was_the_first(
    gateway: Gateway,
) -> None:
    answers = post_at_once(gateway, [("local", "one-key", CODE)] * VERY_MANY)
    assert {answer.status for answer in answers} == {201}
    assert len({(answer.job_id, answer.location) for answer in answers}) == 1
    flags = Counter(answer.replayed for answer in answers)
    assert flags == {"false": 1, "true": VERY_MANY - 1}
    job_id = answers[0].job_id
    assert job_id is not None
    ran_once(gateway, job_id)
    assert all_jobs(gateway) == [job_id]
    assert gateway.stop() == 0
    assert problems(gateway.database, [job_id]) == []


def test_a_hundred_requests_of_two_tenants_with_three_bodies_make_a_job_for_each_tenant(
    gateway: Gateway,
) -> None:
    requests = [
        (("local", "other")[number % 2], "one-key", f"echo {number % 3}")
        for number in range(VERY_MANY)
    ]
    answers = post_at_once(gateway, requests)
    for tenant in ("local", "other"):
        mine = [
            (code, answer)
            for (who, _, code), answer in zip(requests, answers, strict=True)
            if who == tenant
        ]
        taken = [(code, answer) for code, answer in mine if answer.status == 201]
        assert len({(code, answer.job_id) for code, answer in taken}) == 1
        assert [answer.replayed for _, answer in taken].count("false") == 1
        winner = taken[0][0]
        for code, answer in mine:
            if code == winner:
                assert answer.status == 201
            else:
                assert (answer.status, answer.code) == (422, "idempotency_key_reused")
        assert all_jobs(gateway, tenant=tenant) == [taken[0][1].job_id]


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


@pytest.mark.soak
def test_many_keys_under_load_make_one_job_each(gateway: Gateway) -> None:
    """Every worker is busy and the queue is used by somebody else, who is refused now and then."""
    ended = threading.Event()

    def noise() -> None:
        with gateway.client(tenant="other") as client:
            while not ended.is_set():
                try:
                    client.submit("bash", "sleep 0.05")
                except ApiError as error:
                    if error.code != "tenant_queue_saturated":
                        raise
                    time.sleep(0.05)

    dice = random.Random(15)
    with ThreadPoolExecutor(2) as threads:
        noisy = [threads.submit(noise) for _ in range(2)]
        try:
            for number in range(SOAK_KEYS):
                requests = [("local", f"key-{number}", CODE)] * AT_ONCE
                requests += [("other", f"key-{number}", f"echo {dice.random()}")] * 3
                answers = post_at_once(gateway, requests)[:AT_ONCE]
                assert {answer.status for answer in answers} == {201}
                assert len({answer.job_id for answer in answers}) == 1
                job_id = answers[0].job_id
                assert job_id is not None
                ran_once(gateway, job_id)
        finally:
            ended.set()
        for each in noisy:
            each.result(60)
    assert len(all_jobs(gateway)) == SOAK_KEYS


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


def hang_up(gateway: Gateway, key: str, seconds: float) -> None:
    """Submit, and reset the connection after a moment without having read anything."""
    host, _, port = gateway.address.rpartition(":")
    body = json.dumps({"language": "bash", "code": CODE})
    with socket.create_connection((host, int(port)), timeout=60) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.sendall(
            f"POST /v1/jobs HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {gateway.api_key}"
            f"\r\nContent-Type: application/json\r\nIdempotency-Key: {key}"
            f"\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        time.sleep(seconds)


def test_a_client_that_hangs_up_during_the_commit_has_one_job(gateway: Gateway) -> None:
    dice = random.Random(11)
    keys = [f"key-{number}" for number in range(40)]
    for key in keys:
        hang_up(gateway, key, dice.uniform(0, 0.008))
    again = [post(gateway, key, CODE) for key in keys]
    assert {reply.status for reply in again} == {201}
    assert len({reply.job_id for reply in again}) == len(keys)
    assert sorted(all_jobs(gateway)) == sorted(str(reply.job_id) for reply in again)
    assert any(reply.replayed == "true" for reply in again), "some were accepted all the same"


# A server that ends itself at one exact moment of an acceptance; run as Gateway runs Python.
DIES = """\
#!{python}
import os, runpy, signal, sys

def dying_after(owner, name, when=lambda *arguments: True):
    original = getattr(owner, name)
    def dies(*arguments, **named):
        if name == "_answer" and when(*arguments):
            os.kill(os.getpid(), signal.SIGKILL)
        answer = original(*arguments, **named)
        if name == "run":
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
    async def dies_too(*arguments, **named):
        answer = await original(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)
        return answer
    setattr(owner, name, dies_too if name in ("_store_it", "accept") else dies)

moment = os.environ.pop("DIE_AT", None)
if moment:
    from rookhold_server.jobs.accept import Acceptor
    from rookhold_store import Accepted, writer
    from rookhold_store.accept import PreparedAccept
    if moment == "before its commit":
        dying_after(PreparedAccept, "run")
    elif moment == "committed, nobody told":
        dying_after(writer, "_answer", lambda future, answer, *_: isinstance(answer, Accepted))
    elif moment == "told, not queued":
        dying_after(Acceptor, "_store_it")
    else:
        dying_after(Acceptor, "accept")
sys.argv = ["rookhold_server"]
runpy.run_module("rookhold_server", run_name="__main__", alter_sys=True)
"""
MOMENTS = (
    "before its commit",
    "committed, nobody told",
    "told, not queued",
    "queued, not answered",
)


def die_at(gateway: Gateway, moment: str, key: str) -> None:
    """Have the server die at that moment of several equal requests, then send one of them again."""
    gateway.settings["DIE_AT"] = moment
    gateway.start()
    ready = threading.Barrier(5)

    def submit(_: int) -> Reply | None:
        ready.wait(60)
        try:
            return post(gateway, key, CODE)
        except (OSError, http.client.HTTPException):
            return None

    with ThreadPoolExecutor(5) as threads:
        answered = [reply for reply in threads.map(submit, range(5)) if reply is not None]
    # A later one may have found the job of the first, which itself was never answered.
    assert {reply.replayed for reply in answered} <= {"true"}
    assert gateway.process is not None
    assert gateway.process.wait(60) == -signal.SIGKILL
    with Book(gateway.database) as book:
        stored = len(book.job_ids())
    del gateway.settings["DIE_AT"]
    gateway.start()
    again = post(gateway, key, CODE)
    assert again.status == 201
    assert {reply.job_id for reply in answered} <= {again.job_id}
    assert again.replayed == ("false" if moment == MOMENTS[0] else "true")
    jobs = all_jobs(gateway)
    assert len(jobs) == stored + (moment == MOMENTS[0])
    assert again.job_id in jobs
    assert again.job_id is not None
    with gateway.client() as client:
        ended = client.wait(again.job_id, 60)
    hurt = moment == MOMENTS[3] and ended.status == "error"  # it may have been running by then
    assert hurt or (ended.status, ended.stdout) == ("succeeded", "ran\n")
    assert gateway.stop() == 0


def run_moments(home: Path, rounds: int, moments: Sequence[str]) -> None:
    home.mkdir(mode=0o700)
    python = home / "python"
    python.write_text(DIES.format(python=sys.executable), "utf-8")
    python.chmod(0o700)
    gateway = Gateway(home / "gateway", sandbox=NAMESPACES_DEV.name, python=str(python), **SETTINGS)
    try:
        for number in range(rounds):
            for moment in moments:
                die_at(gateway, moment, f"key-{number}-{MOMENTS.index(moment)}")
        with Book(gateway.database) as book:
            jobs = book.job_ids()
        assert len(jobs) == rounds * len(moments), "one for each key"
        assert problems(gateway.database, jobs) == []
    finally:
        gateway.__exit__(None, None, None)


def test_a_server_that_dies_around_the_commit_of_an_acceptance_leaves_one_job(
    tmp_path: Path,
) -> None:
    run_moments(tmp_path / "home", 1, MOMENTS[:2])


@pytest.mark.soak
def test_a_server_that_dies_at_each_moment_of_many_acceptances_leaves_one_job_each(
    tmp_path: Path,
) -> None:
    run_moments(tmp_path / "home", 12, MOMENTS)
