"""Cut one output stream of a job into records, exact to the byte and in bounded memory.

Sans-IO: the caller reads the pipe and hands every byte to `feed`. What is kept is a prefix of the
stream; once a limit has cut it, the rest is only counted and hashed, so that a flood neither blocks
the job nor fills memory. The same bytes give the same records however they were cut into reads.
"""

import hashlib
from typing import Final

from rookhold_exec.executor import OutputRecord, StreamEvidence, StreamName, Truncated
from rookhold_types.limits import OUTPUT_BYTES_MAX, OUTPUT_LINES_MAX, OUTPUT_RECORD_BYTES_MAX

Captured = OutputRecord | Truncated

_LONGEST_CHARACTER: Final = 4


class StreamCapture:
    """The records, limits and digests of one stream.

    `feed` may return many records for one read and none for the next: an unterminated record is
    held back until it ends, outgrows the size of a record, or `finish` says that nothing follows.
    Never more than one record is held.
    """

    def __init__(
        self,
        stream: StreamName,
        *,
        max_bytes: int = OUTPUT_BYTES_MAX,
        max_records: int = OUTPUT_LINES_MAX,
        max_record_bytes: int = OUTPUT_RECORD_BYTES_MAX,
    ) -> None:
        if max_record_bytes < _LONGEST_CHARACTER:
            raise ValueError("a record must have room for any one character")
        self.stream: Final[StreamName] = stream
        self._bytes_max = max_bytes
        self._records_max = max_records
        self._record_max = max_record_bytes
        self._pending = bytearray()  # unterminated: a record, and what its last character lacks
        self._bytes_seen = 0
        self._bytes_kept = 0
        self._records_kept = 0
        # Bytes are hashed as they leave `_pending`: at the cut this is the digest of what is kept.
        self._hash = hashlib.sha256()
        self._kept_sha256: str | None = None
        self._truncated = False

    @property
    def truncated(self) -> bool:
        """Did the stream go on after one of its limits was reached?"""
        return self._truncated

    @property
    def bytes_seen(self) -> int:
        return self._bytes_seen

    def feed(self, chunk: bytes) -> list[Captured]:
        """Take the next bytes of the stream and return what they complete, in order."""
        self._bytes_seen += len(chunk)
        if self._truncated:
            self._hash.update(chunk)
            return []
        pending = self._pending
        room = self._bytes_max - self._bytes_kept - len(pending)
        if (
            len(chunk) <= min(room, self._record_max - len(pending))
            and self._records_kept < self._records_max
            and b"\n" not in chunk
        ):
            pending += chunk  # a byte at a time must not copy the whole record each time
            return []
        data = bytes(pending) + chunk[:room]
        pending.clear()
        return self._take(data, chunk[room:], ends=len(chunk) > room)

    def finish(self) -> list[Captured]:
        """Nothing follows: return what was held back. Calling it again returns nothing."""
        if self._kept_sha256 is not None:
            return []
        data = bytes(self._pending)
        self._pending.clear()
        out = self._take(data, b"", ends=True)
        if self._kept_sha256 is None:
            self._kept_sha256 = self._hash.hexdigest()
        return out

    def evidence(self) -> StreamEvidence:
        """What was seen and what was kept; only after `finish`."""
        if self._kept_sha256 is None:
            raise RuntimeError("the stream is not finished")
        return StreamEvidence(
            bytes_seen=self._bytes_seen,
            bytes_offered=self._bytes_kept,
            records_offered=self._records_kept,
            offered_sha256=self._kept_sha256,
            seen_sha256=self._hash.hexdigest(),
            truncated=self._truncated,
        )

    def _take(self, data: bytes, beyond: bytes, *, ends: bool) -> list[Captured]:
        """Make records of `data`; `beyond` is past the byte limit; `ends`: no more will come."""
        out: list[Captured] = []
        used = self._terminated(data, out)
        if used == data.rfind(b"\n") + 1:
            used = self._unterminated(data, used, out, ends=ends)
        self._bytes_kept += used
        self._hash.update(memoryview(data)[:used])
        rest = data[used:]
        if beyond or (rest and (ends or self._records_kept >= self._records_max)):
            self._truncated = True
            self._kept_sha256 = self._hash.hexdigest()
            self._hash.update(rest)
            self._hash.update(beyond)
            out.append(Truncated(stream=self.stream))
        else:
            self._pending += rest
        return out

    def _terminated(self, data: bytes, out: list[Captured]) -> int:
        """Make records of the lines that end in `data`; return how many bytes they used."""
        body = data[: data.rfind(b"\n") + 1]
        lines = body.split(b"\n")
        lines.pop()
        if not lines:
            return 0
        left = self._records_max - self._records_kept
        try:
            texts = body.decode().split("\n")
        except UnicodeDecodeError:
            texts = None
        if texts is None or max(map(len, lines)) > self._record_max:
            return self._lines_one_by_one(lines, out)
        texts.pop()
        stream = self.stream
        if len(texts) > left:
            del texts[left:]
        out += [OutputRecord(stream=stream, line=text, eol=True, raw=None) for text in texts]
        self._records_kept += len(texts)
        if len(texts) == len(lines):
            return len(body)
        return sum(map(len, lines[:left])) + left

    def _lines_one_by_one(self, lines: list[bytes], out: list[Captured]) -> int:
        used = 0
        for line in lines:
            start = 0
            while len(line) - start > self._record_max:
                end = self._split_point(line, start)
                if not self._emit(line[start:end], False, out):
                    return used + start
                start = end
            if not self._emit(line[start:], True, out):
                return used + start
            used += len(line) + 1
        return used

    def _unterminated(self, data: bytes, start: int, out: list[Captured], *, ends: bool) -> int:
        """Make records of what follows the last LF, as far as it is long enough or at its end."""
        while len(data) - start > self._record_max:
            end = self._split_point(data, start)
            # Only a character seen whole tells where to split, however the reads were cut.
            if not ends and len(data) < end + _LONGEST_CHARACTER:
                break
            if not self._emit(data[start:end], False, out):
                return start
            start = end
        if ends and start < len(data) and self._emit(data[start:], False, out):
            return len(data)
        return start

    def _split_point(self, data: bytes, start: int) -> int:
        """Return where the record from `start` ends: before a character across its edge."""
        edge = start + self._record_max
        first = edge - 1
        while edge - first < _LONGEST_CHARACTER and data[first] & 0xC0 == 0x80:
            first -= 1
        lead = data[first]
        length = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
        if first + length <= edge:
            return edge
        try:
            data[first : first + length].decode()
        except UnicodeDecodeError:
            return edge
        return first

    def _emit(self, raw: bytes, eol: bool, out: list[Captured]) -> bool:
        """Append one record, unless there are already as many as may be kept."""
        if self._records_kept >= self._records_max:
            return False
        self._records_kept += 1
        try:
            out.append(OutputRecord(stream=self.stream, line=raw.decode(), eol=eol, raw=None))
        except UnicodeDecodeError:
            # CPython puts one U+FFFD for each maximal ill-formed part (Unicode 15, section 3.9).
            text = raw.decode(errors="replace")
            out.append(OutputRecord(stream=self.stream, line=text, eol=eol, raw=raw))
        return True
