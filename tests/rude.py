"""Requests of peers that mean harm or are broken, made from a seed; and a judge of the answers."""

from __future__ import annotations

import json
import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from hpack import Decoder, HPACKError
from http2_peer import PREFACE, frame

from rookhold_types.codes import ERRORS

if TYPE_CHECKING:
    from random import Random

SECONDS = 20
QUIET = 0.4  # after so long without an answer over TLS there will be none
_TRANSPORT = {400, 431, 501, 505}  # the statuses of `malformed_request`
_OF_A_CONNECTION = {b"connection", b"upgrade", b"transfer-encoding", b"keep-alive"}
_SPEC = b'{"language":"bash","code":"true"}'
_PATHS = (
    b"/healthz",
    b"/v1/jobs",
    b"/v1/jobs?limit=%00&cursor=%ff",
    b"/v1/jobs/%2e%2e/%2e%2e/result",
    b"/v1/jobs/" + b"a" * 3000,
    b"/v1/jobs/x/stream?ticket=" + b"\xe2\x82\xac",
    b"/v1/jobs/x/events?after=99999999999999999999999",
    b"/v1/jobs/x/result?wait_seconds=1e9",
    b"//v1/whoami",
    b"/v1/whoami?" + b"q=1&" * 500,
    b"*",
    b"http://elsewhere/v1/whoami",
    b"/metrics",
    b"/openapi.json",
    b"/%",
    b"/\xff\xfe",
)
_METHODS = (b"GET", b"POST", b"DELETE", b"HEAD", b"OPTIONS", b"CONNECT", b"TRACE", b"BREW", b"get")


class Peer(NamedTuple):
    """Where the server is, and the key of somebody it knows."""

    address: tuple[str, int]
    key: bytes
    tls: ssl.SSLContext | None = None


def http1(source: Random, key: bytes) -> bytes:
    """Return what one connection of HTTP/1 sends."""
    kind = source.choice(_HTTP1)
    data: bytes = kind(source, key)
    return _mutated(source, data) if source.random() < 0.3 else data


def http2(source: Random, key: bytes) -> bytes:
    """Return what one connection of HTTP/2 sends, its preface included."""
    start = PREFACE + frame(4)
    data = _sound(source, key)
    if source.random() < 0.6:
        data += b"".join(source.choice(_HTTP2)(source, key) for _ in range(source.randint(1, 3)))
    if source.random() < 0.2:
        data = _mutated(source, data)
    return start[: source.choice((len(start), len(start), len(start), 20))] + data


def _head(
    source: Random, key: bytes, *more: bytes, method: bytes = b"", path: bytes = b""
) -> bytes:
    lines = [
        b"%b %b HTTP/1.1" % (method or source.choice(_METHODS), path or source.choice(_PATHS)),
        b"host: gateway",
        *more,
    ]
    if source.random() < 0.7:
        lines.append(b"authorization: Bearer " + key)
    return b"\r\n".join([*lines, b"", b""])


def _submission(source: Random, key: bytes, body: bytes, *more: bytes) -> bytes:
    length = b"content-length: %d" % len(body)
    kind = b"content-type: application/json"
    return _head(source, key, kind, length, *more, method=b"POST", path=b"/v1/jobs") + body


def _any_request(source: Random, key: bytes) -> bytes:
    return b"".join(_head(source, key) for _ in range(source.randint(1, 20)))


def _framing(source: Random, key: bytes) -> bytes:
    return (
        _head(
            source,
            key,
            *source.choice(
                (
                    (b"content-length: 5", b"content-length: 6"),
                    (b"content-length: 5", b"transfer-encoding: chunked"),
                    (b"transfer-encoding: chunked", b"transfer-encoding: chunked"),
                    (b"transfer-encoding: gzip, chunked",),
                    (b"transfer-encoding: xchunked",),
                    (b"content-length: -1",),
                    (b"content-length: 0x10",),
                    (b"content-length: 1_0",),
                    (b"content-length: " + b"9" * 400,),
                    (b" folded: yes",),
                    (b"no colon",),
                    (b"name : space",),
                    (b"\x00: nul",),
                    (b"nul: \x00",),
                )
            ),
            method=b"POST",
            path=b"/v1/jobs",
        )
        + b"0\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n"
    )


def _chunks(source: Random, key: bytes) -> bytes:
    head = _head(
        source,
        key,
        b"transfer-encoding: chunked",
        b"content-type: application/json",
        method=b"POST",
        path=b"/v1/jobs",
    )
    return head + source.choice(
        (
            b'5\r\n{"a":\r\n' * 3,
            b"1\r\n \r\n" * 3000 + b"0\r\n\r\n",
            b"ffffffffffffffff\r\n" + b"x" * 1000,
            b"5;" + b"e" * 70_000 + b"\r\n",
            b"-5\r\nhello\r\n",
            b"0\r\n" + b"trailer: x\r\n" * 8000 + b"\r\n",
            b"0\r\n\r\n",
            b"%x\r\n%b\r\n0\r\n\r\n" % (len(_SPEC), _SPEC),
            b"3\nabc",
        )
    )


