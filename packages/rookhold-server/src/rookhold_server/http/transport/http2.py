"""HTTP/2 on one connection: h2's state machine, and exchanges that go at their handlers' pace.

hypercorn's own protocol reads bodies ahead into a queue that stops the whole connection when it is
full, lets a peer begin more requests than are worked on by taking them back, and keeps a tree of
priorities of the peer's making. Here a body's window is given back when its handler has asked for
the bytes, requests at work are counted until their handler ends, and priorities are ignored.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - one lock around the socket
import contextlib
import logging
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hypercorn.events import Closed, RawData, Updated

from rookhold_server.http.problems import malformed_request
from rookhold_server.http.transport.exchange import Exchange
from rookhold_server.http.transport.frames import (
    ANSWER_CREDIT,
    FRAME_CREDIT,
    RESET_COST,
    Account,
)
from rookhold_server.http.transport.gone import ClientGoneError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from h2.events import Event
    from hypercorn.config import Config
    from hypercorn.events import Event as WireEvent
    from hypercorn.typing import AppWrapper, TaskGroup

    from rookhold_server.http.transport.limits import TransportLimits

_log = logging.getLogger(__name__)

_WRITE_BYTES: Final = 1 << 16  # one turn of one exchange
_ENCODER_TABLE_BYTES: Final = 4096  # of ours; a peer may ask for any size
_HEADER_OVERHEAD: Final = 32  # of each header, by definition of the header list's size
_GOAWAY_HEAD: Final = b"\x00\x00\x08\x07\x00\x00\x00\x00\x00"
_TARGET: Final = re.compile(rb"[\x21-\x7e]+")
_METHOD: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")


class _Machine(H2Connection):
    MAX_CLOSED_STREAMS = 1024  # remembered, so that late frames for them are understood


class Http2:
    """`send` takes bytes for the socket and returns when the kernel has them."""

    def __init__(
        self,
        app: AppWrapper,
        config: Config,
        task_group: TaskGroup,
        client: tuple[str, int] | None,
        server: tuple[str, int] | None,
        send: Callable[[WireEvent], Awaitable[None]],
        limits: TransportLimits,
    ) -> None:
        self._app = app
        self._config = config
        self._task_group = task_group
        self._client = client
        self._server = server
        self._send = send
        self._limits = limits
        self._clock = asyncio.get_running_loop().time
        self._account = Account(self._clock())
        self._machine = _machine(limits)
        self._at_work: dict[int, Exchange] = {}
        self._writing = asyncio.Lock()
        self._ended = False  # nothing more is taken from this peer
        self._retired = False  # no more requests, and the end after the last answer

    async def initiate(self) -> None:
        self._machine.initiate_connection()
        own = self._machine.local_settings.initial_window_size
        self._machine.increment_flow_control_window(2 * own - 65_535)
        await self._flush()

    async def handle(self, event: WireEvent) -> None:
        if not isinstance(event, RawData):
            self.end()
        elif not self._ended:
            await self._receive(event.data)

    async def _receive(self, data: bytes) -> None:
        calm = self._account.feed(data, self._clock())
        try:
            events = self._machine.receive_data(data)
        except ProtocolError:
            await self._hang_up()
            return
        before = len(self._at_work)
        for event in events:
            # A later frame of the same read may have closed the stream that this one is about.
            with contextlib.suppress(ProtocolError):
                self._hear(event)
        if len(self._at_work) > before:
            await self._send(Updated(idle=False))
        if not calm:
            self._machine.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            _log.info("a peer was cut off for what its HTTP/2 frames cost")
        if self._ended or not calm:
            await self._hang_up()
        else:
            await self._flush()

    def _hear(self, event: Event) -> None:
        exchange = self._at_work.get(getattr(event, "stream_id", None) or 0)
        if isinstance(event, RequestReceived):
            self._begin(event.stream_id, event.headers)
        elif isinstance(event, RemoteSettingsChanged):
            if SettingCodes.HEADER_TABLE_SIZE in event.changed_settings:
                wanted = self._machine.remote_settings.header_table_size
                self._machine.encoder.header_table_size = min(wanted, _ENCODER_TABLE_BYTES)
            self._rooms(self._at_work.values())
        elif isinstance(event, WindowUpdated):
            self._rooms(self._at_work.values() if exchange is None else (exchange,))
        elif isinstance(event, ConnectionTerminated):
            self.end()
        elif isinstance(event, DataReceived) and exchange is None:  # it was answered already
            self._machine.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif exchange is None:
            return
        elif isinstance(event, DataReceived):
            exchange.feed(event.data, event.flow_controlled_length)
        elif isinstance(event, StreamEnded):
            exchange.finish()
        elif isinstance(event, StreamReset):
            if not event.remote_reset:  # what the peer did wrong undoes its request all the same
                self._account.charge(RESET_COST)
            exchange.closed = True
            exchange.leave()

    @staticmethod
    def _rooms(exchanges: Any) -> None:
        for exchange in exchanges:
            exchange.window.set()

    def _begin(self, stream_id: int, headers: Sequence[Any]) -> None:
        """Start an exchange, or refuse it in a way that says nothing was done for it."""
        if self._retired or len(self._at_work) >= 2 * self._limits.streams:
            self._account.charge(0 if self._retired else RESET_COST)
            self._machine.reset_stream(stream_id, ErrorCodes.REFUSED_STREAM)
            return
        plain = [(bytes(name), bytes(value)) for name, value in headers]
        pseudo = {name: value for name, value in plain if name.startswith(b":")}
        others = [(name, value) for name, value in plain if not name.startswith(b":")]
        exchange = Exchange(self, stream_id, pseudo.get(b":method", b"").decode("latin-1"), others)
        self._at_work[stream_id] = exchange
        refused = _fault(pseudo, plain, self._limits.head_bytes)
        if refused:
            self._task_group.spawn(self._run, exchange, _refuse(exchange, refused))
            return
        if b":authority" in pseudo:
            others = [(name, value) for name, value in others if name != b"host"]
            others.insert(0, (b"host", pseudo[b":authority"]))
        scope = self._scope(pseudo, others)
        answering = self._app(scope, exchange.receive, exchange.send, None, None)  # type: ignore[arg-type]
        self._task_group.spawn(self._run, exchange, answering)

    def _scope(self, pseudo: dict[bytes, bytes], headers: list[tuple[bytes, bytes]]) -> Any:
        path, _, query = pseudo[b":path"].partition(b"?")
        return {
            "type": "http",
            "http_version": "2",
            "asgi": {"spec_version": "2.1", "version": "3.0"},
            "method": pseudo[b":method"].decode("ascii").upper(),
            "scheme": "https",
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "root_path": self._config.root_path,
            "headers": headers,
            "client": self._client,
            "server": self._server,
            "state": {},
            "extensions": {},
        }

    async def _run(self, exchange: Exchange, answering: Awaitable[None]) -> None:
        """Nothing may leave this task: its group would cancel the other handlers."""
        try:
            await answering
        except ClientGoneError:
            pass
        except Exception as exc:  # noqa: BLE001 - the application answers its faults itself
            _log.error("an application failed", exc_info=exc)
        self._at_work.pop(exchange.stream_id, None)
        try:
            self._settle(exchange)
            await self._flush()
            if not self._at_work:
                await self._send(Updated(idle=True))
                if self._retired:
                    await self._hang_up()
        except (ClientGoneError, ProtocolError):
            return

    def _settle(self, exchange: Exchange) -> None:
        """Give back what was not read, and end the stream if either side of it is open still."""
        if exchange.answered:
            self._account.credit(ANSWER_CREDIT)
        if self._ended:
            return
        if exchange.owed:
            self._machine.acknowledge_received_data(exchange.owed, exchange.stream_id)
        if exchange.answered and not exchange.complete:  # it need not send the rest
            self._machine.reset_stream(exchange.stream_id, ErrorCodes.NO_ERROR)
        elif not exchange.answered and not exchange.closed:  # half an answer cannot be taken back
            self._machine.reset_stream(exchange.stream_id, ErrorCodes.INTERNAL_ERROR)

    async def interim(self, exchange: Exchange) -> None:
        try:
            self._machine.send_headers(exchange.stream_id, [(b":status", b"100")])
            await self._flush()
        except (ProtocolError, ClientGoneError):
            exchange.leave()

    async def consumed(self, exchange: Exchange, size: int) -> None:
        try:
            if size:
                self._machine.acknowledge_received_data(size, exchange.stream_id)
            await self._flush()
        except (ProtocolError, ClientGoneError):
            exchange.leave()

    async def answer(self, exchange: Exchange, data: bytes, *, end: bool) -> None:
        """Send in turns with the other exchanges, as far as the peer's windows go."""
        left = memoryview(data)
        while True:
            async with self._writing:
                if exchange.gone or self._ended:
                    raise ClientGoneError
                try:
                    left = self._queue(exchange, left, end=end)
                except ProtocolError:  # closed meanwhile, by either side
                    exchange.leave()
                    raise ClientGoneError from None
                await self._put()
            if not left:
                return
            await self._room(exchange)

    def _queue(self, exchange: Exchange, left: memoryview, *, end: bool) -> memoryview:
        """Hand as much to the machine as may go now; return the rest."""
        stream_id = exchange.stream_id
        if exchange.head is not None:
            headers = [*exchange.head, *self._config.response_headers("h2")]
            exchange.head = None
            exchange.answered = end and not left
            self._machine.send_headers(stream_id, headers, end_stream=exchange.answered)
        elif end and not left:
            exchange.answered = True
            self._machine.end_stream(stream_id)
        turn = _WRITE_BYTES
        while left and turn > 0:
            size = min(
                len(left),
                turn,
                self._machine.max_outbound_frame_size,
                self._machine.local_flow_control_window(stream_id),
            )
            if size <= 0:
                break
            exchange.answered = end and size == len(left)
            self._machine.send_data(stream_id, bytes(left[:size]), end_stream=exchange.answered)
            self._account.credit(FRAME_CREDIT)
            left = left[size:]
            turn -= size
        return left

    async def _room(self, exchange: Exchange) -> None:
        try:
            room = self._machine.local_flow_control_window(exchange.stream_id)
        except ProtocolError:
            exchange.leave()
            return
        if room <= 0 and not exchange.gone:
            exchange.window.clear()
            exchange.stalled_since = self._clock()
            try:
                await exchange.window.wait()
            finally:
                exchange.stalled_since = None

    async def _flush(self) -> None:
        async with self._writing:
            await self._put()

    async def _put(self) -> None:
        if data := self._machine.data_to_send():
            await self._send(RawData(data=data))

    async def _hang_up(self) -> None:
        """Send what is left to say, and end the connection."""
        self.end()
        try:
            await self._flush()
        except ClientGoneError:
            return
        await self._send(Closed())

    def end(self) -> None:
        """Take nothing more, and let every handler know that its peer is gone."""
        self._ended = True
        for exchange in self._at_work.values():
            exchange.leave()

    def overdue(self, now: float) -> bool:
        """Whether a frame or a head takes too long; also end exchanges whose peer has no room."""
        for exchange in self._at_work.values():
            since = exchange.stalled_since
            if since is not None and now - since >= self._limits.write_seconds:
                exchange.leave()
        since = self._account.since
        return since is not None and now - since >= self._limits.head_seconds

    def retire(self) -> bytes:
        """Take no more requests; return what tells the peer so, once."""
        if self._retired or self._ended:
            return b""
        self._retired = True
        # By hand: once h2 has sent one, it answers nothing any more.
        last = self._machine.highest_inbound_stream_id
        return _GOAWAY_HEAD + last.to_bytes(4, "big") + ErrorCodes.NO_ERROR.to_bytes(4, "big")


