from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import rookhold
from rookhold.errors import ApiError, RookholdError

WHEEL = Path(__file__).parent.parent
PAGE = WHEEL.parents[1] / "docs/errors.md"


def test_importing_the_package_loads_no_network_code() -> None:
    program = (
        "import sys, rookhold\n"
        "assert not {'http.client', 'socket', 'json', 'rookhold.client'} & sys.modules.keys()\n"
        "rookhold.Rookhold\n"
        "assert 'http.client' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_only_the_standard_library_is_imported() -> None:
    program = (
        "import sys, rookhold\n"
        "[getattr(rookhold, name) for name in rookhold.__all__]\n"
        "tops = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(tops - set(sys.stdlib_module_names) - {'rookhold', '__main__'}))"
    )
    found = subprocess.run(  # -S: no site hooks of the environment either
        [
            sys.executable,
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(WHEEL / 'src')!r})\n{program}",
        ],
        check=True,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert found.stdout == "[]\n"


@pytest.mark.parametrize("name", rookhold.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(rookhold, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        rookhold.nothing_of_the_kind  # noqa: B018


def test_the_version_is_the_wheels() -> None:
    project = tomllib.loads((WHEEL / "pyproject.toml").read_text("utf-8"))["project"]
    assert rookhold.__version__ == project["version"]
    assert project["dependencies"] == []


def test_every_code_is_unique_and_explained() -> None:
    waiting, codes = list(RookholdError.__subclasses__()), []
    while waiting:
        kind = waiting.pop()
        if not issubclass(kind, ApiError):  # those carry the gateway's code
            waiting += kind.__subclasses__()
            codes.append(kind.code)
    assert len(codes) == len(set(codes))
    section = PAGE.read_text("utf-8").partition("## rookhold-sdk\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^### `(\w+)`$", section, re.MULTILINE)) == sorted(codes)
