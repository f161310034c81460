"""What must not be there when nothing runs: processes, uids, mounts, directories, groups."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from faults.victims import family, launcher_of

from rookhold_exec.cgroup.discovery import places

if TYPE_CHECKING:
    from gateway import Gateway

_OWN_GROUP = re.compile(r"rookhold-\d+-\d+")
HOME = {"state", "jobs", "server.log", "signing-key.pem"}
STATE = {"rookhold.db", "rookhold.db-wal", "rookhold.db-shm", ".rookhold.db.rookhold.lock"}


class Leftovers:
    """Remembers what was there before the gateway, and every launcher that it has had."""

    def __init__(self, gateway: Gateway, *, uid_base: int, workers: int) -> None:
        self._gateway = gateway
        self._uids = range(uid_base, uid_base + workers)
        self._mounts = mounts("self")
        self._launchers: set[int] = set()
        self._idle_launcher: list[str] | None = None
        self._places = sorted({directory for _, _, directory in places()})

    def note_launcher(self, pid: int) -> None:
        self._launchers.add(pid)

    def strays(self) -> list[str]:
        """Return the processes of ours that are below no server; also while jobs run."""
        server = self._gateway.process
        held = set(family(server.pid)) if server is not None and server.poll() is None else set()
        return [f"stray process {pid}" for pid in sorted(set(self._gateway.processes()) - held)]

    def of_dead(self, open_jobs: list[str]) -> list[str]:
        """Return what is left of jobs that are over, while others may run."""
        held = {"job-" + job_id.replace("-", "") for job_id in open_jobs}
        found = [f"directory {name}" for name in self._directories() if name not in held]
        return found + [f"group {path}" for path in self._groups() if not self._current(path)]

    def when_idle(self) -> list[str]:
        """Return what is left although no job is open and none is being started."""
        return self.strays() + self.of_jobs()

    def of_jobs(self) -> list[str]:
        """Return the same but for strays, which are told apart only if this gateway is alone."""
        found = [f"directory {name}" for name in self._directories()]
        for path in self._groups():
            if not self._current(path):
                found.append(f"group {path}")
            found += [f"group {below}" for below in path.glob("job-*")]
        found += [f"process {pid} of a sandbox uid" for pid in self._of_sandbox_uids()]
        added = [line for line in mounts("self") if line not in self._mounts]
        found += [f"mount {line}" for line in added if self._may_be_ours(line)]
        launcher = self.launcher()
        if launcher is not None:
            below = family(launcher)[1:]
            found += [f"process {pid} below the launcher" for pid in below]
            found += self._gained(launcher)
        return found

    def _may_be_ours(self, mounted: str) -> bool:
        """Other programs mount too; ours would be in these places, or named so."""
        at, source = mounted.split(" ")[4], mounted.partition(" - ")[2].split(" ")[1]
        places = (str(self._gateway.home), str(self._gateway.jobs_root), "/work", "/proc", "/dev")
        return at.startswith(places) or at in {"/", "/tmp"} or source in {"job", "root"}

    def _gained(self, launcher: int) -> list[str]:
        """Compare what an idle launcher has mounted and open with the first that was looked at."""
        has = _has(launcher)
        if self._idle_launcher is None:
            time.sleep(0.5)  # what it had for the last job may be about to be closed
            if family(launcher)[1:] or _has(launcher) != has:
                return ["the launcher is not idle yet"]
            self._idle_launcher = has
        return [f"the launcher's {one}" for one in set(has) ^ set(self._idle_launcher)] or (
            ["the launcher has something twice"] if len(has) != len(self._idle_launcher) else []
        )

    def after_the_end(self) -> list[str]:
        """Return what is left of a gateway that has stopped."""
        home, state = self._gateway.home, self._gateway.database.parent
        unknown = {path.name for path in home.iterdir()} - HOME
        unknown |= {path.name for path in state.iterdir()} - STATE
        return self.when_idle() + [f"group {path}" for path in self._groups()] + sorted(unknown)

    def launcher(self) -> int | None:
        server = self._gateway.process
        return None if server is None or server.poll() is not None else launcher_of(server.pid)

    def _directories(self) -> list[str]:
        root = self._gateway.jobs_root
        return sorted(path.name for path in root.iterdir()) if root.exists() else []

    def _groups(self) -> list[Path]:
        return [
            path
            for place in self._places
            for pid in self._launchers
            for path in Path(place).glob(f"rookhold-{pid}-*")
        ]

    def _current(self, group: Path) -> bool:
        return group.name.startswith(f"rookhold-{self.launcher()}-")

    def _of_sandbox_uids(self) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and entry.stat().st_uid in self._uids:
                    found.append(int(entry.name))
            except OSError:
                continue  # it has ended
        return found


def _has(launcher: int) -> list[str]:
    """Return what a launcher has mounted and open."""
    has = [line.split(" ", 3)[3] for line in mounts(str(launcher))] + descriptors(launcher)
    return [_OWN_GROUP.sub("rookhold-own", one) for one in has]


def mounts(pid: str) -> list[str]:
    """Return a process's mounts, sorted; none if it is gone."""
    try:
        return sorted(Path(f"/proc/{pid}/mountinfo").read_text("utf-8").splitlines())
    except OSError:
        return []


def descriptors(pid: int) -> list[str]:
    """Return what a process holds open, but for its database readers, whose number may grow."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if ".db" not in target:
            found.append(target.split(":")[0])
    return sorted(found)


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1])
