"""Isolation classes with what satisfies what, and what each backend of ours can claim at most."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from msgspec import Struct


class IsolationClass(StrEnum):
    """How strong a boundary is, as far as it has been reviewed; `none` claims nothing."""

    NONE = "none"
    LINUX_SHARED_KERNEL = "linux-shared-kernel"
    GVISOR_APPLICATION_KERNEL = "gvisor-application-kernel"
    WASM_CAPABILITY = "wasm-capability"
    HARDWARE_VM = "hardware-vm"
    CONFIDENTIAL_VM = "confidential-vm"


CHAIN: Final = (  # weakest first; each satisfies those before it
    IsolationClass.LINUX_SHARED_KERNEL,
    IsolationClass.GVISOR_APPLICATION_KERNEL,
    IsolationClass.HARDWARE_VM,
    IsolationClass.CONFIDENTIAL_VM,
)


def satisfies(observed: IsolationClass, minimum: IsolationClass) -> bool:
    """Whether a boundary of class `observed` is enough for a job that requires `minimum`."""
    if minimum is IsolationClass.NONE:
        return True
    if minimum in CHAIN and observed in CHAIN:
        return CHAIN.index(observed) >= CHAIN.index(minimum)
    return observed is minimum


class Networking(StrEnum):
    """What a workload could reach: nothing, or whatever the host can."""

    DISABLED = "disabled"
    HOST = "host"


class Backend(StrEnum):
    """The backends of ours; a provider installed by others has a name of its own."""

    OFF = "off"
    NAMESPACES_DEV = "namespaces-dev"
    NAMESPACES = "namespaces+cgroups-v2+private-rootfs"
    GVISOR = "gvisor-oci"


class BackendFacts(Struct, frozen=True, kw_only=True):
    """What a backend claims once a job of it is ready; before that it claims nothing."""

    isolation_class: IsolationClass
    networking: Networking
    private_rootfs: bool
    dedicated_bootstrap: bool

    @property
    def isolated(self) -> bool:
        return self.isolation_class is not IsolationClass.NONE


BACKEND_FACTS: Final[Mapping[Backend, BackendFacts]] = MappingProxyType(
    {
        Backend.OFF: BackendFacts(
            isolation_class=IsolationClass.NONE,
            networking=Networking.HOST,
            private_rootfs=False,
            dedicated_bootstrap=False,
        ),
        Backend.NAMESPACES_DEV: BackendFacts(
            isolation_class=IsolationClass.NONE,
            networking=Networking.DISABLED,
            private_rootfs=False,
            dedicated_bootstrap=True,
        ),
        Backend.NAMESPACES: BackendFacts(
            isolation_class=IsolationClass.LINUX_SHARED_KERNEL,
            networking=Networking.DISABLED,
            private_rootfs=True,
            dedicated_bootstrap=True,
        ),
        Backend.GVISOR: BackendFacts(
            isolation_class=IsolationClass.GVISOR_APPLICATION_KERNEL,
            networking=Networking.DISABLED,
            private_rootfs=True,
            dedicated_bootstrap=True,
        ),
    }
)


class Control(StrEnum):
    """Controls that can be observed in force. The list grows: readers keep unknown names."""

    APPLICATION_KERNEL = "application-kernel"
    CAPABILITIES_DROPPED = "capabilities-dropped"
    CGROUP_CPU = "cgroup-cpu"
    CGROUP_MEMORY = "cgroup-memory"
    CGROUP_NAMESPACE = "cgroup-namespace"
    CGROUP_PIDS = "cgroup-pids"
    IPC_NAMESPACE = "ipc-namespace"
    MOUNT_NAMESPACE = "mount-namespace"
    NETWORK_NAMESPACE = "network-namespace"
    NO_NEW_PRIVILEGES = "no-new-privileges"
    PID_NAMESPACE = "pid-namespace"
    PRIVATE_ROOTFS = "private-rootfs"
    READ_ONLY_ROOT = "read-only-root"
    RLIMITS = "rlimits"
    SECCOMP = "seccomp"
    USER_NAMESPACE = "user-namespace"
    UTS_NAMESPACE = "uts-namespace"
    WORKSPACE_QUOTA = "workspace-quota"


def control_list(observed: Iterable[str]) -> tuple[str, ...]:
    """Return controls in the form that evidence has: plain texts, sorted, without duplicates."""
    return tuple(sorted({str(name) for name in observed}))
