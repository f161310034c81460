"""I1 to I5 and U11, over HTTP, the real engine and a real store: a key stands for one job."""

import json
import secrets
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rookhold_store import Store, Sweep

SPEC = {"language": "bash", "code": "true"}
OTHER_TENANT = "key-of-a-tenant-b"


@pytest.fixture
def key() -> str:
    return secrets.token_hex(8)


def submit(real: Any, spec: Any, once: str, **options: Any) -> Any:
    return real.submit(spec, headers=(("idempotency-key", once),), **options)


def accepted(real: Any) -> list[str]:
    return [row["job_id"] for row in real.call("GET", "/v1/jobs?limit=500").json["items"]]


def test_i1_the_same_request_however_it_is_written_is_the_same_job(real: Any, key: str) -> None:
    first = submit(real, SPEC, key)
    assert (first.status, first.header("idempotency-replayed")) == (201, "false")
    for same in (
        {"code": "true", "language": "bash"},
        SPEC | {"stdin": None, "files": [], "outputs": [], "runtime": None},
        SPEC | {"limits": {"wall_seconds": 15, "max_pids": 128}},
        SPEC | {"requirements": {"minimum_isolation": "none"}},
    ):
        again = submit(real, same, key)
        assert (again.status, again.header("idempotency-replayed")) == (201, "true")
        assert again.json == first.json
        assert again.header("location") == first.header("location")
    for other in ({"code": "false"}, {"limits": {"wall_seconds": 16}}, {"stdin": ""}):
        refused = submit(real, SPEC | other, key)
        assert (refused.status, refused.code) == (422, "idempotency_key_reused")


def test_i2_of_two_at_once_one_is_the_first_and_of_two_different_ones_one_is_refused(
    real: Any, key: str
) -> None:
    before = accepted(real)
    with ThreadPoolExecutor(2) as threads:
        for turn in range(10):
            same = f"{key}-same-{turn}"
            answers = list(threads.map(lambda k: submit(real, SPEC, k), [same] * 2))
            assert len({answer.json["job_id"] for answer in answers}) == 1
            flags = {answer.header("idempotency-replayed") for answer in answers}
            assert flags == {"false", "true"}
            specs = (SPEC, SPEC | {"code": "false"})
            other = f"{key}-other-{turn}"
            answers = list(threads.map(lambda spec, k=other: submit(real, spec, k), specs))
            assert sorted(answer.status for answer in answers) == [201, 422]
    assert len(accepted(real)) == len(before) + 20


@pytest.mark.parametrize(
    "headers",
    [
        (("idempotency-key", "k"), ("idempotency-key", "k")),
        (("idempotency-key", ""),),
        (("idempotency-key", "two words"),),
        (("idempotency-key", "x" * 129),),
    ],
)
def test_i3_a_key_of_another_form_or_a_second_one_is_refused(
    real: Any, headers: tuple[tuple[str, str], ...]
) -> None:
    before = accepted(real)
    answer = real.submit(SPEC, headers=headers)
    assert (answer.status, answer.code) == (400, "invalid_idempotency_key")
    assert accepted(real) == before


def test_i4_a_refusal_leaves_the_key_free_and_a_replay_says_queued(real: Any, key: str) -> None:
    for refused in ({"code": " "}, {"language": "fortran"}, {"limits": {"allow_network": True}}):
        assert submit(real, SPEC | refused, key).status == 400
    first = submit(real, SPEC, key)
    assert (first.status, first.header("idempotency-replayed")) == (201, "false")
    path = first.header("location")
    assert real.call("GET", f"{path}/result?wait_seconds=60").status == 200
    again = submit(real, SPEC, key)
    assert again.header("idempotency-replayed") == "true"
    assert again.json == first.json
    assert again.json["status"] == "queued"


def test_i5_a_key_is_its_tenants_and_lives_as_long_as_its_job(real: Any, key: str) -> None:
    first = submit(real, SPEC, key)
    theirs = submit(real, SPEC | {"code": "false"}, key, key=OTHER_TENANT)
    assert (theirs.status, theirs.header("idempotency-replayed")) == (201, "false")
    assert theirs.json["job_id"] != first.json["job_id"]
    assert real.call("GET", f"{first.header('location')}/result?wait_seconds=60").status == 200
    with Store.open(real.database) as store:
        while store.call(Sweep(now_ms=store.clock() + 60_000, age_ms=0)).more_remaining:
            pass
    assert real.call("GET", first.header("location")).code == "job_not_found"
    anew = submit(real, SPEC | {"code": "false"}, key)
    assert (anew.status, anew.header("idempotency-replayed")) == (201, "false")
    assert anew.json["job_id"] != first.json["job_id"]


def test_u11_a_client_that_goes_away_during_the_commit_has_exactly_one_job(
    real: Any, key: str
) -> None:
    before = accepted(real)
    for turn in range(20):
        peer = real.connect()
        body = json.dumps(SPEC).encode()
        peer.request("POST", "/v1/jobs", headers=(("idempotency-key", f"{key}-{turn}"),), body=body)
        time.sleep(turn * 0.0004)
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
    again = [submit(real, SPEC, f"{key}-{turn}") for turn in range(20)]
    assert {answer.status for answer in again} == {201}
    assert len({answer.json["job_id"] for answer in again}) == 20
    assert len(accepted(real)) == len(before) + 20
