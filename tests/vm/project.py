"""The second disk of a run: the sources, what they depend on, and which tests to run.

It lies at /project in the VM with a virtual environment on Debian's own Python, as in a checkout.
What the lock names comes from the wheelhouse; a host with another Python asks its index once.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .image import ROOT, kept, run

if TYPE_CHECKING:
    from collections.abc import Iterator

PYTHON: Final = (3, 11)  # what the system image has
COPIED: Final = ("packages", "tests", "benchmarks", "docs", "conftest.py", "pyproject.toml")
# Tools that only read sources or talk over a network, and would be most of the image.
NOT_NEEDED: Final = frozenset({
    "ruff", "mypy", "uv", "ast-serialize", "librt", "grimp", "bandit", "stevedore",
    "schemathesis", "jsonschema-rs", "graphql-core", "hypothesis-graphql", "werkzeug",
})  # fmt: skip
SOURCE_ONLY: Final = frozenset({"cgroupspy"})
PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check")
SPARE_MIB: Final = 64


def image(directory: Path, order: dict[str, Any]) -> Path:
    """Make the image in `directory`; `order` is what the VM finds in /project/order.json."""
    tree = directory / "project"
    tree.mkdir(mode=0o755)
    for name in COPIED:
        copied(ROOT / name, tree / name)
    compiled(tree)
    environment(tree / ".venv")
    (tree / "order.json").write_text(json.dumps(order), "utf-8")
    out = directory / "project.img"
    size = sum(path.lstat().st_size + 8192 for path in tree.rglob("*")) // 2**20 + SPARE_MIB
    argv = ["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-i", "8192"]
    run([*argv, "-E", "root_owner=0:0", "-d", str(tree), str(out), f"{size}M"], seconds=120)
    shutil.rmtree(tree)
    return out


def copied(source: Path, target: Path) -> None:
    """Copy with the times, so that compiled files stay valid: compiling is slow in there."""
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, ignore=_unwanted)
    elif source.exists():
        shutil.copy2(source, target)


def compiled(tree: Path) -> None:
    """Compile our own sources too, as if they lay in /project: each program would in there."""
    if sys.version_info[:2] != PYTHON:
        return
    ours = [str(tree / name) for name in COPIED if (tree / name).is_dir()]
    argv = [sys.executable, "-m", "compileall", "-q", "-s", str(tree), "-p", "/project", *ours]
    run(argv, seconds=300)


def _unwanted(_: str, names: list[str]) -> set[str]:
    ours = f".cpython-{PYTHON[0]}{PYTHON[1]}"
    return {
        name
        for name in names
        if (name.endswith(".pyc") and ours not in name) or name in {".pytest_cache", "dist"}
    }


def environment(venv: Path) -> None:
    """Make a virtual environment by hand: two files, a link and the libraries."""
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to("/usr/bin/python3")
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    site = venv / "lib" / "python{}.{}".format(*PYTHON) / "site-packages"
    shutil.copytree(libraries(), site)
    members = sorted((ROOT / "packages").glob("*/src"))
    paths = [f"/project/{member.relative_to(ROOT)}" for member in members]
    (site / "rookhold.pth").write_text("\n".join(paths) + "\n")


def libraries() -> Path:
    """Return a folder with what the tests import, as locked."""
    wanted = sorted(_wanted())
    content = "\n".join([*wanted, Path(__file__).read_text("utf-8")])
    return kept("vm-libraries", content.encode(), lambda out: _install(wanted, out)) / "site"


def _wanted() -> Iterator[str]:
    """Yield the requirements, hashes included, that are needed in there."""
    for block in re.split(r"\n(?=\S)", (ROOT / "requirements.lock").read_text("utf-8").strip()):
        name = re.match(r"[A-Za-z0-9._-]*", block)
        if name is not None and name.group() and name.group() not in NOT_NEEDED:
            yield block


def _install(wanted: list[str], out: Path) -> None:
    sources = [block for block in wanted if block.partition("==")[0] in SOURCE_ONLY]
    wheels = [block for block in wanted if block not in sources]
    house = ["--no-index", "--find-links", str(ROOT / "wheelhouse")]
    version = "{}.{}".format(*PYTHON)
    binary = [] if sys.version_info[:2] == PYTHON else [f"--python-version={version}"]
    common = ["install", "--quiet", "--no-deps", "--no-compile", "--target", str(out / "site")]
    for blocks, how in (
        (wheels, ["--only-binary=:all:", *binary, *(house if not binary else [])]),
        (sources, ["--no-build-isolation", *house]),
    ):
        listed = out / "wanted.txt"
        listed.write_text("\n".join(blocks) + "\n", "utf-8")
        hashes = ["--require-hashes", "--requirement", str(listed)]
        run([*PIP, *common, *how, *hashes], seconds=600)
    if not binary:
        run([sys.executable, "-m", "compileall", "-q", str(out / "site")], seconds=300)
