import os
import subprocess
import sys

import pytest

from rookhold_exec.launcher import family

_TREE = (
    "import subprocess, time; subprocess.Popen(['sleep', '30']); "
    "print(1, flush=True); time.sleep(30)"
)


def test_descendants_are_found_by_either_way_of_looking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen([sys.executable, "-c", _TREE], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        listed = set(family.descendants())
        monkeypatch.setattr(os.path, "exists", lambda path: False)
        read = set(family.descendants())
        grandchildren = {pid for pid in listed if child.pid != pid}
        for pid in (child.pid, *grandchildren):
            os.kill(pid, 9)
    assert child.pid in listed
    assert grandchildren
    assert read == listed
