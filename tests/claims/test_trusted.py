"""What is trusted is looked at before it is used, and what is not trusted is not followed."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from claims.test_evidence import check_chain, check_end, collect
from gvisor import settings
from isolating import GVISOR, private_place
from small_rootfs import make, write

from rookhold_exec.backends.gvisor import Gvisor
from rookhold_exec.errors import RuntimeChangedError
from rookhold_exec.rootfs import RootfsError, verify
from rookhold_exec.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Callable

    from claims.jobs import Jobs

CHANGED = "UPDATE events SET data_json = '{}' WHERE job_id = ? AND seq = 2"
SAME = "UPDATE events SET data_json = data_json WHERE job_id = ? AND seq = 2"
LINKED = """
import os
open("secret", "w").write("what a link leads to")
os.makedirs("output", exist_ok=True)
os.symlink("../secret", "output/link")
"""


def runsc(test: Callable[[], None]) -> Callable[[], None]:
    """Run it where the runtime can be had."""
    for mark in GVISOR.marks:
        test = mark(test)
    return test


def nothing(_: Path) -> None:
    """Change nothing."""


def edit(root: Path) -> None:
    """Change one byte, to another of the same size."""
    write(root / "etc/hosts", b"127.0.0.2 localhost\n")


def check_root_refused(change: Callable[[Path], None]) -> None:
    with private_place() as place:
        root = make(place / "root")
        pinned = verify(str(root), uids=()).digest
        change(root)
        try:
            verify(str(root), pinned=pinned, uids=())
        except RootfsError as error:
            code = error.code
        else:
            code = None
    assert code == "rootfs_changed", "it was taken"


def check_runtime_refused(change: Callable[[Path], None]) -> None:
    whole = settings("ptrace").runsc
    assert whole is not None
    with private_place() as place:
        runsc = Path(shutil.copy(whole, place / "runsc"))
        known = settings("ptrace", runsc=str(runsc), node="none", python="none")
        harness = Harness(Gvisor(known, "for a test"))
        harness.do(harness.executor.open())
        try:
            assert harness.run("bash", "echo 1").stdout == b"1\n"
            change(runsc)
            with pytest.raises(RuntimeChangedError):
                harness.run("bash", "echo 2")
        except pytest.fail.Exception as error:
            raise AssertionError("a job was run with it") from error
        finally:
            harness.close()


def check_change_found(jobs: Jobs, statement: str) -> None:
    """Change one stored event, as somebody who holds the file can, and look at it as a client."""
    job_id = jobs.run("print(1)").result.job_id
    database = sqlite3.connect(jobs.gateway.database, timeout=60, isolation_level=None)
    try:
        database.execute("BEGIN IMMEDIATE")
        find = "SELECT sql FROM sqlite_master WHERE name = 'events_no_update'"
        [(trigger,)] = database.execute(find)
        database.execute("DROP TRIGGER events_no_update")
        assert database.execute(statement, (job_id,)).rowcount == 1
        database.execute(trigger)
        database.execute("COMMIT")
    finally:
        database.close()
    evidence = collect(jobs, job_id)
    try:
        check_chain(evidence)
        check_end(evidence)
    except AssertionError:
        return
    raise AssertionError("the change was not found")


def check_link(jobs: Jobs) -> None:
    result = jobs.run(LINKED, outputs=["output/link"]).result
    refused = [each for violation in result.violations for each in violation.detail["outputs"]]
    assert refused == [{"path": "output/link", "reason": "link"}], "a link was followed"


@pytest.mark.root
def test_changed_root_refused() -> None:
    check_root_refused(edit)


@pytest.mark.root
def test_changed_root_refused_sabotaged() -> None:
    with pytest.raises(AssertionError, match="it was taken"):
        check_root_refused(nothing)


@runsc
def test_changed_runtime_refused() -> None:
    check_runtime_refused(os.utime)


@runsc
def test_changed_runtime_refused_sabotaged() -> None:
    with pytest.raises(AssertionError, match="a job was run with it"):
        check_runtime_refused(nothing)


def test_changed_event_found(watched: Jobs) -> None:
    check_change_found(watched, CHANGED)


def test_changed_event_found_sabotaged(watched: Jobs) -> None:
    with pytest.raises(AssertionError, match="the change was not found"):
        check_change_found(watched, SAME)


def test_outputs_through_no_link(confined: Jobs) -> None:
    check_link(confined)


def test_outputs_through_no_link_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="a link was followed"):
        check_link(weakened.without("no-links"))
