"""Stands in for mmdebstrap and apt: a tar archive of a few members instead of a Debian system."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_STANZA: Final = "Package: {}\nStatus: install ok installed\nVersion: {}\n"
_TARGETS: Final = (
    "Packages|http://mirror.test/debian/|bookworm|main|Debian\n"
    "Packages|http://mirror.test/debian/|bookworm-updates|main|$(ORIGIN)\n"
    "Packages|http://security.test/|bookworm-security|main|Debian\n"
    "Packages|http://mirror.test/debian/|bookworm|contrib|Debian\n"
    "Packages|http://mirror.test/debian/|trixie|main|Debian\n"
    "Packages|http://vendor.test/|bookworm|main|Vendor\n"
    "Translations|http://mirror.test/debian/|bookworm|main|Debian\n"
)
_TOOL: Final = """#!{python}
import json, os, sys, time
from pathlib import Path
here = Path({here!r})
with open(here / "calls", "a") as calls:
    calls.write(json.dumps([sys.argv[1:], dict(os.environ), os.getpid()]) + "\\n")
if Path("/proc/self/ns/mnt").is_symlink():
    (here / "mounts").write_text(os.readlink("/proc/self/ns/mnt"))
for line in (here / "says").read_text().splitlines():
    print(line, file=sys.stderr, flush=True)
sys.stdout.buffer.write((here / "archive").read_bytes())
sys.stdout.flush()
time.sleep(float((here / "seconds").read_text()))
sys.exit(int((here / "status").read_text()))
"""


class FakeDebian:
    """A folder for PATH; what its mmdebstrap delivers, says and ends with can be set."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.members: dict[str, tarfile.TarInfo] = {}
        self._contents: dict[str, bytes] = {}
        self.says("I: working")
        self.ends()
        self._program("mmdebstrap", _TOOL.format(python=sys.executable, here=str(folder)))
        self.targets(_TARGETS)
        self._program(
            "apt-config", "#!/bin/sh\necho 'Acquire::Retries \"3\";'\necho 'A::B \"c\";'\n"
        )
        self.put("usr/bin/python3.11", b"#!", mode=0o755)
        self.put("usr/bin/node", b"#!", mode=0o755)
        self.put("usr/bin/bash", b"#!", mode=0o755)
        self.link("usr/bin/python3", "python3.11")
        self.link("bin", "usr/bin")

    def _program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)

    def targets(self, text: str) -> None:
        """Set what apt is configured with."""
        self._program("apt-get", f"#!/bin/sh\ncat <<'END'\n{text}END\n")

    def says(self, text: str) -> None:
        (self.folder / "says").write_text(text)

    def ends(self, status: int = 0, *, after: float = 0) -> None:
        (self.folder / "status").write_text(str(status))
        (self.folder / "seconds").write_text(str(after))

    def put(
        self, name: str, content: bytes = b"", *, mode: int = 0o644, kind: bytes = b"0"
    ) -> None:
        info = tarfile.TarInfo(name)
        info.mode, info.type, info.size = mode, kind, len(content)
        info.uid, info.gid, info.mtime = 1234, 42, 99
        self._add(info, content)

    def link(self, name: str, target: str, *, kind: bytes = tarfile.SYMTYPE) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, target
        self._add(info, b"")

    def _add(self, info: tarfile.TarInfo, content: bytes) -> None:
        self.members[info.name] = info
        self._contents[info.name] = content

    def installs(self, packages: dict[str, str]) -> None:
        """Write the archive; its package database holds these."""
        status = "\n".join(_STANZA.format(*each) for each in packages.items())
        self.put("var/lib/dpkg/status", status.encode())
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name, info in self.members.items():
                archive.addfile(info, io.BytesIO(self._contents[name]))
        (self.folder / "archive").write_bytes(packed.getvalue())

    @property
    def calls(self) -> list[tuple[list[str], dict[str, str], int]]:
        """Return arguments, environment and process id of every call of mmdebstrap."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [(argv, environ, pid) for argv, environ, pid in map(json.loads, lines)]
