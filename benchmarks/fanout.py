"""Ten readers of one job's live stream, beside bare hypercorn that sends ten the same text."""

from __future__ import annotations

import asyncio  # noqa: TID251 - one connection's streams on the loop
import random
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from benchmarks.figures import median
from benchmarks.http import Connection
from benchmarks.servers import broadcast, gateway

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.figures import Book
    from benchmarks.servers import Served
    from benchmarks.sizes import Sizes

READERS = 10
EVENT_BYTES = 290  # of an event of a short line, as it is sent
OURS, BARE = "rookhold", "hypercorn"
_CONNECT_SECONDS = 1.0  # until the job begins to print; all readers are there by then
_UPGRADE = (
    "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
    "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


class Reader:
    """Counts the messages of one WebSocket, and when the first and the last of them came."""

    def __init__(self) -> None:
        self.messages = self.bytes = 0
        self.first = self.last = 0.0

    async def read(self, address: str, path: str, api_key: str, *, skip: int) -> Reader:
        """Read to the server's close frame. The first `skip` messages are not of the measured."""
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 20)
        head = f"GET {path} HTTP/1.1\r\nhost: {address}\r\n{_UPGRADE}"
        if api_key:
            head += f"authorization: Bearer {api_key}\r\n"
        writer.write(head.encode() + b"\r\n")
        answer = await reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 101"):
            raise RuntimeError(answer.decode("latin-1"))
        data = b""
        open_ = True
        while open_ and (piece := await reader.read(1 << 18)):
            now = time.perf_counter()
            data, found, open_ = _frames(data + piece)
            for size in found:
                if skip:
                    skip -= 1
                    continue
                self.first = self.first or now
                self.messages += 1
                self.bytes += size
            self.last = now
        writer.close()
        return self


def _frames(data: bytes) -> tuple[bytes, list[int], bool]:
    """Return what is left over, the sizes of the whole text frames, and whether more will come."""
    at = 0
    found: list[int] = []
    while len(data) - at >= 2:
        length, head = data[at + 1] & 0x7F, 2
        if length == 126:
            length, head = int.from_bytes(data[at + 2 : at + 4], "big"), 4
        elif length == 127:
            length, head = int.from_bytes(data[at + 2 : at + 10], "big"), 10
        if len(data) - at < head + length:
            break
        if data[at] & 0x0F == 8:
            return b"", found, False
        found.append(length)
        at += head + length
    return data[at:], found, True


async def measure(book: Book, sizes: Sizes, place: Path) -> None:
    rates: dict[str, list[float]] = defaultdict(list)
    mib: dict[str, list[float]] = defaultdict(list)
    with gateway(place / "gateway") as ours, broadcast() as bare:
        turns = [OURS, BARE]
        for _ in range(sizes.fanout_rounds):
            random.shuffle(turns)
            for name in turns:
                turn = _ours(ours, sizes) if name == OURS else _bare(bare, sizes)
                seconds, sent = await turn
                rates[name].append(READERS * sizes.fanout_messages / seconds)
                mib[name].append(sent / seconds / 2**20)
    table = book.table(
        "WebSocket fan-out",
        f"{sizes.fanout_messages} messages to each of {READERS} readers; ours are printed, chained"
        " and committed meanwhile",
        *("server", "messages/s", "MiB/s"),
    )
    for name in (OURS, BARE):
        rate = book.put(f"fanout.{name}.messages_per_second", median(rates[name]))
        table.add(name, rate, median(mib[name]))


async def _ours(served: Served, sizes: Sizes) -> tuple[float, int]:
    code = f"""
import sys, time
time.sleep({_CONNECT_SECONDS})
sys.stdout.writelines(f"line {{n:05}}\\n" for n in range({sizes.fanout_messages}))
"""
    spec = {"language": "python", "code": code, "limits": {"wall_seconds": 120}}
    async with Connection(served.address, served.api_key) as connection:
        job_id = (await connection.ask(201, "POST", "/v1/jobs", spec))["job_id"]
    # `accepted` and `started` come before the lines, and `finished` after them.
    return await _audience(served, f"/v1/jobs/{job_id}/stream", sizes, skip=2, beside=1)


async def _bare(served: Served, sizes: Sizes) -> tuple[float, int]:
    path = f"/{READERS}/{sizes.fanout_messages}/{EVENT_BYTES}"
    return await _audience(served, path, sizes, skip=0, beside=0)


async def _audience(
    served: Served, path: str, sizes: Sizes, *, skip: int, beside: int
) -> tuple[float, int]:
    """Return the seconds from the first message anywhere to the last, and the bytes."""
    readers = await asyncio.gather(
        *(Reader().read(served.address, path, served.api_key, skip=skip) for _ in range(READERS))
    )
    if any(reader.messages != sizes.fanout_messages + beside for reader in readers):
        raise RuntimeError(f"messages: {[reader.messages for reader in readers]}")
    seconds = max(reader.last for reader in readers) - min(reader.first for reader in readers)
    return seconds, sum(reader.bytes for reader in readers)
