from pathlib import Path

import pytest

from rookhold_exec.cgroup.discovery import (
    Finding,
    candidates,
    find,
    hierarchies,
    own_paths,
    places,
)

HYBRID = r"""31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 master:2 - cgroup cgroup rw,memory
41 31 0:38 / /a\040place/with\134back rw,relatime - cgroup2 cgroup2 rw,nsdelegate
"""
PATHS = "4:memory:/a/b\n2:cpu,cpuacct:/\n1:name=systemd:/x:y\n0::/user.slice/me\n"


def test_mounted_hierarchies_are_read_from_mountinfo() -> None:
    cpu, memory, unified = hierarchies(HYBRID)
    assert (cpu.version, cpu.mount_point) == (1, "/sys/fs/cgroup/cpu,cpuacct")
    assert {"cpu", "cpuacct"} <= cpu.controllers
    assert "memory" in memory.controllers
    assert (unified.version, unified.controllers) == (2, frozenset())
    assert unified.mount_point == "/a place/with\\back"


def test_our_own_paths_are_read_by_controller() -> None:
    paths = own_paths(PATHS)
    assert (paths["memory"], paths["cpuacct"], paths[""]) == ("/a/b", "/", "/user.slice/me")
    assert paths["name=systemd"] == "/x:y"


@pytest.mark.parametrize(
    ("root", "path", "expected"),
    [
        ("/", "/", ["/m"]),
        ("/", "/a/b", ["/m/a/b", "/m/a", "/m"]),
        ("/docker/1", "/docker/1", ["/m"]),
        ("/docker/1", "/docker/1/x", ["/m/x", "/m"]),
        ("/docker/1", "/elsewhere", ["/m"]),
        ("/", "/../../outside", ["/m/outside", "/m"]),
        ("/a", "/ab", ["/m"]),
    ],
)
def test_the_nearest_group_is_tried_first_and_nothing_outside_the_mount(
    root: str, path: str, expected: list[str]
) -> None:
    [hierarchy] = hierarchies(f"1 2 0:3 {root} /m rw - cgroup cgroup rw,memory")
    assert [str(each) for each in candidates(hierarchy, path)] == expected


class KernelLike:
    """Directories that fill themselves as a hierarchy does, in place of a mounted one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, top: Path, files: dict[str, str]) -> None:
        self.files = files
        make, remove = Path.mkdir, Path.rmdir

        def mkdir(path: Path, mode: int = 0o777) -> None:
            make(path, mode)
            for name, text in files.items():
                (path / name).write_text(text)

        def rmdir(path: Path) -> None:
            for name in files:
                (path / name).unlink()
            remove(path)

        monkeypatch.setattr(Path, "mkdir", mkdir)
        monkeypatch.setattr(Path, "rmdir", rmdir)
        for name, text in files.items():
            (top / name).write_text(text)


ROOT_FILES = {
    "cgroup.controllers": "cpu memory pids",
    "cgroup.subtree_control": "memory",
    "cpu.stat": "usage_usec 0",
}
OTHER_FILES = {**ROOT_FILES, "cgroup.type": "domain"}


def test_version_2_says_which_controllers_its_children_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    KernelLike(monkeypatch, tmp_path, OTHER_FILES)
    *_, unified = find(f"1 2 0:3 /unit {tmp_path} rw - cgroup2 cgroup2 rw", "0::/unit\n")
    assert unified.place == ("v2", 2, str(tmp_path))
    assert unified.controls == {"memory", "pids"}
    assert not list(tmp_path.glob("rookhold-*"))


def test_the_root_group_itself_is_never_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    KernelLike(monkeypatch, tmp_path, ROOT_FILES)
    *_, unified = find(f"1 2 0:3 / {tmp_path} rw - cgroup2 cgroup2 rw", "0::/\n")
    assert unified.place == ("v2", 2, f"{tmp_path}/rookhold")
    assert unified.controls == {"memory", "pids"}
    assert not list(tmp_path.glob("rookhold*"))


def test_a_read_only_hierarchy_has_no_place_and_a_reason(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    mounts = (
        f"1 2 0:3 / {missing} ro - cgroup2 cgroup2 ro\n1 2 0:3 / {missing} ro - cgroup c ro,memory"
    )
    memory, _, _, unified = find(mounts, "4:memory:/\n0::/\n")
    assert (memory.place, unified.place) == (None, None)
    assert "by this user" in memory.why
    assert "by this user" in unified.why


def finding(controller: str, *, there: bool, controls: frozenset[str] = frozenset()) -> Finding:
    version = 2 if controller == "v2" else 1
    place = (controller, version, "/x") if there else None
    return Finding(controller=controller, place=place, why="" if there else "no", controls=controls)


@pytest.mark.parametrize(
    ("v1", "v2_controls", "expected"),
    [
        (
            ("memory", "cpuacct", "pids"),
            frozenset({"memory", "pids"}),
            ["memory", "cpuacct", "pids"],
        ),
        (("memory", "cpuacct"), frozenset({"pids"}), ["memory", "cpuacct", "v2"]),
        (("memory", "pids"), frozenset(), ["memory", "pids", "v2"]),
        ((), frozenset({"memory", "pids"}), ["v2"]),
        (("memory", "cpuacct"), frozenset(), ["memory", "cpuacct"]),
    ],
)
def test_version_2_is_used_for_what_version_1_lacks(
    v1: tuple[str, ...], v2_controls: frozenset[str], expected: list[str]
) -> None:
    findings = [finding(each, there=each in v1) for each in ("memory", "cpuacct", "pids")]
    findings.append(finding("v2", there=True, controls=v2_controls))
    assert [place[0] for place in places(findings)] == expected
