import re
from pathlib import Path

import pytest


def test_the_readmes_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = Path(__file__).parent.parent / "README.md"
    blocks = re.findall(r"```python\n(.*?)```", readme.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 1
    monkeypatch.chdir(tmp_path)
    exec(blocks[0], {})
    accepted, listed, swept, found, copied = capsys.readouterr().out.splitlines()
    assert accepted.startswith("Accepted(")
    assert "status=<JobStatus.QUEUED: 'queued'>" in listed
    assert "jobs_deleted=0" in swept
    assert found == "[]"
    assert "monday.db" in copied
    assert (tmp_path / "state" / "monday.db").stat().st_mode & 0o777 == 0o600
