"""The road over cgroup v2, on whatever v2 hierarchy the host has: its CPU counter always counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookhold_exec import probe
from rookhold_exec.select import choose_backend
from rookhold_exec.settings import ExecSettings
from rookhold_exec.testing import Harness
from rookhold_types.limits import Limits
from rookhold_types.states import JobStatus


def hierarchy() -> str | None:
    """Return where the unified hierarchy is mounted, if groups can be made there."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            top = Path(before.split()[4])
            try:
                (top / "rookhold-can-be-made").mkdir()
            except OSError:
                return None
            (top / "rookhold-can-be-made").rmdir()
            return str(top)
    return None


@pytest.mark.linux_ns
@pytest.mark.root
def test_a_payload_is_born_in_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    top = hierarchy()
    if top is None:
        assert all(version == 1 for _, version, _ in probe.places())
        return
    monkeypatch.setattr(probe, "places", lambda: [("v2", 2, top)])
    harness = Harness(choose_backend("namespaces-dev", ExecSettings(node="none")))
    harness.do(harness.executor.open())
    try:
        result = harness.run("python", "print(open('/proc/self/cgroup').read())")
        assert "cgroup-cpu" in result.report.provenance.controls
        assert result.report.provenance.effective_limits.cpu_seconds == Limits().cpu_seconds
        assert b"0::/\n" in result.stdout
        spin = harness.run("bash", "while :; do :; done & sleep 20", limits=Limits(cpu_seconds=1))
        assert spin.report.status is JobStatus.FAILED
        assert spin.report.killed_by == "cgroup-cpu"
    finally:
        harness.close()
    assert not list(Path(top).glob("rookhold-*/job-*"))
