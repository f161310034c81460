"""Whether the account that the server runs as could change what root runs: then it would be root.

It catches an installation that was made as that account, or in a place that everybody may write to.
"""

from __future__ import annotations

import os
import site
import stat
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rookhold_exec.launcher.spawning import PROGRAM
from rookhold_server.errors import ConflictingSettingError
from rookhold_server.supervisor.account import USER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rookhold_server.supervisor.account import Account


def check_programs(account: Account) -> None:
    """Refuse an account that can change a file which this process or a launcher is made of."""
    files = {os.path.abspath(path) for path in _executed()}  # noqa: PTH100 - links stay what they are
    files |= {os.path.realpath(path) for path in files if Path(path).is_symlink()}
    folders = {os.path.dirname(path) for path in files}  # noqa: PTH120 - there are many
    folders |= {os.path.realpath(folder) for folder in folders}
    above = {str(parent) for folder in folders for parent in Path(folder).parents}
    if any(can_change(path, account) for path in (*files, *folders, *above)):
        raise ConflictingSettingError(USER, "names an account that can change what root runs here")


def can_change(path: str, account: Account) -> bool:
    """Say whether the account could write to it, or put something else in its place."""
    try:
        found = os.lstat(path)
    except OSError:  # it came out of an archive, or was removed meanwhile
        return False
    if found.st_uid == account.uid:
        return True
    if stat.S_ISLNK(found.st_mode):  # its mode means nothing, and what it leads to is asked too
        return False
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return False  # as /tmp: what others have there stays theirs
    ours = stat.S_IWGRP if found.st_gid == account.gid else 0
    return bool(found.st_mode & (stat.S_IWOTH | ours))


def _executed() -> Iterator[str]:
    """Yield the interpreter, what this process has loaded or could, and a launcher too."""
    yield from (sys.executable, f"{sys.prefix}/pyvenv.cfg", *sys.path)
    if site.ENABLE_USER_SITE:  # below HOME, and loaded from once it is there
        yield site.getusersitepackages()
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            known = vars(module)
            for name in ("__file__", "__cached__"):
                if isinstance(path := known.get(name), str):
                    yield path
    for folder, folders, names in os.walk(Path(PROGRAM).parents[1]):
        for name in (*folders, *names):
            yield f"{folder}/{name}"
