"""The OCI configuration of one job: the reviewed template with its places filled.

A place is a JSON string `"@name@"`, so that the template is JSON itself. What is filled in comes
from the launcher's settings and from an order that was checked; it concerns nobody but the job.
"""

from __future__ import annotations

import os
from resource import (
    RLIMIT_CORE,
    RLIMIT_CPU,
    RLIMIT_FSIZE,
    RLIMIT_MEMLOCK,
    RLIMIT_NOFILE,
    RLIMIT_NPROC,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rookhold_exec.launcher.limits import Limit

# Those that the application kernel holds; it has no others of ours.
_RLIMITS = {
    RLIMIT_CORE: b"RLIMIT_CORE",
    RLIMIT_CPU: b"RLIMIT_CPU",
    RLIMIT_FSIZE: b"RLIMIT_FSIZE",
    RLIMIT_MEMLOCK: b"RLIMIT_MEMLOCK",
    RLIMIT_NOFILE: b"RLIMIT_NOFILE",
    RLIMIT_NPROC: b"RLIMIT_NPROC",
}
# Tests only: how a control is left out of the template. What runsc does whatever it is told is not
# here; a fault of that name only leaves it unclaimed.
_FAULTS = {
    "capabilities-dropped": (b'"bounding": []', b'"bounding": ["CAP_KILL"]'),
    "read-only-root": (b'"readonly": true', b'"readonly": false'),
    "no-new-privileges": (b'"noNewPrivileges": true', b'"noNewPrivileges": false'),
    "rlimits": (b'["@rlimits@"]', b"[]"),
}
_ESCAPES = {0x22: b'\\"', 0x5C: b"\\\\", **{n: b"\\u%04x" % n for n in (*range(0x20), 0x7F)}}


class TemplateError(Exception):
    """A place is missing in the template, or a value has no place in JSON."""


def read(name: str) -> bytes:
    """Return a file of the template; while the launcher still sees the host's file system."""
    with open(f"{os.path.dirname(os.path.abspath(__file__))}/{name}", "rb") as text:
        return text.read()


def template(faults: frozenset[str], *, uid: int, gid: int) -> bytes:
    """Return the template with all that every job of this launcher has in common."""
    text = read("config.json")
    for fault in sorted(faults & _FAULTS.keys()):
        before, after = _FAULTS[fault]
        if text.count(before) != 1:
            raise TemplateError(fault)
        text = text.replace(before, after)
    text = _fill(text, b"uid", b"%d" % uid)
    text = _fill(text, b"gid", b"%d" % gid)
    return _fill(text, b"bootstrap", quoted(read("bootstrap.sh")))


def build(
    text: bytes,
    argv: list[bytes],
    environment: dict[bytes, bytes],
    limits: tuple[Limit, ...],
) -> bytes:
    """Return the exact bytes of a job's config.json."""
    text = _fill(text, b"program", b", ".join(quoted(part) for part in argv))
    pairs = [quoted(name + b"=" + value) for name, value in environment.items()]
    text = _fill(text, b"environment", b", ".join(pairs))
    if b"@rlimits@" in text:
        held = [
            b'{"type": "%b", "soft": %d, "hard": %d}' % (_RLIMITS[resource], soft, hard)
            for resource, _, soft, hard in limits
            if resource in _RLIMITS
        ]
        text = _fill(text, b"rlimits", b", ".join(held))
    return text


def _fill(text: bytes, name: bytes, value: bytes) -> bytes:
    place = b'"@%b@"' % name
    if text.count(place) != 1:
        raise TemplateError(name.decode())
    return text.replace(place, value)


def quoted(raw: bytes) -> bytes:
    """Return a JSON string; raises UnicodeDecodeError for what is not UTF-8."""
    raw.decode()
    return b'"%b"' % b"".join(_ESCAPES.get(byte, bytes((byte,))) for byte in raw)
