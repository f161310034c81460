"""Resolve the third-party dependencies again and write the locks, free of any index address.

`requirements.lock` (names, versions, hashes) comes from whatever index this host is configured for;
`uv.lock` is then made against the flat folder `wheelhouse/` alone. `requirements-floor.lock` is the
same for the lowest versions that the wheels say they work with. docs/decisions/ says why.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import setup as workspace

ROOT = workspace.ROOT
FLOOR_LOCK = ROOT / "requirements-floor.lock"
TEST_TOOLS = ("hypothesis", "jsonschema", "setuptools")  # what the wheels' tests need besides
UV = workspace.VENV / "bin" / "uv"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# Newest first: pip takes the first tag of this list that a project offers.
PLATFORMS = (
    "manylinux_2_28",
    "manylinux_2_26",
    "manylinux_2_24",
    "manylinux_2_17",
    "manylinux2014",
    "manylinux_2_12",
    "manylinux2010",
    "manylinux_2_5",
    "manylinux1",
)


def third_party() -> list[str]:
    """Return every requirement of the workspace that is not one of its own wheels."""
    return _requirements([ROOT / "pyproject.toml", *ROOT.glob("packages/*/pyproject.toml")])


def declared_by_wheels() -> list[str]:
    """Return what the wheels need, extras included, without the workspace's own tools."""
    return _requirements(list(ROOT.glob("packages/*/pyproject.toml")))


def _requirements(paths: list[Path]) -> list[str]:
    found: set[str] = set()
    for path in paths:
        table = tomllib.loads(path.read_text("utf-8"))
        project = table["project"]
        groups = [project.get("dependencies", [])]
        groups += project.get("optional-dependencies", {}).values()
        groups += table.get("dependency-groups", {}).values()
        groups.append(table.get("build-system", {}).get("requires", []))
        found.update(item for group in groups for item in group)
    return sorted(item for item in found if not re.match(r"(rookhold|uv_build)\b", item))


def tools_as_locked() -> list[str]:
    """Return the test tools at their locked versions: the floors are about the wheels alone."""
    locked = {workspace.name_of(block): block for block in workspace.requirement_blocks()}
    return [locked[name].split(" ", 1)[0] for name in TEST_TOOLS]


def resolve(requirements: list[str], target: Path, *options: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:  # outside the workspace, whose index is local
        source = Path(scratch) / "requirements.in"
        source.write_text("\n".join(requirements) + "\n", "utf-8")
        made = Path(scratch) / "requirements.lock"
        workspace.run(
            UV,
            "--quiet",
            "--directory",
            scratch,
            "pip",
            "compile",
            "--universal",
            "--upgrade",
            "--generate-hashes",
            "--no-header",
            "--no-annotate",
            *options,
            "--python-version",
            PYTHONS[0],
            source,
            "--output-file",
            made,
            quiet=True,
        )
        kept = [
            block
            for block in re.split(r"\n(?=\S)", made.read_text("utf-8").strip())
            if "sys_platform == 'win32'" not in block
        ]
    target.write_text("\n".join(kept) + "\n", "utf-8")


def fill_for_every_python(pip: list[str | Path]) -> None:
    for version in PYTHONS:
        blocks = [
            block
            for block in workspace.requirement_blocks()
            if workspace.name_of(block) not in workspace.SOURCE_ONLY
        ]
        platforms = [word for name in PLATFORMS for word in ("--platform", f"{name}_x86_64")]
        workspace.pip_with(
            pip,
            [
                "download",
                "--quiet",
                "--no-deps",
                "--require-hashes",
                "--only-binary=:all:",
                "--python-version",
                version,
                *platforms,
                "--dest",
                "wheelhouse",
            ],
            blocks,
        )


def main() -> None:
    workspace.make_venv()
    pip = [workspace.VENV / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    if not UV.exists():
        workspace.run(*pip, "install", "--quiet", "uv", "setuptools", quiet=True)
    resolve(third_party(), workspace.LOCK)
    for old in workspace.WHEELHOUSE.glob("*"):
        old.unlink()
    workspace.fill_wheelhouse(pip)
    fill_for_every_python(pip)
    (ROOT / "uv.lock").unlink(missing_ok=True)
    subprocess.run([UV, "lock", "--offline"], cwd=ROOT, check=True)
    floors = [*declared_by_wheels(), *tools_as_locked()]
    resolve(floors, FLOOR_LOCK, "--resolution", "lowest-direct")
    for path in (ROOT / "uv.lock", workspace.LOCK, FLOOR_LOCK):
        if "://" in path.read_text("utf-8"):
            raise SystemExit(f"{path.name} holds an address")


if __name__ == "__main__":
    main()
