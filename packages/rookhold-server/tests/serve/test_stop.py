"""How a server stops: in order, on every way to ask for it."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Server = Callable[..., Any]
SLEEP = {"language": "bash", "code": "sleep 60"}


def test_nothing_of_the_parents_descriptors_reaches_a_child(server: Server) -> None:
    running = server().start()
    running.call("POST", "/v1/jobs", SLEEP)
    inode = os.fstat(running.lifeline).st_ino
    pid = running.popen.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert children, "the launcher is a child"
    for child in children:
        for link in Path(f"/proc/{child}/fd").iterdir():
            assert f"[{inode}]" not in str(link.readlink())


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "lifeline"])
def test_every_way_to_stop_cancels_what_runs_and_exits_0(server: Server, how: str) -> None:
    running = server().start()
    status, job = running.call("POST", "/v1/jobs", SLEEP)
    assert status == 201
    path = f"/v1/jobs/{job['job_id']}"
    end = time.monotonic() + 20
    while running.call("GET", path)[1]["status"] == "queued" and time.monotonic() < end:
        time.sleep(0.02)
    began = time.monotonic()
    if how == "lifeline":
        running.cut_lifeline()
    else:
        running.signal(signal.Signals[how])
    assert running.ended() == 0
    assert time.monotonic() - began < 15
    again = server().start()
    assert again.call("GET", path)[1]["status"] == "cancelled"
    assert again.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_the_parent_had_blocked_or_ignored_stops_it_still(
    server: Server, number: signal.Signals
) -> None:
    handler = signal.signal(number, signal.SIG_IGN)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        running = server().start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(number, handler)
    running.signal(number)
    assert running.ended() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_more_signals_up_to_the_end_change_nothing(server: Server, number: signal.Signals) -> None:
    running = server().start()
    end = time.monotonic() + 60
    while running.popen.poll() is None and time.monotonic() < end:
        running.signal(number)
        time.sleep(0.0005)
    assert running.ended() == 0
    assert "Traceback" not in running.log


def test_r6_a_wait_ends_with_503_within_half_a_second_of_the_signal(server: Server) -> None:
    running = server().start()
    job = running.call("POST", "/v1/jobs", SLEEP)[1]
    answers: list[tuple[float, int, str]] = []

    def wait() -> None:
        status, body = running.call("GET", f"/v1/jobs/{job['job_id']}/result?wait_seconds=300")
        answers.append((time.monotonic(), status, body["error"]["code"]))

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.5)
    began = time.monotonic()
    running.signal(signal.SIGTERM)
    waiting.join(30)
    ((ended, status, code),) = answers
    assert (status, code) == (503, "shutting_down")
    assert ended - began < 0.5
    assert running.ended() == 0


def test_a_signal_while_starting_is_obeyed_once_started(server: Server) -> None:
    running = server(API_KEYS="")
    os.close(running.spawn())  # nobody to tell: that must not matter either
    end = time.monotonic() + 30
    while "DEVELOPMENT ONLY" not in running.log and time.monotonic() < end:
        time.sleep(0.001)
    running.signal(signal.SIGTERM)
    assert running.ended() == 0
    assert "stopped" in running.log


def test_an_idle_connection_does_not_hold_up_the_stop(server: Server) -> None:
    import http.client

    running = server().start()
    connection = http.client.HTTPConnection(running.address, timeout=30)
    connection.request("GET", "/healthz")
    connection.getresponse().read()
    began = time.monotonic()
    assert running.stop() == 0
    assert time.monotonic() - began < 8
    connection.close()
