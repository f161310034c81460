"""Putting a job's source and input files into its working directory, with places for outputs.

The directory is new and nothing of the job runs yet; still nothing here follows a link, because the
same code serves a directory on the host.
"""

from __future__ import annotations

import os

from rookhold_exec.launcher.orders import is_inside

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def stage(
    work: int,
    script: str,
    content: dict[str, object],
    outputs: list[str],
    owner: int,
) -> None:
    """Fill the directory `work`; what the job may change is given to uid and gid `owner`.

    Input files stay ours, mode 0444 in directories that the job can enter but not change. With
    `owner` negative everything keeps the uid of this process.
    """
    _write(work, script, content["code"], 0o644, owner)
    os.mkdir("input", 0o755, dir_fd=work)
    os.mkdir("output", 0o755, dir_fd=work)
    made = {"input", "output"}
    files = content["files"]
    if isinstance(files, list):
        for path, data in files:
            if not is_inside(path):
                raise OSError(1, "a file outside of the job's directory")
            _parents(work, path, made, -1)
            _write(work, path, data, 0o444, -1)
    if owner >= 0:
        os.chown("output", owner, owner, dir_fd=work)
    for path in outputs:
        _parents(work, path, made, owner)


def _parents(work: int, path: str, made: set[str], owner: int) -> None:
    at = path.find("/")
    while at >= 0:
        parent = path[:at]
        if parent not in made:
            os.mkdir(parent, 0o755, dir_fd=work)
            if owner >= 0:
                os.chown(parent, owner, owner, dir_fd=work)
            made.add(parent)
        at = path.find("/", at + 1)


def _write(work: int, path: str, data: object, mode: int, owner: int) -> None:
    if not isinstance(data, bytes):
        raise TypeError("content is bytes")
    fd = os.open(path, _NEW, mode, dir_fd=work)
    try:
        if data and os.write(fd, data) != len(data):
            raise OSError(28, "no space left for the job's own files")
        os.fchmod(fd, mode)
        if owner >= 0:
            os.fchown(fd, owner, owner)
    finally:
        os.close(fd)