def _heads(source: Random, key: bytes) -> bytes:
    return _head(
        source,
        key,
        *source.choice(
            (
                (b"x: " + b"y" * 100_000,),
                tuple(b"h%d: v" % n for n in range(9000)),
                tuple(b"authorization: Bearer a" for _ in range(3)),
                (b"authorization: Basic YTpi",),
                (b"authorization: Bearer " + b"a" * 20_000,),
                (b"authorization: Bearer eyJhbGciOiJub25lIn0.e30.",),
                (b"authorization: Bearer \xff\xfe",),
                (b"cookie: " + b"c=1; " * 1000,),
                (b"idempotency-key: a", b"idempotency-key: b"),
                (b"expect: 100-continue",),
                (b"expect: everything",),
                (b"upgrade: h2c", b"connection: upgrade, http2-settings", b"http2-settings: AAAA"),
                (b"upgrade: websocket", b"connection: upgrade", b"sec-websocket-key: x"),
                (b"traceparent: 00-" + b"f" * 500, b"baggage: " + b"b" * 5000),
                (b"x-request-id: <script>",),
                (b"host: other",),
                (b"range: bytes=0-,0-,0-",),
            )
        ),
    )


def _bodies(source: Random, key: bytes) -> bytes:
    deep = source.choice((b"[", b'{"a":', b'{"limits":')) * source.choice((50, 2000, 100_000))
    return _submission(
        source,
        key,
        source.choice(
            (
                deep,
                deep + b"1",
                b'{"language":"bash","code":"true","code":"false"}',
                b'{"language":"bash","code":"\xff\xfe"}',
                b'{"language":"bash","code":"\\ud800"}',
                b'{"language":"bash","code":"true","wall_seconds":1e999}',
                b'{"language":"bash","code":"true","limits":{"wall_seconds":' + b"9" * 5000 + b"}}",
                b'{"language":"bash","code":"true","files":[' + b'{"path":"../x"},' * 500 + b"{}]}",
                b'{"language":"bash","code":"true","unknown":1}',
                b"\xef\xbb\xbf" + _SPEC,
                _SPEC.decode().encode("utf-16"),
                _SPEC + b"garbage",
                b"\0" * 1000,
                b"",
                b"null",
                b"-0",
            )
        ),
    )


def _slow(source: Random, key: bytes) -> bytes:
    """A beginning without an end; the peer leaves."""
    whole = _submission(source, key, _SPEC)
    return whole[: source.randrange(1, len(whole))]


def _nonsense(source: Random, key: bytes) -> bytes:
    del key
    return source.choice(
        (
            source.randbytes(source.randint(1, 3000)),
            PREFACE + frame(4),
            b"\r\n" * 500 + b"GET / HTTP/1.1\r\n\r\n",
            b"GET /\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"\n" * 70_000,
        )
    )


def _mutated(source: Random, data: bytes) -> bytes:
    text = bytearray(data)
    for _ in range(source.randint(1, 5)):
        at = source.randrange(len(text))
        match source.randrange(3):
            case 0:
                text[at] = source.randrange(256)
            case 1:
                del text[at : at + source.randint(1, 9)]
            case _:
                text[at:at] = source.choice((b"\r\n", b"\0", b":", b"\xff", b" ", b"0" * 9))
        if not text:
            break
    return bytes(text) or b"\0"


_HTTP1: tuple[Any, ...] = (
    _any_request, _framing, _chunks, _heads, _bodies, _slow, _nonsense
)  # fmt: skip


def _fields(source: Random, key: bytes) -> list[tuple[bytes, bytes]]:
    fields = [
        (b":method", source.choice(_METHODS)),
        (b":scheme", b"https"),
        (b":authority", b"gateway"),
        (b":path", source.choice(_PATHS)),
        (b"authorization", b"Bearer " + key),
    ]
    if source.random() < 0.3:
        fields.append(source.choice(fields))
    if source.random() < 0.2:
        source.shuffle(fields)
    if source.random() < 0.2:
        fields.pop(source.randrange(len(fields)))
    if source.random() < 0.3:
        fields += source.choice(
            (
                [(b"connection", b"close")],
                [(b"transfer-encoding", b"chunked")],
                [(b"content-length", b"7"), (b"content-length", b"8")],
                [(b"content-length", b"1_0")],
                [(b"UPPER", b"case")],
                [(b"x", b"\r\nsplit: yes")],
                [(b"", b"empty")],
                [(b"te", b"gzip")],
                [(b":protocol", b"websocket")],
                [(b"x", b"y" * 900)] * 80,
                [(b"x", b"y" * 900)] * 400,
                [(b"expect", b"100-continue")],
            )
        )
    return fields


