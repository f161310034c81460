"""Submitting a job: the lines of the acceptance list, by their numbers.

U9 is in `tests/serve/test_storage.py`, U11 in `tests/http/test_idempotency.py`.
"""

from __future__ import annotations

import base64
import json
import time
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from asking import Caller, Line
from gateway import Gateway
from inside import KEY, inside

from rookhold_server.http import body as bodies
from rookhold_server.http.call import Call
from rookhold_server.http.routes import jobs
from rookhold_types.isolation import IsolationClass
from rookhold_types.limits import (
    CODE_BYTES_MAX,
    INPUT_BYTES_MAX,
    INPUT_FILE_BYTES_MAX,
    INPUT_FILES_MAX,
    OUTPUT_FILES_MAX,
    STDIN_BYTES_MAX,
)
from rookhold_types.runtimes import PACKS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1024 * 1024
VENDOR = "application/vnd.x.y-1+json;a=b"
TRUE = {"language": "bash", "code": "true"}
STRICTER = [each for each in IsolationClass if each is not IsolationClass.NONE]


def refused(caller: Caller, spec: dict[str, Any], **headers: str) -> tuple[int, str]:
    """Submit what must be refused; nothing may be stored of it, and the connection stays."""
    before = caller.job_ids()
    answer = caller.submit(spec, headers)
    assert "connection" not in answer.headers
    assert caller.job_ids() == before
    return answer.refusal


def file(path: str, content: bytes = b"") -> dict[str, str]:
    return {"path": path, "content_base64": base64.b64encode(content).decode()}


# -- what is taken and what is not -----------------------------------------------------------------


def test_u1_a_mebibyte_each_of_code_and_stdin_in_its_longest_form_is_taken(ours: Caller) -> None:
    code, stdin = "\\u0023" + "\\u0041" * (MIB - 1), "\\u0042" * MIB
    body = f'{{"language":"bash","code":"{code}","stdin":"{stdin}"}}'.encode()
    assert len(body) > 12_000_000
    answer = ours.call("POST", "/v1/jobs", body)
    assert answer.status == 201
    requested = ours.get(answer.headers["location"]).json["requested_spec"]
    assert requested["code"] == "#" + "A" * (MIB - 1)
    assert requested["stdin"] == "B" * MIB


def test_u2_only_json_is_decoded_whatever_its_kind(ours: Caller) -> None:
    for kind in ("text/plain", "application/jsonp", "multipart/form-data", "json", ""):
        answer = ours.submit(TRUE, {"Content-Type": kind})
        assert answer.refusal == (415, "unsupported_media_type"), kind
    for kind in ("application/problem+json", "Application/JSON ; charset=utf-8", VENDOR):
        answer = ours.submit(TRUE, {"Content-Type": kind})
        assert answer.status == 201, kind
        assert answer.json["status"] == "queued"


def test_u3_an_unknown_language_and_an_unknown_member_are_refused(ours: Caller) -> None:
    assert refused(ours, TRUE | {"language": "fortran"}) == (400, "unsupported_language")
    one = file("input/a")
    for spec in (
        TRUE | {"x": 1},
        TRUE | {"limits": {"x": 1}},
        TRUE | {"requirements": {"minimum_isolation": "none", "x": 1}},
        TRUE | {"files": [one | {"x": 1}]},
        {"x": 1} | TRUE,
    ):
        assert refused(ours, spec) == (400, "invalid_json"), spec


def test_u4_a_missing_interpreter_is_not_offered_and_its_language_is_refused(ours: Caller) -> None:
    assert ours.get("/v1/capabilities").json["languages"] == ["python", "bash"]
    spec = {"language": "node", "code": "0"}
    assert refused(ours, spec) == (422, "runtime_unavailable")


@pytest.mark.parametrize("minimum", STRICTER)
def test_u5_a_minimum_isolation_above_the_servers_is_refused(ours: Caller, minimum: str) -> None:
    spec = TRUE | {"requirements": {"minimum_isolation": minimum}}
    assert refused(ours, spec) == (422, "minimum_isolation_unsatisfied")
    assert ours.submit(TRUE | {"requirements": {"minimum_isolation": "none"}}).status == 201


# -- files -----------------------------------------------------------------------------------------

