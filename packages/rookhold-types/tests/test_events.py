"""The hash chain: the exact preimage, and every way in which a history can be wrong."""

import hashlib
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookhold_types import (
    ChainCheck,
    ChainFault,
    EventKind,
    WireEvent,
    canonical,
    check_chain,
    decode_strict,
    encode,
    event_hash,
    event_hashes,
)

JOB = "01890a5d-ac96-774b-bcce-b302099a8057"
OUTPUTS: list[tuple[str, dict[str, Any]]] = [
    ("accepted", {"status": "queued", "tenant": "t", "language": "python"}),
    ("started", {"status": "running"}),
    ("stdout", {"line": "hé\r", "eol": True}),
    ("stderr", {"line": "", "eol": False}),
    ("a_later_kind", {}),
    ("finished", {"status": "succeeded", "exit_code": 0, "duration_ms": 5}),
]


def history(job_id: str = JOB, legacy: int = 0) -> list[WireEvent]:
    """A history whose first `legacy` events are older than the chain."""
    events: list[WireEvent] = []
    previous = ""
    for seq, (kind, data) in enumerate(OUTPUTS, start=1):
        event = WireEvent(seq=seq, ts_ms=1000 + seq, kind=kind, data=data)
        if seq > legacy:
            digest = event_hash(job_id, previous, seq, event.ts_ms, kind, canonical(data))
            event = msgspec.structs.replace(
                event, prev_hash=previous, event_hash=digest, hash_version=1
            )
            previous = digest
        events.append(event)
    return events


def changed(index: int, **changes: object) -> list[WireEvent]:
    events = history()
    events[index] = msgspec.structs.replace(events[index], **changes)
    return events


def test_the_preimage_is_the_published_one() -> None:
    data = b'{"a":1}'
    text = "ünï"
    preimage = b"coop:event-chain:v1\0"
    preimage += struct.pack(">Q", 5) + text.encode()
    preimage += struct.pack(">Q", 64) + b"a" * 64
    preimage += struct.pack(">qq", 7, 1_700_000_000_000)
    preimage += struct.pack(">Q", 6) + b"stdout"
    preimage += struct.pack(">Q", 7) + data
    expected = hashlib.sha256(preimage).hexdigest()
    assert event_hash(text, "a" * 64, 7, 1_700_000_000_000, "stdout", data) == expected


def test_the_first_event_links_to_nothing() -> None:
    preimage = b"coop:event-chain:v1\0" + struct.pack(">Q", 1) + b"j" + struct.pack(">Q", 0)
    preimage += struct.pack(">qq", 1, 0) + struct.pack(">Q", 1) + b"k" + struct.pack(">Q", 2)
    assert event_hash("j", "", 1, 0, "k", b"{}") == hashlib.sha256(preimage + b"{}").hexdigest()


FIELDS = st.tuples(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.text("0a", max_size=3),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.text("ab", max_size=3),
    st.binary(max_size=4),
)


@given(FIELDS, FIELDS)
def test_different_events_never_hash_alike(a: tuple[Any, ...], b: tuple[Any, ...]) -> None:
    assert (event_hash(*a) == event_hash(*b)) == (a == b)


@pytest.mark.parametrize(("job_id", "kind"), [("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc")])
def test_text_cannot_move_between_fields(job_id: str, kind: str) -> None:
    others = {("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc")} - {(job_id, kind)}
    digest = event_hash(job_id, "", 1, 1, kind, b"{}")
    assert digest not in {event_hash(j, "", 1, 1, k, b"{}") for j, k in others}


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_a_number_beyond_64_bits_has_no_hash(number: int) -> None:
    with pytest.raises(OverflowError):
        event_hash("j", "", number, 0, "k", b"{}")
    with pytest.raises(OverflowError):
        event_hash("j", "", 1, number, "k", b"{}")


def test_a_whole_history_is_valid_and_complete() -> None:
    events = history()
    result = check_chain(JOB, events)
    assert (result.valid, result.complete, result.fault) == (True, True, None)
    assert result.head == events[-1].event_hash
    assert result.receipt_member() == {
        "version": 1,
        "head": events[-1].event_hash,
        "events": 6,
        "event_count": 6,
        "verified_events": 6,
        "legacy_events": 0,
        "complete": True,
    }


def test_a_shortened_history_is_valid_with_another_head() -> None:
    events = history()
    result = check_chain(JOB, events[:-1])
    assert result.valid
    assert result.head == events[-2].event_hash != events[-1].event_hash


def test_no_events_are_valid_without_a_head() -> None:
    result = check_chain(JOB, [])
    assert (result.events, result.head, result.valid) == (0, None, True)


