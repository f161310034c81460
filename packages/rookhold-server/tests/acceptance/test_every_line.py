"""Each line of the acceptance list about the server has a test that bears its number."""

import re
from pathlib import Path

# Transport and identity, submission, idempotency, list and detail, replay and result, stream,
# operations, execution, scheduler, configuration.
SECTIONS = {"h": 12, "u": 14, "i": 5, "l": 8, "r": 13, "t": 10, "o": 6, "x": 12, "q": 13, "c": 9}
LINES = {f"{letter}{number}" for letter, last in SECTIONS.items() for number in range(1, last + 1)}
# Of this wheel, and of the end-to-end tests: some lines are about every backend that confines.
PLACES = (Path(__file__).parents[1], Path(__file__).parents[4] / "tests")
NAME = re.compile(r"^(?:async )?def test_((?:[a-z]\d+_)+)\w+\(", re.MULTILINE)


def test_every_line_about_the_server_has_a_test_of_its_number() -> None:
    found = {
        line
        for place in PLACES
        for file in place.rglob("test_*.py")
        for numbers in NAME.findall(file.read_text("utf-8"))
        for line in numbers.rstrip("_").split("_")
    }
    assert LINES - found == set()