def _block(fields: list[tuple[bytes, bytes]]) -> bytes:
    """Encode without a table, so that frames may be mixed at will."""
    return b"".join(b"\x10" + _text(name) + _text(value) for name, value in fields)


def _text(text: bytes) -> bytes:
    size, more = len(text), []
    if size < 127:
        return bytes([size]) + text
    size -= 127
    while size >= 128:
        more.append(128 + size % 128)
        size //= 128
    return bytes([127, *more, size]) + text


def _sound(source: Random, key: bytes) -> bytes:
    """Requests whose frames are in order, whatever they ask for."""
    out = []
    for stream_id in range(1001, 1001 + 2 * source.randint(1, 12), 2):
        body = source.choice((b"", b"", _SPEC[:-1], b"[" * 5000, b"x" * 9000))
        path = source.choice([path for path in _PATHS if path.isascii()])
        fields = [
            (b":method", source.choice(_METHODS[:5])),
            (b":scheme", b"https"),
            (b":authority", b"gateway"),
            (b":path", path),
        ]
        if source.random() < 0.7:
            fields.append((b"authorization", b"Bearer " + key))
        fields.append((b"content-type", b"application/json"))
        out.append(frame(1, 4 if body else 5, stream_id, _block(fields)))
        if body:
            out.append(frame(0, 1, stream_id, body))
    return b"".join(out)


def _headers(source: Random, key: bytes) -> bytes:
    block = _block(_fields(source, key))
    stream_id = source.choice((2001, 2001, 2003, 1001, 1, 2, 0, 2**31 - 1))
    flags = source.choice((5, 5, 4, 1, 0, 0x2D))
    if len(block) > 16_000:
        rest = [block[at : at + 16_000] for at in range(16_000, len(block), 16_000)]
        more = [frame(9, 4 * (part is rest[-1]), stream_id, part) for part in rest]
        return frame(1, flags & ~4, stream_id, block[:16_000]) + b"".join(more)
    return frame(1, flags, stream_id, block)


def _rapid(source: Random, key: bytes) -> bytes:
    reset = source.choice((True, True, False))
    out = []
    for stream_id in range(3001, 3001 + 2 * source.randint(10, 300), 2):
        fields = [(b":method", b"GET"), (b":scheme", b"https"), (b":path", b"/v1/whoami"),
                  (b":authority", b"g"), (b"authorization", b"Bearer " + key)]  # fmt: skip
        out.append(frame(1, 5, stream_id, _block(fields)))
        if reset:
            out.append(frame(3, 0, stream_id, b"\0\0\0\x08"))
    return b"".join(out)


def _continuations(source: Random, key: bytes) -> bytes:
    del key
    part = frame(9, 0, 1, b"\0" * source.choice((0, 1, 1000)))
    return frame(1, 1, 1, b"\x82") + part * source.choice((10, 100, 1000))


def _windows(source: Random, key: bytes) -> bytes:
    opened = _headers(source, key) if source.random() < 0.5 else b""
    return opened + source.choice(
        (
            frame(8, 0, 0, b"\0\0\0\0"),
            frame(8, 0, 1, b"\0\0\0\0"),
            frame(8, 0, 0, b"\x7f\xff\xff\xff") * 2,
            frame(8, 0, 1, b"\x7f\xff\xff\xff") * 2,
            frame(8, 0, 0, b"\0\0\0\1") * 1500,
            frame(8, 0, 0, b"\0\0"),
            frame(4, 0, 0, b"\0\4\0\0\0\0"),
            frame(4, 0, 0, b"\0\4\xff\xff\xff\xff"),
            frame(0, 0, 1, b"x" * 16_000) * 40,
        )
    )


def _floods(source: Random, key: bytes) -> bytes:
    del key
    return source.choice(
        (
            frame(6, 0, 0, b"\0" * 8),
            frame(4),
            frame(4, 1),
            frame(4, 0, 0, b"\0\1\xff\xff\xff\xff"),
            frame(2, 0, 9, b"\0\0\0\7\1"),
            frame(2, 0, 9, b"\0\0\0\x09\1"),
            frame(0, 0, 1),
            frame(0, 8, 1, b"\xff"),
            frame(7, 0, 0, b"\0" * 8),
            frame(5, 4, 1, b"\0\0\0\2\x82"),
            frame(10, 0, 0, b"\0\1xy"),
            frame(200, 255, 1, b"x" * 100),
            frame(3, 0, 1, b"\0\0\0\0"),
            frame(6, 0, 0, b"short"),
            frame(0, 0, 0, b"x"),
            frame(1, 0x2D, 1, b"\xff"),
        )
    ) * source.choice((1, 10, 1200))


