"""What ends a stream besides its last event: its peer, the server's stop, a revocation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import anyio

from rookhold_server.http.transport import ClientGoneError
from rookhold_store import StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

SEND_SECONDS: Final = 5.0
PART_BYTES: Final = 64 * 1024

Piece = Iterable[bytes]  # frames as they go out, in parts


class Watch:
    """`gone`: nothing more can be told to the peer. Otherwise the stream came to an orderly end."""

    def __init__(
        self,
        shutdown: anyio.Event,
        withdrawal: Callable[[], Awaitable[None]],
        *,
        send_seconds: float = SEND_SECONDS,
    ) -> None:
        """`withdrawal` returns when whoever opened the stream may not read it any more."""
        self._shutdown = shutdown
        self._withdrawal = withdrawal
        self._send_seconds = send_seconds
        self.gone = False
        self.stuck = False  # gone because it took too long over one send
        self.withdrawn = False  # ended because its peer may not read it any more

    async def timed(self, sending: Awaitable[None]) -> None:
        """Await one send; ClientGoneError when the peer has left, or takes too long over it."""
        try:
            with anyio.fail_after(self._send_seconds):
                await sending
        except TimeoutError:
            self.gone = self.stuck = True
            raise ClientGoneError from None
        except ClientGoneError:
            self.gone = True
            raise

    async def run(self, *parts: Callable[[], Awaitable[None]]) -> None:
        """Run all until one has returned, the peer is gone, or nothing more may be told.

        StorageUnavailableError comes out as it is, not in a group.
        """
        fault: StorageUnavailableError | None = None
        async with anyio.create_task_group() as tasks:

            async def ends(part: Callable[[], Awaitable[object]]) -> None:
                nonlocal fault
                try:
                    await part()
                except ClientGoneError:
                    self.gone = True
                except StorageUnavailableError as exc:
                    fault = exc
                tasks.cancel_scope.cancel()

            async def withdrawn() -> None:
                await self._withdrawal()
                self.withdrawn = True

            for part in (*parts, self._shutdown.wait, withdrawn):
                tasks.start_soon(ends, part)
        if fault is not None:
            raise fault


def pieces(frames: Iterable[Sequence[bytes]]) -> Iterator[Piece]:
    """Join small frames, so that many events are not as many writes; cut up what is large.

    A piece begins and ends with a frame. No part of it is more than the transport may hold.
    """
    held: list[bytes] = []
    size = 0
    for frame in frames:
        length = sum(map(len, frame))
        if held and size + length > PART_BYTES:
            yield (b"".join(held),)
            held, size = [], 0
        if length > PART_BYTES:
            yield _cut(frame)
        else:
            held += frame
            size += length
    if held:
        yield (b"".join(held),)


def _cut(frame: Sequence[bytes]) -> Iterator[bytes]:
    for part in frame:
        for begin in range(0, len(part), PART_BYTES):
            yield part[begin : begin + PART_BYTES]
