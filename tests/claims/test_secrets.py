"""What a job can learn of the server that runs it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from claims.jobs import Jobs

# The secrets arrive on stdin and are never in a file of the job's own.
SEARCH = """
import json, os, stat
secrets = [secret.encode() for secret in json.loads(input())]
found = []

def look(path):
    try:
        if stat.S_ISREG(os.lstat(path).st_mode):
            with open(path, "rb") as file:
                data = file.read(1 << 22)
        else:
            data = os.fsencode(os.readlink(path))
    except (OSError, ValueError):
        return
    if any(secret in data for secret in secrets):
        found.append(path)

for top in ("/proc", "/etc", "/dev", "/work", "/tmp"):
    for directory, below, names in os.walk(top):
        for name in below + names:
            if name not in ("kmsg", "kcore", "mem", "pagemap", "clear_refs"):
                look(directory + "/" + name)
        if directory.count("/") > 4:
            below.clear()
print(json.dumps(found))
"""
VARIABLES = "import json, os; print(json.dumps(sorted(os.environ)))"
ALLOWED = {"PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE"}


def check_secrets(jobs: Jobs) -> None:
    gateway = jobs.gateway
    key_lines = gateway.key_file.read_text("ascii").splitlines()
    secrets = [gateway.api_key, key_lines[1], str(gateway.key_file), str(gateway.database)]
    found = jobs.ask(SEARCH, stdin=json.dumps(secrets), limits={"wall_seconds": 60})
    assert found == [], "a secret of the server can be read"


def check_environment(jobs: Jobs) -> None:
    assert set(jobs.ask(VARIABLES)) <= ALLOWED, "the environment holds more"


def test_no_server_secrets(confined: Jobs) -> None:
    check_secrets(confined)


def test_no_server_secrets_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="a secret of the server can be read"):
        check_secrets(weakened.without("secrecy"))


def test_clean_environment(confined: Jobs) -> None:
    check_environment(confined)


def test_clean_environment_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="the environment holds more"):
        check_environment(weakened.without("secrecy"))
