"""Why a root file system is refused, or could not be built: one code for each reason.

A message may name a place inside the root file system, never where that is on the host.
"""

from __future__ import annotations

from typing import ClassVar

from rookhold_exec.errors import ExecutorUnavailableError


class RootfsError(ExecutorUnavailableError):
    """Root of these refusals. `inside` is a path within the root file system, made printable."""

    code: ClassVar[str] = "rootfs_unusable"
    text: ClassVar[str] = "the root file system cannot be used"

    def __init__(self, inside: str | None = None) -> None:
        super().__init__(self.text if inside is None else f"{self.text}: {inside}")
        self.inside = inside


class NotAbsoluteError(RootfsError):
    code: ClassVar[str] = "rootfs_not_absolute"
    text: ClassVar[str] = "the path of a root file system must be absolute"


class NotNormalisedError(RootfsError):
    code: ClassVar[str] = "rootfs_not_normalised"
    text: ClassVar[str] = (
        "the path of a root file system must be written plainly: no `.`, `..`, `//` or final `/`"
    )


class HostRootError(RootfsError):
    code: ClassVar[str] = "rootfs_is_host_root"
    text: ClassVar[str] = "the host's own root cannot be the root file system of jobs"


class MissingError(RootfsError):
    code: ClassVar[str] = "rootfs_missing"
    text: ClassVar[str] = "there is no root file system at the configured path"


class SymlinkError(RootfsError):
    code: ClassVar[str] = "rootfs_symlink"
    text: ClassVar[str] = (
        "the path of the root file system leads through a symbolic link; name the real place"
    )


class NotDirectoryError(RootfsError):
    code: ClassVar[str] = "rootfs_not_directory"
    text: ClassVar[str] = "the configured root file system is not a directory"


class UnsafeAncestorError(RootfsError):
    code: ClassVar[str] = "rootfs_unsafe_ancestor"
    text: ClassVar[str] = (
        "a directory above the root file system belongs to, or can be written by, somebody else,"
        " who could put another one in its place"
    )


class ForeignOwnerError(RootfsError):
    code: ClassVar[str] = "rootfs_foreign_owner"
    text: ClassVar[str] = "part of the root file system belongs neither to root nor to this user"


class JobOwnedError(RootfsError):
    code: ClassVar[str] = "rootfs_job_owned"
    text: ClassVar[str] = "part of the root file system belongs to an account that jobs run under"


class WritableError(RootfsError):
    code: ClassVar[str] = "rootfs_writable"
    text: ClassVar[str] = "part of the root file system can be written by group or others"


class PrivilegedFileError(RootfsError):
    code: ClassVar[str] = "rootfs_privileged_file"
    text: ClassVar[str] = (
        "a file in the root file system is setuid, setgid or has file capabilities; take them away"
    )


class SpecialFileError(RootfsError):
    code: ClassVar[str] = "rootfs_special_file"
    text: ClassVar[str] = (
        "the root file system holds a device, socket or fifo; only files, directories and symbolic"
        " links have a place in it"
    )


class MountedInsideError(RootfsError):
    code: ClassVar[str] = "rootfs_mounted_inside"
    text: ClassVar[str] = "another file system is mounted inside the root file system; unmount it"


class MountPointError(RootfsError):
    code: ClassVar[str] = "rootfs_mount_point_missing"
    text: ClassVar[str] = "a directory that jobs need as a mount point is missing"


class TooLargeError(RootfsError):
    code: ClassVar[str] = "rootfs_too_large"
    text: ClassVar[str] = "the root file system has too many entries, too deep or too large ones"


class UnreadableError(RootfsError):
    code: ClassVar[str] = "rootfs_unreadable"
    text: ClassVar[str] = "part of the root file system cannot be read"


class ChangingError(RootfsError):
    code: ClassVar[str] = "rootfs_changing"
    retryable: ClassVar[bool] = True
    text: ClassVar[str] = "the root file system was changed while it was read"


class ChangedError(RootfsError):
    code: ClassVar[str] = "rootfs_changed"
    text: ClassVar[str] = (
        "the root file system is not the one that was pinned; its manifest has another digest"
    )


class TargetExistsError(RootfsError):
    code: ClassVar[str] = "rootfs_target_exists"
    text: ClassVar[str] = "the place to build in holds something already"


class TargetError(RootfsError):
    code: ClassVar[str] = "rootfs_target_unwritable"
    text: ClassVar[str] = "nothing can be built in that place"


class BuilderMissingError(RootfsError):
    code: ClassVar[str] = "rootfs_builder_missing"
    text: ClassVar[str] = "mmdebstrap is needed to build one: apt-get install mmdebstrap"


class NoMirrorError(RootfsError):
    code: ClassVar[str] = "rootfs_no_mirror"
    text: ClassVar[str] = (
        "this host's apt names no mirror with the Debian suite that is needed; name one yourself"
    )


class BuildFailedError(RootfsError):
    code: ClassVar[str] = "rootfs_build_failed"
    text: ClassVar[str] = "the root file system could not be built"


class BuildTimeoutError(RootfsError):
    code: ClassVar[str] = "rootfs_build_timeout"
    text: ClassVar[str] = "building the root file system took too long and was ended"


class PackagesDifferError(RootfsError):
    code: ClassVar[str] = "rootfs_packages_differ"
    text: ClassVar[str] = "the mirror did not deliver the pinned packages"
