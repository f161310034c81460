"""The client of every HTTP measurement: one kept connection, HTTP/1.1, as little as it takes."""

from __future__ import annotations

import asyncio  # noqa: TID251 - one connection's streams on the loop
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType


class Connection:
    """One request at a time over one connection."""

    def __init__(self, address: str, api_key: str = "") -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._head = f"host: {address}\r\n"
        if api_key:
            self._head += f"authorization: Bearer {api_key}\r\n"

    async def __aenter__(self) -> Connection:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close()

    async def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        head = f"{method} {path} HTTP/1.1\r\n{self._head}"
        if body:
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self._writer.write(head.encode() + b"\r\n" + body)
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        length = 0
        for line in lines[1:]:
            name, _, value = line.partition(":")
            if name.lower() == "content-length":
                length = int(value)
        return int(lines[0].split(" ")[1]), await self._reader.readexactly(length)

    async def ask(self, expected: int, method: str, path: str, body: Any = None) -> Any:
        """Return the decoded answer, which must have the expected status."""
        sent = b"" if body is None else json.dumps(body).encode()
        status, answer = await self.request(method, path, sent)
        if status != expected:
            raise RuntimeError(f"{method} {path}: {status} {answer[:300].decode()}")
        return json.loads(answer)
