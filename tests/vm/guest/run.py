"""Runs the ordered tests in the VM, saying through the second serial port how each went."""

from __future__ import annotations

import json
import os
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest

TEXT_LIMIT = 20_000  # of one report: the port is slow


class Reporter:
    """A pytest plugin: one JSON object a line, written at once."""

    def __init__(self, port: int) -> None:
        self._port = port

    def say(self, event: str, **more: Any) -> None:
        left = memoryview(json.dumps({"event": event, **more}).encode() + b"\n")
        while left:
            left = left[os.write(self._port, left) :]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.say("broken", test=report.nodeid, text=report.longreprtext[-TEXT_LIMIT:])

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.say("collected", tests=len(session.items))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.say("began", test=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            text = _said(report) if report.passed else _text(report)
            seconds = round(report.duration, 3)
            self.say("went", test=report.nodeid, how=report.outcome, seconds=seconds, text=text)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.say("ended", test=nodeid)


def _said(report: pytest.TestReport) -> str:
    lines = [str(value) for name, value in report.user_properties if name == "said"]
    return "\n".join(lines)[-TEXT_LIMIT:]


def _text(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):  # a skip: file, line, reason
        return str(report.longrepr[2])
    parts = [report.longreprtext]
    parts += [f"--- {name} ---\n{content}" for name, content in report.sections]
    return "\n".join(parts)[-TEXT_LIMIT:]


def main(order: str, port: str) -> None:
    wanted = json.loads(Path(order).read_text("utf-8"))
    os.environ.update(wanted["env"])
    opened = os.open(port, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
    reporter = Reporter(opened)
    began = time.monotonic()
    argv = ["-p", "no:cacheprovider", "--tb=short", *wanted["args"]]
    status = pytest.main(argv, plugins=[reporter])
    reporter.say("done", status=int(status), seconds=round(time.monotonic() - began, 1))
    termios.tcdrain(opened)


if __name__ == "__main__":
    main(*sys.argv[1:])
