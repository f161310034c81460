"""Live streams of a real server: the contract's lines T1 to T10, and what belongs to them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from streams import UPGRADE, EventSource, RawAnswer, WebSocket
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage

if TYPE_CHECKING:
    from collections.abc import Callable

Site = Any
SLOW = "for i in 1 2 3 4 5 6; do echo line $i; sleep 0.1; done"


def numbers(events: list[dict[str, Any]]) -> list[int]:
    return [event["seq"] for event in events]


# -- tickets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["stream", "events"])
def test_t1_a_ticket_works_once_on_a_path_of_its_own_job_and_nowhere_else(
    site: Site, kind: str
) -> None:
    mine, other = site.submit("echo a"), site.submit("echo b")
    ticket = site.ticket(mine)
    assert ticket["stream_url"] == f"/v1/jobs/{mine}/stream?ticket={ticket['ticket']}"
    assert len(ticket["ticket"]) == 64
    assert int(ticket["ticket"], 16) >= 0
    query = f"?ticket={ticket['ticket']}"
    wrong = site.plain(f"/v1/jobs/{other}/{kind}{query}", key=None, **UPGRADE)
    assert (wrong.status, wrong.code) == (401, "invalid_stream_ticket")
    assert wrong.headers["www-authenticate"] == 'Bearer realm="rookhold", error="invalid_token"'
    if kind == "stream":
        first = site.websocket(f"/v1/jobs/{mine}/stream{query}", key=None)
        assert first.status == 101
        assert numbers(first.events())[0] == 1
    else:
        first = site.events(mine, query, key=None)
        assert first.status == 200
        assert next(first.frames())["id"] == "1"
    for again in ("stream", "events"):
        spent = site.plain(f"/v1/jobs/{mine}/{again}{query}", key=None, **UPGRADE)
        assert (spent.status, spent.code) == (401, "invalid_stream_ticket")


def test_t2_a_ticket_is_spent_by_a_failed_upgrade_and_ignored_beside_a_header(site: Site) -> None:
    job = site.submit("echo a")
    spent = site.ticket(job)["ticket"]
    plain = site.plain(f"/v1/jobs/{job}/stream?ticket={spent}", key=None)
    assert (plain.status, plain.code) == (426, "upgrade_required")
    again = site.websocket(f"/v1/jobs/{job}/stream?ticket={spent}", key=None)
    assert (again.status, again.code) == (401, "invalid_stream_ticket")

    kept = site.ticket(job)["ticket"]
    beside = site.websocket(f"/v1/jobs/{job}/stream?ticket={kept}", key="not-a-key-of-anybody")
    assert (beside.status, beside.code) == (401, "invalid_api_key")
    beside = site.websocket(f"/v1/jobs/{job}/stream?ticket={kept}")
    assert beside.status == 101
    assert site.websocket(f"/v1/jobs/{job}/stream?ticket={kept}", key=None).status == 101


def test_t2_a_ticket_is_spent_by_a_request_that_the_rate_limit_refuses(
    server: Callable[..., Any],
) -> None:
    process = server(RATE_PER_MIN="3").start()
    while int(time.time()) % 60 > 50:  # all of it within one minute of the limiter
        time.sleep(1)
    job = process.call("POST", "/v1/jobs", {"language": "bash", "code": "echo a"})[1]["job_id"]
    first = process.call("POST", f"/v1/jobs/{job}/stream-ticket")[1]
    second = process.call("POST", f"/v1/jobs/{job}/stream-ticket")[1]
    assert process.call("GET", f"/v1/jobs/{job}/events?ticket={first['ticket']}")[0] == 429
    # That one came with a header, so the ticket was ignored; these come without.
    for ticket, code in ((second, "rate_limit_exceeded"), (second, "invalid_stream_ticket")):
        answer = _without_header(process.address, f"{ticket['stream_url']}")
        assert answer == code


def _without_header(address: str, path: str) -> str:
    answer = RawAnswer(address, path, {})
    try:
        return answer.code
    finally:
        answer.close()


def test_a_ticket_of_a_foreign_or_unknown_job_is_not_to_be_had(site: Site) -> None:
    job = site.submit("echo a")
    for path in (f"/v1/jobs/{job}/stream-ticket", "/v1/jobs/nothing/stream-ticket"):
        status, body = site.process.call("POST", path, key="a-key-of-acme-for-tests-other")
        assert (status, body["error"]["code"]) == (404, "job_not_found")


def test_t5_credentials_are_refused_as_on_any_route_and_key_counts_in_development(
    site: Site,
) -> None:
    job = site.submit("echo a")
    for path in (f"/v1/jobs/{job}/stream", f"/v1/jobs/{job}/events"):
        nothing = site.plain(path, key=None, **UPGRADE)
        assert (nothing.status, nothing.code) == (401, "missing_api_key")
    key = "a-key-of-acme-for-tests"
    good = site.websocket(f"/v1/jobs/{job}/stream?key={key}", key=None)
    assert good.status == 101
    bad = site.websocket(f"/v1/jobs/{job}/stream?key=wrong", key=None)
    assert (bad.status, bad.code) == (401, "invalid_api_key")
    never = site.plain(f"/v1/jobs/{job}/events?key={key}", key=None)
    assert (never.status, never.code) == (401, "missing_api_key")


# -- opening ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {**UPGRADE, "Upgrade": "h2c"},
        {**UPGRADE, "Connection": "keep-alive"},
        {**UPGRADE, "Sec-WebSocket-Version": "12"},
        {**UPGRADE, "Sec-WebSocket-Key": "c2hvcnQ="},
        {**UPGRADE, "Sec-WebSocket-Key": "!"},
        {**UPGRADE, "Content-Length": "2"},
    ],
)
def test_t5_a_request_that_is_no_handshake_is_426_in_the_envelope(
    site: Site, headers: dict[str, str]
) -> None:
    job = site.submit("echo a")
    answer = site.plain(f"/v1/jobs/{job}/stream", **headers)
    assert (answer.status, answer.code) == (426, "upgrade_required")
    assert answer.headers["upgrade"] == "websocket"
    assert answer.headers["x-request-id"]
    assert answer.headers["cache-control"] == "no-store"


def test_refusals_come_in_the_documented_order(site: Site) -> None:
    job = site.submit("echo a")
    foreign = "a-key-of-acme-for-tests-other"
    for path in (f"/v1/jobs/{job}/stream?after=x", "/v1/jobs/nothing/stream?after=x"):
        answer = site.websocket(path, key=foreign)
        assert (answer.status, answer.code) == (404, "job_not_found")
        assert site.plain(path, key=foreign).status == 426
    for after in ("x", "-1", "1.0", "", "99999999999999999999", "0&after=1"):
        answer = site.stream(job, f"?after={after}")
        assert (answer.status, answer.code) == (400, "invalid_event_cursor")
        answer = site.events(job, f"?after={after}")
        assert (answer.status, answer.code) == (400, "invalid_event_cursor")
    answer = site.events(job, **{"Last-Event-ID": "1x"})
    assert (answer.status, answer.code) == (400, "invalid_event_cursor")
    head = site.process.call("GET", f"/v1/jobs/{job}/stream?unknown=1")
    assert head[0] == 426


def test_streams_have_places_of_their_own_and_give_them_back(site: Site) -> None:
    job = site.submit("sleep 30")
    held = [site.stream(job) if n % 2 else site.events(job) for n in range(16)]
    assert {answer.status for answer in held} == {101, 200}
    for full in (site.stream(job), site.events(job)):
        assert (full.status, full.code) == (429, "tenant_stream_capacity")
    held[0].close()
    held[1].close()
    for _ in range(200):
        if (again := site.stream(job)).status == 101:
            break
        time.sleep(0.02)
    assert again.status == 101
    site.process.call("DELETE", f"/v1/jobs/{job}")


# -- what flows ------------------------------------------------------------------------------------


def test_t6_t9_history_and_live_events_come_once_each_and_are_readable_before(site: Site) -> None:
    job = site.submit(SLOW)
    stream = site.stream(job)
    assert stream.status == 101
    seen = []
    for text in stream.texts():
        event = json.loads(text)
        seen.append(event)
        stored = site.process.call("GET", f"/v1/jobs/{job}/replay?after={event['seq'] - 1}")[1]
        assert stored["events"][0] == event
    assert numbers(seen) == list(range(1, len(seen) + 1))
    assert [event["kind"] for event in seen] == ["accepted", "started", *["stdout"] * 6, "finished"]
    assert seen == site.replay(job)
    assert stream.closed_with is None
    assert stream.socket.recv(1) == b""


def test_a_finished_job_is_told_from_where_one_asks_and_closed(site: Site) -> None:
    job = site.submit("for i in $(seq 300); do echo $i; done")
    site.await_end(job)
    everything = site.replay(job)
    assert len(everything) > 300
    stream = site.stream(job, "?after=250")
    assert stream.events() == everything[250:]
    assert stream.closed_with is None
    beyond = site.stream(job, f"?after={len(everything)}")
    assert beyond.events() == []
    assert beyond.closed_with is None


def test_ten_readers_of_a_running_job_see_the_same(site: Site) -> None:
    job = site.submit("for i in $(seq 400); do echo $i; done; sleep 0.3; echo end")
    streams = [site.stream(job) for _ in range(10)]
    seen: list[list[dict[str, Any]]] = [[] for _ in streams]
    threads = [
        threading.Thread(target=lambda n=n: seen[n].extend(streams[n].events())) for n in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all(events == seen[0] for events in seen)
    assert numbers(seen[0]) == list(range(1, len(seen[0]) + 1))
    assert seen[0][-1]["kind"] == "finished"


def test_t10_server_sent_events_resume_and_end_with_the_job(site: Site) -> None:
    job = site.submit(SLOW)
    answer = site.events(job)
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-store"
    frames = list(answer.frames())
    stored = site.replay(job)
    assert [json.loads(frame["data"]) for frame in frames] == stored
    assert [int(frame["id"]) for frame in frames] == numbers(stored)
    assert [frame["event"] for frame in frames] == [event["kind"] for event in stored]
    # The larger of the two cursors counts; the connection is usable afterwards.
    for query, header in (("?after=3", "5"), ("?after=5", "3"), ("", "5"), ("?after=5", "")):
        given = {"Last-Event-ID": header} if header else {}
        assert next(site.events(job, query, **given).frames())["id"] == "6"


# -- what ends one ---------------------------------------------------------------------------------


def test_t7_only_ping_is_understood(site: Site) -> None:
    job = site.submit("sleep 30")
    good = site.stream(job)
    texts = good.texts()
    assert json.loads(next(texts))["kind"] == "accepted"
    for _ in range(3):
        good.send_text("ping")
        while (text := next(texts)) != "pong":
            assert json.loads(text)["kind"] == "started"
    good.send(Ping(b"are you there"))
    good.send_text("ping")
    assert next(texts) == "pong"
    for event in (
        TextMessage("PING"),
        TextMessage(""),
        TextMessage("x" * 1024),
        BytesMessage(b"ping"),
    ):
        bad = site.stream(job)
        bad.send(event)
        bad.events()
        assert bad.closed_with == 1008
    for event in (TextMessage("x" * 1025), BytesMessage(b"x" * 2000)):
        bad = site.stream(job)
        bad.send(event)
        bad.events()
        assert bad.closed_with == 1002
    pieces = site.stream(job)
    for _ in range(30):
        pieces.send(TextMessage("x" * 100, message_finished=False))
    pieces.events()
    assert pieces.closed_with == 1002
    site.process.call("DELETE", f"/v1/jobs/{job}")
    list(texts)
    assert good.closed_with is None


def test_nonsense_after_the_handshake_ends_that_connection_alone(site: Site) -> None:
    job = site.submit("sleep 30")
    for nonsense in (b"\xff" * 4096, b"GET / HTTP/1.1\r\n\r\n", b"\x81\x04ping", b"\x00" * 200):
        bad = site.stream(job)
        bad.socket.sendall(nonsense)
        bad.events()
        assert bad.closed_with in (1002, 1007)
    site.process.call("DELETE", f"/v1/jobs/{job}")
    assert "Traceback" not in site.process.log


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"\x8a\x80abcd", id="pongs that nobody asked for"),
        pytest.param(b"\x00\x80abcd", id="a message in empty pieces"),
    ],
)
def test_a_flood_of_the_smallest_frames_costs_no_more_than_its_turn(
    site: Site, frame: bytes
) -> None:
    job = site.submit("sleep 30")
    flood = site.stream(job)
    flood.socket.sendall(b"\x01\x80abcd" if frame[0] == 0 else b"")
    flood.socket.setblocking(False)
    before = processor_seconds(site.process)
    end = time.monotonic() + 3
    while time.monotonic() < end:
        with contextlib.suppress(BlockingIOError):
            flood.socket.send(frame * 10_000)
        time.sleep(0.01)
    spent = processor_seconds(site.process) - before
    flood.close()
    site.process.call("DELETE", f"/v1/jobs/{job}")
    assert spent < 0.5, spent


def test_of_a_body_beside_a_stream_no_more_is_taken_than_a_body_may_have(site: Site) -> None:
    job = site.submit("sleep 60")
    stream = site.events(job, **{"Transfer-Encoding": "chunked"})
    stream.socket.settimeout(2)
    piece, sent = b"10000\r\n" + b"x" * 65536 + b"\r\n", 0
    with contextlib.suppress(TimeoutError):
        while sent < 96 << 20:
            sent += stream.socket.send(piece[sent % len(piece) :])
    assert 24 << 20 < sent < 96 << 20
    site.process.call("DELETE", f"/v1/jobs/{job}")
    assert [frame["event"] for frame in stream.frames() if "event" in frame][-1] == "finished"


def processor_seconds(process: Any) -> float:
    """What this server has used so far."""
    stat = Path(f"/proc/{process.popen.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def test_a_client_that_closes_is_answered_and_gone(site: Site) -> None:
    job = site.submit("sleep 30")
    stream = site.stream(job)
    stream.send(CloseConnection(code=1000))
    stream.events()
    assert stream.closed_with is None
    assert stream.socket.recv(1) == b""
    site.process.call("DELETE", f"/v1/jobs/{job}")


@pytest.mark.parametrize("kind", ["stream", "events"])
def test_t4_shutdown_ends_streams_in_order_and_mints_no_tickets(site: Site, kind: str) -> None:
    job = site.submit("sleep 60")
    answer = site.stream(job) if kind == "stream" else site.events(job)
    told: list[Any] = []
    reading = threading.Thread(
        target=lambda: told.extend(answer.texts() if kind == "stream" else answer.frames())
    )
    reading.start()
    while not told:
        time.sleep(0.01)
    site.process.signal(signal.SIGTERM)
    reading.join(60)
    assert not reading.is_alive()
    if kind == "stream":
        assert answer.closed_with is None
    assert site.process.ended() == 0
    assert "Traceback" not in site.process.log


# More than the kernel buffers between the two ends: what is not read must stay with the server.
BULKY = (
    "import os\n"
    "for n in range(2):\n    open(f'output/{n}', 'wb').write(os.urandom(2_000_000))\n"
    "for n in range(5000):\n    print('x' * 100)"
)


def _memory(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError


def test_t8_readers_that_stop_reading_are_dropped_and_cost_no_memory(site: Site) -> None:
    job = site.submit(BULKY, language="python", outputs=["output/0", "output/1"])
    site.await_end(job)
    before = _memory(site.process.popen.pid)
    stuck = [
        (WebSocket if n % 2 else EventSource)(
            site.process.address,
            f"/v1/jobs/{job}/{'stream' if n % 2 else 'events'}?ticket={site.ticket(job)['ticket']}",
            {},
            window=4096,
        )
        for n in range(16)
    ]
    assert {answer.status for answer in stuck} == {101, 200}
    assert site.stream(job).status == 429
    most = 0
    end = time.monotonic() + 60
    while (answer := site.stream(job)).status != 101 and time.monotonic() < end:
        most = max(most, _memory(site.process.popen.pid))
        time.sleep(0.1)
    assert answer.status == 101  # somebody was dropped
    # A whole history is 7 MB as it stands in the store; what waits for each is one event of 2.7.
    assert most - before < 16 * 8_000_000
    for one in stuck:
        one.close()
    assert "Traceback" not in site.process.log


def test_t8_a_reader_that_falls_behind_the_broadcast_gets_every_event_once(site: Site) -> None:
    code = (
        "import sys, time\ntime.sleep(0.5)\nfor n in range(9000):\n"
        "    print('x' * 400); print('y' * 400, file=sys.stderr)"
    )
    job = site.submit(code, language="python")
    streams = [
        (WebSocket if n % 2 else EventSource)(
            site.process.address,
            f"/v1/jobs/{job}/{'stream' if n % 2 else 'events'}?ticket={site.ticket(job)['ticket']}",
            {},
            window=65536,
        )
        for n in range(4)
    ]
    site.await_end(job)
    stored = site.replay(job)
    assert len(stored) == 5000  # a page; there are more
    for answer in streams:
        if isinstance(answer, WebSocket):
            seen = answer.events()
        else:
            seen = [json.loads(frame["data"]) for frame in answer.frames()]
        answer.close()
        assert numbers(seen) == list(range(1, len(seen) + 1))
        assert seen[:5000] == stored
        assert seen[-1]["kind"] == "finished"
