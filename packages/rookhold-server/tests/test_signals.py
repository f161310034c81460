"""Signals that come at the worst moment."""

import os
import signal
import subprocess
import sys

import anyio
import pytest

from rookhold_server.signals import Signals

# Another process asks without a pause, from the first moment on to the last.
IMPATIENT = """
import sys
import anyio
from rookhold_server.signals import Signals
async def main():
    with Signals(reloads=True) as signals:
        print("ready", flush=True)
        while not (await signals.next()).stop:
            pass
    return 7
sys.exit(anyio.run(main))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_storm_of_signals_changes_neither_exit_status_nor_output(number: signal.Signals) -> None:
    for _ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", IMPATIENT], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            if number == signal.SIGHUP:  # that alone ends nothing
                os.kill(child.pid, signal.SIGTERM)
            while child.poll() is None:
                os.kill(child.pid, number)
            assert child.stderr is not None
            assert (child.returncode, child.stderr.read()) == (7, b"")


def test_a_request_before_anybody_listens_is_heard() -> None:
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    async def main() -> None:
        with Signals() as signals:
            os.kill(os.getpid(), signal.SIGTERM)
            with anyio.fail_after(30):
                assert await signals.next() == (True, False)
            with anyio.move_on_after(0.1) as scope:
                await signals.next()
            assert scope.cancelled_caught

    try:
        anyio.run(main)
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def test_a_hang_up_asks_to_reload_where_something_can_be() -> None:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    kept = {number: signal.getsignal(number) for number in numbers}

    async def main() -> None:
        with Signals() as signals:
            assert signal.getsignal(signal.SIGHUP) == kept[signal.SIGHUP]
        with Signals(reloads=True) as signals, anyio.fail_after(30):
            os.kill(os.getpid(), signal.SIGHUP)
            assert await signals.next() == (False, True)
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            assert await signals.next() == (True, True)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN

    try:
        anyio.run(main)
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def test_a_stop_is_heard_once_however_many_requests_to_reload_come_before_it() -> None:
    """More than the socket holds that wakes the loop."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    kept = {number: signal.getsignal(number) for number in numbers}

    async def main() -> list[bool]:
        told = []
        with Signals(reloads=True) as signals:
            for _ in range(2000):
                os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            with anyio.fail_after(30):
                while not any(told):
                    told.append((await signals.next()).stop)
            os.kill(os.getpid(), signal.SIGHUP)
            with anyio.fail_after(30):
                told.append((await signals.next()).stop)
        return told

    try:
        assert anyio.run(main).count(True) == 1
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
