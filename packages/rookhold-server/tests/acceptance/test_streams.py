"""What a stream may do with somebody's authority, and for how long: T3, and what revokes it.

T1, T2 and T4 to T10 are in `tests/serve/test_stream.py`.
"""

from __future__ import annotations

import json
import signal
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from asking import SECONDS, Caller
from gateway import Gateway, eventually
from streams import EventSource, RawAnswer, WebSocket

from rookhold_server.identity.credentials import encode_credentials
from rookhold_server.identity.keeping import Keeper
from rookhold_server.identity.scopes import Scope
from rookhold_types.clock import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

READS = (Scope.JOBS_READ, Scope.SERVICE_READ)


class Site:
    """A server with structured credentials, and one job that runs until it is cancelled."""

    def __init__(self, place: Path) -> None:
        self.file = place / "credentials.json"
        self.keeper = Keeper(self.file, place / "pepper")
        self.made = 0
        self.token(Scope.JOBS_SUBMIT)  # so that there is a file
        self.gateway = Gateway(
            place / "home",
            sandbox="off",
            ROOKHOLD_ATTESTATION_KEY_FILE="",
            ROOKHOLD_CREDENTIALS_FILE=str(self.file),
            ROOKHOLD_CREDENTIAL_PEPPER_FILE=str(place / "pepper"),
        )
        self.job = ""

    def token(self, *scopes: Scope, lifetime_ms: int | None = None) -> str:
        self.made += 1
        made = self.keeper.create(
            tenant="local",
            principal="somebody",
            scopes=scopes,
            now_ms=now_ms(),
            lifetime_ms=lifetime_ms,
            key_id=f"key-{self.made}",
        )
        return made.token

    def known(self, *scopes: Scope, lifetime_ms: int | None = None) -> tuple[str, str]:
        """Return key id and token of a new credential, once the server knows it."""
        token = self.token(*scopes, lifetime_ms=lifetime_ms)
        self.hang_up()
        with closing(Caller(self.gateway.address, token)) as caller:
            assert eventually(SECONDS, lambda: caller.get("/v1/whoami").status != 401)
        return f"key-{self.made}", token

    def hang_up(self) -> None:
        assert self.gateway.process is not None
        self.gateway.process.send_signal(signal.SIGHUP)

    def websocket(self, token: str | None, query: str = "") -> WebSocket:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        path = f"/v1/jobs/{self.job}/stream{query}"
        return WebSocket(self.gateway.address, path, headers)

    def events(self, token: str) -> EventSource:
        headers = {"Authorization": f"Bearer {token}"}
        return EventSource(self.gateway.address, f"/v1/jobs/{self.job}/events", headers)

    def rewrite(self, key_id: str, **changes: Any) -> None:
        """Change an entry in a way that the keeper of the file would not."""
        entries = []
        for entry in json.loads(self.file.read_bytes())["credentials"]:
            entries.append(entry | (changes if entry["key_id"] == key_id else {}))
        self.file.write_text(json.dumps({"version": 1, "credentials": entries}))

    def remove(self, key_id: str) -> None:
        kept = tuple(entry for entry in self.keeper.entries() if entry.key_id != key_id)
        self.file.write_bytes(encode_credentials(kept))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("site"))
    with site.gateway, closing(Caller(site.gateway.address, site.gateway.api_key)) as owner:
        site.job = owner.accepted("bash", "echo; sleep 200", limits={"wall_seconds": 200})
        owner.begun(site.job)
        yield site
        owner.call("DELETE", f"/v1/jobs/{site.job}")


