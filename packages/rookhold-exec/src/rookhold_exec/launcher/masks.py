"""What of /proc a job does not get to see: entries that tell of the host, not of the job.

The kernel lets only root read some of them, and a job is never that; here they are out of its view
whatever it may become. A file is covered by the null device and a directory by an empty one, all
from a /dev that is read-only. Then the whole of /proc is made read-only, /proc/sys with it: that is
one call, and there is nothing that a job has to write there.
"""

from __future__ import annotations

import os
from stat import S_ISDIR

from rookhold_exec.launcher.kernel import MOUNT_ATTR_RDONLY, MS_BIND, add_attributes, mount

_PROC = "/proc"
_EMPTY, _NULL = b"/dev/.empty", b"/dev/null"

# Name, and what it would tell or do. What this kernel does not have costs nothing.
HIDDEN: tuple[tuple[str, str], ...] = (
    ("acpi", "the machine's power states, and switches of them"),
    ("asound", "the sound devices"),
    ("bus", "every device on the buses, with its configuration space"),
    ("cmdline", "how the host was booted, at times with secrets"),
    ("config.gz", "how the kernel was built, so what it is weak in"),
    ("diskstats", "what the host reads and writes, as it does"),
    ("driver", "what drivers keep there for their own tools"),
    ("fs", "switches and statistics of the host's file systems"),
    ("interrupts", "when devices act; key strokes and packets can be timed by it"),
    ("irq", "which processor serves which device"),
    ("kallsyms", "where the kernel's functions are"),
    ("kcore", "the whole memory of the host"),
    ("key-users", "who has how many keys"),
    ("keys", "the keys in the kernel"),
    ("kmsg", "the kernel's log"),
    ("kpagecgroup", "which group each page of memory belongs to"),
    ("kpagecount", "how often each page of memory is mapped"),
    ("kpageflags", "what each page of memory is used for"),
    ("latency_stats", "where processes of the host wait"),
    ("locks", "which files of the host are locked"),
    ("modules", "what is loaded into the kernel, and where"),
    ("partitions", "the host's disks"),
    ("sched_debug", "every process of the host, by name"),
    ("scsi", "the host's disks, and commands to them"),
    ("slabinfo", "the kernel's own memory; attacks on it aim by that"),
    ("sysrq-trigger", "commands to the kernel, to power off among them"),
    ("timer_list", "every timer, with addresses in the kernel"),
    ("timer_stats", "which process of the host set which timer"),
    ("vmallocinfo", "addresses in the kernel"),
)

# What everybody may read, and tells most: a development sandbox covers these and no others.
FEW = frozenset({"cmdline", "diskstats", "locks", "partitions"})

Masks = tuple[tuple[bytes, bytes], ...]  # what is bound where


def present(proc: str = _PROC, *, few: bool = False) -> Masks:
    """Return the masks for the entries that this kernel has; every /proc of a host has the same."""
    found = []
    for name, _ in HIDDEN:
        if few and name not in FEW:
            continue
        try:
            mode = os.lstat(f"{proc}/{name}").st_mode
        except OSError:
            continue
        found.append((_EMPTY if S_ISDIR(mode) else _NULL, f"{_PROC}/{name}".encode()))
    return tuple(found)


def apply(masks: Masks) -> None:
    """Cover the entries, on the /proc that was just mounted."""
    for source, target in masks:
        mount(source, target, None, MS_BIND, b"")


def seal() -> None:
    """Make /proc read-only; after this no map of a user namespace can be written any more."""
    add_attributes(_PROC.encode(), MOUNT_ATTR_RDONLY)
