"""Starting costs little beside the interpreter's own start, and loads nothing that is not used.

Costs are CPU time: on an idle host that is the time a start takes, and on a busy one it still is.
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from installing import Environment

TIMES = 3
ROUNDS = 25
START_SECONDS = 60
# What a gateway that neither signs nor uses a provider has no use for, nor ever one for tests.
NOT_ON_THE_SERVERS_PATH = {
    "nacl",
    "jwt",
    "cryptography",
    "rookhold_server.identity.oidc",
    "importlib.metadata",
    "pytest",
    "pyseccomp",
    "click",
    "rich",
    "rookhold",
    "rookhold_cli",
    "rookhold_attestation.keys",
    "rookhold_attestation.sign",
    "rookhold_attestation.verify",
    "rookhold_attestation.testing",
    "rookhold_exec.testing",
    "rookhold_store.testing",
    "rookhold_server.signing.item",
    "sqlite3",
    "unittest",
    "doctest",
    "pdb",
}


@pytest.mark.parametrize(
    ("wheel", "command"),
    [
        ("rookhold-cli", ["rookhold", "--version"]),
        ("rookhold-attestation", ["rookhold-verify", "--help"]),
    ],
    ids=["version", "verify-help"],
)
def test_it_answers_in_under_three_times_a_bare_interpreter_start(
    wheel: str, command: list[str], alone: Callable[[str], Environment]
) -> None:
    env = alone(wheel)
    ratios = []
    for _ in range(ROUNDS):  # one right after the other: what slows one slows both
        bare = seconds(env, env.bin / "python", "-c", "")
        ratios.append(seconds(env, env.bin / command[0], *command[1:]) / bare)
    assert statistics.median(ratios) < TIMES, sorted(ratios)


def seconds(env: Environment, program: Path, *argv: str) -> float:
    pid = os.posix_spawn(
        program,
        [str(program), *argv],
        env.variables(),
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, used = os.wait4(pid, 0)
    assert status == 0
    return used.ru_utime + used.ru_stime


def loaded(env: Environment, call: str) -> set[str]:
    """Return what a call loads beyond what a bare interpreter has."""
    program = (
        "import sys, json; before = set(sys.modules)\n"
        f"{call}\n"
        "sys.stderr.write(json.dumps(sorted(set(sys.modules) - before)))"
    )
    return set(json.loads(env.python("-c", program).stderr))


def test_asking_for_the_version_loads_two_modules_of_ours_and_none_else(
    alone: Callable[[str], Environment],
) -> None:
    found = loaded(alone("rookhold-cli"), "from rookhold_cli.main import main; main(['--version'])")
    assert found - {"__future__"} == {"rookhold_cli", "rookhold_cli.main", "rookhold_cli._version"}


def test_a_command_loads_an_extra_only_when_it_does_its_work(
    alone: Callable[[str], Environment],
) -> None:
    call = (
        "from importlib import import_module; from rookhold_cli.main import VERBS\n"
        "import rookhold_cli.dispatch\n"
        "for verb in VERBS: import_module(f'rookhold_cli.commands.{verb}')"
    )
    found = {name.partition(".")[0] for name in loaded(alone("rookhold-cli[server,verify]"), call)}
    theirs = found - set(sys.stdlib_module_names)
    assert theirs == {"rookhold", "rookhold_cli", "click"}


def test_asking_the_verifier_for_help_loads_argparse_and_little_else(
    alone: Callable[[str], Environment],
) -> None:
    call = "from rookhold_attestation.cli import main; main(['--help'])"
    found = loaded(alone("rookhold-attestation"), call)
    ours = {name for name in found if name.startswith("rookhold")}
    assert ours == {
        "rookhold_attestation",
        "rookhold_attestation.cli",
        "rookhold_attestation.errors",
    }
    assert not found & {"nacl", "json", "pathlib", "typing", "shutil", "hashlib", "dataclasses"}


def test_a_server_that_does_not_sign_loads_no_cryptography_and_no_metadata(
    alone: Callable[[str], Environment],
) -> None:
    env = alone("rookhold-server")
    ready, told = os.pipe()
    server = subprocess.Popen(
        [env.bin / "python", "-P", "-X", "importtime", "-m", "rookhold_server"],
        env=env.variables() | {"ROOKHOLD_ADDR": "127.0.0.1:0", "ROOKHOLD_READY_FD": str(told)},
        cwd=env.home,
        pass_fds=(told,),
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(told)
    with os.fdopen(ready, "rb") as pipe:
        started = pipe.readline()
    server.send_signal(signal.SIGTERM)
    log = server.communicate(timeout=START_SECONDS)[1]
    assert started, log
    found = set(re.findall(r"^import time:.*\| +(\S+)$", log, re.MULTILINE))
    assert {"rookhold_server.serve", "rookhold_store", "apsw"} <= found
    assert not found & NOT_ON_THE_SERVERS_PATH
