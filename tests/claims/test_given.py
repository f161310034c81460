"""What of the server's and of other jobs' a job is given: nothing."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

import pytest
from claims.backends import NAMESPACES, on

if TYPE_CHECKING:
    from claims.jobs import Jobs

DESCRIPTORS = """
import json, os
held = []
for number in range(1024):
    try:
        os.fstat(number)
    except OSError:
        continue
    held.append(number)
print(json.dumps(held))
"""
SEEN = """
import json, os
print(json.dumps([path for path in json.loads(input()) if os.path.lexists(path)]))
"""
# Looks for what another job leaves in its directories while both live, and says so at once.
LOOKOUT = """
import os, time
print("ready", flush=True)
while not any(os.path.lexists(path + "/{name}") for path in ("/work", "/tmp", "/dev/shm")):
    time.sleep(0.05)
print("seen", flush=True)
time.sleep(60)
"""
LEAVE = """
import time
for path in ("/work", "/tmp", "/dev/shm"):
    open(path + "/{name}", "w").close()
time.sleep(1)
print("true")
"""


def check_descriptors(jobs: Jobs) -> None:
    assert jobs.ask(DESCRIPTORS) == [0, 1, 2], "another descriptor is open"


def check_server_files(jobs: Jobs) -> None:
    gateway = jobs.gateway
    own = [gateway.database, gateway.key_file, gateway.jobs_root, gateway.log, gateway.home]
    paths = [*map(str, own), str(gateway.home.parent)]
    assert jobs.ask(SEEN, stdin=json.dumps(paths)) == [], "a file of the server was seen"


def check_siblings(jobs: Jobs) -> None:
    name = secrets.token_hex(16)
    watching = jobs.submit(LOOKOUT.replace("{name}", name), limits={"wall_seconds": 60})
    with jobs.gateway.client() as client:
        next(event for event in client.events(watching, follow=True) if event.kind == "stdout")
        jobs.ask(LEAVE.replace("{name}", name))
        client.cancel(watching)
    ran = jobs.finish(watching)
    assert ran.result.status == "cancelled"
    assert ran.result.stdout == "ready\n", "a file of another job was seen"


def test_three_descriptors(confined: Jobs) -> None:
    check_descriptors(confined)


@on(*NAMESPACES)  # runsc hands on no descriptor but those three, whatever it was given
def test_three_descriptors_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="another descriptor is open"):
        check_descriptors(weakened.without("closed-descriptors"))


def test_no_server_files(confined: Jobs) -> None:
    check_server_files(confined)


@pytest.mark.root  # so that the gateway's files are where root keeps its own
def test_no_server_files_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="a file of the server was seen"):
        check_server_files(weakened.without("host-directories", "private-rootfs"))


def test_no_sibling_files(confined: Jobs) -> None:
    check_siblings(confined)


def test_no_sibling_files_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="a file of another job was seen"):
        check_siblings(weakened.without("own-tmp" if weakened.own_kernel else "mount-namespace"))
