"""What a job will see of the system: its /proc, its one tmpfs, and its files in it.

The supervisor builds it, in the mount namespace that both processes share, while the second process
gets namespaces of its own: that takes about as long.
"""

from __future__ import annotations

import os

from rookhold_exec.launcher import masks
from rookhold_exec.launcher.kernel import MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, mount
from rookhold_exec.launcher.protocol import receive_frame
from rookhold_exec.launcher.stage import stage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rookhold_exec.launcher.spawn import Job


def build(job: Job) -> None:
    """Mount what the root lacks."""
    os.umask(0)  # modes are given in full
    mount(b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, b"hidepid=2")
    masks.apply(job.setup.masks)
    mount(b"job", b"/tmp", b"tmpfs", MS_NOSUID | MS_NODEV, job.space)
    os.mkdir("/tmp/work", 0o755)
    os.mkdir("/tmp/tmp", 0o1777)
    os.mkdir("/tmp/shm", 0o1777)
    if job.uid >= 0:
        os.chown("/tmp/work", job.uid, job.uid)
    mount(b"/tmp/work", b"/work", None, MS_BIND, b"")
    mount(b"/tmp/shm", b"/dev/shm", None, MS_BIND, b"")
    mount(b"/tmp/tmp", b"/tmp", None, MS_BIND, b"")


def fill(job: Job) -> None:
    """Put the job's source and files into its directory, as soon as the server has sent them."""
    content = receive_frame(job.control)
    work = os.open("/work", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        stage(work, job.script, content, job.outputs, job.uid)
    finally:
        os.close(work)


def be_first_to_go(payload: int) -> None:
    """When the host runs out of memory the job goes, not the server.

    A server that is exempt (-1000) would also exempt its jobs, and then nothing in their group can
    be killed.
    """
    fd = os.open(f"/proc/{payload}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"1000")
    finally:
        os.close(fd)
