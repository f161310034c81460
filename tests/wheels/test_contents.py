"""What is in a wheel and what it says of itself."""

from __future__ import annotations

import ast
import email
import re
import sys
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest
from installing import ROOT, WHEELS
from packaging.requirements import Requirement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message
    from pathlib import Path

IMPORT_NAMES = {
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry",
    "opentelemetry-sdk": "opentelemetry",
    "pyjwt": "jwt",
    "pynacl": "nacl",
    "rookhold-sdk": "rookhold",
}


def packed(wheel: str, dist: Path) -> zipfile.ZipFile:
    (path,) = dist.glob(f"{wheel.replace('-', '_')}-*.whl")
    return zipfile.ZipFile(path)


def metadata(wheel: str, dist: Path) -> Message:
    with packed(wheel, dist) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(opened.read(name))


@pytest.mark.parametrize("wheel", WHEELS)
def test_a_wheel_holds_its_whole_package_and_nothing_else(wheel: str, dist: Path) -> None:
    source = ROOT / "packages" / wheel / "src"
    ours = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }
    with packed(wheel, dist) as opened:
        held = {name for name in opened.namelist() if not name.endswith("/")}
    assert {name for name in held if ".dist-info/" not in name} == ours
    assert sum(name.endswith("/py.typed") for name in held) == 1


@pytest.mark.parametrize("wheel", WHEELS)
def test_a_source_archive_holds_readme_and_changelog(wheel: str, dist: Path) -> None:
    (path,) = dist.glob(f"{wheel.replace('-', '_')}-*.tar.gz")
    with tarfile.open(path) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    assert {"README.md", "CHANGELOG.md", "pyproject.toml"} <= held


@pytest.mark.parametrize("wheel", WHEELS)
def test_a_wheel_says_what_it_is_and_claims_no_licence(wheel: str, dist: Path) -> None:
    told = metadata(wheel, dist)
    assert told["Name"] == wheel
    assert told["Summary"].endswith(".")
    assert told["Requires-Python"] == ">=3.11"
    assert told["Description-Content-Type"] == "text/markdown"
    assert told.get_payload().lstrip().startswith(f"# {wheel}\n")
    assert "Typing :: Typed" in told.get_all("Classifier", [])
    assert not re.search(r"^(License|Classifier: License)", str(told), re.MULTILINE)


@pytest.mark.parametrize("wheel", WHEELS)
def test_a_wheel_declares_what_it_imports_and_imports_what_it_declares(
    wheel: str, dist: Path
) -> None:
    lines = metadata(wheel, dist).get_all("Requires-Dist", [])
    names = {Requirement(line).name for line in lines}
    declared = {IMPORT_NAMES.get(name, name.replace("-", "_")) for name in names}
    (package,) = (ROOT / "packages" / wheel / "src").iterdir()
    imported = {name.partition(".")[0] for name in imports(package)}
    assert imported - set(sys.stdlib_module_names) - {package.name} == declared


def imports(package: Path) -> Iterator[str]:
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Import():
                    yield from (alias.name for alias in node.names)
                case ast.ImportFrom(module=str(module), level=0):
                    yield module
                case ast.Call(
                    func=ast.Name(id="load" | "import_module"),
                    args=[ast.Constant(value=str(name)), *_],
                ):
                    yield name
