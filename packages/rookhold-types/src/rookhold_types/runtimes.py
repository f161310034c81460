"""Languages with the runtime pack that belongs to each, and how their sources are named."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Language(StrEnum):
    """The languages of Rookhold, in the order in which they are listed."""

    PYTHON = "python"
    NODE = "node"
    BASH = "bash"


LANGUAGES: Final = tuple(language.value for language in Language)

PACKS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "python": "python:bookworm-20260826-stdlib",
        "node": "node:bookworm-20260826-base",
        "bash": "bash:bookworm-20260826-core",
    }
)

SOURCE_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {"python": "job.py", "node": "job.js", "bash": "job.sh"}
)
