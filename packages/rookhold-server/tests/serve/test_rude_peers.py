"""Broken and hostile requests against a whole server: documented answers, and nothing stays.

A few in every run; in the soak run 2,000 of each kind, over which the memory must stay flat.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest
from certificates import made, trusting
from gateway import Gateway, eventually
from rude import Peer, exchange, http1, http2, judge_http1, judge_http2

if TYPE_CHECKING:
    from collections.abc import Iterator

FEW, MANY = 40, 2000
WARM = 400  # requests after which what is made once has been made
GROWTH_BYTES = 12 << 20
AT_ONCE = 8
# Of the log: what would mean that a request met a fault of ours.
FAULTS = ("Traceback", "a request failed", "a connection failed", "an application failed")
OPEN = {"ROOKHOLD_RATE_PER_MIN": "1000000", "ROOKHOLD_ATTESTATION_KEY_FILE": ""}


class Served(NamedTuple):
    gateway: Gateway
    certificate: Path | None

    def peer(self, protocol: str) -> Peer:
        host, _, port = self.gateway.address.rpartition(":")
        tls = None if self.certificate is None else trusting(self.certificate, protocol)
        return Peer((host, int(port)), self.gateway.api_key.encode(), tls)

    def resident(self) -> int:
        assert self.gateway.process is not None
        text = Path(f"/proc/{self.gateway.process.pid}/statm").read_text("ascii")
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def sockets(self) -> int:
        """Count connections; files of the database are opened when first read."""
        assert self.gateway.process is not None
        links = Path(f"/proc/{self.gateway.process.pid}/fd").iterdir()
        count = 0
        for link in links:
            with suppress(FileNotFoundError):  # closed while we looked
                count += os.readlink(link).startswith("socket:")  # noqa: PTH115 - no such file
        return count


@pytest.fixture(scope="module", params=["plain", "secure"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("rude")
    settings, certificate = dict(OPEN), None
    if request.param == "secure":
        certificate, key = made(place)
        settings |= {"ROOKHOLD_TLS_CERT_FILE": str(certificate), "ROOKHOLD_TLS_KEY_FILE": str(key)}
    with Gateway(place / "home", sandbox="off", **settings) as gateway:
        yield Served(gateway, certificate)


def attack(served: Served, protocol: str, seeds: range) -> set[int]:
    peer = served.peer(protocol)
    make, judge = (http2, judge_http2) if protocol == "h2" else (http1, judge_http1)

    def one(seed: int) -> list[int]:
        source = Random(seed)
        answers = exchange(peer, make(source, peer.key), pieces=source.choice((1, 1, 1, 2, 7)))
        try:
            return judge(answers)
        except AssertionError as fault:
            raise AssertionError(f"{protocol}, seed {seed}: {fault}") from fault

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return {status for statuses in pool.map(one, seeds) for status in statuses}


def assert_untouched(served: Served, before: int) -> None:
    assert eventually(60, lambda: served.sockets() <= before)
    log = served.gateway.log.read_text("utf-8")
    assert not [word for word in FAULTS if word in log], log[-3000:]
    answers = exchange(
        served.peer("http/1.1"), b"GET /healthz HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n"
    )
    assert judge_http1(answers) == [200]


def protocols(served: Served) -> tuple[str, ...]:
    return ("http/1.1",) if served.certificate is None else ("http/1.1", "h2")


def test_rude_peers_get_documented_answers_and_leave_nothing(served: Served) -> None:
    before = served.sockets()
    for protocol in protocols(served):
        statuses = attack(served, protocol, range(FEW))
        assert statuses >= {200, 400, 404}
    assert_untouched(served, before)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("served", "protocol"),
    [("plain", "http/1.1"), ("secure", "http/1.1"), ("secure", "h2")],
    indirect=["served"],
)
def test_thousands_of_rude_peers_cost_no_memory(served: Served, protocol: str) -> None:
    before = served.sockets()
    attack(served, protocol, range(10_000, 10_000 + WARM))
    warm = served.resident()
    statuses = attack(served, protocol, range(20_000, 20_000 + MANY))
    assert statuses >= {200, 400, 401, 404, 405}
    assert_untouched(served, before)
    assert served.resident() - warm < GROWTH_BYTES, (served.resident(), warm)
