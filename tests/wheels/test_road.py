"""From nothing but installed wheels: a job, its evidence, its check; what a missing extra says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from installing import WHEELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway import Gateway
    from installing import Environment

ALL = "rookhold-cli[server,verify]"
EX_USAGE = 64


def test_a_job_its_evidence_and_its_check_need_only_installed_wheels(
    alone: Callable[[str], Environment],
) -> None:
    env = alone(ALL)
    ran = env.run("rookhold", "run", "python", "-c", "print(6*7)", "--evidence", "kept")
    assert (ran.returncode, ran.stdout) == (0, "42\n"), ran.stderr
    (folder,) = [path.parent for path in (env.home / "kept").glob("**/envelope.json")]
    checked = env.run("rookhold", "verify", folder, "--json")
    assert (checked.returncode, json.loads(checked.stdout)["verified"]) == (0, True)
    alone_too = alone("rookhold-attestation").run(
        "rookhold-verify",
        *("verify", "--envelope", folder / "envelope.json", "--subject", folder / "result.json"),
        *("--public-key", folder / "public-key.pem"),
    )
    assert (alone_too.returncode, json.loads(alone_too.stdout)["outcome"]) == (0, "succeeded")


def test_version_lists_every_wheel_with_its_own_version(
    alone: Callable[[str], Environment],
) -> None:
    env = alone(ALL)
    told = json.loads(env.run("rookhold", "version", "--json").stdout)["wheels"]
    installed = env.installed()
    assert {name: version for name, version in told.items() if version} == {
        name: installed[name] for name in WHEELS
    }


def test_version_says_which_wheels_are_not_installed(alone: Callable[[str], Environment]) -> None:
    told = json.loads(alone("rookhold-cli").run("rookhold", "version", "--json").stdout)["wheels"]
    assert {name for name, version in told.items() if version} == {"rookhold-cli", "rookhold-sdk"}


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (["serve"], "server"),
        (["dev"], "server"),
        (["quickstart"], "server"),
        (["check"], "server"),
        (["run", "python", "-c", "print(1)"], "server"),
        (["verify", "."], "verify"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else value,
)
def test_a_missing_extra_is_refused_in_one_line_that_names_it(
    command: list[str], extra: str, alone: Callable[[str], Environment]
) -> None:
    done = alone("rookhold-cli").run("rookhold", *command)
    assert (done.returncode, done.stdout) == (EX_USAGE, "")
    (line,) = done.stderr.splitlines()
    assert f"pip install 'rookhold-cli[{extra}]'" in line


def test_the_verify_extra_is_enough_to_verify(
    alone: Callable[[str], Environment], served: Gateway
) -> None:
    env = alone("rookhold-cli[verify]")
    assert "rookhold-server" not in env.installed()
    kept = ["--evidence", "kept"]
    ran = env.run("rookhold", "run", "python", "-c", "print(6*7)", *kept, **served.for_clients())
    assert (ran.returncode, ran.stdout) == (0, "42\n"), ran.stderr
    (folder,) = [path.parent for path in (env.home / "kept").glob("**/envelope.json")]
    assert env.run("rookhold", "verify", folder).returncode == 0