def _garbage(source: Random, key: bytes) -> bytes:
    del key
    return source.choice(
        (
            source.randbytes(source.randint(1, 2000)),
            frame(1, 5, 1, source.randbytes(source.randint(1, 300))),
            frame(source.randrange(12), source.randrange(256), source.randrange(4), b"\0" * 20),
            b"\xff\xff\xff\0\0\0\0\0\1",
            frame(1, 5, 1, b"\x7f" + b"\xff" * 50),
        )
    )


_HTTP2: tuple[Any, ...] = (
    _headers, _headers, _headers, _rapid, _continuations, _windows, _floods, _garbage
)  # fmt: skip


def exchange(peer: Peer, data: bytes, *, pieces: int = 1) -> bytes:
    """Send on a new connection, in pieces, and return all that came until the server ended it."""
    protocol = b""
    with suppress(ConnectionError, ssl.SSLError, BrokenPipeError):
        plain = socket.create_connection(peer.address, SECONDS)
        talking = plain if peer.tls is None else peer.tls.wrap_socket(
            plain, server_hostname=peer.address[0]
        )  # fmt: skip
        with talking:
            talking.settimeout(SECONDS)
            with suppress(ConnectionError, ssl.SSLError):
                step = max(1, len(data) // pieces)
                for at in range(0, len(data), step):
                    talking.sendall(data[at : at + step])
            with suppress(OSError):
                if peer.tls is None:
                    talking.shutdown(socket.SHUT_WR)
                else:
                    talking.settimeout(QUIET)  # TLS has no half that could be closed here
            with suppress(TimeoutError):
                while piece := talking.recv(65_536):
                    protocol += piece
    return protocol


def judge_http1(answers: bytes) -> list[int]:
    """Assert that all of it is documented answers; return their statuses."""
    statuses = []
    while answers:
        head, separator, rest = answers.partition(b"\r\n\r\n")
        if not separator:
            break  # cut with its connection
        first, *lines = head.split(b"\r\n")
        assert first.startswith(b"HTTP/1.1 "), first
        status = int(first.split()[1])
        fields = {
            name.lower(): value.strip() for name, _, value in (x.partition(b":") for x in lines)
        }
        if status == 101:
            return statuses  # no longer HTTP
        length = int(fields.get(b"content-length", b"0"))
        if status != 100:
            statuses.append(status)
            body = rest[:length]
            # The answer to HEAD has the length of a body that does not come.
            if body[:1] != b"{" or body.startswith(b"HTTP/1.1 "):
                length = 0 if body.startswith(b"HTTP/1.1 ") or not body else length
            elif len(body) == length:
                _judge(status, fields, body)
        answers = rest[length:]
    return statuses


def judge_http2(answers: bytes) -> list[int]:
    """The same for the frames of HTTP/2."""
    decoder, heads, bodies = Decoder(), {}, {}
    while len(answers) >= 9:
        length, kind = int.from_bytes(answers[:3], "big"), answers[3]
        stream_id = int.from_bytes(answers[5:9], "big")
        payload, answers = answers[9 : 9 + length], answers[9 + length :]
        assert kind in {0, 1, 3, 4, 6, 7, 8}, kind
        if kind == 1:
            with suppress(HPACKError):
                fields = dict(decoder.decode(payload, raw=True))
                if fields[b":status"] != b"100":
                    heads[stream_id] = fields
        elif kind == 0:
            bodies[stream_id] = bodies.get(stream_id, b"") + payload
    for stream_id, fields in heads.items():
        body = bodies.get(stream_id, b"")
        assert not _OF_A_CONNECTION & fields.keys()
        if len(body) == int(fields.get(b"content-length", b"-1")) and body[:1] == b"{":
            _judge(int(fields[b":status"]), fields, body)
    return [int(fields[b":status"]) for fields in heads.values()]


def _judge(status: int, fields: dict[bytes, bytes], body: bytes) -> None:
    assert fields[b"x-request-id"]
    assert b"Traceback" not in body
    assert status != 500, body
    if status < 400:
        return
    error = json.loads(body)["error"]
    assert set(error) == {"code", "message", "request_id", "retryable"}
    assert error["request_id"].encode() == fields[b"x-request-id"]
    if error["code"] == "malformed_request":
        assert status in _TRANSPORT
    else:
        assert ERRORS[error["code"]].status == status
