"""bandit over everything that is shipped: each finding is argued, at its line or in the table here.

Ruff has the same rules, as S with the number; a reason behind `noqa: S` counts for both. The suites
under `testing/` are made of assertions and are left out.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NOTE = re.compile(r"# noqa: [\w, ]*\bS(\d{3})\b[\w, ]*  ?[-#] \S+")

# What ruff does not see or does not mind: the rule and the place, then why it may be so.
ARGUED = {
    ("B404", ""): "subprocess is what starts programs; each call of it is argued by itself",
    ("B603", "rookhold_cli/temporary.py"): "our own interpreter and module, without a shell",
    ("B606", "rookhold_exec/launcher/"): "to start a program without a shell is its purpose",
    ("B108", "rookhold_exec/launcher/"): "/tmp of a mount namespace that nobody else sees",
    ("B105", "rookhold_server/identity/challenges.py"): "a realm is no password",
    ("B608", "rookhold_store/"): "names of columns and tables are constants; values are bindings",
}


def argued_at(file: Path, lines: list[int], number: str) -> bool:
    """Whether a line of the statement has a reason for breaking the rule of that number."""
    text = file.read_text("utf-8").splitlines()
    return any(number in NOTE.findall(text[line - 1]) for line in lines)


def findings() -> list[tuple[str, Path, list[int], str]]:
    sources = sorted(str(path) for path in ROOT.glob("packages/*/src"))
    done = subprocess.run(
        [sys.executable, "-m", "bandit", "-q", "-f", "json", "-x", "*/testing/*", "-r", *sources],
        capture_output=True,
        timeout=600,
        check=False,
    )
    told = json.loads(done.stdout)
    assert told["errors"] == []
    assert told["metrics"]["_totals"]["loc"] > 20_000  # it did look
    return [
        (each["test_id"], Path(each["filename"]), each["line_range"], each["issue_text"])
        for each in told["results"]
    ]


def test_every_finding_of_bandit_is_argued_and_no_argument_is_left_over() -> None:
    open_findings, used = [], set()
    for rule, file, lines, text in findings():
        if argued_at(file, lines, rule[1:]):
            continue
        place = file.as_posix().partition("/src/")[2]
        for key in ARGUED:
            if key[0] == rule and place.startswith(key[1]):
                used.add(key)
                break
        else:
            open_findings.append(f"{place}:{lines[0]}: {rule} {text}")
    assert open_findings == []
    assert used == set(ARGUED)


@pytest.mark.parametrize(
    ("line", "number", "counts"),
    [
        ("x()  # noqa: S603 - our own program", "603", True),
        ("x()  # noqa: BLE001, S603  # fixed arguments", "603", True),
        ("x()  # noqa: S603", "603", False),
        ("x()  # noqa: S604 - another rule", "603", False),
    ],
)
def test_a_note_counts_only_with_a_reason(
    tmp_path: Path, line: str, number: str, *, counts: bool
) -> None:
    file = tmp_path / "module.py"
    file.write_text(f"{line}\n")
    assert argued_at(file, [1], number) is counts
