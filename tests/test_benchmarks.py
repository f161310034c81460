"""The benchmarks run from end to end; how quick anything is, no test says."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rookhold_exec import probe

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_SECONDS = 300
GOALS, WITH_COMPETITOR, WITH_GROUPS = 22, 7, 3  # how many need bubblewrap, or groups of ours


@pytest.mark.linux_ns
def test_every_part_gives_finite_figures_and_every_goal_a_ratio(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--json", report],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(report.read_text("utf-8"))
    figures = told["figures"]
    assert all(math.isfinite(figure) and figure > 0 for figure in figures.values())
    goals = [name for name in figures if name.startswith("goal.")]
    expected, left_out = GOALS, []
    if shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin") is None:
        expected -= WITH_COMPETITOR
        left_out.append("bubblewrap")
    if not probe.places():
        expected -= WITH_GROUPS
        left_out.append("limits")
    assert len(goals) == expected
    assert all(any(what in line for line in told["left_out"]) for what in left_out)
    assert left_out or told["left_out"] == []
    for table in told["tables"]:
        assert table["title"] in done.stdout
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
