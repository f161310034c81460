"""The page of promises, claims.toml and the tests here say the same, in both directions.

claims.toml also says on which backends a sentence is shown. For the backend that needs the VM only
those tests count that run in there.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
from vm.suites import suite_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/security-boundary.md").read_text("utf-8")
CLAIMS = tomllib.loads((ROOT / "docs/claims.toml").read_text("utf-8"))["claim"]
OWN = "tests/claims/test_mapping.py"
DEFINITIONS = ("What is trusted", "What is not trusted")  # no test shows a definition
UNTESTED = ("How to read this page", *DEFINITIONS, "NOT promised")
BACKENDS = {
    "namespaces-dev": re.compile(r"\bnamespaces-dev\b"),
    "namespaces": re.compile(r"\bnamespaces\b(?!-dev)"),
    "gvisor": re.compile(r"\bgvisor\b"),
    "off": re.compile(r"\boff\b"),
}


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
def collected() -> dict[str, list[str]]:
    """Return the tests that pytest finds here, soak tests too, each with its parameters."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", "tests/claims"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    )
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        test, _, parameters = line.partition("[")
        if "::" in line and test.startswith("tests/") and not test.startswith(OWN):
            found.setdefault(test, []).append(parameters.removesuffix("]"))
    return found


def shown_on(tests: list[str]) -> set[str]:
    """Return the backends on which `make check` or `make soak` runs one of these tests."""
    found = {"off" for test in tests if re.search(r"_off(_|$)", test)}
    for test in tests:
        for parameters in collected()[test]:
            names = {name for name, pattern in BACKENDS.items() if pattern.search(parameters)}
            if names == {"namespaces"} and suite_of(f"{test}[{parameters}]") is None:
                continue
            found |= names
    return found


def mapped() -> list[str]:
    return [test for claim in CLAIMS for test in (*claim["tests"], *claim["twins"])]


def test_the_page_has_promises_and_says_what_is_trusted_and_what_is_not_promised() -> None:
    titles = list(sections())
    assert [title for title in titles if not title.startswith("Promised: ")] == list(UNTESTED)
    assert len(promised()) > 40


def test_every_promise_is_mapped_and_every_mapped_sentence_is_on_the_page() -> None:
    assert promised() == [claim["sentence"] for claim in CLAIMS]
    assert len(set(promised())) == len(promised())


def test_every_promise_is_one_sentence() -> None:
    for sentence in promised():
        assert re.fullmatch(r"[^.]*(\.[a-z][^.]*)*\.", sentence), sentence


def test_a_definition_names_what_it_defines() -> None:
    for title in DEFINITIONS:
        for item in re.findall(r"^- .*(?:\n  .*)*", sections()[title], flags=re.MULTILINE):
            assert item.startswith("- **"), item  # it names a thing, and promises nothing of it


def test_every_claim_has_a_test_of_its_name_and_each_of_its_tests_a_twin() -> None:
    assert len({claim["id"] for claim in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        assert claim["tests"][0].endswith(f"::test_{claim['id']}")
        assert claim["twins"] == [f"{test}_sabotaged" for test in claim["tests"]]


def test_every_mapped_test_is_collected_and_every_test_here_is_mapped() -> None:
    assert len(set(mapped())) == len(mapped())
    assert set(mapped()) == set(collected())


@pytest.mark.parametrize("claim", CLAIMS, ids=[claim["id"] for claim in CLAIMS])
def test_a_claim_says_on_which_backends_it_and_its_twin_are_shown(
    claim: dict[str, list[str]],
) -> None:
    shown, twins = shown_on(claim["tests"]), shown_on(claim["twins"])
    assert set(claim.get("on", [])) == shown
    assert set(claim.get("twins_on", claim.get("on", []))) == twins


def test_what_is_shown_elsewhere_is_there() -> None:
    for claim in CLAIMS:
        for test in claim.get("elsewhere", []):
            file, _, name = test.partition("::")
            tree = ast.parse((ROOT / file).read_text("utf-8"))
            names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            assert name in names, test
