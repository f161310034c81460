"""What a host must offer for a mark, and the rule that CI skips nothing this host could run."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

pytest_plugins = ["rootfs"]

JOB_PATH = "/usr/local/bin:/usr/bin:/bin"
_LACKING = pytest.StashKey[bool]()


@cache
def _lacks_namespaces() -> str:
    if not (tool := shutil.which("unshare")):
        return "no unshare command to try namespaces with"
    argv = [tool, "--user", "--map-root-user", "--pid", "--mount", "--net", "--fork", "true"]
    done = subprocess.run(argv, capture_output=True, check=False, timeout=30)
    return "" if done.returncode == 0 else "this host refuses new namespaces"


@cache
def _lacks_root() -> str:
    return "" if os.geteuid() == 0 else "not run as root"


@cache
def _lacks_node() -> str:
    return "" if shutil.which("node", path=JOB_PATH) else "no node where a sandbox looks for it"


@cache
def _groups() -> frozenset[str]:
    """Return the controllers under which a group may be made here, with "v1:" or "v2:" too."""
    from rookhold_exec.cgroup.discovery import find

    have: set[str] = set()
    for found in find() if os.geteuid() == 0 else ():
        if found.place is not None:
            name, version, _ = found.place
            have |= {name, f"v{version}:{name}"}
            have |= found.controls | {f"v2:{each}" for each in found.controls}
    return frozenset(have)


def _lacks_groups(*wanted: str) -> str:
    if not _groups():
        return "no control group may be made here"
    missing = sorted(set(wanted) - _groups())
    return f"no control group may be made here for {', '.join(missing)}" if missing else ""


@cache
def _lacks_nothing_of_the_kernel() -> str:
    status = Path("/proc/self/status").read_text("ascii", "replace")
    return "" if "\nSeccomp:\t0\n" in status else "a filter around this system refuses calls itself"


@cache
def _lacks_index() -> str:
    tool = Path(__file__).parent / "tools" / "floors.py"
    done = subprocess.run([sys.executable, tool, "--probe"], check=False, timeout=300)
    return "" if done.returncode == 0 else "no package index answers, and nothing was kept from one"


@cache
def _lacks_other_readers() -> str:
    if os.geteuid() != 0:
        return "only root can try it as another account"
    argv = [sys.executable, "-c", "import rookhold_types"]
    try:
        done = subprocess.run(
            argv, user=65534, cwd="/", capture_output=True, check=False, timeout=60
        )
    except PermissionError:  # not even the interpreter
        return "other accounts cannot run this interpreter"
    return "" if done.returncode == 0 else "other accounts cannot read this checkout"


def _lacks_x86_64() -> str:
    return "" if platform.machine() == "x86_64" else "not an x86-64 machine"


@cache
def _lacks_vm() -> str:
    from vm.machine import lacking

    return lacking()


@cache
def _lacks_newuidmap() -> str:
    return "" if shutil.which("newuidmap", path=JOB_PATH) else "no newuidmap (Debian: uidmap)"


def _lacks_runsc(kind: str = "") -> str:
    import gvisor

    return _lacks_root() or gvisor.lacking(kind)


def _lacks_oldest_python() -> str:
    return "" if sys.version_info[:2] == (3, 11) else "not run on Python 3.11, the oldest supported"


@cache
def _lacks_rootfs() -> str:
    import rootfs

    return _lacks_namespaces() or rootfs.lacking()


@cache
def _lacks_disks(kind: str) -> str:
    from faults.mapped import lacking

    return _lacks_root() or lacking(kind)


REQUIREMENTS: dict[str, Callable[..., str]] = {
    "linux_ns": _lacks_namespaces,
    "root": _lacks_root,
    "node": _lacks_node,
    "groups": _lacks_groups,
    "unfiltered": _lacks_nothing_of_the_kernel,
    "readable": _lacks_other_readers,
    "x86_64": _lacks_x86_64,
    "online": _lacks_index,
    "rootfs": _lacks_rootfs,
    "oldest_python": _lacks_oldest_python,
    "vm": _lacks_vm,
    "runsc": _lacks_runsc,
    "newuidmap": _lacks_newuidmap,
    "disks": _lacks_disks,
}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this host cannot serve, saying why; nothing else may skip."""
    for mark in item.iter_markers():
        if mark.name in REQUIREMENTS and (reason := REQUIREMENTS[mark.name](*mark.args)):
            item.stash[_LACKING] = True
            pytest.skip(f"{mark.name}: {reason}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With CI=true, turn a skip for any other reason into a failure."""
    report = yield
    other_reason = report.skipped and not hasattr(report, "wasxfail") and _LACKING not in item.stash
    if other_reason and os.environ.get("CI", "").lower() == "true":
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: skipped, although no mark says what the host lacks"
    return report
