"""What is asked of a submission after it was decoded, as far as JSON Schema can say it.

The schemas themselves are generated from the types, which know of form alone. A text of the largest
size in bytes has at most as many characters, and that is what is said of it here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rookhold_types.limits import (
    CODE_BYTES_MAX,
    INPUT_FILE_BYTES_MAX,
    INPUT_FILES_MAX,
    OUTPUT_FILES_MAX,
    PATH_BYTES_MAX,
    STDIN_BYTES_MAX,
)
from rookhold_types.paths import INPUT_ROOT, OUTPUT_ROOT
from rookhold_types.runtimes import LANGUAGES, PACKS

if TYPE_CHECKING:
    from collections.abc import Mapping

# Padded, and without bits that no byte is made of.
_BASE64: Final = (
    "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
)


def _path(root: str) -> dict[str, Any]:
    """No part of it is empty, `.` or `..`."""
    part = r"(?!\.{1,2}(?:/|$))[^/\\\u0000-\u001f\u007f]+"
    return {"maxLength": PATH_BYTES_MAX, "pattern": f"^{root}(?:/{part})+$"}


# By type and member; an alternative that is null stays as it is.
RULES: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    "JobSpec": {
        "language": {"enum": list(LANGUAGES)},
        "code": {"minLength": 1, "maxLength": CODE_BYTES_MAX, "pattern": r"\S"},
        "stdin": {"maxLength": STDIN_BYTES_MAX},
        "files": {"maxItems": INPUT_FILES_MAX},
        "outputs": {"maxItems": OUTPUT_FILES_MAX, "uniqueItems": True},
        "runtime": {"enum": list(PACKS.values())},
    },
    "JobFile": {
        "path": _path(INPUT_ROOT),
        "content_base64": {
            "contentEncoding": "base64",
            "maxLength": (INPUT_FILE_BYTES_MAX + 2) // 3 * 4,
            "pattern": _BASE64,
        },
    },
    "Limits": {"allow_network": {"const": False}},
}


def apply_rules(schemas: dict[str, Any]) -> None:
    """Add the rules to generated schemas; KeyError for a member that is not there."""
    for name, members in RULES.items():
        for member, rule in members.items():
            described = schemas[name]["properties"][member]
            alternatives = described.get("anyOf", [described])
            alternatives[0] |= rule
    schemas["JobSpec"]["properties"]["outputs"]["items"] |= _path(OUTPUT_ROOT)
