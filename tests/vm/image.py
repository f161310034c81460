"""The disk that the VM boots from: a small Debian and its kernel, built once and kept by content.

Everything comes from Debian's packages, from whatever mirror the host's apt is set to. mmdebstrap
makes the tree and mke2fs the image while the tree is in the same namespaces, so owners are right
whether root builds or a user with subordinate ids does. Nothing here boots anything.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import rootfs as rootfs_of_tests

from rookhold_exec.rootfs import debian

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT: Final = Path(__file__).resolve().parents[2]
SUITE: Final = "bookworm"  # the oldest supported Python, and a kernel that has all we use
PACKAGES: Final = (
    "linux-image-cloud-amd64",  # ext4, NVMe and the serial ports are built in: no initramfs
    "python3",
    "nodejs",
    "runsc",
    "uidmap",
    "iproute2",
    "dmsetup",
    "e2fsprogs",
)
# The modules that are kept, in the order in which they can be loaded: for disks that fail.
MODULES: Final = ("loop", "dm-mod", "dm-flakey", "dm-delay")
# A file system for the packages above, what is left over stays a hole in the file.
SIZE: Final = "1200M"
BUILD_SECONDS: Final = 1200
UNUSED_SECONDS: Final = 3 * 24 * 3600
UNWANTED: Final = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")

# The first process. What it goes on with comes in the second image, so it never makes this one new.
INIT: Final = """\
#!/bin/sh
mount -t proc proc /proc
mountpoint -q /dev || mount -t devtmpfs -o nosuid dev /dev
until [ -b /dev/nvme0n2 ]; do sleep 0.1; done
mount -t ext4 -o ro /dev/nvme0n2 /project
exec /bin/sh /project/tests/vm/guest/start.sh
"""
MAKE_IMAGE: Final = """\
set -eu
tree=$1 out=$2
mv "$tree"/boot/vmlinuz-* "$out/kernel"
mkdir "$tree/modules"
for name in $4; do find "$tree/lib/modules" -name "$name.ko" -exec mv {} "$tree/modules" ';'; done
rm -rf "$tree"/boot/* "$tree"/lib/modules "$tree"/var/cache/apt/* "$tree"/var/lib/apt/lists/*
mkdir "$tree/project" "$tree/guest"
cp "$out/init" "$tree/init"
mount --bind "$tree" "$tree/mnt"
mke2fs -q -t ext4 -O ^has_journal -m 0 -i 8192 -d "$tree/mnt" "$out/system.img" "$3"
"""

MAKE_ROOTFS: Final = """\
set -eu
mkdir "$2/tree"
cp -a "$1" "$2/tree"
size=$(( $(du -sm "$2/tree" | cut -f1) * 5 / 4 + 32 ))M
mke2fs -q -t ext4 -O ^has_journal -m 0 -i 8192 -d "$2/tree" "$2/rootfs.img" "$size"
rm -rf "$2/tree"
"""


def cache() -> Path:
    """Return where built images are kept, made if need be."""
    place = Path(os.environ.get("ROOKHOLD_TEST_CACHE") or ROOT / ".cache").absolute()
    place.mkdir(parents=True, exist_ok=True)
    return place


def system() -> Path:
    """Return the folder with `kernel` and `system.img`, building them if they are not kept."""
    return kept("vm", _recipe(), _build)


def _recipe() -> bytes:
    """Return what decides what the system image holds."""
    return "\n".join((SUITE, *PACKAGES, *MODULES, *UNWANTED, SIZE, INIT, MAKE_IMAGE)).encode()


def lacking() -> str:
    """Say what this host lacks to build the system image; nothing if it is there."""
    return "" if _place("vm", _recipe()).exists() else rootfs_of_tests.lacking()


def _place(name: str, content: bytes) -> Path:
    return cache() / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}"


def kept(name: str, content: bytes, build: Callable[[Path], None]) -> Path:
    """Return the folder that was built from `content`; it appears whole or not at all."""
    place = _place(name, content)
    if place.exists():
        os.utime(place)
        return place
    with alone(name):
        if not place.exists():
            _forget(name)
            made = Path(tempfile.mkdtemp(prefix=f"{name}-unfinished-", dir=cache()))
            try:
                build(made)
                made.chmod(0o755)
                made.rename(place)
            finally:
                shutil.rmtree(made, ignore_errors=True)
    return place


def _forget(name: str) -> None:
    """Remove what was built from other contents and has not been used for days."""
    for other in cache().glob(f"{name}-{'[0-9a-f]' * 16}"):
        if time.time() - other.stat().st_mtime > UNUSED_SECONDS:
            shutil.rmtree(other, ignore_errors=True)


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Wait until no other process is at the same; its end, whatever it is, lets the next one in."""
    with (cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(out: Path) -> None:
    (out / "init").write_text(INIT)
    (out / "init").chmod(0o755)
    (out / "image.sh").write_text(MAKE_IMAGE)
    kept_modules = " ".join(MODULES)
    hook = f'unshare --mount sh "{out}/image.sh" "$1" "{out}" {SIZE} "{kept_modules}"'
    argv = ["mmdebstrap", "--quiet", "--variant=minbase", "--format=null"]
    argv += [f"--include={','.join(PACKAGES)}", f"--customize-hook={hook}"]
    argv += [f"--dpkgopt=path-exclude={path}" for path in UNWANTED]
    argv += [f"--aptopt={line}" for line in debian.apt_options()]
    argv += [SUITE, "-", *debian.sources(SUITE, ())]
    run(argv, seconds=BUILD_SECONDS, INITRD="No")


def rootfs() -> Path:
    """Return an image with the tests' root file system, in a folder of the name that it has here.

    The VM's tests find it as the host's find theirs: by that name, where tests keep such things.
    """
    built = rootfs_of_tests.test_rootfs()
    content = f"{built.name}\n{MAKE_ROOTFS}".encode()
    return kept("vm-rootfs", content, lambda out: _build_rootfs(built, out)) / "rootfs.img"


def _build_rootfs(built: Path, out: Path) -> None:
    run(["sh", "-c", MAKE_ROOTFS, "sh", str(built), str(out)], seconds=300)


def run(argv: list[str], *, seconds: float, **env: str) -> None:
    """Run a tool of the host; what it said is shown only if it fails."""
    with tempfile.TemporaryFile("w+") as said:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", **env},
            check=False,
            timeout=seconds,
        )
        said.seek(0)
        tail = said.read()[-4000:]
    if done.returncode != 0:
        raise RuntimeError(f"{argv[0]} ended with {done.returncode}:\n{tail}")
