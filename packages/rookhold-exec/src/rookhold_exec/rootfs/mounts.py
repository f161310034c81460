"""What is mounted inside a tree: a bind mount of the same device shows in no file's own status."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


def below(directory: int) -> Iterator[bytes]:
    """Yield where, from an open directory on, something is mounted on the mount that it is in.

    What is mounted deeper lies on one of those; what is hidden below another mount is not there.
    """
    top = os.fsencode(Path(f"/proc/self/fd/{directory}").readlink()).rstrip(b"/") + b"/"
    own = _mount_of(directory)
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        _, above, _, _, point = line.split(b" ")[:5]
        place = _ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), point)
        if above == own and place.startswith(top) and place != top:
            yield b"/" + place.removeprefix(top)


def _mount_of(directory: int) -> bytes:
    for line in Path(f"/proc/self/fdinfo/{directory}").read_bytes().splitlines():
        name, _, value = line.partition(b":")
        if name == b"mnt_id":
            return value.strip()
    return b""
