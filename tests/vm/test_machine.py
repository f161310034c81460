"""The harness without a machine: an emulator that is silent, dies, or speaks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from vm import image, machine, project
from vm.inside import Inside, shared_out
from vm.machine import MachineError

TESTS = ["a.py::one", "a.py::two", "b/b.py::one", "c.py::one", "c.py::two", "c.py::three"]


@pytest.fixture
def emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in the emulator's place. Its last argument is `file:` and where results go."""
    script = tmp_path / "emulator"
    monkeypatch.setattr(machine, "QEMU", str(script))
    monkeypatch.setattr(image, "system", lambda: tmp_path)
    monkeypatch.setattr(image, "rootfs", lambda: tmp_path / "rootfs.img")
    monkeypatch.setattr(project, "image", lambda place, order: place / "project.img")
    return script


def says(script: Path, text: str) -> None:
    script.write_text(f'#!/bin/bash\necho $$ > "$0.pid"\nout=${{!#}}; out=${{out#file:}}\n{text}\n')
    script.chmod(0o755)


def test_tests_are_shared_out_once_each_and_a_file_at_a_time() -> None:
    shares = shared_out(TESTS, 2)
    assert sorted(test for share in shares for test in share) == sorted(TESTS)
    assert shares == [TESTS[3:], TESTS[:3]]
    assert shared_out(TESTS[:1], 2) == [TESTS[:1]]


def test_results_are_read_as_they_come(emulator: Path) -> None:
    says(
        emulator,
        """
        echo '{"event": "began", "test": "a"}' >> "$out"
        echo '{"event": "went", "test": "a", "how": "passed", "seconds": 1, "text": ""}' >> "$out"
        echo '{"event": "went", "test": "a", "how": "failed", "seconds": 2, "text": "no"}' >> "$out"
        echo '{"event": "ended", "test": "a"}' >> "$out"
        exec sleep 100""",
    )
    with Inside(["a"], timeout=60) as inside:
        went = inside.result("a")
    assert (went.how, went.seconds, went.text) == ("failed", 3, ["no"])
    pid = int(Path(f"{emulator}.pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_emulator_that_dies_is_told_with_what_was_printed(emulator: Path) -> None:
    says(emulator, """echo '{"event": "began", "test": "a"}' >> "$out"; echo oops; exit 1""")
    with Inside(["a", "b"], timeout=60) as inside:
        with pytest.raises(MachineError, match=r"ended before its tests, in a\n(.|\n)*oops"):
            inside.result("a")
        with pytest.raises(MachineError, match=r"^the VM ended before its tests, in a$"):
            inside.result("b")


@pytest.mark.parametrize("bound", ["timeout", "silence"])
def test_a_machine_that_hangs_is_ended(bound: str, emulator: Path) -> None:
    says(emulator, "exec sleep 100")
    bounds = {"timeout": 60.0, "silence": 60.0, bound: 1.0}
    why = "was not done after 1 s" if bound == "timeout" else "said nothing for 1 s"
    with Inside(["a"], **bounds) as inside:
        with pytest.raises(MachineError, match=why):
            inside.result("a")
        pid = int(Path(f"{emulator}.pid").read_text())
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_test_that_never_ran_is_no_success(emulator: Path) -> None:
    says(emulator, """echo '{"event": "done", "status": 5, "seconds": 0}' >> "$out"; sleep 100""")
    with Inside(["a"], timeout=60) as inside:
        with pytest.raises(MachineError, match="ended before it ran"):
            inside.result("a")
        assert inside.status == 5
