"""What a wheel's README shows runs on that wheel alone, and it says what installing it brings."""

from __future__ import annotations

import re
import shlex
import tomllib
from typing import TYPE_CHECKING

import pytest
from installing import ROOT, WHEELS
from packaging.requirements import Requirement

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway import Gateway
    from installing import Environment

# Runs a block that may await, as the interactive interpreter of `python -m asyncio` does.
RUNNER = """
import ast, asyncio, inspect, sys
code = compile(sys.argv[1], "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
names = {"__name__": "__main__"}
exec(sys.argv[2], names)
result = eval(code, names)
if inspect.iscoroutine(result):
    asyncio.run(result)
"""
MAKE_EVIDENCE = """
import os
from pathlib import Path
from rookhold_attestation import PrivateKey, testing
os.umask(0o077)
testing.TENANT = "acme"
key = PrivateKey.generate()
key.public_key.save("signer.pub.pem")
evidence = testing.sample_evidence(key)
envelope, artifact = evidence.envelope, evidence.artifact
Path("envelope.json").write_bytes(envelope)
Path("result.json").write_bytes(artifact)
"""
SHOWN = {
    "rookhold-attestation": "succeeded True",
    "rookhold-exec": "OutputRecord(stream='stdout', line='42', eol=True",
    "rookhold-sdk": "42",
    "rookhold-store": "JobStatus.QUEUED",
    "rookhold-types": "",
}


def readme(wheel: str) -> str:
    return (ROOT / "packages" / wheel / "README.md").read_text("utf-8")


def blocks(wheel: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", readme(wheel), re.DOTALL)


@pytest.mark.parametrize("wheel", WHEELS)
def test_a_readme_names_all_that_is_installed_directly(wheel: str) -> None:
    text = (ROOT / "packages" / wheel / "pyproject.toml").read_text("utf-8")
    told = readme(wheel)
    assert f"pip install --find-links dist {wheel}`" in told
    for line in tomllib.loads(text)["project"]["dependencies"]:
        assert Requirement(line).name in told


@pytest.mark.parametrize("wheel", WHEELS)
def test_a_readme_names_every_extra(wheel: str) -> None:
    text = (ROOT / "packages" / wheel / "pyproject.toml").read_text("utf-8")
    for extra in tomllib.loads(text)["project"].get("optional-dependencies", {}):
        assert re.search(rf"`({wheel}\[)?{extra}\]?`", readme(wheel)), extra


@pytest.mark.parametrize("wheel", sorted(SHOWN))
def test_the_python_of_a_readme_runs_on_that_wheel_alone(
    wheel: str, alone: Callable[[str], Environment], served: Gateway
) -> None:
    env = alone(wheel)
    folder = env.home / "readme"
    folder.mkdir(mode=0o700)
    (block,) = blocks(wheel, "python")
    block = block.replace("/var/tmp/my-jobs", str(folder / "my-jobs"))
    before = MAKE_EVIDENCE if wheel == "rookhold-attestation" else ""
    done = env.python("-c", RUNNER, block, before, cwd=folder, **served.for_clients())
    assert SHOWN[wheel] in done.stdout


def test_the_verifiers_command_line_works_as_shown(alone: Callable[[str], Environment]) -> None:
    env = alone("rookhold-attestation")
    folder = env.home / "shown"
    folder.mkdir(mode=0o700)
    env.python("-c", MAKE_EVIDENCE, cwd=folder)
    (line,) = blocks("rookhold-attestation", "sh")
    done = env.run(*shlex.split(line.replace("\\\n", " ")), cwd=folder)
    assert done.returncode == 0, done.stderr
