import socket

import pytest

from rookhold_exec.launcher.protocol import (
    FRAME_MAX,
    Frames,
    ProtocolError,
    decode,
    encode,
    frame,
    receive_frame,
)

VALUES = [
    None,
    0,
    -7,
    2**63,
    "",
    "ü\0\n",
    b"",
    bytes(range(256)),
    [],
    [1, "a", b"b", None, [2]],
    {},
    {"op": "start", "environment": {b"PATH": b"/bin"}, "outputs": ["output/a"]},
]
MALFORMED = [
    b"",
    b"x",
    b"i;",
    b"i1",
    b"i1;i2;",
    b"b5:abc",
    b"b-1:",
    b"s1:\xff",
    b"l2:i1;",
    b"l99999999:",
    b"d1:i1;",
    b"d1:l0:i1;",
    b"l1:" * 50 + b"n",
    b"b99999999999999999999999:",
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_as_it_went(value: object) -> None:
    assert decode(encode(value)) == value


@pytest.mark.parametrize("data", MALFORMED, ids=repr)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(data)


def test_types_that_are_not_spoken_are_refused() -> None:
    with pytest.raises(ProtocolError):
        encode(1.5)


def test_frames_are_put_together_whatever_the_pieces() -> None:
    data = b"".join(frame(value) for value in VALUES)
    for size in (1, 3, 1000):
        frames = Frames()
        found = []
        for at in range(0, len(data), size):
            found += frames.feed(data[at : at + size])
        assert found == VALUES


def test_a_frame_that_says_it_is_huge_is_refused_before_it_comes() -> None:
    with pytest.raises(ProtocolError):
        Frames().feed((FRAME_MAX + 1).to_bytes(4, "little"))


def test_a_frame_is_read_from_a_socket_or_refused_at_its_end() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(frame({"a": b"x" * 100_000}) + frame("next") + b"\x05\x00")
        theirs.close()
        assert receive_frame(ours) == {"a": b"x" * 100_000}
        assert receive_frame(ours) == "next"
        with pytest.raises(ProtocolError):
            receive_frame(ours)
