"""Reading what a job left: the lines of the acceptance list, by their numbers.

R6 is in `tests/serve/test_stop.py`, where a signal stops the server.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, NamedTuple

import apsw
import pytest
from asking import Caller, Line
from gateway import Gateway, eventually
from inside import KEY, inside

from rookhold_store.operations import Accept, CancelQueued
from rookhold_types.clock import now_ms
from rookhold_types.ids import new_job_id
from rookhold_types.jobs import JobSpec, fingerprint
from rookhold_types.wire import decode_strict

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS = 60
SLEEP = {"language": "bash", "code": "echo begun; sleep 60", "limits": {"wall_seconds": 90}}


def used(gateway: Gateway, resource: str) -> int:
    """How many places of a pool are taken, as its operator sees it."""
    with closing(Caller(gateway.address, gateway.settings["ROOKHOLD_METRICS_TOKEN"])) as operator:
        text = operator.get("/metrics").body.decode()
    match = re.search(rf'rookhold_capacity_used{{resource="{resource}"}} (\d+)', text)
    assert match is not None
    return int(match[1])


@pytest.fixture
def running(ours: Caller) -> Iterator[str]:
    """A job that runs for as long as its test."""
    job_id = ours.accepted(**SLEEP)
    ours.begun(job_id)
    yield job_id
    ours.call("DELETE", f"/v1/jobs/{job_id}")
    assert ours.result(job_id).json["status"] == "cancelled"


# -- what comes back -------------------------------------------------------------------------------


def test_r1_both_streams_come_back_byte_for_byte(ours: Caller) -> None:
    code = "import sys; print('one\\n\\ntwo é'); print('three', file=sys.stderr); print('four')"
    result = ours.ran("python", code).result
    assert result["stdout"] == "one\n\ntwo é\nfour\n"
    assert result["stderr"] == "three\n"
    assert "stdout_base64" not in result
    assert (result["status"], result["exit_code"]) == ("succeeded", 0)
    assert (result["truncated"], result["violations"], result["artifacts"]) == (False, [], [])
    assert type(result["duration_ms"]) is int
    assert result["duration_ms"] >= 0


def test_r2_an_output_made_of_an_input_comes_back_with_size_and_digest(ours: Caller) -> None:
    content = bytes(range(256)) * 3
    ran = ours.ran(
        "bash",
        "cat input/deep/a input/deep/a > output/b",
        files=[{"path": "input/deep/a", "content_base64": base64.b64encode(content).decode()}],
        outputs=["output/b"],
    )
    digest = hashlib.sha256(content * 2).hexdigest()
    assert ran.result["artifacts"] == [
        {
            "path": "output/b",
            "content_base64": base64.b64encode(content * 2).decode(),
            "size_bytes": len(content) * 2,
            "sha256": digest,
        }
    ]
    (given,) = ran.receipt["input_files"]
    assert given == {
        "path": "input/deep/a",
        "size_bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    (made,) = ran.receipt["artifacts"]
    assert made == {"path": "output/b", "size_bytes": len(content) * 2, "sha256": digest}


def test_r3_a_missing_output_is_named_and_the_good_ones_come_back(ours: Caller) -> None:
    outputs = ["output/first", "output/never", "output/last"]
    ran = ours.ran("bash", "echo 1 > output/first; echo 2 > output/last", outputs=outputs)
    assert ran.ended == ("error", 0, "requested_output_unavailable")
    assert [each["path"] for each in ran.result["artifacts"]] == ["output/first", "output/last"]
    (violation,) = ran.result["violations"]
    assert violation["rule"] == "artifact_collection_failed"
    assert violation["detail"]["outputs"] == [{"path": "output/never", "reason": "missing"}]


# -- waiting ---------------------------------------------------------------------------------------


def test_r4_without_a_wait_the_answer_comes_at_once_and_a_bad_wait_is_told_before_ownership(
    ours: Caller, theirs: Caller, running: str
) -> None:
    began = time.monotonic()
    answer = ours.result(running, 0)
    assert time.monotonic() - began < 5
    assert (answer.status, answer.json["status"]) == (202, "running")
    assert answer.json["exit_code"] is None
    for caller in (ours, theirs):
        for wait in ("301", "x", "-1", "1.5", "", "1&wait_seconds=1"):
            answer = caller.get(f"/v1/jobs/{running}/result?wait_seconds={wait}")
            assert answer.refusal == (400, "invalid_wait_seconds"), wait
    assert theirs.result(running, 300).refusal == (404, "job_not_found")


def test_r5_a_wait_brings_the_output_when_the_job_ends(ours: Caller) -> None:
    began = time.monotonic()
    job_id = ours.accepted("bash", "sleep 1.5; echo done")
    answer = ours.result(job_id, 30)
    assert 1.5 <= time.monotonic() - began < 25
    assert (answer.status, answer.json["stdout"]) == (200, "done\n")


def test_r7_the_end_of_a_row_that_nobody_tells_of_is_noticed_by_looking(tmp_path: Path) -> None:
    """The row is put beside the engine, which has neither a worker nor a channel for it."""
    body = b'{"language":"bash","code":"true"}'
    spec = decode_strict(body, JobSpec)
    job_id = new_job_id()
    row = Accept(
        job_id=job_id,
        tenant="acme",
        language="bash",
        spec=spec.stored(),
        admitted_mem_mb=256,
        now_ms=now_ms(),
        fingerprint=fingerprint(spec),
    )
    with (
        inside(tmp_path / "home") as gateway,
        closing(Caller(gateway.address, KEY)) as caller,
        ThreadPoolExecutor(1) as threads,
    ):
        storage = gateway.gateway.engine._storage
        gateway.do(storage.run, row)
        assert caller.result(job_id, 0).json["status"] == "queued"
        waiting = threads.submit(caller.result, job_id, 30)
        waits = gateway.gateway.pools.result_waits
        assert eventually(SECONDS, lambda: waits.used == 1)
        gateway.do(storage.run, CancelQueued(tenant="acme", job_id=job_id, now_ms=now_ms()))
        began = time.monotonic()
        answer = waiting.result(SECONDS)
        assert time.monotonic() - began < 2
        assert (answer.status, answer.json["status"]) == (200, "cancelled")


PER_TENANT, IN_ALL = 8, 64


def test_r8_full_wait_pools_refuse_and_spare_those_who_need_no_wait(tmp_path: Path) -> None:
    tenants = [f"tenant-{number}" for number in range(IN_ALL // PER_TENANT + 1)]
    keys = {tenant: f"a-key-for-tests-of-{tenant}" for tenant in tenants}
    server = Gateway(
        tmp_path / "home",
        sandbox="off",
        ROOKHOLD_API_KEYS=",".join(f"{tenant}:{key}" for tenant, key in keys.items()),
        ROOKHOLD_WORKERS="1",
        ROOKHOLD_ATTESTATION_KEY_FILE="",
        ROOKHOLD_METRICS_TOKEN="a-token-of-the-operator",
    )
    with server, ExitStack() as stack:
        callers = [
            stack.enter_context(closing(Caller(server.address, key))) for key in keys.values()
        ]
        first, last = callers[0], callers[-1]
        ended = first.ran("bash", "true").job_id
        busy = first.accepted(**SLEEP)
        first.begun(busy)
        jobs = [busy, *(caller.accepted("bash", "true") for caller in callers[1:])]

        def wait(tenant: int) -> Line:
            line = stack.enter_context(closing(Line(server.address)))
            path = f"/v1/jobs/{jobs[tenant]}/result?wait_seconds=300"
            line.request("GET", path, keys[tenants[tenant]])
            return line

        held = [wait(0) for _ in range(PER_TENANT)]
        assert eventually(SECONDS, lambda: used(server, "result_waits") == PER_TENANT)
        answer = first.result(busy, 1)
        assert answer.refusal == (429, "tenant_result_wait_capacity")
        assert (answer.json["error"]["retryable"], answer.headers["retry-after"]) == (True, "1")
        held += [wait(number) for number in range(1, 8) for _ in range(PER_TENANT)]
        assert eventually(SECONDS, lambda: used(server, "result_waits") == IN_ALL)
        for caller, job_id in ((last, jobs[-1]), (first, busy)):
            answer = caller.result(job_id, 1)
            assert answer.refusal == (503, "result_wait_capacity")
            assert answer.headers["retry-after"] == "1"
            assert caller.result(job_id, 0).status == 202
        assert first.result(ended, 300).status == 200
        held[0].close()
        assert eventually(SECONDS, lambda: used(server, "result_waits") == IN_ALL - 1)
        assert last.result(jobs[-1], 1).status == 202


# -- large answers ---------------------------------------------------------------------------------

LARGE = "import sys\nfor to in (sys.stdout, sys.stderr): to.write('\\x01' * 1048576)"


@pytest.fixture(scope="module")
def large(plain: Gateway) -> dict[str, str]:
    """A job of each tenant, whose result is some 12 MB: more than any socket takes by itself."""
    jobs = {}
    for key in (plain.api_key, f"{plain.api_key}-other"):
        with closing(Caller(plain.address, key)) as caller:
            jobs[key] = caller.ran("python", LARGE).job_id
    return jobs


class Reader(NamedTuple):
    line: Line
    left: int  # bytes of the body, unread


@contextmanager
def slow_readers(gateway: Gateway, jobs: dict[str, str], **count: int) -> Iterator[list[Reader]]:
    """Clients that have read the head of a large answer, and hold a place with the rest of it."""
    keys = [gateway.api_key] * count["ours"] + [f"{gateway.api_key}-other"] * count["theirs"]
    with ExitStack() as stack:
        readers = []
        for key in keys:
            line = stack.enter_context(closing(Line(gateway.address, window=4096)))
            line.request("GET", f"/v1/jobs/{jobs[key]}/result", key)
            status, headers = line.head()
            length = int(headers["content-length"])
            assert (status, length > 12_000_000) == (200, True)
            readers.append(Reader(line, length - len(line.buffer)))
        assert used(gateway, "large_responses") == len(keys)
        yield readers
    assert eventually(SECONDS, lambda: used(gateway, "large_responses") == 0)


def test_r9_one_slow_reader_leaves_its_tenant_a_place(
    plain: Gateway, ours: Caller, large: dict[str, str]
) -> None:
    with slow_readers(plain, large, ours=1, theirs=0):
        assert ours.get(f"/v1/jobs/{large[plain.api_key]}").status == 200
        assert used(plain, "large_responses") == 1


def test_r10_a_third_large_answer_waits_two_seconds_for_a_place(
    plain: Gateway, ours: Caller, theirs: Caller, large: dict[str, str]
) -> None:
    path = f"/v1/jobs/{large[plain.api_key]}/replay?limit=1"
    with slow_readers(plain, large, ours=2, theirs=0) as readers:
        began = time.monotonic()
        answer = ours.get(path)
        assert answer.refusal == (429, "tenant_response_capacity")
        assert (answer.json["error"]["retryable"], answer.headers["retry-after"]) == (True, "1")
        assert 1.9 < time.monotonic() - began < 10
        with ThreadPoolExecutor(1) as threads:
            third = threads.submit(ours.get, path)
            time.sleep(0.3)
            assert not third.done()
            readers[0].line.close()
            assert third.result(SECONDS).status == 200
    with slow_readers(plain, large, ours=2, theirs=2), ThreadPoolExecutor(2) as threads:
        job_of_theirs = large[f"{plain.api_key}-other"]
        both = [
            threads.submit(ours.get, path),
            threads.submit(theirs.get, f"/v1/jobs/{job_of_theirs}"),
        ]
        for answered in both:
            answer = answered.result(SECONDS)
            assert answer.refusal == (503, "response_capacity")
            assert answer.headers["retry-after"] == "1"


def test_r11_a_place_is_held_to_the_end_of_the_body_and_no_transaction_with_it(
    plain: Gateway, ours: Caller, large: dict[str, str]
) -> None:
    with slow_readers(plain, large, ours=2, theirs=0) as (whole, dead):
        assert ours.submit({"language": "bash", "code": "true"}).status == 201
        db = apsw.Connection(str(plain.database))
        try:
            # A checkpoint that truncates has to wait for every reader of the log.
            assert eventually(
                SECONDS,
                lambda: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0] == 0,
            ), "a reader holds the log"
        finally:
            db.close()
        assert used(plain, "large_responses") == 2
        dead.line.close()
        assert eventually(SECONDS, lambda: used(plain, "large_responses") == 1)
        left = whole.left
        while left:
            left -= len(whole.line.socket.recv(min(left, 1 << 20)))
        assert eventually(SECONDS, lambda: used(plain, "large_responses") == 0)


# -- pages and parameters --------------------------------------------------------------------------


def test_r12_only_the_last_page_of_an_ended_job_is_complete(ours: Caller, running: str) -> None:
    job_id = ours.ran("bash", "echo 1; echo 2").job_id
    path = f"/v1/jobs/{job_id}/replay"
    first = ours.get(f"{path}?limit=2").json
    assert (len(first["events"]), first["next_cursor"], first["complete"]) == (2, 2, False)
    rest = ours.get(f"{path}?after=2").json
    assert (rest["events"][-1]["kind"], rest["complete"]) == ("finished", True)
    assert rest["next_cursor"] == rest["events"][-1]["seq"]
    beyond = ours.get(f"{path}?after={rest['next_cursor']}").json
    assert beyond == {"events": [], "next_cursor": None, "complete": True}
    seen = ours.get(f"/v1/jobs/{running}/replay").json
    assert seen["complete"] is False
    empty = ours.get(f"/v1/jobs/{running}/replay?after={seen['next_cursor']}").json
    assert empty == {"events": [], "next_cursor": None, "complete": False}


def test_r13_an_unknown_parameter_is_refused_where_parameters_are_closed(
    ours: Caller, theirs: Caller
) -> None:
    job_id = ours.ran("bash", "true").job_id
    job = f"/v1/jobs/{job_id}"
    for path in ("/v1/jobs", f"{job}/replay", f"{job}/attestation", f"{job}/result-artifact"):
        for query in ("x=1", "limi=1", "Limit=1", "x"):
            answer = ours.get(f"{path}?{query}")
            assert answer.refusal == (400, "unknown_query_parameter"), (path, query)
    for path in (f"{job}/result", f"{job}/events", job, "/v1/whoami", "/v1/status"):
        assert ours.get(f"{path}?x=1").status == 200, path
    assert ours.get(f"{job}/stream?x=1").refusal == (426, "upgrade_required")
    for query in ("after=x", "limit=0", "x=1"):
        assert theirs.get(f"{job}/replay?{query}").refusal == (404, "job_not_found")
