"""Boots the VM, waits for it within a bound, and reads what it says.

Emulation only: where there is /dev/kvm it cannot be relied on, and results must not depend on it.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from . import image, project

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

QEMU: Final = "qemu-system-x86_64"
# What it has to emulate: programs choose their way by it, and wide vectors are the slowest of all.
PROCESSOR: Final = "Nehalem"
# Its clock counts instructions, 2**SHIFT ns each: a busy host makes a run longer, and no deadline
# in there passes sooner. That works with one processor only. Idle time must pass as it does here
# (no sleep=off): where the clock jumps while a disk is at work, gVisor never gets ready.
SHIFT: Final = 1
PREFIX: Final = "rookhold-emulated-"
MEMORY_MIB: Final = 2048
SILENCE_SECONDS: Final = 900.0
POLL_SECONDS: Final = 0.1
SLOW: Final = 10  # how much longer than on a host things may take in there
KERNEL: Final = (
    "root=/dev/nvme0n1 ro rootwait init=/init panic=-1 quiet console=ttyS0 "
    "mitigations=off tsc=reliable no_timer_check random.trust_cpu=on cgroup_no_v1=all"
)
GUEST_ENV: Final = {"ROOKHOLD_TEST_SLOW": str(SLOW), "ROOKHOLD_TEST_CACHE": "/guest"}


class MachineError(Exception):
    """The VM did not boot, was too slow, or ended before its tests; says what it printed last."""


class Machine:
    """One VM from boot to power-off; leaving the block ends it at once."""

    def __init__(
        self,
        args: Sequence[str],
        *,
        timeout: float,
        silence: float = SILENCE_SECONDS,
        shell: bool = False,
    ) -> None:
        self._timeout = timeout
        self._silence = silence  # how long one test may take: a hung one is named, and early
        self._shell = shell
        _sweep()
        self._place = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        self._order = {"args": list(args), "env": GUEST_ENV}
        self._process: subprocess.Popen[bytes] | None = None
        self._deadline = 0.0

    def __enter__(self) -> Self:
        try:
            disks = (image.system(), image.rootfs(), project.image(self._place, self._order))
            argv = self._argv(*disks)
            log = (self._place / "qemu.log").open("wb")
            with log:
                self._process = subprocess.Popen(
                    argv,
                    stdin=None if self._shell else subprocess.DEVNULL,
                    stdout=None if self._shell else log,
                    stderr=None if self._shell else log,
                    preexec_fn=_die_with_parent,
                )
        except BaseException:
            self._clean()
            raise
        self._deadline = time.monotonic() + self._timeout
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
        self._clean()

    def _clean(self) -> None:
        shutil.rmtree(self._place, ignore_errors=True)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield what the tests say, as they say it; the last one is `done`."""
        assert self._process is not None
        said = self._place / "said"
        with said.open("rb") as file:
            held, heard = b"", time.monotonic()
            while True:
                ended = self._process.poll() is not None
                held += file.read()
                *lines, held = held.split(b"\n")
                for line in lines:
                    event: dict[str, Any] = json.loads(line)
                    yield event
                    if event["event"] == "done":
                        return
                if ended:
                    raise MachineError(f"the VM ended before its tests\n{self.printed()}")
                if lines:
                    heard = time.monotonic()
                if why := self._overdue(heard):
                    self._end()
                    raise MachineError(f"{why}\n{self.printed()}")
                time.sleep(POLL_SECONDS)

    def _overdue(self, heard: float) -> str:
        now = time.monotonic()
        if now > self._deadline:
            return f"the VM was not done after {self._timeout:.0f} s"
        if now - heard > self._silence:
            return f"the VM said nothing for {self._silence:.0f} s"
        return ""

    def wait(self) -> None:
        """Wait until it is off, whatever it does: for a shell."""
        assert self._process is not None
        self._process.wait()

    def printed(self) -> str:
        """Return the end of what it and the emulator printed."""
        parts = []
        for name in ("qemu.log", "console"):
            path = self._place / name
            text = path.read_text("utf-8", "replace") if path.exists() else ""
            parts.append(f"--- {name} ---\n{text[-6000:]}")
        return "\n".join(parts)

    def _end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _argv(self, system: Path, rootfs: Path, project: Path) -> list[str]:
        (self._place / "said").touch()
        disks = [system / "system.img", project, rootfs]
        argv = [QEMU, "-accel", "tcg", "-icount", f"shift={SHIFT}", "-cpu", PROCESSOR, "-smp", "1"]
        argv += ["-m", str(MEMORY_MIB), "-nodefaults", "-no-user-config", "-no-reboot"]
        argv += ["-display", "none", "-kernel", str(system / "kernel")]
        argv += ["-append", KERNEL + (" rookhold.shell" if self._shell else "")]
        argv += ["-device", "nvme,id=nvme0,serial=rookhold"]
        for number, disk in enumerate(disks, 1):
            # What confines jobs must be what makes their root read-only, so that disk is not: what
            # is written to it goes to a file that ends with the emulator.
            how = "snapshot=on" if disk == rootfs else "readonly=on"
            argv += ["-drive", f"file={disk},if=none,id=disk{number},format=raw,{how}"]
            argv += ["-device", f"nvme-ns,drive=disk{number},bus=nvme0,nsid={number}"]
        console = "stdio" if self._shell else f"file:{self._place / 'console'}"
        return [*argv, "-serial", console, "-serial", f"file:{self._place / 'said'}"]


def _sweep() -> None:
    """Remove what runs left that were killed: a few hundred MiB each."""
    for place in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        pid = place.name.removeprefix(PREFIX).partition("-")[0]
        if not (pid.isdigit() and Path("/proc", pid).exists()):
            shutil.rmtree(place, ignore_errors=True)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


def lacking() -> str:
    """Say what this host lacks to boot the VM, or nothing."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "only root can make its disks"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    for tool in (QEMU, "mke2fs"):
        if shutil.which(tool, path=path) is None:
            return f"no {tool} to make or run a VM with"
    return image.lacking()
