"""Identifiers grow, are version 7, and names given by others obey their rules."""

import itertools
import threading
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookhold_types import (
    IdSource,
    is_job_id,
    new_job_id,
    new_request_id,
    now_ms,
    valid_idempotency_key,
    valid_identity,
)


def test_an_id_is_a_version_7_uuid_in_lower_case() -> None:
    for text in (new_job_id(), new_request_id()):
        parsed = uuid.UUID(text)
        assert (parsed.version, parsed.variant, str(parsed)) == (7, uuid.RFC_4122, text)
        assert is_job_id(text)


def test_an_id_carries_the_time_of_its_making() -> None:
    before = now_ms()
    stamp = uuid.UUID(new_job_id()).int >> 80
    # Others may have borrowed milliseconds from the future; nobody borrows seconds.
    assert before <= stamp <= now_ms() + 1000


def test_ids_grow_within_one_millisecond() -> None:
    source = IdSource(clock=lambda: 1_700_000_000_000)
    ids = [source.new() for _ in range(10_000)]
    assert ids == sorted(set(ids))


def test_ids_grow_when_the_clock_steps_back() -> None:
    times = itertools.chain([5000, 4000, 0, 5000, 5001], itertools.repeat(1))
    source = IdSource(clock=lambda: next(times))
    ids = [source.new() for _ in range(100)]
    assert ids == sorted(set(ids))


@given(st.lists(st.integers(0, 2**48 - 100), min_size=2))
def test_ids_grow_whatever_the_clock_says(times: list[int]) -> None:
    ticking = iter(times)
    source = IdSource(clock=lambda: next(ticking))
    ids = [source.new() for _ in times]
    assert ids == sorted(set(ids))
    assert all(map(is_job_id, ids))


def test_the_random_part_is_the_sources_and_the_fixed_bits_are_not() -> None:
    for noise in (b"\x00", b"\xff"):
        text = IdSource(clock=lambda: 0, random=lambda size, b=noise: b * size).new()
        assert is_job_id(text)
    assert IdSource(clock=lambda: 0).new() != IdSource(clock=lambda: 0).new()


def test_threads_share_a_source_without_equal_ids() -> None:
    source = IdSource(clock=lambda: 7)
    ids: list[list[str]] = [[] for _ in range(4)]

    def work(mine: list[str]) -> None:
        mine.extend(source.new() for _ in range(2000))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert all(mine == sorted(mine) for mine in ids)
    assert len(set(itertools.chain(*ids))) == 8000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "01890A5D-AC96-774B-BCCE-B302099A8057",
        "01890a5dac96774bbcceb302099a8057",
        "01890a5d-ac96-474b-bcce-b302099a8057",
        "01890a5d-ac96-774b-7cce-b302099a8057",
        "01890a5d-ac96-774b-bcce-b302099a805",
        "01890a5d-ac96-774b-bcce-b302099a8057\n",
        "{01890a5d-ac96-774b-bcce-b302099a8057}",
    ],
)
def test_what_is_not_in_the_form_of_a_job_id(text: str) -> None:
    assert not is_job_id(text)


@pytest.mark.parametrize(
    "text", ["a", "team-a", "user@example.com", "a/b:c#d", "!~[]^_`", "x" * 128]
)
def test_an_identity_is_printable_ascii(text: str) -> None:
    assert valid_identity(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "a b",
        'a"b',
        "a\\b",
        "a\tb",
        "a\n",
        "\x7f",
        "\x00",
        "é",
        "名",
        "x" * 129,
        chr(0xD800),
    ],
)
def test_what_may_not_be_an_identity(text: str) -> None:
    assert not valid_identity(text)


@given(st.text(max_size=140))
def test_identity_is_decided_character_by_character(text: str) -> None:
    allowed = all("!" <= c <= "~" and c not in '"\\' for c in text)
    assert valid_identity(text) == (allowed and 1 <= len(text) <= 128)


@given(st.text(max_size=140))
def test_an_idempotency_key_is_visible_ascii(text: str) -> None:
    expected = 1 <= len(text) <= 128 and all("!" <= c <= "~" for c in text)
    assert valid_idempotency_key(text) == expected


@pytest.mark.parametrize("text", ["", " ", "a b", "a\n", "\x7f", "é", "k" * 129])
def test_what_may_not_be_an_idempotency_key(text: str) -> None:
    assert not valid_idempotency_key(text)


@pytest.mark.parametrize("text", ["k", '"\\', "k" * 128])
def test_an_idempotency_key_may_hold_any_visible_character(text: str) -> None:
    assert valid_idempotency_key(text)
