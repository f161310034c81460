"""The account of a peer's frames."""

import pytest
from http2_peer import PREFACE, frame

from rookhold_server.http.transport.frames import BURST, PER_SECOND, RESET_COST, Account

HEADERS, END_HEADERS = 1, 4
REQUEST = frame(HEADERS, flags=5, stream_id=1, payload=b"\x82")


def account() -> Account:
    made = Account(0.0)
    assert made.feed(PREFACE + frame(4), 0.0)
    return made


def test_requests_and_bodies_cost_nothing() -> None:
    body = frame(0, stream_id=1, payload=b"x" * 100)
    assert all(account().feed((REQUEST + body) * 1000, 0.0) for _ in range(3))


def test_resets_cost_more_than_other_frames() -> None:
    resets = int(BURST / RESET_COST)
    assert not account().feed(frame(3, stream_id=1, payload=b"\0" * 4) * resets, 0.0)
    assert account().feed(frame(6, payload=b"\0" * 8) * resets, 0.0)


def test_time_and_answers_fill_the_account() -> None:
    pings = frame(6, payload=b"\0" * 8) * int(BURST - 10)
    waiting = account()
    assert waiting.feed(pings, 0.0)
    assert waiting.feed(pings, BURST / PER_SECOND)
    served = account()
    assert served.feed(pings, 0.0)
    served.credit(int(BURST))
    assert served.feed(pings, 0.0)
    assert not served.feed(pings, 0.0)


@pytest.mark.parametrize("step", [1, 2, 5, 9, 10, 1000])
def test_pieces_are_counted_like_the_whole(step: int) -> None:
    data = (REQUEST + frame(6, payload=b"\0" * 8)) * 1200
    made = account()
    told = [made.feed(data[at : at + step], 0.0) for at in range(0, len(data), step)]
    assert told[0]
    assert not told[-1]


def test_an_incomplete_frame_is_known_since_its_begin() -> None:
    made = account()
    assert made.since is None
    made.feed(REQUEST[:5], 1.0)
    made.feed(REQUEST[5:8], 2.0)
    assert made.since == 1.0
    made.feed(REQUEST[8:] + REQUEST[:3], 3.0)
    assert made.since == 3.0
    made.feed(REQUEST[3:], 4.0)
    assert made.since is None


def test_a_head_of_several_frames_is_incomplete_until_its_last() -> None:
    made = account()
    made.feed(frame(HEADERS, stream_id=1, payload=b"\x82"), 1.0)
    made.feed(frame(9, stream_id=1), 2.0)
    assert made.since == 1.0
    made.feed(frame(9, flags=END_HEADERS, stream_id=1), 3.0)
    assert made.since is None