def test_t3_a_ticket_lives_no_longer_than_its_credential_and_may_do_no_more(site: Site) -> None:
    _, token = site.known(*READS, lifetime_ms=5000)
    with closing(Caller(site.gateway.address, token)) as caller:
        ends = caller.get("/v1/whoami").json["expires_at_ms"]
        minted = [caller.call("POST", f"/v1/jobs/{site.job}/stream-ticket") for _ in range(2)]
    assert [answer.status for answer in minted] == [200, 200]
    assert [answer.json["expires_at_ms"] for answer in minted] == [ends, ends]
    first, second = (answer.json["ticket"] for answer in minted)
    # It opens a stream of this job, and is nothing on any other path or as a bearer.
    for path in ("/v1/jobs", f"/v1/jobs/{site.job}", f"/v1/jobs/{site.job}/result"):
        with closing(RawAnswer(site.gateway.address, f"{path}?ticket={first}", {})) as answer:
            assert (answer.status, answer.code) == (401, "missing_api_key")
    with closing(Caller(site.gateway.address, first)) as caller:
        assert caller.get("/v1/whoami").refusal == (401, "invalid_api_key")
    stream = site.websocket(None, f"?ticket={first}")
    assert stream.status == 101
    texts = stream.texts()
    assert json.loads(next(texts))["kind"] == "accepted"

    time.sleep(max(0, ends - now_ms()) / 1000 + 0.05)
    with closing(site.websocket(None, f"?ticket={second}")) as late:
        assert (late.status, late.code) == (401, "invalid_stream_ticket")
    stream.send_text("ping")  # what was opened in time is not cut
    assert "pong" in texts
    stream.close()

    _, blind = site.known(Scope.SERVICE_READ, Scope.JOBS_SUBMIT, Scope.JOBS_CANCEL)
    with closing(Caller(site.gateway.address, blind)) as caller:
        refused = caller.call("POST", f"/v1/jobs/{site.job}/stream-ticket")
        assert refused.refusal == (403, "insufficient_scope")


def revoked(site: Site, key_id: str) -> None:
    site.keeper.revoke(key_id, at_ms=now_ms())


def revoked_soon(site: Site, key_id: str) -> None:
    site.keeper.revoke(key_id, at_ms=now_ms() + 1500)


def removed(site: Site, key_id: str) -> None:
    site.remove(key_id)


def given_less(site: Site, key_id: str) -> None:
    site.rewrite(key_id, scopes=["service:read"])


def given_another_secret(site: Site, key_id: str) -> None:
    site.rewrite(key_id, digest_hmac_sha256="0" * 64)


def given_to_another_tenant(site: Site, key_id: str) -> None:
    site.rewrite(key_id, tenant_id="other")


@pytest.mark.parametrize(
    "withdraw",
    [
        revoked,
        revoked_soon,
        removed,
        given_less,
        given_another_secret,
        given_to_another_tenant,
    ],
)
def test_an_open_stream_of_a_withdrawn_credential_is_cut(
    site: Site, withdraw: Callable[[Site, str], None]
) -> None:
    key_id, token = site.known(*READS)
    _, other = site.known(*READS)
    with closing(Caller(site.gateway.address, token)) as caller:
        ticket = caller.call("POST", f"/v1/jobs/{site.job}/stream-ticket").json["ticket"]
    socket, source, stays = site.websocket(token), site.events(token), site.websocket(other)
    assert (socket.status, source.status, stays.status) == (101, 200, 101)
    texts, frames = socket.texts(), source.frames()
    assert json.loads(next(texts))["kind"] == next(frames)["event"] == "accepted"
    withdraw(site, key_id)
    began = time.monotonic()
    assert "finished" not in {json.loads(text)["kind"] for text in texts}
    assert socket.closed_with == 1008
    assert "finished" not in {frame["event"] for frame in frames}  # to the end of the body
    assert time.monotonic() - began < 20
    with closing(site.websocket(None, f"?ticket={ticket}")) as late:
        assert (late.status, late.code) == (401, "invalid_stream_ticket")
    with closing(site.websocket(token)) as again:
        assert again.status in {401, 403, 404}
    texts = stays.texts()
    stays.send_text("ping")
    assert "pong" in texts
    for each in (socket, source, stays):
        each.close()


def test_a_stream_outlives_what_takes_nothing_from_it(site: Site) -> None:
    """An expiry, a longer life, another principal's revocation, a file that is no good."""
    key_id, token = site.known(*READS, lifetime_ms=600_000)
    other, _ = site.known(*READS)
    stream = site.websocket(token)
    assert stream.status == 101
    site.rewrite(key_id, expires_at_ms=now_ms() + 900, scopes=["jobs:read"])
    revoked(site, other)
    site.hang_up()
    with closing(Caller(site.gateway.address, token)) as caller:
        assert eventually(SECONDS, lambda: caller.get("/v1/jobs").status == 401)
    good = site.file.read_bytes()
    site.file.write_bytes(b"{")
    site.hang_up()
    assert eventually(SECONDS, lambda: "credentials_kept" in site.gateway.log.read_text())
    site.file.write_bytes(good)
    texts = stream.texts()
    stream.send_text("ping")
    assert "pong" in texts
    stream.close()
