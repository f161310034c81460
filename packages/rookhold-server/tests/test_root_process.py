"""What the root process does where its own bookkeeping could trip it up."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from rookhold_server.supervisor.main import Supervisor, _inherited

SETTINGS = {"uid": 51_234, "gid": 51_234, "environment": {}, "launcher": b"", "as_root": 0}
SECONDS = 20


@pytest.mark.parametrize("text", ["", "0", "2", "-1", "²", "٣", "1_0", "9" * 19, "9" * 5000, "x"])
def test_what_names_no_open_descriptor_is_none(text: str) -> None:
    assert _inherited({"ROOKHOLD_READY_FD": text}) == []


def test_a_descriptor_that_is_named_twice_is_handed_on_once() -> None:
    read, write = os.pipe()
    try:
        both = {"ROOKHOLD_READY_FD": str(write), "ROOKHOLD_LIFELINE_FD": str(write)}
        assert _inherited(both) == [write]
    finally:
        os.close(read)
        os.close(write)


def test_an_event_of_a_launcher_that_is_forgotten_keeps_nobody_waiting() -> None:
    root = Supervisor({}, SETTINGS, None)  # type: ignore[arg-type]  # no signal is sent here
    heard = threading.Thread(target=root._hear, daemon=True)
    heard.start()
    heard.join(SECONDS)
    assert not heard.is_alive()
    root._ours.close()
    root._theirs.close()
    os.close(root._null)


@pytest.mark.parametrize(("ignored", "seen"), [(True, ""), (False, "1")])
def test_a_hangup_that_was_ignored_stays_ignored(ignored: bool, seen: str) -> None:
    program = (
        "import os, signal; from rookhold_server.supervisor.main import Signals; s = Signals();"
        "os.kill(os.getpid(), signal.SIGHUP); print(*s.take())"
    )
    handler = signal.SIG_IGN if ignored else signal.SIG_DFL
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, handler),
    )
    assert done.stdout.strip() == seen
