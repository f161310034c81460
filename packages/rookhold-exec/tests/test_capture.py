import hashlib
import time
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rookhold_exec.capture import Captured, StreamCapture
from rookhold_exec.executor import OutputRecord, Truncated

# Bytes that make trouble: LF, CR, NUL, characters of each length, halves of them, never UTF-8.
PIECES = st.sampled_from(
    [
        *(b"\n", b"\r\n", b"a", b"\0", b"\x7f", "é".encode(), "€".encode(), "😀".encode()),
        b"\xe2\x82",
        b"\xf0\x9f\x98",
        b"\xf0\x9f",
        b"\x80",
        b"\xff",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
    ]
)
STREAMS = st.lists(PIECES, max_size=60).map(b"".join)
CUTS = st.lists(st.integers(min_value=0, max_value=200), max_size=12)


def capture(
    stream: bytes,
    *cuts: int,
    bytes_max: int = 1_048_576,
    records_max: int = 10_000,
    record_max: int = 16_384,
) -> tuple[list[Captured], StreamCapture]:
    taken = StreamCapture(
        "stdout", max_bytes=bytes_max, max_records=records_max, max_record_bytes=record_max
    )
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    out: list[Captured] = []
    for start, end in pairwise(edges):
        out += taken.feed(stream[start:end])
    out += taken.finish()
    return out, taken


def records(out: list[Captured]) -> list[OutputRecord]:
    return [item for item in out if isinstance(item, OutputRecord)]


def raw(record: OutputRecord) -> bytes:
    return (record.line.encode() if record.raw is None else record.raw) + b"\n" * record.eol


def restored(out: list[Captured]) -> bytes:
    return b"".join(map(raw, records(out)))


def shapes(stream: bytes, **limits: int) -> list[tuple[str, bool]]:
    return [(record.line, record.eol) for record in records(capture(stream, **limits)[0])]


@given(STREAMS, CUTS, st.integers(0, 60), st.integers(0, 12), st.integers(4, 20))
@example(b"abc\xe2\x82\xac", [4, 5], 60, 12, 4)
@example(b"abc\xe2\x82\n", [5], 60, 12, 4)
@example(b"aaaaaa", [5], 60, 1, 4)
def test_the_cut_of_the_reads_never_shows(
    stream: bytes, cuts: list[int], bytes_max: int, records_max: int, record_max: int
) -> None:
    whole, one = capture(
        stream, bytes_max=bytes_max, records_max=records_max, record_max=record_max
    )
    parts, two = capture(
        stream, *cuts, bytes_max=bytes_max, records_max=records_max, record_max=record_max
    )
    single, three = capture(
        stream,
        *range(len(stream)),
        bytes_max=bytes_max,
        records_max=records_max,
        record_max=record_max,
    )
    assert whole == parts == single
    assert one.evidence() == two.evidence() == three.evidence()


@given(STREAMS, CUTS, st.integers(0, 60), st.integers(0, 12), st.integers(4, 20))
def test_what_is_kept_is_the_longest_allowed_prefix_and_the_digests_say_so(
    stream: bytes, cuts: list[int], bytes_max: int, records_max: int, record_max: int
) -> None:
    out, taken = capture(
        stream, *cuts, bytes_max=bytes_max, records_max=records_max, record_max=record_max
    )
    kept = restored(out)
    found = taken.evidence()
    assert stream.startswith(kept)
    assert len(kept) <= bytes_max
    assert len(records(out)) <= records_max
    if kept != stream:
        assert len(kept) == bytes_max or len(records(out)) == records_max
    assert found.truncated == (kept != stream)
    assert out.count(Truncated(stream="stdout")) == found.truncated
    assert not found.truncated or out[-1] == Truncated(stream="stdout")
    assert (found.bytes_seen, found.bytes_offered) == (len(stream), len(kept))
    assert found.records_offered == len(records(out))
    assert found.seen_sha256 == hashlib.sha256(stream).hexdigest()
    assert found.offered_sha256 == hashlib.sha256(kept).hexdigest()


@given(STREAMS, st.integers(4, 20))
def test_records_obey_their_rules(stream: bytes, record_max: int) -> None:
    out = records(capture(stream, record_max=record_max)[0])
    position = 0
    for record in out:
        data = raw(record).removesuffix(b"\n") if record.eol else raw(record)
        assert len(data) <= record_max
        assert b"\n" not in data
        assert record.line == data.decode(errors="replace")
        assert (record.raw is None) == ("\N{REPLACEMENT CHARACTER}" not in record.line)
        position += len(data) + record.eol
        if not record.eol and position < len(stream):
            assert len(data) > record_max - 4  # split for its size only
    assert position == len(stream)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=80), st.integers(4, 20))
def test_a_split_never_cuts_a_character(text: str, record_max: int) -> None:
    out = records(capture(text.encode(), record_max=record_max)[0])
    assert all(record.raw is None for record in out)
    assert "".join(record.line + "\n" * record.eol for record in out) == text


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"", []),
        (b"\n", [("", True)]),
        (b"a\nb", [("a", True), ("b", False)]),
        (b"a\n", [("a", True)]),
        (b"a\r\n\r\n\nb\r", [("a\r", True), ("\r", True), ("", True), ("b\r", False)]),
        (b"foo\0bar\n", [("foo\0bar", True)]),
        ("\x85\u2028\v\f\n".encode(), [("\x85\u2028\v\f", True)]),
    ],
)
def test_only_lf_ends_a_record(stream: bytes, expected: list[tuple[str, bool]]) -> None:
    assert shapes(stream) == expected


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"\xff", "\ufffd"),
        (b"\xe2\x82", "\ufffd"),
        (b"\xe2\x82A", "\ufffdA"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"\xf4\x90\x80\x80", "\ufffd" * 4),
        (b"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", "\ufffd" * 4 + "A"),
    ],
)
def test_each_maximal_ill_formed_part_shows_one_mark_and_the_bytes_are_kept(
    data: bytes, shown: str
) -> None:
    [record] = records(capture(data + b"\n")[0])
    assert (record.line, record.eol, record.raw) == (shown, True, data)


