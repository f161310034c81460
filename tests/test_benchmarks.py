"""The benchmarks run from end to end; how quick anything is, no test says."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_SECONDS = 300
GOALS_WITHOUT_COMPETITOR = 6  # of thirteen; the others are ratios to bubblewrap or the baseline


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
    if shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin") is None:
        assert len(goals) == GOALS_WITHOUT_COMPETITOR
        assert any("bubblewrap" in line for line in told["left_out"])
    else:
        assert len(goals) == 13
        assert told["left_out"] == []
    for table in told["tables"]:
        assert table["title"] in done.stdout
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
