"""One request for keys, to a real provider over real TLS."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator

import anyio
import pytest
from issuer import Issuer

from rookhold_server.identity.oidc import fetch
from rookhold_server.identity.oidc.fetch import JwksSource, trust
from rookhold_server.identity.oidc.jwks import BYTES_MAX, JwksError, parse_jwks


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    with Issuer(tmp_path_factory.mktemp("issuer"), e="ES256") as issuer:
        yield issuer


@pytest.fixture
def issuer(running: Issuer) -> Issuer:
    running.status, running.headers, running.delay = 200, {}, 0.0
    running.published, running.requests = None, 0
    return running


def context(issuer: Issuer) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(issuer.ca_file))


def read(issuer: Issuer, url: str | None = None) -> bytes:
    return anyio.run(JwksSource(url or f"{issuer.url}/keys", context(issuer)).read)


def refusal(issuer: Issuer, url: str | None = None) -> str:
    with pytest.raises(JwksError) as caught:
        read(issuer, url)
    assert caught.value.__cause__ is None
    return str(caught.value)


def test_the_document_is_read(issuer: Issuer) -> None:
    assert set(parse_jwks(read(issuer))) == {"e"}
    assert set(parse_jwks(read(issuer, f"https://127.0.0.1:{issuer.port}"))) == {"e"}
    assert issuer.requests == 2


def test_a_large_document_is_read_up_to_the_limit(issuer: Issuer) -> None:
    issuer.published = b" " * BYTES_MAX
    assert read(issuer) == issuer.published
    issuer.published += b" "
    assert "1 MiB" in refusal(issuer)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 204, 206, 401, 404, 500, 503])
def test_anything_but_200_is_refused_and_no_redirect_followed(issuer: Issuer, status: int) -> None:
    issuer.status = status
    issuer.headers = {"location": f"{issuer.url}/elsewhere"}
    assert str(status) in refusal(issuer)
    assert issuer.requests == 1


def test_an_encoding_that_was_not_asked_for_is_refused(issuer: Issuer) -> None:
    issuer.headers = {"content-encoding": "gzip"}
    assert "encoded" in refusal(issuer)


def test_a_certificate_of_an_unknown_authority_is_not_trusted(issuer: Issuer) -> None:
    with pytest.raises(JwksError, match="not to be trusted"):
        anyio.run(JwksSource(issuer.url, trust()).read)
    assert issuer.requests == 0


def test_a_certificate_for_another_name_is_not_trusted(issuer: Issuer) -> None:
    assert "not to be trusted" in refusal(issuer, f"https://127.1:{issuer.port}/keys")
    assert issuer.requests == 0


def test_what_the_system_trusts_can_be_named(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(issuer.ca_file))
    assert anyio.run(JwksSource(issuer.url, trust()).read)


def test_the_whole_answer_has_a_deadline(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (fetch.CONNECT_SECONDS, fetch.TOTAL_SECONDS) == (3, 5)
    monkeypatch.setattr(fetch, "TOTAL_SECONDS", 0.5)
    issuer.delay = 2
    began = time.monotonic()
    assert "no whole answer" in refusal(issuer)
    assert time.monotonic() - began < 2


class Listener:
    """Takes one connection and does what a test says with it."""

    def __init__(self, answer: bytes = b"", *, tls: Issuer | None = None) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._answer = answer
        self._tls = tls
        self._done = threading.Event()
        self.url = f"https://localhost:{self._socket.getsockname()[1]}/"
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> "Listener":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(30)
        self._socket.close()

    def _serve(self) -> None:
        peer, _ = self._socket.accept()
        try:
            if self._tls is not None:
                server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                server.load_cert_chain(self._tls.ca_file.with_name("issuer.pem"))
                peer = server.wrap_socket(peer, server_side=True)
                peer.recv(65536)
                peer.sendall(self._answer)
            else:
                self._done.wait(30)
        except OSError:
            return
        finally:
            peer.close()


def test_a_peer_that_does_not_speak_has_3_seconds_to_connect(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "CONNECT_SECONDS", 0.3)
    with Listener() as silent:
        assert "no connection" in refusal(issuer, silent.url)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000 + b"\r\n",
    ],
)
def test_an_answer_that_is_cut_or_malformed_is_refused(issuer: Issuer, answer: bytes) -> None:
    with Listener(answer, tls=issuer) as bad:
        refusal(issuer, bad.url)


def test_an_answer_that_ends_with_the_connection_is_whole(issuer: Issuer) -> None:
    with Listener(b"HTTP/1.0 200 OK\r\n\r\n{}", tls=issuer) as old:
        assert read(issuer, old.url) == b"{}"


def test_nobody_there_is_refused(issuer: Issuer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert "failed" in refusal(issuer, f"https://127.0.0.1:{port}/keys")
    assert "failed" in refusal(issuer, "https://nowhere.invalid/keys")
