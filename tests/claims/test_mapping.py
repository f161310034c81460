"""The page of promises, claims.toml and the tests here say the same, in both directions."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/security-boundary.md").read_text("utf-8")
CLAIMS = tomllib.loads((ROOT / "docs/claims.toml").read_text("utf-8"))["claim"]
OWN = "tests/claims/test_mapping.py"


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def promises(text: str) -> list[str]:
    """Return the items of its lists; refuse any other prose, which would be a promise untested."""
    found: list[str] = []
    for line in text.splitlines():
        if line.startswith("- "):
            found.append(line.removeprefix("- "))
        elif line.startswith("  "):
            found[-1] += " " + line.strip()
        else:
            assert line == "" or line.startswith("### "), f"a sentence outside a list: {line}"
    return found


def promised() -> list[str]:
    texts = [text for title, text in sections().items() if title.startswith("Promised: ")]
    return [sentence for text in texts for sentence in promises(text)]


@cache
def collected() -> frozenset[str]:
    """Return the ids that pytest itself finds here, soak tests too, without their parameters."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", "tests/claims"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    )
    lines = [line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line]
    return frozenset(line for line in lines if not line.startswith(OWN))


def mapped() -> list[str]:
    return [test for claim in CLAIMS for test in (*claim["tests"], *claim["twins"])]


def test_the_page_has_promises_and_says_what_is_not_promised() -> None:
    titles = list(sections())
    assert [title for title in titles if not title.startswith("Promised: ")] == [
        "How to read this page",
        "NOT promised",
    ]
    assert len(promised()) > 20


def test_every_promise_is_mapped_and_every_mapped_sentence_is_on_the_page() -> None:
    assert promised() == [claim["sentence"] for claim in CLAIMS]
    assert len(set(promised())) == len(promised())


def test_every_promise_is_one_sentence() -> None:
    for sentence in promised():
        assert re.fullmatch(r"[^.]*(\.[a-z][^.]*)*\.", sentence), sentence


def test_every_claim_has_a_test_of_its_name_and_each_of_its_tests_a_twin() -> None:
    assert len({claim["id"] for claim in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        assert claim["tests"][0].endswith(f"::test_{claim['id']}")
        assert claim["twins"] == [f"{test}_sabotaged" for test in claim["tests"]]


def test_every_mapped_test_is_collected_and_every_test_here_is_mapped() -> None:
    assert len(set(mapped())) == len(mapped())
    assert set(mapped()) == collected()
