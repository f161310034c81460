"""Streams whose storage fails under them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from rookhold_server.http.stream.watch import Watch
from rookhold_server.http.stream.websocket import Socket
from rookhold_store import StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class FailingFeed:
    async def batches(self) -> AsyncIterator[Any]:
        raise StorageUnavailableError("the disk is gone")
        yield


class SilentTunnel:
    def __init__(self) -> None:
        self.sent = b""

    async def send(self, data: bytes) -> None:
        self.sent += data

    async def receive(self, most: int) -> bytes:
        await anyio.sleep_forever()
        raise AssertionError(most)


def test_what_the_storage_says_is_what_the_application_hears() -> None:
    async def fail() -> None:
        raise StorageUnavailableError("the disk is gone")

    async def main() -> None:
        with anyio.fail_after(30):
            await Watch(anyio.Event(), anyio.sleep_forever).run(anyio.sleep_forever, fail)

    with pytest.raises(StorageUnavailableError):
        anyio.run(main)


def test_a_websocket_is_closed_with_try_again_later() -> None:
    tunnel: Any = SilentTunnel()
    feed: Any = FailingFeed()

    async def main() -> None:
        with anyio.fail_after(30):
            await Socket(tunnel, Watch(anyio.Event(), anyio.sleep_forever)).serve(feed)

    with pytest.raises(StorageUnavailableError):
        anyio.run(main)
    assert tunnel.sent == b"\x88\x02" + (1013).to_bytes(2, "big")
