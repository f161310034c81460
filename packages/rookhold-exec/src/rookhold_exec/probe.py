"""What this host can enforce, control by control, found by trying it.

Namespaces and the filter are tried in a process of their own, groups by making one and removing it:
a permission bit or a version number would not tell what a container runtime, a security module or
a sysctl forbids. It takes some 30 ms, leaves nothing behind and needs no privilege.
"""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from msgspec import Struct

from rookhold_exec import seccomp, subids
from rookhold_exec.cgroup.discovery import Finding, find, places
from rookhold_exec.launcher.groups import Place

__all__ = ["Fact", "HostReport", "Place", "host", "places"]

_SECONDS: Final = 20.0
NAMESPACES: Final = (
    "user-namespace",
    "pid-namespace",
    "mount-namespace",
    "network-namespace",
    "ipc-namespace",
    "uts-namespace",
    "cgroup-namespace",
)
UNIFIED: Final = ("cgroup-v2-memory", "cgroup-v2-pids")
CONFINEMENT: Final = ("no-new-privileges", "capabilities-dropped")
_TRIAL: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    "from rookhold_exec.launcher.trial import main; main(sys.argv[2])"
)
_NOT_ANSWERED: Final = -1

# Switches with which a host forbids user namespaces: file, value that forbids, how to say it.
_SWITCHES: Final = (
    ("/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces is 0"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone is 0"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "AppArmor restricts them (kernel.apparmor_restrict_unprivileged_userns is 1)",
    ),
)
_CGROUP_CONTROLS: Final = {
    "cgroup-memory": "memory",
    "cgroup-pids": "pids",
    "cgroup-cpu": "cpuacct",
}


class Fact(Struct, frozen=True, kw_only=True):
    """Whether a control can be had here; `why` says why not, or by what."""

    control: str
    available: bool
    why: str


class HostReport(Struct, frozen=True, kw_only=True):
    """What was found. `namespaces`: every one that a sandbox is made of can be had.

    `unified` is where version 2 groups with limits on memory and processes can be made.
    """

    root: bool
    namespaces: bool
    seccomp: bool
    places: tuple[Place, ...]
    facts: tuple[Fact, ...]
    unified: Place | None = None

    def available(self, control: str) -> bool:
        return any(fact.available for fact in self.facts if fact.control == control)


def host() -> HostReport:
    """Try everything once. Never raises: what could not be tried is not available."""
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    if not sys.platform.startswith("linux"):
        return _nothing(f"sandboxes need Linux, and this is {sys.platform}")
    answers = _answers()
    facts = [_kernel_fact(each, answers) for each in (*NAMESPACES, *CONFINEMENT)]
    facts.append(_seccomp_fact(answers))
    findings = find()
    facts += [_cgroup_fact(control, findings) for control in _CGROUP_CONTROLS]
    facts += [_unified_fact(control, findings[-1]) for control in UNIFIED]
    facts.append(_newuidmap_fact(root))
    had = {fact.control for fact in facts if fact.available}
    return HostReport(
        root=root,
        namespaces=had.issuperset(NAMESPACES),
        seccomp="seccomp" in had,
        places=tuple(places(findings)),
        facts=tuple(facts),
        unified=findings[-1].place if had.issuperset(UNIFIED) else None,
    )


def _nothing(why: str) -> HostReport:
    controls = (*NAMESPACES, *CONFINEMENT, "seccomp", *_CGROUP_CONTROLS, *UNIFIED, "newuidmap")
    facts = tuple(Fact(control=each, available=False, why=why) for each in controls)
    return HostReport(root=False, namespaces=False, seccomp=False, places=(), facts=facts)


def _answers() -> dict[str, int]:
    """Run the trial; return an errno by control, 0 for success. Without an answer, nothing."""
    filter_path = seccomp.path()
    argv = [
        *(sys.executable, "-I", "-S", "-c", _TRIAL),
        *(str(Path(__file__).parents[1]), "" if filter_path is None else str(filter_path)),
    ]
    try:
        # No preexec_fn: CPython then starts the child by vfork, and this process is not copied.
        done = subprocess.run(  # noqa: S603 - our own interpreter and program
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            env={"PATH": os.defpath},
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    pairs = (line.split() for line in done.stdout.splitlines())
    return {control: int(number) for control, number in pairs}


def _kernel_fact(control: str, answers: dict[str, int]) -> Fact:
    number = answers.get(control, _NOT_ANSWERED)
    return Fact(control=control, available=number == 0, why=_reason(control, number))


def _reason(control: str, number: int) -> str:
    if number == 0:
        return "tried, and it works"
    if number == _NOT_ANSWERED:
        return "the process that was to try it did not answer"
    if number in (errno.EINVAL, errno.ENOSYS):
        return "this kernel does not have it"
    forbidding = [said for path, value, said in _SWITCHES if _reads(path, value)]
    if control.endswith("-namespace") and forbidding:
        return "; ".join(forbidding)
    if number in (errno.EPERM, errno.EACCES):
        return "this user is not allowed to; a container or a security module may forbid it"
    if number in (errno.ENOSPC, errno.EUSERS):
        return "this user may have no more of them (limits in /proc/sys/user)"
    return f"the kernel refused ({errno.errorcode.get(number, str(number))})"


def _seccomp_fact(answers: dict[str, int]) -> Fact:
    if seccomp.program() is None:
        why = f"there is no filter for {os.uname().machine}, only for x86-64"
        return Fact(control="seccomp", available=False, why=why)
    return _kernel_fact("seccomp", answers)


def _cgroup_fact(control: str, findings: list[Finding]) -> Fact:
    """Version 1 first, as `places` chooses; CPU time needs no controller in version 2."""
    name = _CGROUP_CONTROLS[control]
    for each in findings:
        if each.place is not None and (each.controller == name):
            return Fact(control=control, available=True, why=f"by the version 1 {name} hierarchy")
    unified = findings[-1]
    if unified.place is not None and (control == "cgroup-cpu" or name in unified.controls):
        return Fact(control=control, available=True, why="by the version 2 hierarchy")
    [first] = [each for each in findings if each.controller == name]
    second = unified.why or f"version 2 does not hand {name} down to a group that we can make"
    return Fact(control=control, available=False, why=f"version 1: {first.why}; {second}")


def _unified_fact(control: str, unified: Finding) -> Fact:
    """The isolated backends take version 2 only, where a limit is of the whole job at once."""
    name = control.removeprefix("cgroup-v2-")
    if unified.place is not None and name in unified.controls:
        return Fact(control=control, available=True, why="by the version 2 hierarchy")
    why = unified.why or f"the version 2 hierarchy does not hand {name} down to a group of ours"
    how = (
        "boot with systemd.unified_cgroup_hierarchy=1 and run as root, or in a unit with"
        " Delegate=yes"
    )
    return Fact(control=control, available=False, why=f"{why}; {how}")


def _newuidmap_fact(root: bool) -> Fact:
    """A range of uids for jobs, where root does not choose them."""
    if root:
        return Fact(control="newuidmap", available=True, why="not needed: root gives out uids")
    found, why = subids.find()
    if found is None:
        why += "; jobs then share this user's uid"
    return Fact(control="newuidmap", available=found is not None, why=why)


def _reads(path: str, value: str) -> bool:
    try:
        return Path(path).read_text("ascii").strip() == value
    except (OSError, UnicodeDecodeError):
        return False
