"""What becomes of a connection whose submission was refused, by the numbers of the lines.

The refusal of a slow body (408) has a deadline of 30 seconds; it is tested with a shorter one in
`tests/http/test_refusals.py`, and HTTP/2 (H6) in `test_http2.py`.
"""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from gateway import Gateway

from rookhold_server.identity.keeping import Keeper
from rookhold_server.identity.scopes import Scope
from rookhold_types.ids import is_job_id

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS = 60
JSON = ("content-type: application/json",)
# A body that never comes, framed in each way that HTTP/1 knows.
UNREAD = (("content-length: 1000",), ("transfer-encoding: chunked",), ("content-length: 00",))
NONE: tuple[tuple[str, ...], ...] = (("content-length: 0",), ())
MARK = "0123456789abcdef0123456789abcdef"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    json: Any

    @property
    def code(self) -> str:
        code: str = self.json["error"]["code"]
        assert self.json["error"]["request_id"] == self.headers["x-request-id"]
        return code


class Line:
    """One connection, spoken to in bytes."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), SECONDS)
        self._buffer = b""

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def submit(self, key: str | None, *fields: str) -> None:
        lines = ["POST /v1/jobs HTTP/1.1", "host: gateway", *fields]
        if key is not None:
            lines.append(f"authorization: Bearer {key}")
        self.send("\r\n".join([*lines, "", ""]).encode())

    def get(self, path: str, *fields: str) -> None:
        self.send("\r\n".join([f"GET {path} HTTP/1.1", "host: gateway", *fields, "", ""]).encode())

    def answer(self) -> Answer:
        while b"\r\n\r\n" not in self._buffer:
            self._take()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        while len(self._buffer) < int(headers["content-length"]):
            self._take()
        length = int(headers["content-length"])
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return Answer(int(first.split()[1]), headers, json.loads(body))

    def _take(self) -> None:
        piece = self._socket.recv(65536)
        assert piece, "the connection ended in an answer"
        self._buffer += piece

    def ends(self) -> bool:
        """Whether the server ends it within a second, and sends nothing more."""
        self._socket.settimeout(1)
        try:
            return self._buffer == b"" and self._socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def close(self) -> None:
        self._socket.close()


class Site(NamedTuple):
    gateway: Gateway
    key: str
    other: str
    third: str
    reader: str  # of the tenant `local` too, but may not submit

    @contextmanager
    def line(self) -> Iterator[Line]:
        line = Line(self.gateway.address)
        try:
            yield line
        finally:
            line.close()


def start(stack: ExitStack, place: Path, **settings: str) -> Site:
    keeper = Keeper(place / "credentials.json", place / "pepper")

    def token(tenant: str, *scopes: Scope) -> str:
        return keeper.create(tenant=tenant, principal=None, scopes=scopes, now_ms=1).token

    gateway = Gateway(
        place / "home",
        sandbox="off",
        ROOKHOLD_CREDENTIALS_FILE=str(place / "credentials.json"),
        ROOKHOLD_CREDENTIAL_PEPPER_FILE=str(place / "pepper"),
        **settings,
    )
    tokens = token("other", *Scope), token("third", *Scope), token("local", Scope.JOBS_READ)
    return Site(stack.enter_context(gateway), gateway.api_key, *tokens)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as stack:
        yield start(stack, tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def spent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One whose tenant has used up its only request of this minute."""
    with ExitStack() as stack:
        yield start(stack, tmp_path_factory.mktemp("spent"), ROOKHOLD_RATE_PER_MIN="1")


def refused(site: Site, code: str, key: str | None, *fields: str, framing: tuple[str, ...]) -> None:
    """Submit, and see that the connection ends exactly if a body was announced."""
    with site.line() as line:
        line.submit(key, *fields, *framing)
        answer = line.answer()
        assert answer.code == code
        if framing in UNREAD:
            assert answer.headers["connection"] == "close", (code, framing)
            assert line.ends(), (code, framing)
            return
        assert "connection" not in answer.headers, (code, framing)
        line.get("/healthz")
        assert line.answer().status == 200


