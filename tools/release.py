"""Release one wheel: check that it may be released, build it from what is committed, tag it.

    make release WHEEL=rookhold-types

Nothing is published and nothing is pushed: that is the releaser's next step, with the tag in hand.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
UV = Path(sys.executable).parent / "uv"
CONSTANT = re.compile(r'^__version__\b[^=\n]*= "([^"]+)"$', re.MULTILINE)


def refuse(why: str) -> NoReturn:
    sys.stderr.write(f"release: {why}\n")
    raise SystemExit(1)


def git(*argv: str) -> str:
    done = subprocess.run(
        ["git", *argv], cwd=ROOT, check=False, capture_output=True, text=True, encoding="utf-8"
    )
    if done.returncode != 0:
        refuse(f"git {argv[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def version_of(package: Path) -> str:
    """Return the version its pyproject gives, which every constant in the wheel must repeat."""
    version: str = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"][
        "version"
    ]
    for path in package.glob("src/**/*.py"):
        for found in CONSTANT.findall(path.read_text("utf-8")):
            if found != version:
                refuse(f"{path.relative_to(package)} says {found}, pyproject.toml says {version}")
    return version


def notes_of(package: Path, version: str) -> str:
    """Return the changelog's section for this version: the tag's message."""
    text = (package / "CHANGELOG.md").read_text("utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    for section in sections:
        title, _, body = section.partition("\n")
        if title.split()[:1] == [version] and body.strip():
            return body.strip()
    refuse(f"{package.name}/CHANGELOG.md has no section for {version} that says anything")


def build(name: str, commit: str) -> list[Path]:
    """Build from the commit alone: nothing ignored or forgotten in the checkout can take part."""
    target = ROOT / "dist"
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / "tree.zip"
        git("archive", "--output", str(archive), commit)
        tree = Path(scratch) / "tree"
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(tree)
        (tree / "wheelhouse").mkdir(exist_ok=True)  # the workspace's index has to exist
        subprocess.run(
            [UV, "build", "--quiet", "--offline", "--package", name, "--out-dir", target],
            cwd=tree,
            check=True,
        )
    version = version_of(ROOT / "packages" / name)
    return sorted(target.glob(f"{name.replace('-', '_')}-{version}[-.]*"))


def main() -> None:
    packages = {path.parent.name: path.parent for path in ROOT.glob("packages/*/pyproject.toml")}
    name = sys.argv[1] if len(sys.argv) == 2 else ""
    if name not in packages:
        refuse(f"say which: make release WHEEL=... with one of {', '.join(sorted(packages))}")
    if git("status", "--porcelain"):
        refuse("the checkout has changes that are not committed")
    version = version_of(packages[name])
    notes = notes_of(packages[name], version)
    tag = f"{name}-v{version}"
    if git("tag", "--list", tag):
        refuse(f"{tag} exists: a released version never changes")
    for made in build(name, git("rev-parse", "HEAD")):
        print(made.relative_to(ROOT))
    git("tag", "--annotate", tag, "--cleanup=verbatim", "--message", f"{name} {version}\n\n{notes}")
    print(f"tagged {tag}")


if __name__ == "__main__":
    main()
