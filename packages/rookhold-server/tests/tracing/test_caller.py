"""The rules of W3C Trace Context, and of nothing else, decide whose trace is linked to."""

from __future__ import annotations

import pytest

from rookhold_server.tracing.caller import Caller, caller_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


def read(*parents: str, state: tuple[str, ...] = ()) -> Caller | None:
    headers = [(b"traceparent", parent.encode()) for parent in parents]
    return caller_of([*headers, *((b"tracestate", text.encode()) for text in state)])


@pytest.mark.parametrize(
    ("parent", "sampled"),
    [
        (GOOD, True),
        (f"  {GOOD}\t", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-fe", False),
        (f"00-{TRACE}-{SPAN}-ff", True),
        (f"01-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-brings", True),
    ],
)
def test_a_sound_parent_is_taken(parent: str, sampled: bool) -> None:
    assert read(parent) == Caller(TRACE, SPAN, sampled)


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "00",
        TRACE,
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-0x",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}0-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"0-{TRACE}-{SPAN}-01",
        f"01-{TRACE}-{SPAN}-01more",
        f"01-{TRACE}-{SPAN}-01-{'x' * 600}",
        f"00_{TRACE}_{SPAN}_01",
        f"{GOOD}\n",
    ],
)
def test_a_parent_that_breaks_a_rule_is_none(parent: str) -> None:
    assert read(parent) is None


def test_two_parents_are_none() -> None:
    assert read(GOOD, GOOD) is None
    assert read() is None
    assert caller_of([(b"tracestate", b"a=b"), (b"baggage", b"user=somebody")]) is None


@pytest.mark.parametrize(
    ("given", "members"),
    [
        (("a=1",), {"a": "1"}),
        (("a=1, b=2 ",), {"a": "1", "b": "2"}),
        (("a=1", "0t@v=x y"), {"a": "1", "0t@v": "x y"}),
        (("a=1,,\t,b=2",), {"a": "1", "b": "2"}),
        ((",".join(f"k{n}=v" for n in range(32)),), {f"k{n}": "v" for n in range(32)}),
    ],
)
def test_a_sound_state_comes_along(given: tuple[str, ...], members: dict[str, str]) -> None:
    caller = read(GOOD, state=given)
    assert caller is not None
    assert dict(caller.state) == members


@pytest.mark.parametrize(
    "given",
    [
        ("a",),
        ("A=1",),
        ("a=1,a=2",),
        ("a=1", "a=2"),
        ("a= 1=2",),
        ("a=",),
        ("0=1",),
        ("a=\x7f",),
        ("a@b@c=1",),
        (",".join(f"k{n}=v" for n in range(33)),),
        ("a=" + "x" * 257,),
        ("a=" + "x" * 200 + ",b=" + "x" * 200 + ",c=" + "x" * 200,),
    ],
)
def test_a_state_that_breaks_a_rule_is_left_out_alone(given: tuple[str, ...]) -> None:
    assert read(GOOD, state=given) == Caller(TRACE, SPAN, sampled=True)
