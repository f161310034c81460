"""FR-07: no link among the outputs is followed, and nothing outside of the workspace comes back."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reports.site import Site

LINKS = """
cd output
rm -r way outside  # made for what is asked for
ln -s /etc/passwd absolute
ln -s ../../../../../../etc/passwd upward
ln -s ../.. outside
ln -s /proc/self/environ environ
ln -s /proc/1/environ first
ln -s good other
ln -s self self
ln -s nowhere dangling
ln -s "$SECRET" key
ln ../input/given given || true
echo own > own; ln own hard
echo inner > folder/file; ln -s folder way
echo good > good
"""
NAMES = ("absolute", "upward", "environ", "first", "other", "self", "dangling", "key", "hard")


def test_no_link_is_followed_and_the_rest_still_arrives(sandbox: Site) -> None:
    key_file = sandbox.gateway.key_file
    code = LINKS.replace("$SECRET", str(key_file))
    through = ("way/file", "outside/etc/passwd")
    outputs = [f"output/{name}" for name in (*NAMES, *through, "given", "good", "folder/file")]
    files = {"input/given": b"given to the job\n"}
    ran = sandbox.run("bash", code, outputs=outputs, files=files)
    assert ran.ended == ("error", "requested_output_unavailable")
    assert ran.result.exit_code == 0
    arrived = {artifact.path: artifact.content for artifact in ran.result.artifacts}
    assert arrived == {"output/good": b"good\n", "output/folder/file": b"inner\n"}
    assert ran.rules == ["artifact_collection_failed"]
    reasons = {each["path"]: each["reason"] for each in ran.result.violations[0].detail["outputs"]}
    assert reasons.pop("output/given") in {"link", "missing"}  # as the kernel allowed the link
    assert reasons == dict.fromkeys([f"output/{name}" for name in (*NAMES, *through)], "link")

    events = [dict(event.data) for event in sandbox.events(ran.result.job_id)]
    told = json.dumps([dict(ran.receipt), events])
    for outside in (key_file, Path("/etc/passwd")):
        content = outside.read_bytes()
        assert hashlib.sha256(content).hexdigest() not in told
        for line in content.splitlines():
            assert len(line) < 8 or line.decode() not in told
        assert base64.b64encode(content).decode()[:40] not in told
    assert str(sandbox.gateway.home) not in told


def test_an_output_that_becomes_a_link_while_it_is_collected_is_not_followed(sandbox: Site) -> None:
    """A process that is left to swap the file while its job is collected does not live to do it."""
    code = (
        "echo good > output/swapped\n"
        "(trap '' TERM HUP; while :; do ln -sfn /etc/passwd output/swapped;"
        " rm -f output/swapped; echo good > output/swapped; done) > /dev/null 2>&1 &\n"
        "sleep 0.3\n"
    )
    for _ in range(3):
        ran = sandbox.run("bash", code, outputs=["output/swapped"])
        assert [artifact.content for artifact in ran.result.artifacts] in ([b"good\n"], [b""], [])
        if not ran.result.artifacts:
            [failed] = ran.result.violations[0].detail["outputs"]
            assert failed["reason"] in {"link", "missing"}
