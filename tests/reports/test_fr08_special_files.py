"""FR-08: what is no regular file among the outputs is named, and holds nobody up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from reports.site import WORKERS

if TYPE_CHECKING:
    from reports.site import Site

SPECIAL = """
mkfifo output/p
mknod output/n c 1 5 || true
ln -s /dev/zero output/z
python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('output/s')"
mkdir output/d
echo ok > output/a
"""
LOOP = "rm -r output/*; mkdir output/deep; ln -s .. output/deep/up; ln -s deep output/again"
DEEP = """
import os
os.chdir('output')
for n in range(5000):
    try: os.mkdir('d')
    except FileExistsError: pass  # made for what is asked for
    os.chdir('d')
open('end', 'w').close()
"""
COLLECTION_MS = 5000


def reasons(sandbox: Site, language: str, code: str, *names: str) -> dict[str, str]:
    """Return why each output did not come, where that took no longer than it may."""
    began = time.monotonic()
    ran = sandbox.run(language, code, outputs=[f"output/{name}" for name in names])
    assert time.monotonic() - began < 10 + COLLECTION_MS / 1000
    assert ran.ended == ("error", "requested_output_unavailable"), ran.rules
    assert ran.rules == ["artifact_collection_failed"]
    found = {each["path"]: each["reason"] for each in ran.result.violations[0].detail["outputs"]}
    found |= {each.path: each.content.decode() for each in ran.result.artifacts}
    return {path.removeprefix("output/"): reason for path, reason in found.items()}


def check_slots(sandbox: Site) -> None:
    """Every worker is free again: as many jobs run at the same time as there are workers."""
    jobs = [sandbox.submit("bash", "echo up; sleep 30") for _ in range(WORKERS)]
    assert all(sandbox.prints(job, b"up\n") for job in jobs)
    for job in jobs:
        sandbox.client.cancel(job)
        assert sandbox.finish(job).ended == ("cancelled", "cancelled")


def test_fifos_devices_and_sockets_are_named_and_the_file_arrives(sandbox: Site) -> None:
    # gVisor makes none of them in a place where files of the host are.
    made = "missing" if sandbox.own_kernel else "not_regular"
    assert reasons(sandbox, "bash", SPECIAL, "p", "n", "z", "s", "d", "a") == {
        "p": made,
        "n": "missing",  # nobody in a sandbox makes a device
        "z": "link",
        "s": made,
        "d": "not_regular",
        "a": "ok\n",
    }
    check_slots(sandbox)


def test_a_loop_of_links_is_not_walked(sandbox: Site) -> None:
    told = reasons(sandbox, "bash", LOOP, "again/x", "deep/up/deep/x", "deep/x")
    assert told == {"again/x": "link", "deep/up/deep/x": "link", "deep/x": "missing"}


def test_a_tree_of_five_thousand_levels_is_no_trouble(sandbox: Site) -> None:
    longest = "/".join(["d"] * 116)  # as deep as a path of 240 bytes can name
    told = reasons(sandbox, "python", DEEP, "d/x", longest)
    assert told == {"d/x": "missing", longest: "not_regular"}
    check_slots(sandbox)
    assert sandbox.left_over() == []
