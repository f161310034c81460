"""Bytes of the file flipped at random: found, or of no consequence; never a traceback or a hang."""

from __future__ import annotations

import shutil
from contextlib import closing
from time import monotonic
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rookhold_store import StoreError
from rookhold_store.testing.specimen import Made, binding
from rookhold_store.verify import verify
from rookhold_store.verify.tables import TABLES
from rookhold_store.verify.unproved import UNBOUND

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 20  # of patience with one file of some hundred kilobytes


def content(path: Path) -> list[Any]:
    """Return all that a digest or a rule covers."""
    rows: list[Any] = []
    with closing(apsw.Connection(f"file:{path}?immutable=1&mode=ro", flags=FLAGS)) as db:
        for table in TABLES:
            kept = [c.name for c in table.columns if f"{table.name}.{c.name}" not in UNBOUND]
            rows.append(db.execute(f"SELECT {', '.join(kept)} FROM {table.name}").fetchall())
        rows.append(db.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall())
    return rows


FLAGS = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI


def found_or_without_consequence(made: Made, damaged: bytes) -> None:
    made.path.write_bytes(damaged)
    began = monotonic()
    try:
        found = list(verify(made.path, binding=binding))
    except StoreError:
        return
    finally:
        assert monotonic() - began < SECONDS
    if not found:
        assert content(made.path) == content(made.path.with_name("sound.db"))


@pytest.fixture
def sound(made: Made) -> bytes:
    shutil.copy(made.path, made.path.with_name("sound.db"))
    return made.path.read_bytes()


@given(
    st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=8
    )
)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_flipped_bytes_are_found_or_change_nothing(
    made: Made, sound: bytes, flips: list[tuple[float, int]]
) -> None:
    damaged = bytearray(sound)
    for place, by in flips:
        damaged[int(place * len(damaged))] ^= by
    found_or_without_consequence(made, bytes(damaged))


def test_a_byte_in_every_region_is_found_or_changes_nothing(made: Made, sound: bytes) -> None:
    for place in range(0, len(sound), 4093):
        damaged = bytearray(sound)
        damaged[place] ^= 0x41
        found_or_without_consequence(made, bytes(damaged))


@pytest.mark.soak
def test_any_byte_is_found_or_changes_nothing(made: Made, sound: bytes) -> None:
    for place in range(0, len(sound), 17):
        damaged = bytearray(sound)
        damaged[place] ^= 1 << place % 8
        found_or_without_consequence(made, bytes(damaged))


def test_pages_that_are_lost_or_zeroed_are_found(made: Made, sound: bytes) -> None:
    pages = len(sound) // 4096
    for page in range(pages):
        zeroed = sound[: page * 4096] + bytes(4096) + sound[(page + 1) * 4096 :]
        found_or_without_consequence(made, zeroed)
        found_or_without_consequence(made, sound[: page * 4096])
        found_or_without_consequence(made, sound[: page * 4096 + 100])


def test_pages_that_changed_places_are_found(made: Made, sound: bytes) -> None:
    pages = [sound[at : at + 4096] for at in range(0, len(sound), 4096)]
    for first in range(1, len(pages) - 1):
        swapped = [*pages]
        swapped[first], swapped[first + 1] = swapped[first + 1], swapped[first]
        found_or_without_consequence(made, b"".join(swapped))
        doubled = [*pages]
        doubled[first] = doubled[first + 1]
        found_or_without_consequence(made, b"".join(doubled))


@pytest.mark.parametrize("content", [b"", b"x", b"no database at all\n" * 1000, bytes(8192)])
def test_what_is_no_database_is_refused(made: Made, content: bytes) -> None:
    made.path.write_bytes(content)
    with pytest.raises(StoreError) as refused:
        list(verify(made.path))
    assert refused.value.code in ("foreign_schema", "open_refused")


def test_a_file_that_is_not_there_is_refused(path: Path) -> None:
    with pytest.raises(StoreError) as refused:
        list(verify(path))
    assert refused.value.code == "storage_unavailable"