@pytest.mark.parametrize(
    ("events", "fault", "seq"),
    [
        pytest.param(changed(2, data={"line": "hé", "eol": True}), "hash", 3, id="data"),
        pytest.param(changed(2, data={}), "hash", 3, id="no-data"),
        pytest.param(changed(2, data={"line": "hé\r", "eol": 1}), "hash", 3, id="type-of-data"),
        pytest.param(changed(2, data={"x": 1.5}), "hash", 3, id="data-without-canonical-form"),
        pytest.param(changed(2, data={"x": 2**60}), "hash", 3, id="integer-too-large"),
        pytest.param(changed(2, data={"x": chr(0xD800)}), "hash", 3, id="surrogate"),
        pytest.param(changed(2, kind="stderr"), "hash", 3, id="kind"),
        pytest.param(changed(2, ts_ms=1004), "hash", 3, id="time"),
        pytest.param(changed(2, ts_ms=2**64), "hash", 3, id="time-beyond-64-bits"),
        pytest.param(changed(2, event_hash="0" * 64), "hash", 3, id="hash"),
        pytest.param(changed(2, event_hash=""), "hash", 3, id="hash-removed"),
        pytest.param(
            changed(2, event_hash=history()[2].event_hash.upper()), "hash", 3, id="hash-upper-case"
        ),
        pytest.param(changed(2, prev_hash=""), "link", 3, id="link-removed"),
        pytest.param(changed(2, prev_hash="0" * 64), "link", 3, id="link"),
        pytest.param(changed(0, prev_hash="0" * 64), "link", 1, id="link-before-the-first"),
        pytest.param(changed(2, hash_version=2), "unknown_version", 3, id="later-version"),
        pytest.param(changed(2, hash_version=-1), "unknown_version", 3, id="negative-version"),
        pytest.param(changed(2, hash_version=0), "legacy_with_hash", 3, id="downgraded"),
        pytest.param(changed(2, seq=4), "gap", 4, id="seq"),
        pytest.param(changed(0, seq=0), "gap", 0, id="seq-zero"),
        pytest.param(history()[1:], "gap", 2, id="first-missing"),
        pytest.param(history()[:2] + history()[3:], "gap", 4, id="one-missing"),
        pytest.param(history()[:3] + history()[2:], "gap", 3, id="one-repeated"),
        pytest.param(history()[::-1], "gap", 6, id="reversed"),
        pytest.param(history(JOB[:-1] + "8"), "hash", 1, id="another-job"),
    ],
)
def test_a_changed_history_is_not_valid(events: list[WireEvent], fault: str, seq: int) -> None:
    result = check_chain(JOB, events)
    assert (result.fault, result.fault_seq) == (fault, seq)
    assert not result.valid
    assert not result.complete
    assert result.head is None
    assert result.events == result.verified_events
    assert result.events < len(history())
    if fault != "gap":
        assert result.events == seq - 1


def test_every_fault_is_shown_by_some_history() -> None:
    assert set(ChainFault) == {"gap", "unknown_version", "legacy_with_hash", "link", "hash"}


def test_a_downgraded_event_without_hashes_breaks_the_next_link() -> None:
    result = check_chain(JOB, changed(2, hash_version=0, prev_hash="", event_hash=""))
    assert (result.fault, result.fault_seq) == ("link", 4)


@pytest.mark.parametrize("legacy", [1, 3, 5])
def test_the_chain_starts_anew_after_legacy_events(legacy: int) -> None:
    events = history(legacy=legacy)
    result = check_chain(JOB, events)
    assert (result.valid, result.complete) == (True, False)
    assert (result.legacy_events, result.verified_events) == (legacy, 6 - legacy)
    assert result.head == events[-1].event_hash


def test_a_history_that_ends_legacy_has_no_head() -> None:
    result = check_chain(JOB, history(legacy=6))
    assert (result.valid, result.head, result.legacy_events) == (True, None, 6)
    assert not result.complete


def test_an_event_after_a_legacy_one_must_not_link_over_it() -> None:
    events = history(legacy=2)
    events[2] = msgspec.structs.replace(events[2], prev_hash="0" * 64)
    assert check_chain(JOB, events).fault == "link"


def test_a_reader_of_pages_may_check_as_it_goes() -> None:
    check = ChainCheck(JOB)
    for count, event in enumerate(history(), start=1):
        assert check.add(event)
        assert check.result().head == event.event_hash
        assert check.result().events == count


def test_after_a_fault_nothing_is_accepted_any_more() -> None:
    check = ChainCheck(JOB)
    events = history()
    assert check.add(events[0])
    assert not check.add(events[2])
    assert not check.add(events[1])
    assert check.result().events == 1
    assert check.result().fault_seq == 3


def test_an_event_travels_unchanged() -> None:
    for event in history():
        assert decode_strict(encode(event), WireEvent) == event


def test_kinds_are_those_of_the_contract() -> None:
    assert [str(kind) for kind in EventKind] == [
        "accepted",
        "started",
        "stdout",
        "stderr",
        "violation",
        "truncated",
        "artifact",
        "finished",
    ]


@given(st.text("ab", max_size=2), st.lists(st.tuples(st.text("kå", max_size=3), st.binary())))
def test_hashes_of_events_that_follow_each_other_are_those_of_each(
    job_id: str, events: list[tuple[str, bytes]]
) -> None:
    for previous in ("", "c" * 64):
        expected, before = [], previous
        for seq, (kind, data) in enumerate(events, 5):
            before = event_hash(job_id, before, seq, 9, kind, data)
            expected.append(before)
        assert event_hashes(job_id, previous, 5, 9, events) == expected
