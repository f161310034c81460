"""The record of runtime packs: only this one form, about only this tree, counts."""

from __future__ import annotations

import json

import pytest

from rookhold_exec.rootfs.packs import offered, record
from rookhold_types.runtimes import PACKS

DIGEST = "a" * 64


def test_a_record_offers_what_it_was_made_for() -> None:
    assert offered(record(("node",), DIGEST), DIGEST) == (PACKS["node"],)


def test_no_record_offers_nothing() -> None:
    assert offered(None, DIGEST) == ()


@pytest.mark.parametrize(
    "change",
    [
        {"manifest_sha256": "b" * 64},
        {"format": 2},
        {"more": 1},
        {"packs": "python"},
        {"packs": None},
        {"manifest_sha256": None},
    ],
)
def test_a_record_in_another_form_offers_nothing(change: dict[str, object]) -> None:
    changed = json.loads(record(tuple(PACKS), DIGEST)) | change
    assert offered(json.dumps(changed).encode(), DIGEST) == ()


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b"null", b"[" * 4000])
def test_what_is_no_record_offers_nothing(content: bytes) -> None:
    assert offered(content, DIGEST) == ()


def test_unknown_names_are_left_out() -> None:
    changed = json.loads(record(tuple(PACKS), DIGEST))
    changed["packs"] = ["python:latest", PACKS["bash"]]
    assert offered(json.dumps(changed).encode(), DIGEST) == (PACKS["bash"],)
