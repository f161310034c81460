"""The same contract, for a server that is not root: a process of another uid runs those tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

UID = "12345"
ROOT = Path(__file__).resolve().parents[3]
FILES = ("test_contract_namespaces_dev.py", "test_isolation.py")


def visible(path: str, binds: dict[str, str]) -> str:
    """Return where that uid finds a directory, which may lie below one that is closed to it."""
    if path.startswith(("/usr/", "/lib")):
        return path
    if Path(path).is_relative_to(ROOT):
        return path.replace(str(ROOT), "/mnt/root", 1)
    return binds.setdefault(path, f"/mnt/path{len(binds)}")


@pytest.mark.linux_ns
@pytest.mark.root
def test_the_contract_holds_for_a_server_without_privileges() -> None:
    binds = {str(ROOT): "/mnt/root"}
    paths = [visible(path, binds) for path in sys.path if Path(path).is_dir()]
    mounts = "".join(
        f"mkdir {target} && mount --bind '{source}' {target} && "
        for source, target in binds.items()
    )
    here = f"/mnt/root/{Path(__file__).resolve().parent.relative_to(ROOT)}"
    tests = " ".join(f"'{here}/{name}'" for name in FILES)
    script = (
        f"mount -t tmpfs none /mnt && mkdir -m 1777 /mnt/tmp && {mounts}"
        f"exec setpriv --reuid {UID} --regid {UID} --clear-groups "
        f"'{os.path.realpath(sys.executable)}' -B -m pytest -q -p no:cacheprovider "
        f"--rootdir /mnt/root -c /mnt/root/pyproject.toml --basetemp /mnt/tmp/pytest {tests}"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": ":".join(paths), "HOME": "/"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 40
