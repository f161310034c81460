"""Find the control groups in which this process may make a child, by trying.

Nearest first: a child of our own group stays under the limits that were set for us; only where that
is not possible is an ancestor tried. Nothing here walks a hierarchy.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from rookhold_exec.cgroup.controllers import Group, UnifiedController
from rookhold_exec.launcher import subtree
from rookhold_exec.launcher.groups import Place

V1_CONTROLLERS: Final = ("memory", "cpuacct", "pids")
_V1_FILE: Final = {
    "memory": "memory.limit_in_bytes",
    "cpuacct": "cpuacct.usage",
    "pids": "pids.max",
}


class Hierarchy(Struct, frozen=True, kw_only=True):
    """One mounted hierarchy."""

    version: int
    controllers: frozenset[str]
    mount_point: str
    root: str  # which directory of the hierarchy is seen at the mount point


class Finding(Struct, frozen=True, kw_only=True):
    """Where a controller's groups can be made, or why nowhere."""

    controller: str
    place: Place | None
    why: str
    controls: frozenset[str] = frozenset()  # of version 2: which of memory, pids its children get


def hierarchies(mountinfo: str) -> list[Hierarchy]:
    """Return the hierarchies in the text of /proc/self/mountinfo."""
    found = []
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        if not separator:
            continue
        fields, (kind, _, options) = before.split(" "), after.split(" ", 2)
        if kind not in ("cgroup", "cgroup2"):
            continue
        found.append(
            Hierarchy(
                version=2 if kind == "cgroup2" else 1,
                controllers=frozenset(options.split(",")) if kind == "cgroup" else frozenset(),
                mount_point=_unescaped(fields[4]),
                root=_unescaped(fields[3]),
            )
        )
    return found


def own_paths(proc_cgroup: str) -> dict[str, str]:
    """Return our path by controller, "" for version 2, from the text of /proc/self/cgroup."""
    paths = {}
    for line in proc_cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def candidates(hierarchy: Hierarchy, path: str) -> Iterator[Path]:
    """Yield the directory of `path` as it is mounted, then its ancestors up to the mount point."""
    top = Path(hierarchy.mount_point)
    inside = os.path.relpath(path, hierarchy.root)
    here = top if inside.startswith("..") else top / inside
    yield here
    while here != top:
        here = here.parent
        yield here


def find(mountinfo: str | None = None, proc_cgroup: str | None = None) -> list[Finding]:
    """Try every hierarchy: version 1 for each controller, then version 2."""
    if mountinfo is None:
        mountinfo = _read("/proc/self/mountinfo")
    if proc_cgroup is None:
        proc_cgroup = _read("/proc/self/cgroup")
    mounted, paths = hierarchies(mountinfo), own_paths(proc_cgroup)
    return [*(_find_v1(each, mounted, paths) for each in V1_CONTROLLERS), _find_v2(mounted, paths)]


def places(findings: list[Finding] | None = None) -> list[Place]:
    """Return where a launcher may make its groups; version 2 only if it adds what 1 lacks."""
    *first, unified = find() if findings is None else findings
    chosen = [each.place for each in first if each.place is not None]
    have = {place[0] for place in chosen}
    adds = unified.controls - have or "cpuacct" not in have
    return [*chosen, unified.place] if unified.place is not None and adds else chosen


def _find_v1(controller: str, mounted: list[Hierarchy], paths: dict[str, str]) -> Finding:
    for hierarchy in mounted:
        if hierarchy.version == 1 and controller in hierarchy.controllers and controller in paths:
            for directory in candidates(hierarchy, paths[controller]):
                if _takes_child(directory, _V1_FILE[controller]):
                    place = (controller, 1, str(directory))
                    return Finding(controller=controller, place=place, why="")
            why = "no group may be made in its hierarchy by this user"
            return Finding(controller=controller, place=None, why=why)
    why = "it is not mounted as a version 1 hierarchy"
    return Finding(controller=controller, place=None, why=why)


def _find_v2(mounted: list[Hierarchy], paths: dict[str, str]) -> Finding:
    unified = [each for each in mounted if each.version == 2]
    if not unified or "" not in paths:
        return Finding(controller="v2", place=None, why="no version 2 hierarchy is mounted")
    best: Finding | None = None
    for directory in candidates(unified[0], paths[""]):
        if not _takes_child(directory, "cpu.stat"):
            continue
        emptied = subtree.is_delegated(str(directory), paths[""])
        controls = frozenset(
            each for each in ("memory", "pids") if _hands_down(directory, each, emptied=emptied)
        )
        if best is None or len(controls) > len(best.controls):
            below = subtree.is_root_group(str(directory))
            place = ("v2", 2, subtree.below_root(str(directory)) if below else str(directory))
            best = Finding(controller="v2", place=place, why="", controls=controls)
    why = "no group may be made in the version 2 hierarchy by this user"
    return best or Finding(controller="v2", place=None, why=why)


def _takes_child(directory: Path, must_have: str) -> bool:
    """Make a group and take it away again: a permission bit alone would not tell."""
    trial = directory / f"rookhold-trial-{os.getpid()}"
    try:
        trial.mkdir(mode=0o755)
    except OSError:
        return False
    try:
        return (trial / must_have).exists()
    finally:
        trial.rmdir()


def _hands_down(directory: Path, controller: str, *, emptied: bool) -> bool:
    """Can the children of this version 2 group have the controller? Leaves it as it was.

    With `emptied`, the launcher will first move away the processes that would be in the way.
    """
    group = UnifiedController(Group(directory))
    try:
        if controller in group.subtree_control:
            return True
        if controller not in group.controllers:
            return False
        if emptied:
            return os.access(directory / "cgroup.subtree_control", os.W_OK)
        group.subtree_control = {f"+{controller}"}
        group.subtree_control = {f"-{controller}"}
    except OSError:
        return False
    return True


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", errors="surrogateescape")
    except OSError:
        return ""


def _unescaped(text: str) -> str:
    """Undo mountinfo's octal escapes of space, tab, newline and backslash."""
    for code, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        text = text.replace(code, character)
    return text
