"""A server whose launcher is killed again and again holds no more of anything than before."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from faults.book import Book
from faults.leftovers import descriptors, resident_kib, threads
from faults.victims import alive, family, kill_child, launcher_of, noted
from gateway import Gateway, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from rookhold import Rookhold

WARM, KILLS = 6, 20
# The caches of the database connections fill over some 500 jobs; only then is memory level.
SOAK_WARM, SOAK_KILLS = 300, 300
GROWTH_KIB = 4096
SANDBOXES = [pytest.param("namespaces-dev", marks=pytest.mark.linux_ns), "off"]


def opened(home: Path, sandbox: str) -> Gateway:
    return Gateway(home / "gateway", sandbox=sandbox, ROOKHOLD_RATE_PER_MIN="100000")


def kill_launcher(gateway: Gateway, client: Rookhold, book: Book) -> None:
    """Kill it under a running job, and see the job end and the next one run."""
    assert gateway.process is not None
    server = gateway.process.pid
    held = client.submit("bash", "echo up; sleep 60 & sleep 60").job_id
    assert eventually(60, lambda: book.events(held) >= 3)
    launcher = launcher_of(server)
    assert launcher is not None
    doomed = noted(family(launcher))
    assert kill_child(server, launcher)
    ended = client.wait(held, 60)
    assert (ended.status, ended.exit_code) == ("error", None)
    assert client.run("bash", "echo next", wait_seconds=60).stdout == "next\n"
    assert eventually(30, lambda: not alive(doomed))


def at_rest(server: int) -> tuple[list[str], int]:
    """Return the descriptors and the number of threads, once they no longer change."""
    seen = [(descriptors(server), threads(server))]

    def unchanged() -> bool:
        time.sleep(0.2)
        seen.append((descriptors(server), threads(server)))
        return len(seen) > 5 and all(one == seen[-1] for one in seen[-5:])

    assert eventually(30, unchanged)
    return seen[-1]


def run_kills(gateway: Gateway, warm: int, kills: int) -> None:
    with gateway, Book(gateway.database) as book:
        assert gateway.process is not None
        server = gateway.process.pid
        with gateway.client() as client:
            for _ in range(warm):
                kill_launcher(gateway, client, book)
        before, resident = at_rest(server), resident_kib(server)
        with gateway.client() as client:
            for _ in range(kills):
                kill_launcher(gateway, client, book)
        after = at_rest(server)
        assert after[0] == before[0]
        assert after[1] <= before[1] + 2  # a pool may be one larger at this moment
        assert resident_kib(server) < resident + GROWTH_KIB


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_a_server_that_loses_twenty_launchers_holds_no_more_than_before(
    tmp_path: Path, sandbox: str
) -> None:
    run_kills(opened(tmp_path, sandbox), WARM, KILLS)


@pytest.mark.soak
@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_a_server_that_loses_hundreds_of_launchers_holds_no_more_than_before(
    tmp_path: Path, sandbox: str
) -> None:
    run_kills(opened(tmp_path, sandbox), SOAK_WARM, SOAK_KILLS)
