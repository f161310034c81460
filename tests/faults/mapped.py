"""File systems that fail as their disk does: on a loop device, below the device mapper."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

MODULES: Final = Path("/modules")  # where the emulated machine keeps the few that it has
SECTOR: Final = 512
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def tool(*argv: str) -> str:
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PATH": PATH},
    )
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr or done.stdout}"
    return done.stdout.strip()


class Mounted:
    """A small ext4 on a file; `at` is where. On the way out it is unmounted, busy or not."""

    def __init__(self, place: Path, mib: int, *, journal: bool = True) -> None:
        self._image = place / "disk.img"
        self.at = place / "disk"
        self.sectors = mib * 1024 * 1024 // SECTOR
        self._journal = [] if journal else ["-O", "^has_journal"]
        self._stack = ExitStack()
        self.device = ""

    def __enter__(self) -> Self:
        load_modules()
        with self._image.open("wb") as image:
            image.truncate(self.sectors * SECTOR)
        tool("mke2fs", "-q", "-t", "ext4", "-m", "0", *self._journal, str(self._image))
        self.at.mkdir()
        with ExitStack() as stack:
            self.device = tool("losetup", "--find", "--show", str(self._image))
            stack.callback(tool, "losetup", "--detach", self.device)
            self._prepare(stack)
            self.mount()
            stack.callback(self.unmount)
            self.at.chmod(0o700)
            self._stack = stack.pop_all()
        return self

    def _prepare(self, stack: ExitStack) -> None:
        """Put something between the file system and its device."""

    def mount(self) -> None:
        tool("mount", "-t", "ext4", self.device, str(self.at))

    def unmount(self) -> None:
        if self.at.is_mount():
            tool("umount", str(self.at))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


class Mapped(Mounted):
    """The same over a device whose table can be changed while the file system is in use."""

    name = f"rookhold-test-{os.getpid()}"

    def _prepare(self, stack: ExitStack) -> None:
        self._below = self.device
        tool("dmsetup", "create", self.name, "--noudevsync", "--table", self._table("linear"))
        stack.callback(tool, "dmsetup", "remove", "--noudevsync", "--retry", self.name)
        minor = tool("dmsetup", "info", "-c", "--noheadings", "-o", "minor", self.name)
        self.device = f"/dev/dm-{minor}"  # the name that the kernel itself gives, without udev

    def _table(self, kind: str) -> str:
        tables = {
            "linear": f"0 {self.sectors} linear {self._below} 0",
            # Up for no time and down for ever: what comes after the target is down at once.
            "no writes": f"0 {self.sectors} flakey {self._below} 0 0 4000000 1 error_writes",
            "error": f"0 {self.sectors} error",
            "slow": f"0 {self.sectors} delay {self._below} 0 20 {self._below} 0 200",
        }
        return tables[kind]

    def become(self, kind: str) -> None:
        """Change what the disk does, at once and without writing anything back first."""
        tool("dmsetup", "load", self.name, "--table", self._table(kind))
        tool("dmsetup", "suspend", "--noflush", "--nolockfs", "--noudevsync", self.name)
        tool("dmsetup", "resume", "--noudevsync", self.name)


def load_modules() -> None:
    loaded = Path("/proc/modules").read_text("ascii") if Path("/proc/modules").exists() else ""
    for name in ("loop", "dm-mod", "dm-flakey", "dm-delay"):
        module = MODULES / f"{name}.ko"
        if module.exists() and f"{name.replace('-', '_')} " not in loaded:
            tool("insmod", str(module))


def lacking(kind: str) -> str:
    """Say what this host lacks for such a file system, or nothing."""
    if kind == "mapped":
        load_modules()
        if not Path("/dev/mapper/control").exists():
            return "no device mapper"
    try:
        done = subprocess.run(
            ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"],
            capture_output=True,
            check=False,
            timeout=60,
        )
    except OSError:
        return "no unshare command to try a mount with"
    return "" if done.returncode == 0 else "nothing may be mounted here"