# Every rule of a path, for an input here; for outputs the same with their own first part.
BAD_PATHS = [
    "",
    "/input/a",
    "input",
    "input/",
    "input//a",
    "input/./a",
    "input/../secret",
    "input/a/..",
    "inputs/a",
    "Input/a",
    "other/a",
    "input\\a",
    "input/a\\b",
    "input/a\nb",
    "input/\x00",
    "input/\x7f",
    "input/" + "a" * 235,  # 241 bytes
    "input/" + "é" * 118,  # 242 bytes in fewer characters
]
GOOD_PATHS = ["input/a b", "input/é/…", "input/.hidden", "input/a/b/c", "input/" + "a" * 234]
BIG = b"x" * (INPUT_FILE_BYTES_MAX + 1)
HALF = b"x" * (INPUT_BYTES_MAX // 2)

# In the documented order of the checks; each fault is added to all those that come after it.
FAULTS: list[tuple[str, int, dict[str, Any]]] = [
    (
        "minimum_isolation_unsatisfied",
        422,
        {"requirements": {"minimum_isolation": "hardware-vm"}},
    ),
    ("unsupported_language", 400, {"language": "fortran"}),
    ("empty_code", 400, {"code": " \n\t"}),
    ("stdin_too_large", 413, {"stdin": "x" * (STDIN_BYTES_MAX + 1)}),
    ("too_many_input_files", 413, {"files": [file("/bad")] * (INPUT_FILES_MAX + 1)}),
    ("invalid_input_path", 400, {"files": [file("/bad")]}),
    ("too_many_output_files", 413, {"outputs": ["/bad"] * (OUTPUT_FILES_MAX + 1)}),
    ("invalid_output_path", 400, {"outputs": ["/bad"]}),
    ("runtime_pack_unavailable", 422, {"runtime": PACKS["python"]}),
    ("runtime_pack_requires_isolation", 422, {"runtime": PACKS["bash"]}),
    ("network_opt_in_unsupported", 400, {"limits": {"allow_network": True}}),
]
# Of one file, or of two; the first of them that is wrong is told, and of it the first fault.
FILE_FAULTS: list[tuple[str, int, list[dict[str, str]]]] = [
    ("invalid_input_path", 400, [{"path": "/bad", "content_base64": "!"}]),
    ("invalid_input_base64", 400, [{"path": "input/a", "content_base64": "!"}, file("/bad")]),
    ("duplicate_input_path", 400, [file("input/a"), {"path": "input/a", "content_base64": "!"}]),
    ("input_file_too_large", 413, [file("input/a", BIG), file("/bad")]),
    (
        "input_files_too_large",
        413,
        [file(f"input/{n}", HALF) for n in "ab"] + [file("input/c", b"x"), file("/bad")],
    ),
    *(
        ("invalid_input_base64", 400, [{"path": "input/a", "content_base64": text}])
        for text in ("YQ", "YQ=", "Y Q==", "YQ==\n", "-_-_", "YR==", "YQ==YQ==")
    ),
]


def test_u6_every_rule_of_a_path_has_a_refusal(ours: Caller) -> None:
    for path in BAD_PATHS:
        output = path.replace("input", "output", 1).replace("a" * 235, "a" * 234)
        assert ours.submit(TRUE | {"files": [file(path)]}).code == "invalid_input_path", path
        assert ours.submit(TRUE | {"outputs": [output]}).code == "invalid_output_path", output
    for path in GOOD_PATHS:
        assert ours.submit(TRUE | {"files": [file(path)]}).status == 201, path
    assert ours.submit(TRUE | {"outputs": ["input/a"]}).code == "invalid_output_path"
    assert ours.submit(TRUE | {"files": [file("output/a")]}).code == "invalid_input_path"


def test_u6_of_several_faults_the_first_in_the_documented_order_is_told(ours: Caller) -> None:
    spec = dict(TRUE)
    for code, status, fault in reversed(FAULTS):
        spec |= fault
        assert refused(ours, spec) == (status, code)


@pytest.mark.parametrize(("code", "status", "files"), FILE_FAULTS)
def test_u6_of_several_files_the_first_that_is_wrong_is_told(
    ours: Caller, code: str, status: int, files: list[dict[str, str]]
) -> None:
    assert refused(ours, TRUE | {"files": files}) == (status, code)


def test_u6_what_is_at_its_limit_is_taken_and_what_is_above_is_not(ours: Caller) -> None:
    assert refused(ours, TRUE | {"code": "#" * (CODE_BYTES_MAX + 1)}) == (413, "code_too_large")
    assert refused(ours, TRUE | {"code": "é" * (CODE_BYTES_MAX // 2 + 1)})[1] == "code_too_large"
    assert refused(ours, TRUE | {"outputs": ["output/a"] * 2}) == (400, "duplicate_output_path")
    most = {
        "files": [file(f"input/{n}", HALF) for n in "ab"],
        "outputs": [f"output/{n}" for n in range(OUTPUT_FILES_MAX)],
    }
    assert ours.submit(TRUE | most).status == 201
    many = {"files": [file(f"input/{n}") for n in range(INPUT_FILES_MAX)]}
    assert ours.submit(TRUE | many).status == 201


# -- want of room ----------------------------------------------------------------------------------

QUEUE = 1024
TENANTS = [f"tenant{number}" for number in range(5)]


def key_of(tenant: str) -> str:
    return f"a-key-for-tests-of-{tenant}"


@contextmanager
def one_worker(place: Path, **settings: str) -> Iterator[Gateway]:
    """A server whose only worker is busy for as long as a test takes."""
    keys = ",".join(f"{tenant}:{key_of(tenant)}" for tenant in TENANTS)
    gateway = Gateway(
        place / "home",
        sandbox="off",
        ROOKHOLD_API_KEYS=keys,
        ROOKHOLD_WORKERS="1",
        ROOKHOLD_RATE_PER_MIN="1000000",
        ROOKHOLD_ATTESTATION_KEY_FILE="",
        # Each job holds room for what it may print: a full queue is more than the default quotas.
        ROOKHOLD_STORAGE_TENANT_MB="1048576",
        ROOKHOLD_STORAGE_GLOBAL_MB="1048576",
        **settings,
    )
    with gateway, closing(Caller(gateway.address, key_of(TENANTS[0]))) as first:
        busy = first.accepted("bash", "echo; sleep 300", limits={"wall_seconds": 300})
        first.begun(busy)
        yield gateway


def fill(lines: list[Line], **counts: int) -> None:
    """Submit so many jobs of each, waiting for no answer before all requests are sent."""
    body = json.dumps(TRUE).encode()
    fields = ("content-type: application/json", f"content-length: {len(body)}")
    asked = []
    for tenant, count in counts.items():
        for number in range(count):
            line = lines[number % len(lines)]
            line.request("POST", "/v1/jobs", key_of(tenant), *fields, body=body)
            asked.append(line)
    assert {line.answer().status for line in asked} == {201}


def test_u7_u8_full_queues_of_a_tenant_and_of_all(tmp_path: Path) -> None:
    share = QUEUE // 4
    with ExitStack() as stack:
        gateway = stack.enter_context(
            one_worker(tmp_path, ROOKHOLD_TENANT_QUEUE_CAPACITY=str(share))
        )
        lines = [stack.enter_context(closing(Line(gateway.address))) for _ in range(8)]
        callers = [
            stack.enter_context(closing(Caller(gateway.address, key_of(tenant))))
            for tenant in TENANTS
        ]
        fill(lines, tenant0=share)
        full = callers[0].submit(TRUE)
        assert full.refusal == (429, "tenant_queue_saturated")
        assert (full.json["error"]["retryable"], full.headers["retry-after"]) == (True, "1")
        assert callers[1].submit(TRUE).status == 201
        fill(lines, tenant1=share - 1, tenant2=share, tenant3=share)
        took = []
        for _ in range(3):  # a busy host may be slow once
            began = time.monotonic()
            answer = callers[4].submit(TRUE)
            took.append(time.monotonic() - began)
            assert answer.refusal == (503, "queue_saturated")
        assert min(took) < 1
        assert (answer.json["error"]["retryable"], answer.headers["retry-after"]) == (True, "1")
        assert callers[0].submit(TRUE).refusal == (429, "tenant_queue_saturated")
        assert callers[4].get("/v1/jobs").json["items"] == []
        assert callers[0].get("/v1/status").json["scheduler"]["queue_depth"] == share


def test_u10_a_body_refused_for_want_of_room_is_never_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: set[str] = set()
    receive = Call.receive

    async def noted(call: Call) -> Any:
        read.add(call.request_id)
        return await receive(call)

    monkeypatch.setattr(Call, "receive", noted)
    fields = ("content-type: application/json", "content-length: 70000")
    with inside(tmp_path / "home") as gateway, ExitStack() as stack:

        def line() -> Line:
            return stack.enter_context(closing(Line(gateway.address)))

        for _ in range(2):
            held = line()
            held.request("POST", "/v1/jobs", KEY, *fields, "expect: 100-continue")
            assert held.head()[0] == 100  # its handler reads, and waits for the body
        late = line()
        late.request("POST", "/v1/jobs", KEY, *fields, "expect: 100-continue")
        answer = late.answer()  # the first thing that comes
        assert answer.refusal == (429, "tenant_submit_body_capacity")
        assert (answer.headers["connection"], answer.headers["retry-after"]) == ("close", "1")
        assert len(read) == 2
        with closing(Caller(gateway.address, KEY)) as caller:  # small ones have places of their own
            assert caller.submit(TRUE | {"code": " "}).refusal == (400, "empty_code")
        assert answer.headers["x-request-id"] not in read


def slow_body(address: str, key: str) -> None:
    """Send a body that does not come to its end, and be told so."""
    with closing(Line(address)) as line:
        fields = ("content-type: application/json", "content-length: 100")
        line.request("POST", "/v1/jobs", key, *fields, body=b'{"language":')
        answer = line.answer()
        assert answer.refusal == (408, "request_body_timeout")
        assert (answer.headers["connection"], answer.headers["retry-after"]) == ("close", "1")
        line.socket.settimeout(1)
        assert line.socket.recv(1) == b""


def test_u10_a_body_that_takes_too_long_is_408(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def impatient(call: Call) -> bytes:
        return await bodies.read_json_body(call, seconds=0.3)

    assert bodies.READ_SECONDS == 30
    monkeypatch.setattr(jobs, "read_json_body", impatient)
    with inside(tmp_path / "home") as gateway:
        slow_body(gateway.address, KEY)


@pytest.mark.soak
def test_u10_a_body_that_takes_30_seconds_is_408(plain: Gateway) -> None:
    began = time.monotonic()
    slow_body(plain.address, plain.api_key)
    assert 29 < time.monotonic() - began < 60


# -- start and stop --------------------------------------------------------------------------------


def test_u12_a_stopping_server_takes_no_job_and_a_starting_one_only_replays(tmp_path: Path) -> None:
    home, key = tmp_path / "home", {"Idempotency-Key": "once"}
    with inside(home) as gateway, closing(Caller(gateway.address, KEY)) as caller:
        job_id = caller.submit(TRUE, key).json["job_id"]
        gateway.do(gateway.gateway.engine.begin_shutdown)
        answer = caller.submit(TRUE | {"code": "false"})
        assert answer.refusal == (503, "shutting_down")
        assert (answer.json["error"]["retryable"], answer.headers["retry-after"]) == (True, "1")
        replayed = caller.submit(TRUE, key)  # its body was admitted, so it comes this far
        assert (replayed.status, replayed.json["job_id"]) == (201, job_id)
        gateway.do(gateway.gateway.pools.close)  # the next thing that a stopping server does
        assert caller.submit(TRUE, key).refusal == (503, "shutting_down")
    with inside(home, work=False) as gateway, closing(Caller(gateway.address, KEY)) as caller:
        answer = caller.submit(TRUE)
        assert answer.refusal == (503, "startup_recovery")
        assert (answer.json["error"]["retryable"], answer.headers["retry-after"]) == (True, "1")
        assert caller.get("/readyz").refusal == (503, "startup_recovery")
        replayed = caller.submit(TRUE, key)
        assert (replayed.status, replayed.json["job_id"]) == (201, job_id)
        assert replayed.headers["idempotency-replayed"] == "true"
        assert caller.submit(TRUE | {"code": "false"}, key).code == "idempotency_key_reused"
        assert caller.job_ids() == {job_id}


# -- what is asked for and what is given -----------------------------------------------------------


def test_u13_a_network_is_refused_and_a_limit_is_clamped_and_kept_as_it_was_asked(
    ours: Caller,
) -> None:
    spec = TRUE | {"limits": {"allow_network": True}}
    assert refused(ours, spec) == (400, "network_opt_in_unsupported")
    ran = ours.ran("bash", "true", limits={"wall_seconds": 99999})
    assert ran.detail["requested_spec"]["limits"]["wall_seconds"] == 99999
    assert ran.receipt["requested_limits"]["wall_seconds"] == 99999
    assert ran.detail["effective_spec"]["limits"]["wall_seconds"] == 300


@pytest.mark.parametrize("where", ["ours", pytest.param("confined", marks=pytest.mark.linux_ns)])
def test_u14_a_runtime_pack_needs_isolation(where: str, request: pytest.FixtureRequest) -> None:
    caller: Caller = request.getfixturevalue(where)
    assert caller.get("/v1/capabilities").json["runtime_packs"] == []
    for language in caller.get("/v1/capabilities").json["languages"]:
        spec = {"language": language, "code": "0", "runtime": PACKS[language]}
        assert refused(caller, spec) == (422, "runtime_pack_requires_isolation")
