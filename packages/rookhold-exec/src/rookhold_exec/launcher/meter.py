"""Measuring a running job, and the limits that only a measurement can enforce."""

from __future__ import annotations

import os
from resource import RUSAGE_CHILDREN, getrusage
from time import monotonic

from rookhold_exec.launcher.family import descendants
from rookhold_exec.launcher.protocol import CPU_GROUP, CPU_SUM, OOM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rookhold_exec.launcher.family import Family
    from rookhold_exec.launcher.spawn import Job

SAMPLES_MAX = 256
_TICK = 0.1  # seconds between two looks at a job that is far from its limits
_TICK_MIN = 0.005
_CLOCK = os.sysconf("SC_CLK_TCK")
_CPUS = os.cpu_count() or 1


class Meter:
    """CPU and memory of one job, from its groups or else from its processes."""

    __slots__ = (
        "_base",
        "_group",
        "_job",
        "_sample_every",
        "_sample_next",
        "_samples",
        "next_tick",
        "started",
    )

    def __init__(self, job: Job) -> None:
        self._job = job
        self._group = job.group
        self._samples: list[int] = []
        self._sample_every = self._sample_next = _TICK
        self._base = 0
        self.started = self.next_tick = monotonic()

    def begin(self, own_usec: int) -> None:
        """Count from here; `own_usec` is what our own code spent as the payload's process."""
        used = self._group.cpu_usec()
        self._base = used if used >= 0 else own_usec
        self.started = monotonic()
        self.next_tick = self.started + _TICK / 10

    def cpu_usec(self) -> int:
        """Return the CPU time of the job so far."""
        used = self._group.cpu_usec()
        return max((used if used >= 0 else self._sum()) - self._base, 0)

    def _sum(self) -> int:
        """Add up the processes in sight: the living, and all that they and we have reaped."""
        gone = getrusage(RUSAGE_CHILDREN)
        ticks = 0
        for pid in self._pids():
            try:
                with open(f"/proc/{pid}/stat", "rb") as stat:
                    text = stat.read()
            except OSError:
                continue
            fields = text[text.rindex(b")") + 2 :].split(b" ", 16)
            ticks += sum(int(field) for field in fields[11:15])
        return int((gone.ru_utime + gone.ru_stime) * 1_000_000) + ticks * 1_000_000 // _CLOCK

    def _pids(self) -> list[int]:
        if os.getpid() != 1:
            return descendants()
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]

    def tick(self, now: float) -> str:
        """Look at the job if it is time to; return the limit that it has reached, if any."""
        if now < self.next_tick:
            return ""
        if self._group.oom_kills() > 0:
            return OOM
        used = self.cpu_usec()
        left = self._job.cpu_usec - used
        if left <= 0:
            return CPU_GROUP if self._group.cpu_usec() >= 0 else CPU_SUM
        # The job cannot use what is left sooner than with every CPU at once.
        self.next_tick = now + min(max(left / 1_000_000 / _CPUS, _TICK_MIN), _TICK)
        self._sample(now - self.started, used)
        return ""

    def _sample(self, at: float, used: int) -> None:
        memory = self._group.memory_now()
        if memory < 0 or at < self._sample_next:
            return
        if len(self._samples) >= SAMPLES_MAX * 3:
            kept = self._samples
            self._samples = [n for i in range(0, len(kept), 6) for n in kept[i : i + 3]]
            self._sample_every *= 2
        self._samples += (int(at * 1000), used, memory)
        self._sample_next = at + self._sample_every

    def facts(self, family: Family, cause: str) -> dict[str, object]:
        """Return what is known at the end, when no process is left."""
        ended = monotonic()
        counted = self._group.cpu_usec()  # once: on version 2 it is the dearest file to read
        from_group = counted >= 0
        used = max((counted if from_group else self._sum()) - self._base, 0)
        return {
            "status": family.status if family.ended else -1,
            "wall_ms": int((ended - self.started) * 1000),
            "cpu_usec": used,
            "cpu_from_group": int(from_group),
            "payload_cpu_usec": family.payload_cpu_usec,
            "memory_peak": self._group.memory_peak(),
            "oom_kills": self._group.oom_kills(),
            "pids_refused": self._group.pids_refused(),
            "samples": self._samples,
        }
