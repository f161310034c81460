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
from typing import Any

import pytest
from vm.suites import suite_of

from rookhold_exec.backends import gvisor, namespaces
from rookhold_types.isolation import Control

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/security-boundary.md").read_text("utf-8")
FILE = tomllib.loads((ROOT / "docs/claims.toml").read_text("utf-8"))
CLAIMS, CONTROLS = FILE["claim"], FILE["control"]
OWN = "tests/claims/test_mapping.py"
DEFINITIONS = ("What is trusted", "What is not trusted")  # no test shows a definition
UNTESTED = ("How to read this page", *DEFINITIONS, "NOT promised")
BACKENDS = {
    "namespaces-dev": re.compile(r"\bnamespaces-dev\b"),
    "namespaces": re.compile(r"\bnamespaces\b(?!-dev)"),
    "gvisor": re.compile(r"\bgvisor\b"),
    "off": re.compile(r"\boff\b"),
}


ALL = {each.value for each in Control}
CLAIMED = {  # what a receipt of each backend may list
    "namespaces-dev": ALL - {"private-rootfs", "application-kernel"},
    "namespaces": namespaces.PROMISED,
    "gvisor": gvisor.PROMISED | gvisor.GROUPS,
}
# Where the receipt of a job without one control is shown to lack exactly that one.
RECEIPTS = {
    "namespaces-dev": "tests/claims/test_receipts.py::test_receipt_names_controls",
    "namespaces": "packages/rookhold-exec/tests/test_namespaces.py"
    "::test_a_control_that_was_dropped_is_missing_alone_and_takes_the_class_along",
    "gvisor": "packages/rookhold-exec/tests/test_gvisor.py"
    "::test_a_control_that_is_left_out_is_missing_from_the_evidence_alone",
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
    """Return the tests that pytest finds here and there, soak too, each with its parameters."""
    places = ["tests/claims", *(test.partition("::")[0] for test in RECEIPTS.values())]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", *places]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    )
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        test, _, parameters = line.partition("[")
        if "::" in line and not test.startswith(OWN):
            found.setdefault(test, []).append(parameters.removesuffix("]"))
    return found


def shown_on(tests: list[str], control: str = "") -> set[str]:
    """Return the backends on which `make check` or `make soak` runs one of these tests.

    A test that takes names of controls is one of those it takes.
    """
    found = {"off" for test in tests if re.search(r"_off(_|$)", test)}
    for test in tests:
        for parameters in collected()[test]:
            named = any(each in parameters for each in ALL)
            if control and named and control not in parameters:
                continue
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
    assert set(mapped()) == {test for test in collected() if test.startswith("tests/claims/")}


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


def test_every_control_has_an_entry() -> None:
    assert sorted(each["name"] for each in CONTROLS) == sorted(ALL)


@pytest.mark.parametrize("control", CONTROLS, ids=[each["name"] for each in CONTROLS])
def test_a_control_that_is_switched_off_is_noticed_by_a_job_and_missing_in_its_receipt(
    control: dict[str, Any],
) -> None:
    name = control["name"]
    backends = {backend for backend, claimed in CLAIMED.items() if name in claimed}
    assert set(control["on"]) | set(control.get("unshown", {})) == backends
    assert set(control["on"]).isdisjoint(control.get("unshown", {}))
    for backend in backends:
        assert any(name in parameters for parameters in collected()[RECEIPTS[backend]])
    for backend in control["on"]:
        twins = [test for test in control["twins"] if backend in shown_on([test], name)]
        assert twins, f"nothing notices its lack on {backend}"
    assert set(control["twins"]) <= {twin for claim in CLAIMS for twin in claim["twins"]}
