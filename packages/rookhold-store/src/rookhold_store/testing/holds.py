"""How long the writer is held at a time: for tests and benchmarks."""

from __future__ import annotations

from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from rookhold_store.store import Store

T = TypeVar("T")


class Hold(Struct, frozen=True):
    """A stretch in which whatever is submitted has to wait."""

    wall_ms: float
    cpu_ms: float  # of it, in the writer's own thread: what a busy machine does not make longer


class Holds:
    """Watches a store's writer: each transaction with its commit, each step for the file."""

    def __init__(self, store: Store) -> None:
        self._parts: tuple[tuple[Any, str], ...] = (
            (store._writer, "_commit"),
            (store._upkeep, "after_commit"),
            (store._upkeep, "idle"),
        )
        self.seen: list[Hold] = []

    @property
    def longest(self) -> Hold:
        """The longest of each kind, which need not have been the same stretch."""
        return Hold(
            max((hold.wall_ms for hold in self.seen), default=0.0),
            max((hold.cpu_ms for hold in self.seen), default=0.0),
        )

    def __enter__(self) -> Self:
        for owner, name in self._parts:
            setattr(owner, name, self._timed(getattr(owner, name)))
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for owner, name in self._parts:
            delattr(owner, name)

    def _timed(self, part: Callable[..., T]) -> Callable[..., T]:
        def timed(*values: Any) -> T:
            wall, cpu = perf_counter(), thread_time()
            try:
                return part(*values)
            finally:
                self.seen.append(Hold(1000 * (perf_counter() - wall), 1000 * (thread_time() - cpu)))

        return timed
