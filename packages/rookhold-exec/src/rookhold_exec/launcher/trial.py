"""What the kernel lets a sandbox have, found by doing it: the program behind `probe`.

Runs in a short-lived process of its own and tries each thing in a child of that, so that nothing
that was made outlives the answer. One line for each control: its name and an errno, 0 for success.
"""

from __future__ import annotations

import os

from rookhold_exec import unshare
from rookhold_exec.launcher import kernel, usermap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# A uid like those of the worker slots: where only root may make user namespaces, a job's own fails.
_SLOT = 210_000


def _user_namespace(inside: int) -> None:
    """Enter a user namespace in which this process's ids are `inside`."""
    usermap.enter(inside, uid=os.geteuid(), gid=os.getegid())


def _become_able() -> None:
    """As anyone but root, become root of a user namespace, to which new ones can belong."""
    if os.geteuid() != 0:
        _user_namespace(0)


def _own_user_namespace() -> None:
    """Do what a job's last step does: as its uid, in the namespaces that are there already."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_SLOT, _SLOT, _SLOT)
        os.setresuid(_SLOT, _SLOT, _SLOT)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    else:
        _become_able()
    _user_namespace(0)


def _namespace(flag: int) -> None:
    _become_able()
    unshare.unshare(flag)


def _mount_namespace() -> None:
    _namespace(unshare.CLONE_NEWNS)
    kernel.mount(None, b"/", None, kernel.MS_REC | kernel.MS_PRIVATE, b"")
    kernel.mount(b"none", b"/tmp", b"tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, b"size=64k")


def _pid_namespace() -> None:
    """Processes of one's own, and a /proc that shows only them."""
    _namespace(unshare.CLONE_NEWNS | unshare.CLONE_NEWPID)
    kernel.mount(None, b"/", None, kernel.MS_REC | kernel.MS_PRIVATE, b"")
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    if number := _end(_begin(lambda: kernel.mount(b"proc", b"/proc", b"proc", flags, b""))):
        raise OSError(number, os.strerror(number))


def _filter(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    program = os.read(fd, 1 << 20)
    os.close(fd)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.Filter(program).install()
    try:
        unshare.unshare(0)
    except PermissionError:
        return
    raise OSError(38, "the filter was accepted and does nothing")


def _no_new_privileges() -> None:
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)


def _begin(work: Callable[[], None]) -> int:
    """Do `work` in a child; its exit status will be its errno, or 0."""
    pid = os.fork()
    if pid == 0:
        number = 0
        try:
            work()
        except OSError as error:
            number = error.errno or 255
        os._exit(number)
    return pid


def _end(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF


def main(filter_path: str) -> None:
    """Try everything, and write the answers to standard output."""
    tries: dict[str, Callable[[], None]] = {
        "user-namespace": _own_user_namespace,
        "pid-namespace": _pid_namespace,
        "mount-namespace": _mount_namespace,
        "network-namespace": lambda: _namespace(unshare.CLONE_NEWNET),
        "ipc-namespace": lambda: _namespace(unshare.CLONE_NEWIPC),
        "uts-namespace": lambda: _namespace(unshare.CLONE_NEWUTS),
        "cgroup-namespace": lambda: _namespace(unshare.CLONE_NEWCGROUP),
        "no-new-privileges": _no_new_privileges,
        "capabilities-dropped": kernel.drop_capabilities,
    }
    if filter_path:
        tries["seccomp"] = lambda: _filter(filter_path)
    begun = {control: _begin(work) for control, work in tries.items()}  # all at once: it is quicker
    answers = [f"{control} {_end(pid)}\n" for control, pid in begun.items()]
    os.write(1, "".join(answers).encode())
