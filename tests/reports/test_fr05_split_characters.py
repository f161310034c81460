"""FR-05: a character on a read boundary stays whole, and limits count bytes."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reports.site import Site

LIMIT = 1 << 20
HEAD = """
import hashlib, os, sys, time
def write(data, step):
    sys.stderr.write(hashlib.sha256(data).hexdigest())
    at = 0
    while at < len(data):
        at += os.write(1, data[at:at + step])  # a kernel may take less than it was given
        if step == 1: time.sleep(0.0005)
"""


def test_a_hundred_thousand_characters_come_back_byte_for_byte(sandbox: Site) -> None:
    ran = sandbox.run("python", HEAD + "write('\\u20ac'.encode() * 100_000, 65_536 + 1)")
    assert ran.ended == ("succeeded", None)
    assert ran.result.stdout == "€" * 100_000
    assert hashlib.sha256(ran.result.stdout_bytes).hexdigest() == ran.result.stderr
    assert sandbox.printed(ran.result.job_id, "stdout") == ran.result.stdout_bytes
    assert ran.receipt["output"]["stdout_sha256"] == ran.result.stderr
    assert not ran.result.truncated


def test_one_byte_at_a_time_comes_back_byte_for_byte(sandbox: Site) -> None:
    ran = sandbox.run("python", HEAD + "write('a\\u20ac\\U0001f680\\n'.encode() * 40, 1)")
    assert ran.ended == ("succeeded", None)
    assert ran.result.stdout == "a€\U0001f680\n" * 40
    assert hashlib.sha256(ran.result.stdout_bytes).hexdigest() == ran.result.stderr
    assert "�" not in ran.result.stdout
    assert sandbox.printed(ran.result.job_id, "stdout") == ran.result.stdout_bytes


def test_a_cut_in_the_middle_of_a_character_is_exact(sandbox: Site) -> None:
    count = LIMIT // 3 + 1000  # 2^20 is no multiple of 3
    ran = sandbox.run("python", HEAD + f"write('\\u20ac'.encode() * {count}, 65_536)")
    printed = ("€" * count).encode()
    assert ran.ended == ("succeeded", None)
    assert ran.result.truncated
    assert ran.result.stdout_bytes == printed[:LIMIT]
    assert ran.result.stdout == "€" * (LIMIT // 3) + "�"
    assert sandbox.printed(ran.result.job_id, "stdout") == printed[:LIMIT]
    output = ran.receipt["output"]
    assert output["stdout_sha256"] == hashlib.sha256(printed[:LIMIT]).hexdigest()
    assert (output["stdout_bytes"], output["stdout_bytes_seen"]) == (LIMIT, len(printed))
    assert output["stdout_seen_sha256"] == ran.result.stderr