EARLY = [
    ("missing_api_key", None, JSON),
    ("invalid_api_key", "wrong-wrong-wrong-wrong", JSON),
    ("insufficient_scope", "reader", JSON),
    ("unsupported_media_type", "key", ("content-type: text/plain",)),
]


@pytest.mark.parametrize(("code", "who", "fields"), EARLY, ids=str)
def test_h3_h4_an_early_refusal_closes_only_over_a_body_that_was_not_read(
    site: Site, code: str, who: str | None, fields: tuple[str, ...]
) -> None:
    key = getattr(site, who, who) if who else None
    for framing in (*UNREAD, *NONE):
        refused(site, code, key, *fields, framing=framing)


def test_h3_h4_so_does_one_for_the_rate(spent: Site) -> None:
    while time.time() % 60 > 50:  # the window turns with the minute
        time.sleep(0.5)
    with spent.line() as line:
        line.get("/v1/whoami", f"authorization: Bearer {spent.key}")
        assert line.answer().status == 200
    for framing in (*UNREAD, *NONE):
        refused(spent, "rate_limit_exceeded", spent.key, *JSON, framing=framing)


def test_h3_so_does_one_for_a_length_over_the_limit(site: Site) -> None:
    with site.line() as line:
        line.submit(site.key, *JSON, f"content-length: {24 * 1024 * 1024 + 1}")
        answer = line.answer()
        assert (answer.code, answer.headers["connection"]) == ("request_body_too_large", "close")
        assert line.ends()


def test_h3_so_does_one_for_want_of_places(site: Site) -> None:
    """Two bodies of a tenant and four of all may be on their way where none was declared."""
    chunked = (*JSON, "transfer-encoding: chunked")
    with ExitStack() as held:
        for key in (site.key, site.key):
            line = held.enter_context(site.line())
            line.submit(key, *chunked)
            line.send(b"1\r\n{\r\n")
        refused(site, "tenant_submit_body_capacity", site.key, *JSON, framing=UNREAD[1])
        for key in (site.other, site.other):
            line = held.enter_context(site.line())
            line.submit(key, *chunked)
            line.send(b"1\r\n{\r\n")
        refused(site, "submit_body_capacity", site.third, *JSON, framing=UNREAD[1])


@pytest.mark.parametrize("chunked", [False, True], ids=["declared", "chunked"])
@pytest.mark.parametrize(
    ("body", "code"),
    [(b"{nonsense", "invalid_json"), (b'{"language":"bash","code":" "}', "empty_code")],
)
def test_h5_a_body_read_in_full_keeps_the_connection_for_a_pipelined_request(
    site: Site, body: bytes, code: str, *, chunked: bool
) -> None:
    with site.line() as line:
        if chunked:
            line.submit(site.key, *JSON, "transfer-encoding: chunked")
            line.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        else:
            line.submit(site.key, *JSON, f"content-length: {len(body)}")
            line.send(body)
        line.get("/v1/whoami", f"authorization: Bearer {site.key}")
        answer = line.answer()
        assert (answer.status, answer.code) == (400, code)
        assert "connection" not in answer.headers
        assert line.answer().json["tenant"] == "local"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/healthz", 200),
        ("/nowhere", 404),
        ("/v1/whoami", 401),
        (f"/v1/jobs/{MARK}", 401),
        ("/.well-known/oauth-protected-resource", 404),
    ],
)
def test_h9_every_answer_has_an_id_of_ours_and_reflects_nothing(
    site: Site, path: str, status: int
) -> None:
    with site.line() as line:
        line.get(
            path,
            f"x-request-id: {MARK}",
            f"traceparent: 00-{MARK}-0123456789abcdef-01",
            f"tracestate: v={MARK}",
            f"baggage: user={MARK}",
        )
        answer = line.answer()
        assert answer.status == status
        assert is_job_id(answer.headers["x-request-id"]), "not a UUIDv7"
        assert MARK not in json.dumps(answer.json)
        assert not [value for value in answer.headers.values() if MARK in value]
