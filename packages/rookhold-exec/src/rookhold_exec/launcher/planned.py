"""Version 1 groups of a job that do not exist yet: its supervisor makes them.

The launcher can go on to the clone meanwhile, since nobody is born in such a group. It only keeps
their names, to remove them at the end.
"""

from __future__ import annotations

from rookhold_exec.launcher.group import NoGroup, remove_directory, write_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from rookhold_exec.launcher.group import JobGroup


class PlannedGroup(NoGroup):
    """Stands for the groups until `make`, in the launcher for good; it counts nothing."""

    def __init__(self, name: str, parents: dict[str, int], make: Callable[[], JobGroup]) -> None:
        """`parents` are the launcher's own directories that will hold one, by control."""
        self.controls = tuple(sorted(parents))
        self._left = [(parent, name) for parent in parents.values()]
        self._tasks = f"{name}/tasks"
        self._made_by = make

    def make(self) -> JobGroup:
        """Make them, limits set; for the supervisor. Raises OSError, and then nothing is left."""
        return self._made_by()

    def join(self) -> None:
        """Put the calling process into each; for the payload, once they are made."""
        for parent, _ in self._left:
            write_at(parent, self._tasks, "0")

    def remove(self) -> bool:
        """Remove what was made; False while something is still in one of them."""
        self._left = [each for each in self._left if not remove_directory(*each)]
        return not self._left
