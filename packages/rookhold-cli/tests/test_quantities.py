from __future__ import annotations

import pytest

from rookhold_cli.errors import UsageError
from rookhold_cli.quantities import mebibytes, seconds


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("90", 90),
        ("90s", 90),
        ("2m", 120),
        ("2min", 120),
        ("1m30s", 90),
        ("1h", 3600),
        (" 5S ", 5),
        ("0s", 0),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str, value: int) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize(
    "text", ["", "s", "-1", "1.5s", "500ms", "1d", "1s2m", "٣", "1 s x", "9" * 10, "9999999h"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        seconds(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("256M", 256), ("256MB", 256), ("256MiB", 256), ("256 mib", 256), ("1G", 1024), ("2048k", 2)],
)
def test_a_size_is_read_as_people_write_it(text: str, value: int) -> None:
    assert mebibytes(text) == value


@pytest.mark.parametrize("text", ["", "256", "-1M", "1.5G", "1T", "512K", "M", "٣M", "99999999G"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        mebibytes(text)
