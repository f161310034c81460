"""Languages, their packs and their source names agree with each other."""

import pytest

from rookhold_types import LANGUAGES, PACKS, SOURCE_NAMES, Language


def test_languages_are_listed_in_their_order() -> None:
    assert LANGUAGES == ("python", "node", "bash") == tuple(Language)
    assert {type(language) for language in LANGUAGES} == {str}


def test_every_language_has_one_pack_and_one_source_name() -> None:
    assert tuple(PACKS) == tuple(SOURCE_NAMES) == LANGUAGES
    assert len(set(PACKS.values())) == len(set(SOURCE_NAMES.values())) == 3


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_pack_is_named_after_its_language(language: str) -> None:
    assert PACKS[language].split(":")[0] == language