def test_a_replacement_mark_that_was_printed_is_not_repaired() -> None:
    [record] = records(capture("\ufffd\n".encode())[0])
    assert (record.line, record.raw) == ("\ufffd", None)


def test_a_record_of_exactly_the_size_stays_whole() -> None:
    assert shapes(b"x" * 16_384) == [("x" * 16_384, False)]
    assert shapes(b"x" * 16_384 + b"\n") == [("x" * 16_384, True)]
    assert shapes(b"x" * 16_385 + b"\n") == [("x" * 16_384, False), ("x", True)]


def test_a_long_record_of_three_byte_characters_splits_between_characters() -> None:
    stream = ("€" * 5462).encode()[:16_386]
    assert [len(line) for line, _ in shapes(stream)] == [5461, 1]


def test_bytes_that_are_not_utf8_split_at_the_size_exactly() -> None:
    out = records(capture(b"\x80" * 20_000)[0])
    assert [len(record.raw or b"") for record in out] == [16_384, 3_616]
    half = records(capture(b"a" * 16_382 + b"\xe2\x82" + b"A" * 10)[0])
    assert [raw(record) for record in half] == [b"a" * 16_382 + b"\xe2\x82", b"A" * 10]


def test_the_byte_limit_is_exact_and_exactly_reaching_it_is_no_cut() -> None:
    line = b"x" * 1023 + b"\n"
    full, taken = capture(line * 1024)
    assert not taken.truncated
    assert len(restored(full)) == 1_048_576
    over, cut = capture(line * 1024 + b"y")
    assert restored(over) == line * 1024
    assert cut.evidence().bytes_seen == 1_048_577
    assert over[-1] == Truncated(stream="stdout")


def test_a_cut_inside_a_character_keeps_its_bytes_and_shows_one_mark() -> None:
    stream = "€".encode() * 400_000  # the limit falls after the first byte of a character
    out, taken = capture(stream)
    kept = records(out)
    assert restored(out) == stream[:1_048_576]
    assert [record.raw for record in kept[:-1]] == [None] * (len(kept) - 1)
    assert kept[-1].raw is not None
    assert kept[-1].line.count("\ufffd") == 1
    assert kept[-1].line.endswith("\ufffd")
    assert not kept[-1].eol
    assert taken.evidence().bytes_offered == 1_048_576


def test_an_lf_just_past_the_limit_is_not_kept() -> None:
    assert shapes(b"abcd\n", bytes_max=4) == [("abcd", False)]
    assert shapes(b"abcd\n", bytes_max=5) == [("abcd", True)]


def test_the_record_limit_cuts_before_the_next_byte() -> None:
    exact, taken = capture(b"\n" * 10_000)
    assert (len(exact), taken.truncated) == (10_000, False)
    over, cut = capture(b"\n" * 10_000 + b"z")
    assert len(records(over)) == 10_000
    assert cut.truncated
    assert cut.evidence().offered_sha256 == hashlib.sha256(b"\n" * 10_000).hexdigest()


def test_a_character_across_two_reads_stays_whole() -> None:
    stream = "€".encode() * 100_000
    out, taken = capture(stream, *range(1, len(stream), 4093))
    assert all(record.raw is None for record in records(out))
    assert taken.evidence().seen_sha256 == hashlib.sha256(stream).hexdigest()
    assert restored(out) == stream


def test_every_byte_value_comes_back() -> None:
    stream = bytes(range(256))
    assert restored(capture(stream)[0]) == stream


def test_a_flood_costs_no_memory() -> None:
    taken = StreamCapture("stderr")
    endless = b"1234567890" * 6_500
    for _ in range(20):
        taken.feed(endless)
    tracemalloc.start()
    try:
        for _ in range(200):
            assert taken.feed(endless) == []
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 10_000
    assert peak < 200_000
    assert taken.finish() == []
    assert taken.evidence().bytes_seen == 220 * len(endless)


def test_an_endless_line_comes_in_pieces_and_only_one_is_held() -> None:
    taken = StreamCapture("stdout")
    given_out = 0
    for _ in range(1_000):
        given_out += sum(len(raw(record)) for record in records(taken.feed(b"z" * 1_000)))
        assert taken.bytes_seen - given_out <= 16_384 + 3
    assert given_out >= 1_000_000 - 16_384 - 3


def test_finishing_twice_adds_nothing() -> None:
    taken = StreamCapture("stdout")
    taken.feed(b"tail")
    assert len(taken.finish()) == 1
    assert taken.finish() == []


def test_evidence_waits_for_the_end() -> None:
    with pytest.raises(RuntimeError):
        StreamCapture("stdout").evidence()


def test_ten_thousand_lines_at_once_take_milliseconds() -> None:
    lines = "".join(f"line {n} é\n" for n in range(10_000)).encode()
    begin = time.thread_time()
    out, _ = capture(lines)
    took = time.thread_time() - begin
    assert len(out) == 10_000
    assert took < 0.5


def test_one_mebibyte_without_an_lf_takes_milliseconds() -> None:
    stream = b"m" * 1_048_576
    begin = time.thread_time()
    out, _ = capture(stream, *range(0, len(stream), 65_536))
    took = time.thread_time() - begin
    assert (len(out), took < 0.5) == (64, True)
