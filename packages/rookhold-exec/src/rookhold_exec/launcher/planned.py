"""Version 1 groups of a job that are made after its supervisor was cloned.

Nobody is born in such a group, so the launcher makes them while the supervisor starts. That has no
descriptors of them yet, and opens its own later.
"""

from __future__ import annotations

from rookhold_exec.launcher.group import V1_CONTROL, JobGroup, NoGroup, write_at


class PlannedGroup(NoGroup):
    """Stands for the groups: in the launcher for good, in the supervisor until it opens them."""

    def __init__(
        self, name: str, tail: str, parents: dict[str, int], *, mem_bytes: int, pids: int
    ) -> None:
        """`parents` are the launcher's own directories that will hold one, by controller."""
        self._group = JobGroup(name, mem_bytes=mem_bytes, pids=pids)
        self._tail = tail
        self._parents = parents
        self.controls = tuple(sorted(V1_CONTROL[controller] for controller in parents))

    def make(self) -> None:
        """Make them, limits set; for the launcher. On OSError too, `remove` is still needed."""
        for controller, parent in self._parents.items():
            self._group.make_v1(controller, parent)

    def opened(self) -> JobGroup:
        """Return them with descriptors to read, for the supervisor, once they are made."""
        for controller, parent in self._parents.items():
            self._group.open_v1(controller, parent, self._tail)
        return self._group

    def join(self) -> None:
        """Put the calling process into each; for the payload, once they are made."""
        for parent in self._parents.values():
            write_at(parent, f"{self._group.name}/tasks", "0")

    def remove(self) -> bool:
        return self._group.remove()