def _machine(limits: TransportLimits) -> _Machine:
    machine = _Machine(H2Configuration(client_side=False, header_encoding=None))
    machine.local_settings = Settings(
        client=False,
        initial_values={
            SettingCodes.MAX_CONCURRENT_STREAMS: limits.streams,
            SettingCodes.MAX_HEADER_LIST_SIZE: limits.head_bytes,
            SettingCodes.INITIAL_WINDOW_SIZE: limits.window_bytes,
        },
    )
    # A head above the limit but below this one is answered; beyond it the connection ends.
    machine.decoder.max_header_list_size = 4 * limits.head_bytes
    return machine


def _fault(
    pseudo: dict[bytes, bytes], headers: list[tuple[bytes, bytes]], head_bytes: int
) -> int | None:
    """Return the status for what h2 lets pass and HTTP/1 would not."""
    if sum(len(name) + len(value) + _HEADER_OVERHEAD for name, value in headers) > head_bytes:
        return 431
    lengths = [value for name, value in headers if name == b"content-length"]
    fine = (
        _METHOD.fullmatch(pseudo.get(b":method", b""))
        and _TARGET.fullmatch(pseudo.get(b":path", b""))
        and len(lengths) <= 1
        and all(_LENGTH.fullmatch(value) for value in lengths)
    )
    return None if fine else 400


async def _refuse(exchange: Exchange, status: int) -> None:
    headers, body = malformed_request()
    await exchange.send({"type": "http.response.start", "status": status, "headers": headers})
    await exchange.send({"type": "http.response.body", "body": body})
