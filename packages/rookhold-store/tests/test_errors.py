import re
from pathlib import Path

from rookhold_store.errors import StoreError

PAGE = Path(__file__).parents[3] / "docs/errors.md"


def below(root: type[StoreError]) -> set[type[StoreError]]:
    return {root} | {error for child in root.__subclasses__() for error in below(child)}


def test_every_code_is_explained_and_those_of_the_store_alone_in_its_section() -> None:
    page = PAGE.read_text("utf-8")
    everywhere = re.findall(r"^### `(\w+)`$", page, re.MULTILINE)
    section = page.partition("\n## rookhold-store\n")[2].partition("\n## ")[0]
    explained = set(re.findall(r"^### `(\w+)`$", section, re.MULTILINE))
    codes = {error.code for error in below(StoreError)}
    assert explained <= codes <= set(everywhere)
    assert all(everywhere.count(code) == 1 for code in explained)


def test_errors_that_share_a_code_are_one_refusal() -> None:
    """A subclass may narrow an error and keep its code; two branches never meet in one."""
    for error in below(StoreError):
        own = error.__dict__.get("code")
        if own is None:
            continue
        same = [other for other in below(StoreError) if other.__dict__.get("code") == own]
        assert all(issubclass(error, other) or issubclass(other, error) for other in same), own
