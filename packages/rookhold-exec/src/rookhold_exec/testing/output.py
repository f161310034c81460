"""The part of the contract about output: byte-exact, bounded, counted and hashed."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from rookhold_exec.executor import OutputRecord, StreamEvidence
from rookhold_exec.testing.harness import HarnessContract
from rookhold_types.limits import (
    OUTPUT_BYTES_MAX,
    OUTPUT_LINES_MAX,
    OUTPUT_RECORD_BYTES_MAX,
    Limits,
)
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from rookhold_exec.testing.harness import Harness, Result


def check(evidence: StreamEvidence, kept: bytes, result: Result, stream: str) -> None:
    """Hold the evidence of a stream against the records that were given out."""
    records = [
        event
        for event in result.events
        if isinstance(event, OutputRecord) and event.stream == stream
    ]
    assert evidence.bytes_offered == len(kept)
    assert evidence.offered_sha256 == hashlib.sha256(kept).hexdigest()
    assert evidence.records_offered == len(records)
    assert evidence.truncated == (stream in result.truncated)
    if not evidence.truncated:
        assert (evidence.bytes_seen, evidence.seen_sha256) == (len(kept), evidence.offered_sha256)


class OutputContract(HarnessContract):
    """Every byte that is kept is the byte that was printed."""

    def test_ten_thousand_lines_come_back_byte_for_byte(self, harness: Harness) -> None:
        printed = "".join(f"line {n}\n" for n in range(OUTPUT_LINES_MAX)).encode()
        code = f"print(''.join(f'line {{n}}\\n' for n in range({OUTPUT_LINES_MAX})), end='')"
        result = harness.run("python", code)
        assert result.stdout == printed
        assert result.truncated == []
        check(result.report.stdout, printed, result, "stdout")

    def test_a_mebibyte_in_one_record_comes_back_byte_for_byte(self, harness: Harness) -> None:
        result = harness.run("python", f"print('x' * {OUTPUT_BYTES_MAX}, end='')")
        assert result.stdout == b"x" * OUTPUT_BYTES_MAX
        assert result.truncated == []
        check(result.report.stdout, result.stdout, result, "stdout")
        longest = max(len(e.line) for e in result.events if isinstance(e, OutputRecord))
        assert longest == OUTPUT_RECORD_BYTES_MAX

    def test_any_bytes_come_back(self, harness: Harness) -> None:
        code = "import os; os.write(1, b'foo\\0bar\\r\\n'); os.write(2, bytes(range(256)) * 3)"
        result = harness.run("python", code)
        assert result.stdout == b"foo\0bar\r\n"
        assert result.stderr == bytes(range(256)) * 3
        check(result.report.stderr, result.stderr, result, "stderr")

    def test_characters_across_reads_stay_whole(self, harness: Harness) -> None:
        code = (
            "import os, time\n"
            "data = ('\\u20ac' * 40 + '\\n').encode()\n"
            "for at in range(len(data)):\n"
            "    os.write(1, data[at:at + 1])\n"
        )
        result = harness.run("python", code)
        assert result.stdout == ("\u20ac" * 40 + "\n").encode()
        assert all(e.raw is None for e in result.events if isinstance(e, OutputRecord))

    def test_the_cut_is_exact_and_the_rest_is_counted(self, harness: Harness) -> None:
        size = 3 * 1_000_000
        code = f"import sys; sys.stdout.write('\\u20ac' * {size // 3}); sys.stderr.write('after')"
        result = harness.run("python", code)
        printed = ("\u20ac" * (size // 3)).encode()
        assert result.report.status is JobStatus.SUCCEEDED
        assert result.stdout == printed[:OUTPUT_BYTES_MAX]
        assert result.stderr == b"after"
        assert result.truncated == ["stdout"]
        assert result.report.stdout.bytes_seen == size
        assert result.report.stdout.seen_sha256 == hashlib.sha256(printed).hexdigest()
        check(result.report.stdout, result.stdout, result, "stdout")

    def test_a_flood_is_cut_drained_and_ended_on_time(self, harness: Harness) -> None:
        code = "while True: print('1234567890' * 100)"
        result = harness.run("python", code, limits=Limits(wall_seconds=1, cpu_seconds=20))
        assert result.report.status is JobStatus.TIMED_OUT
        assert result.truncated == ["stdout"]
        assert result.report.stdout.bytes_offered <= OUTPUT_BYTES_MAX
        assert result.report.stdout.bytes_seen > OUTPUT_BYTES_MAX
        assert result.seconds < 10
