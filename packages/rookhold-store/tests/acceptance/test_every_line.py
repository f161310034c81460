"""Each of the lines S1 to S35 about the store has a test that bears its number."""

import re
from pathlib import Path

LINES = {f"s{number}" for number in range(1, 36)}


def test_every_line_about_the_store_has_a_test_of_its_number() -> None:
    found = {
        name
        for file in Path(__file__).parent.glob("test_*.py")
        for name in re.findall(r"^def test_(s\d+)_\w+\(", file.read_text("utf-8"), re.MULTILINE)
    }
    assert found == LINES
