"""The launcher's own state: what it was told once, and what it opened for good."""

from __future__ import annotations

import os

from rookhold_exec.launcher import directory, masks, readback, root, rootfs, usermap
from rookhold_exec.launcher.descriptors import raise_descriptor
from rookhold_exec.launcher.group import NoGroup
from rookhold_exec.launcher.groups import Groups, own_name
from rookhold_exec.launcher.kernel import (
    PR_SET_CHILD_SUBREAPER,
    Filter,
    close_from,
    drop_bounding_set,
    leave_keyring,
    prctl,
    reset_signal,
)
from rookhold_exec.launcher.signals import (
    SIG_BLOCK,
    SIG_DFL,
    SIGCHLD,
    SIGHUP,
    SIGINT,
    SIGPIPE,
    SIGTERM,
    SIGXFSZ,
    pthread_sigmask,
    signal,
)
from rookhold_exec.launcher.spawn import PAYLOAD_FLAGS, SUPERVISOR_FLAGS, namespace_flags
from rookhold_exec.unshare import CLONE_NEWNS, unshare

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rookhold_exec.launcher.group import JobGroup
    from rookhold_exec.launcher.gvisor.setup import GvisorSetup

OFF, NAMESPACES, GVISOR = "off", "namespaces", "gvisor"


class Setup:
    """One per launcher; its descriptors are high, except the lifeline."""

    __slots__ = (
        "directories",
        "faults",
        "flags",
        "groups",
        "gvisor",
        "last_capability",
        "lifeline",
        "lifeline_held",
        "masks",
        "mode",
        "mount_points",
        "outer_filters",
        "outer_namespaces",
        "payload_flags",
        "root_place",
        "sealed",
        "seccomp",
        "switches_uid",
        "uid_base",
        "workers",
    )

    def __init__(self, message: dict[str, Any]) -> None:
        self.mode: str = message["mode"]
        self.faults: frozenset[str] = frozenset(message["faults"])
        self.seccomp = Filter(message["seccomp"]) if message["seccomp"] else None
        self.uid_base: int = message["uid_base"]
        self.workers: int = message["workers"]
        # Where directories of jobs may be made; jobs in a sandbox have none.
        self.directories: str = message["jobs_root"] if self.mode == OFF else ""
        self.flags = namespace_flags(self.faults, SUPERVISOR_FLAGS)
        self.payload_flags = namespace_flags(self.faults, PAYLOAD_FLAGS)
        self.groups: Groups | None = None
        if message["jobs_root"]:
            directory.sweep(message["jobs_root"])
        if self.mode == OFF:
            prctl(PR_SET_CHILD_SUBREAPER, 1)
        if message["places"]:
            places = [tuple(place) for place in message["places"]]
            self.groups = Groups(places, own_name())
            self.groups.sweep()
        self.lifeline, held = os.pipe()
        self.lifeline_held = raise_descriptor(held)
        os.close(held)
        self.last_capability = _last_capability()
        self.outer_filters = readback.filters()
        outer = readback.namespaces("self")
        self.outer_namespaces = {name: {identity} for name, identity in outer.items()}
        privileged = os.geteuid() == 0
        # What newuidmap gave: then a slot has a uid of its own without root, from 1 on in here.
        subids: list[int] = message.get("subids", [])
        self.switches_uid = (privileged or bool(subids)) and self.mode == NAMESPACES
        if subids and not privileged:
            self.uid_base = 1
        self.masks: masks.Masks = ()
        self.sealed = False  # whether jobs get a /proc that is read-only
        self.root_place: rootfs.Place | None = None
        self.mount_points: frozenset[bytes] = frozenset()
        self.gvisor: GvisorSetup | None = None
        if self.mode == NAMESPACES:
            reviewed = message.get("rootfs", "")
            identity = tuple(message.get("rootfs_identity", ()))
            self._isolate(reviewed, identity, subids, privileged=privileged)
        elif self.mode == GVISOR:
            self._prepare_gvisor(message)

    def _isolate(
        self, reviewed: str, identity: tuple[int, int], subids: list[int], *, privileged: bool
    ) -> None:
        if privileged:
            unshare(CLONE_NEWNS)
        elif subids:
            usermap.enter_range(CLONE_NEWNS, *subids)
        else:
            usermap.enter(0, uid=os.geteuid(), gid=os.getegid(), flags=CLONE_NEWNS)
        for name, outer in readback.namespaces("self").items():
            self.outer_namespaces[name].add(outer)
        read_only = "read-only-root" not in self.faults
        if reviewed:
            # Opened here: a mount of the namespace that was left could not be copied any more.
            fd = rootfs.open_reviewed(reviewed, identity)
            self.root_place = rootfs.place(fd)
            self.masks = masks.present()
            self.sealed = True
            if "private-rootfs" in self.faults:
                root.enter(privileged=privileged, read_only=read_only)
            else:
                root.enter_rootfs(fd, privileged=privileged, read_only=read_only)
            os.close(fd)
            own = {b"/proc", *readback.OWN_SPACE, *(target for _, target in self.masks)}
            self.mount_points = frozenset(own | root.mount_points(privileged=privileged))
        else:
            self.masks = masks.present(few=True)
            root.enter(privileged=privileged, read_only=read_only)
        if "capabilities-dropped" not in self.faults:
            drop_bounding_set(self.last_capability)

    def _prepare_gvisor(self, message: dict[str, Any]) -> None:
        self.flags |= self.payload_flags  # its supervisor is born in all of them
        # Others never need it; and after this nothing more can be imported.
        from rookhold_exec.launcher.gvisor.setup import GvisorSetup

        unshare(CLONE_NEWNS)
        for name, own in readback.namespaces("self").items():
            self.outer_namespaces[name].add(own)
        places = [tuple(place) for place in message["places"]]
        name = "" if self.groups is None else self.groups.name
        self.gvisor = GvisorSetup(message, places, name, self.faults)

    def group_for(self, job: str, *, mem_bytes: int, pids: int, uid: int) -> JobGroup | NoGroup:
        if self.groups is None:
            return NoGroup()
        if self.gvisor is not None:
            pids = self.gvisor.tasks(pids)
        without = frozenset(name for name in self.faults if name.startswith("cgroup-"))
        make = self.groups.plan if self.gvisor is None else self.groups.create
        return make(job, mem_bytes=mem_bytes, pids=pids, uid=uid, without=without)


def detach() -> None:
    """Leave the server's session, signals and descriptors; 3 is the socket to it."""
    os.setsid()
    leave_keyring()
    close_from(4)
    for number in (SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ):
        signal(number, SIG_DFL)
    for number in (32, 33):
        reset_signal(number)  # posix_spawn leaves the C library's two ignored, for jobs to inherit
    pthread_sigmask(SIG_BLOCK, (SIGCHLD,))


def _last_capability() -> int:
    try:
        with open("/proc/sys/kernel/cap_last_cap", "rb") as text:
            return int(text.read())
    except OSError:
        return 63
