"""Errors carry a stable code, a retry flag and details that programs may read."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rookhold_types
from rookhold_types import ERRORS, CodedError, InvalidJsonError, RookholdError, SpecError

PAGE = Path(__file__).parents[3] / "docs/errors.md"


def own_errors() -> Iterator[type[RookholdError]]:
    for module in pkgutil.iter_modules(rookhold_types.__path__):
        importlib.import_module(f"rookhold_types.{module.name}")
    pending = [RookholdError]
    while pending:
        error = pending.pop()
        pending.extend(error.__subclasses__())
        if error.__module__.startswith("rookhold_types"):
            yield error


LIBRARY_CODES = {error.code for error in own_errors() if not issubclass(error, CodedError)} - {
    RookholdError.code
}


def headings(section: str) -> list[str]:
    """The codes that `docs/errors.md` explains below one of its sections."""
    _, _, rest = PAGE.read_text("utf-8").partition(f"\n## {section}\n")
    return re.findall(r"^### `([^`]+)`$", rest.partition("\n## ")[0], re.MULTILINE)


def test_an_error_has_message_code_and_detail() -> None:
    error = InvalidJsonError("no", reason="malformed", byte=3)
    assert (str(error), error.code, error.detail) == (
        "no",
        "invalid_json",
        {"reason": "malformed", "byte": 3},
    )


@pytest.mark.parametrize("code", ERRORS)
def test_a_coded_error_takes_its_facts_from_the_table(code: str) -> None:
    error = CodedError(code=code, index=1)
    assert (error.code, error.retryable, error.fact) == (code, ERRORS[code].retryable, ERRORS[code])
    assert (str(error), error.detail) == (ERRORS[code].message, {"index": 1})


def test_the_code_of_one_error_leaves_the_others_alone() -> None:
    first, second = SpecError(code="empty_code"), SpecError(code="queue_saturated")
    assert (first.code, first.retryable) == ("empty_code", False)
    assert (second.code, second.retryable) == ("queue_saturated", True)
    assert SpecError.code == RookholdError.code


@pytest.mark.parametrize("code", ["", "rookhold", "Empty_Code", "not_canonical"])
def test_a_code_outside_the_table_is_our_own_mistake(code: str) -> None:
    with pytest.raises(KeyError):
        SpecError(code=code)


def test_codes_are_unique_among_the_classes() -> None:
    codes = [error.code for error in own_errors() if not issubclass(error, CodedError)]
    assert len(codes) == len(set(codes))


def test_every_code_of_the_api_has_one_heading_and_every_heading_a_code() -> None:
    found = headings("HTTP API")
    assert sorted(found) == sorted(ERRORS)


def test_every_code_of_this_library_has_a_heading() -> None:
    assert sorted(headings("rookhold-types")) == sorted(LIBRARY_CODES - ERRORS.keys())


def test_every_heading_says_what_it_means_and_what_to_do() -> None:
    for part in re.split(r"^### ", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        text = body.partition("\n## ")[0].strip()
        assert text.count(".") >= 2, heading


@pytest.mark.parametrize("code", ERRORS)
def test_a_heading_states_status_and_retry_as_the_table_does(code: str) -> None:
    page = PAGE.read_text("utf-8")
    body = page.partition(f"### `{code}`\n")[2].partition("\n##")[0].strip()
    retry = "retry later" if ERRORS[code].retryable else "do not retry unchanged"
    assert body.startswith(f"{ERRORS[code].status}, {retry}.")
