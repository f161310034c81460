"""One HTTP exchange at a time over kept-alive connections, each inside one deadline."""

import contextlib
import functools
import http.client
import io
import json
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

from ._version import __version__
from .errors import (
    ConfigurationError,
    IntegrityError,
    ProtocolError,
    RedirectError,
    TimedOutError,
    UnreachableError,
    api_error_class,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

# The largest honest answer (both streams at their limit, fully escaped, and output files) is
# under 30 MiB; a gateway that sends more must not be able to fill this process's memory.
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_ATTEMPTS: Final = 3  # of one exchange whose connection was dropped without an answer
_PAUSES: Final = (0.05, 0.25)
_IDLE_CONNECTIONS: Final = 4


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer below 400."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as exc:
            raise ProtocolError("the answer is not JSON") from exc


class _DroppedError(Exception):
    """The connection ended before an answer; the same request may be sent again."""


class _Clocked(io.RawIOBase):
    """Reads a socket so that all reads together, not each one, end by the deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline
        self._raw = sock.makefile("rb", buffering=0)  # keeps the descriptor open until closed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(_left(self._deadline))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _ClockedSocket:
    """What http.client's response asks of a socket: a file to read from."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        del mode  # always "rb"
        return io.BufferedReader(_Clocked(self._sock, self._deadline))


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class Transport:
    """Speaks to one gateway. Safe to share between threads: each exchange has a connection."""

    def __init__(self, base_url: str, api_key: str | None, timeout: float) -> None:
        self._secure, self._host, self._port, self._prefix = _address(base_url)
        if timeout <= 0:
            raise ConfigurationError("timeout must be above zero seconds")
        self._timeout = timeout
        self._headers = {"Accept": "application/json", "User-Agent": f"rookhold-sdk/{__version__}"}
        if api_key is not None:
            if not api_key or not all("!" <= char <= "~" for char in api_key):
                raise ConfigurationError("the API key must be visible ASCII without whitespace")
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle = list(self._idle)
            self._idle.clear()
        for connection in idle:
            connection.close()

    def exchange(
        self,
        method: str,
        *path: str,
        query: "Mapping[str, str | int | None] | None" = None,
        body: bytes | None = None,
        headers: "Mapping[str, str] | None" = None,
        wait: float = 0.0,
        accept: tuple[int, ...] = (200,),
    ) -> Answer:
        """Send one request and return its whole answer.

        Every request made here may be repeated: reads, cancels, and submissions with a key.
        `wait` is how much longer than usual the gateway was asked to take.
        """
        target = f"{self._prefix}/{'/'.join(quote(part, safe='') for part in path)}"
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        if asked:
            target = f"{target}?{urlencode(asked)}"
        sent = {**self._headers, **(headers or {})}
        for attempt in range(_ATTEMPTS):
            try:
                answer = self._attempt(method, target, body, sent, self._timeout + wait)
                break
            except _DroppedError as exc:
                if attempt == _ATTEMPTS - 1:
                    raise UnreachableError("the gateway dropped the connection") from exc
                time.sleep(_PAUSES[attempt])
        if answer.status in accept:
            return answer
        raise _refusal(answer)

    def _attempt(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str], seconds: float
    ) -> Answer:
        deadline = time.monotonic() + seconds
        connection = self._take()
        reusable = False
        try:
            answer, reusable = _converse(connection, method, target, body, headers, deadline)
        except TimeoutError as exc:
            raise TimedOutError("the gateway did not answer in time") from exc
        except (ConnectionRefusedError, socket.gaierror) as exc:
            raise UnreachableError("no gateway answers at this address") from exc
        except (ConnectionError, http.client.IncompleteRead, http.client.RemoteDisconnected) as exc:
            raise _DroppedError from exc
        except http.client.HTTPException as exc:
            raise ProtocolError("the answer is not HTTP as a gateway speaks it") from exc
        except OSError as exc:  # no route, certificate refused, ...
            raise UnreachableError(f"the gateway cannot be reached ({_reason(exc)})") from exc
        finally:
            self._give_back(connection, reusable)
        return answer

    def _take(self) -> http.client.HTTPConnection:
        with self._lock:
            if self._closed:
                raise ConfigurationError("this client is closed")
            if self._idle:
                return self._idle.pop()
        if self._secure:
            return http.client.HTTPSConnection(self._host, self._port)
        return http.client.HTTPConnection(self._host, self._port)

    def _give_back(self, connection: http.client.HTTPConnection, reusable: bool) -> None:
        with self._lock:
            if reusable and not self._closed and len(self._idle) < _IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()


def _converse(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    body: bytes | None,
    headers: dict[str, str],
    deadline: float,
) -> tuple[Answer, bool]:
    """Do one request on `connection`; also say whether it can carry another."""
    connection.timeout = _left(deadline)
    if connection.sock is None:
        connection.connect()  # switches Nagle's delay off by itself
    sock = connection.sock
    sock.settimeout(_left(deadline))
    # A refusal may come before the whole body was sent, and the rest then meets a closed
    # socket; the answer is still there to be read.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.request(method, target, body=body, headers=headers)
    connection.response_class = functools.partial(_response, deadline)  # type: ignore[assignment]
    with contextlib.closing(connection.getresponse()) as response:
        content = response.read(ANSWER_BYTES_MAX + 1)
        if len(content) > ANSWER_BYTES_MAX:
            raise ProtocolError("the answer is larger than any a gateway gives")
        if response.length:  # read(n) does not itself report a body that ended early
            raise http.client.IncompleteRead(content, response.length)
        return Answer(response.status, response.headers, content), not response.will_close


def _response(deadline: float, sock: socket.socket, method: str) -> http.client.HTTPResponse:
    return http.client.HTTPResponse(_ClockedSocket(sock, deadline), method=method)  # type: ignore[arg-type]


def _address(base_url: str) -> tuple[bool, str, int, str]:
    problem = ConfigurationError(
        "the base URL must look like http://127.0.0.1:7300, without user, query or fragment"
    )
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError as exc:
        raise problem from exc
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise problem
    if "@" in parts.netloc or parts.query or parts.fragment or not base_url.isprintable():
        raise problem
    secure = parts.scheme == "https"
    return secure, parts.hostname, port or (443 if secure else 80), parts.path.rstrip("/")


def _reason(exc: OSError) -> str:
    return exc.strerror or type(exc).__name__


def _refusal(answer: Answer) -> Exception:
    if answer.status < 300:
        return ProtocolError(f"unexpected status {answer.status}")
    if answer.status < 400:
        return RedirectError("the gateway answered with a redirect, which is never followed")
    error: dict[str, Any] = {}
    with contextlib.suppress(ProtocolError):
        value = answer.json()
        if isinstance(value, dict) and isinstance(value.get("error"), dict):
            error = value["error"]
    code, message = error.get("code"), error.get("message")
    if not isinstance(code, str) or not isinstance(message, str):
        return ProtocolError(f"status {answer.status} without Rookhold's error envelope")
    wait = answer.headers.get("retry-after", "")
    request_id = error.get("request_id")
    return api_error_class(answer.status)(
        message,
        code=code,
        status=answer.status,
        retryable=error.get("retryable") is True,
        request_id=request_id if isinstance(request_id, str) else None,
        retry_after=int(wait) if wait.isascii() and wait.isdigit() else None,
    )


def checked_digest(answer: Answer, digest: str) -> None:
    """Refuse bytes that are not the ones the gateway says it sent."""
    if answer.headers.get("x-content-sha256") != digest:
        raise IntegrityError("the download does not match the digest that came with it")
