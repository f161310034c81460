"""What of a fresh Debian system becomes part of the root file system, and what is put beside it.

Of `/etc` and `/var` only what is named here; nothing that tells of the host it was built on, of the
packages' own logins, or of services that never run in it.
"""

from __future__ import annotations

from typing import Final

KEPT: Final = (
    "bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr",
    "etc/alternatives", "etc/bash.bashrc", "etc/debian_version", "etc/gai.conf", "etc/host.conf",
    "etc/inputrc", "etc/ld.so.cache", "etc/ld.so.conf", "etc/ld.so.conf.d", "etc/localtime",
    "etc/mime.types", "etc/os-release", "etc/perl", "etc/profile", "etc/protocols", "etc/python3",
    "etc/python3.11", "etc/rpc", "etc/services", "etc/shells", "etc/ssl", "etc/timezone",
    "var/lib/dpkg/status",
)  # fmt: skip
DROPPED: Final = (
    "usr/include", "usr/lib/systemd", "usr/lib/udev", "usr/share/applications",
    "usr/share/bash-completion", "usr/share/bug", "usr/share/debconf", "usr/share/doc",
    "usr/share/doc-base", "usr/share/info", "usr/share/lintian", "usr/share/locale",
    "usr/share/man", "usr/share/menu", "usr/share/pam", "usr/share/pam-configs",
    "usr/share/pixmaps", "usr/share/polkit-1",
)  # fmt: skip
LICENCES: Final = ("usr/share/doc/", "/copyright")  # kept all the same

DIRECTORIES: Final = (
    "proc", "sys", "dev", "dev/shm", "tmp", "work", "workspace", "run", "var/tmp", "etc/rookhold",
)  # fmt: skip
JOB_UID: Final = 1000
FILES: Final = {
    "etc/passwd": "root:x:0:0:root:/:/bin/sh\n"
    f"job:x:{JOB_UID}:{JOB_UID}:job:/tmp:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/:/bin/sh\n",
    "etc/group": f"root:x:0:\njob:x:{JOB_UID}:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


def kept(path: str) -> bool:
    """Say whether a file, link or directory at `path` (without a first slash) becomes part."""
    if not _under(path, KEPT):
        return False
    if path.startswith("etc/alternatives/") and path.endswith(".gz"):
        return False  # of manual pages, which are dropped
    licence = path.startswith(LICENCES[0]) and path.endswith(LICENCES[1])
    return licence or not _under(path, DROPPED)


def _under(path: str, places: tuple[str, ...]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)
