"""The names of controls, limits and classes, in words that need no manual."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

# Several controls that mean one thing to a reader stand together: all of them, or not said.
CONTROLS: Final = (
    (("network-namespace",), "no network at all, not even to this computer"),
    (("pid-namespace",), "sees no process but its own"),
    (("mount-namespace",), "has its own view of the file system"),
    (("private-rootfs",), "sees a system prepared for it, none of this computer's files"),
    (("read-only-root",), "cannot change the system it sees"),
    (("ipc-namespace", "uts-namespace"), "shares no memory and no host name with anything"),
    (("user-namespace",), "is nobody in particular outside of its sandbox"),
    (("capabilities-dropped", "no-new-privileges"), "has no privileges and cannot gain any"),
    (("seccomp",), "may make only system calls that are on a short list"),
    (("rlimits",), "each of its processes is bounded"),
    (("workspace-quota",), "can fill only its own small, in-memory disk"),
    (("cgroup-memory",), "its memory as a whole is bounded by the kernel"),
    (("cgroup-cpu",), "its processor time as a whole is bounded by the kernel"),
    (("cgroup-pids",), "the number of its processes is bounded by the kernel"),
    (("cgroup-namespace",), "cannot see how its resources are accounted"),
    (("application-kernel",), "talks to a kernel of its own instead of this computer's"),
)
LIMITS: Final = {
    "wall": "running time",
    "cpu": "processor time",
    "mem": "memory",
    "pids": "number of processes",
    "file": "size of files",
}
MEASURED: Final = "measured by the supervisor, not guaranteed"
BACKENDS: Final = {
    "off": "no sandbox",
    "namespaces-dev": "the development sandbox",
    "namespaces+cgroups-v2+private-rootfs": "the hardened sandbox",
    "gvisor-oci": "gVisor",
}
CLASSES: Final = {
    "none": (
        "Rookhold claims no isolation class for it, because it has not been reviewed as a"
        " boundary against attackers. It is good for trying things out and for code that is"
        " careless rather than hostile."
    ),
    "linux-shared-kernel": (
        "Its class is linux-shared-kernel: a reviewed boundary, as strong as the kernel that the"
        " job shares with this computer."
    ),
    "gvisor-application-kernel": (
        "Its class is gvisor-application-kernel: the job does not talk to this computer's kernel"
        " but to one of its own."
    ),
}
_NO_SANDBOX: Final = (
    "A job is an ordinary process of this computer here: it can read and do whatever the gateway"
    " can. Run only code that you would also run without Rookhold."
)


def controls(observed: Collection[str]) -> Iterator[str]:
    """Say what the observed controls mean; names without words are given as they are."""
    said: set[str] = set()
    for names, words in CONTROLS:
        if set(names) <= set(observed):
            said |= set(names)
            yield words
    yield from sorted(set(observed) - said)


def loose_limits(enforcement: Mapping[str, Any]) -> list[str]:
    """Say which limits are not enforced for the job as a whole, in up to two sentences."""
    loose = {name: words for name, words in LIMITS.items() if enforcement.get(name) is not True}
    measured = loose.pop("cpu", None)
    said = []
    if loose:
        said.append(f"Not enforced for a job as a whole: {', '.join(loose.values())}.")
    if measured:
        said.append(
            f"Of a job as a whole, the {measured} is {MEASURED}: a job that reaches its limit is"
            " ended, but the kernel does not hold it to that."
        )
    return said


def strength(backend: str, isolation_class: str) -> str:
    """Say how strong a backend is, and no more than what is known of it."""
    if backend == "off":
        return _NO_SANDBOX
    return CLASSES.get(isolation_class, f"Its class is {isolation_class}.")
