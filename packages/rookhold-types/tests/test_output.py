"""Folding: what was printed comes back, byte for byte, and nothing else takes part."""

import base64
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookhold_types import EventDataError, WireEvent, fold, fold_records, record_bytes


def record(raw: bytes, *, eol: bool) -> dict[str, Any]:
    """An output event as the capture makes it."""
    data: dict[str, Any] = {"line": raw.decode("utf-8", "replace"), "eol": eol}
    if data["line"].encode() != raw:
        data["raw_base64"] = base64.b64encode(raw).decode()
    return data


def records(stream: str, printed: bytes) -> list[tuple[str, dict[str, Any]]]:
    *lines, last = printed.split(b"\n")
    made = [(stream, record(line, eol=True)) for line in lines]
    return made + ([(stream, record(last, eol=False))] if last else [])


def test_nothing_folds_to_nothing() -> None:
    folded = fold([])
    assert (folded.stdout, folded.stderr, folded.truncated) == ("", "", False)
    assert (folded.stdout_base64, folded.stderr_base64) == (None, None)
    assert (folded.violations, folded.artifacts) == ((), ())


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_what_was_printed_comes_back_exactly(stdout: bytes, stderr: bytes) -> None:
    folded = fold_records(records("stdout", stdout) + records("stderr", stderr))
    for printed, text, exact in (
        (stdout, folded.stdout, folded.stdout_base64),
        (stderr, folded.stderr, folded.stderr_base64),
    ):
        assert (text.encode() if exact is None else base64.b64decode(exact)) == printed


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_needs_no_base64(printed: str) -> None:
    folded = fold_records(records("stdout", printed.encode()))
    assert (folded.stdout, folded.stdout_base64) == (printed, None)


def test_one_inexact_record_makes_its_stream_inexact_and_not_the_other() -> None:
    made = records("stdout", b"a\n\xff\nb") + records("stderr", b"fine\n")
    folded = fold_records(made)
    assert folded.stdout == "a\n\ufffd\nb"
    assert base64.b64decode(folded.stdout_base64 or "") == b"a\n\xff\nb"
    assert (folded.stderr, folded.stderr_base64) == ("fine\n", None)


def test_a_printed_replacement_character_is_exact() -> None:
    assert fold_records(records("stdout", "\ufffd\n".encode())).stdout_base64 is None


@pytest.mark.parametrize(
    ("printed", "text"),
    [
        (b"a\r\n", "a\r\n"),
        (b"\n\n", "\n\n"),
        (b"no end", "no end"),
        (b"\r", "\r"),
        ("a\u2028b\n".encode(), "a\u2028b\n"),
        (b"\x00\n", "\x00\n"),
    ],
)
def test_only_a_line_feed_ends_a_record(printed: bytes, text: str) -> None:
    assert fold_records(records("stdout", printed)).stdout == text


def test_streams_keep_their_own_order() -> None:
    made = [
        ("stdout", record(b"1", eol=True)),
        ("stderr", record(b"a", eol=False)),
        ("stdout", record(b"2", eol=False)),
        ("stderr", record(b"b", eol=True)),
        ("stdout", record(b"3", eol=True)),
    ]
    folded = fold_records(made)
    assert (folded.stdout, folded.stderr) == ("1\n23\n", "ab\n")


def test_violations_artifacts_and_truncation_are_taken_over() -> None:
    violation = {"rule": "wall_clock_exceeded", "detail": {"wall_seconds": 1}}
    artifact = {"path": "output/a", "content_base64": "", "size_bytes": 0, "sha256": "0" * 64}
    folded = fold_records(
        [
            ("violation", violation),
            ("artifact", artifact),
            ("truncated", {"stream": "stderr"}),
            ("violation", {"rule": "job_cancelled", "detail": {}}),
        ]
    )
    assert folded.violations == (violation, {"rule": "job_cancelled", "detail": {}})
    assert folded.artifacts == (artifact,)
    assert folded.truncated


def test_other_kinds_do_not_take_part() -> None:
    folded = fold_records(
        [(kind, {"line": "x", "eol": True}) for kind in ("accepted", "finished", "", "STDOUT")]
    )
    assert folded == fold([])


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"line": "x"},
        {"eol": True},
        {"line": None, "eol": False},
        {"line": 1, "eol": False},
        {"line": "x", "eol": False, "raw_base64": "é"},
        {"line": "x", "eol": False, "raw_base64": "Y"},
        {"line": "x", "eol": False, "raw_base64": 1},
    ],
)
def test_a_malformed_output_event_is_named_as_such(data: dict[str, Any]) -> None:
    with pytest.raises(EventDataError) as caught:
        fold_records([("stdout", data)])
    assert caught.value.code == "invalid_event_data"


@given(st.binary(max_size=40), st.booleans())
def test_a_record_gives_its_bytes_back(raw: bytes, eol: bool) -> None:
    assert record_bytes(record(raw, eol=eol)) == raw + b"\n" * eol


@pytest.mark.parametrize("exact", [True, False])
def test_ten_thousand_records_fold_in_a_blink(exact: bool) -> None:
    raw = b"line of output" if exact else b"line of output\xff"
    events = [
        WireEvent(seq=n, ts_ms=0, kind="stdout", data=record(raw, eol=True))
        for n in range(1, 10_001)
    ]
    before = time.perf_counter()
    folded = fold(events)
    assert time.perf_counter() - before < 0.2  # about 3 ms
    assert folded.stdout.count("\n") == 10_000


GOOD: dict[str, dict[str, Any]] = {
    "stdout": {"line": "a", "eol": True},
    "stderr": {"line": "a", "eol": True},
    "violation": {"rule": "r", "detail": {}},
    "artifact": {"path": "output/a", "content_base64": "", "size_bytes": 0, "sha256": "0" * 64},
}


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        *((kind, {"legacy_invalid_data_json": "x"}) for kind in GOOD),
        *((kind, ["no", "object"]) for kind in GOOD),
        ("stdout", {"line": 5, "eol": True}),
        ("stderr", {"line": "a", "eol": 1}),
        ("stdout", {"line": "a", "eol": True, "raw_base64": 7}),
        ("violation", {"rule": "r", "detail": "none"}),
        ("artifact", {**GOOD["artifact"], "size_bytes": True}),
    ],
)
def test_an_event_without_a_hash_that_cannot_be_read_counts_as_truncated(
    kind: str, data: Any
) -> None:
    good = [WireEvent(seq=1, ts_ms=0, kind=kind, data=GOOD[kind])]
    folded = fold([*good, WireEvent(seq=2, ts_ms=0, kind=kind, data=data), *good])
    wanted = fold([*good, *good])
    assert not wanted.truncated
    assert folded.truncated
    for name in ("stdout", "stderr", "violations", "artifacts"):
        assert getattr(folded, name) == getattr(wanted, name)


@pytest.mark.parametrize("kind", ["stdout", "stderr"])
def test_a_hashed_event_that_cannot_be_read_is_an_error(kind: str) -> None:
    with pytest.raises(EventDataError):
        fold([WireEvent(seq=1, ts_ms=0, kind=kind, data={"line": "a"}, hash_version=1)])
