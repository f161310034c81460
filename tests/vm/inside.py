"""Tests that run in the VM, and how each of them went."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from .machine import Machine, MachineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType


@dataclass
class Went:
    """One test: `how` it went in all, and what its failures or its skip said."""

    how: str = "passed"
    seconds: float = 0.0
    text: list[str] = field(default_factory=list)

    def add(self, how: str, seconds: float, text: str) -> None:
        if "failed" not in (how, self.how):
            self.how = "skipped" if "skipped" in (how, self.how) else "passed"
        else:
            self.how = "failed"
        self.seconds += seconds
        self.text += [text] if text else []


class Inside:
    """A VM that runs these tests, in this order if fixtures allow; read them in any."""

    def __init__(self, args: Sequence[str], *, timeout: float) -> None:
        self.went: dict[str, Went] = {}
        self.status: int | None = None  # pytest's own, at the end
        self._args = args
        self._timeout = timeout
        self._over: dict[str, bool] = {}
        self._stack = ExitStack()
        self._events: Iterator[dict[str, Any]] | None = None
        self._lost = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def result(self, test: str) -> Went:
        """Wait until this test is over. The VM boots with the first call.

        Raises MachineError if it never was: the whole story the first time, one line after that.
        """
        while test not in self._over:
            if self._lost:
                raise MachineError(self._lost)
            self._next()
        return self.went.get(test, Went("failed", 0.0, ["no part of it was reported"]))

    def all(self) -> dict[str, Went]:
        """Wait for the end of every test."""
        while not self._lost:
            self._next()
        return self.went

    def _next(self) -> None:
        try:
            if self._events is None:
                machine = self._stack.enter_context(Machine(self._args, timeout=self._timeout))
                self._events = machine.events()
            self._take(next(self._events))
        except StopIteration:
            self._lost = "the VM's tests ended before it ran"
        except MachineError as error:
            began = [test for test in self.went if test not in self._over]
            first = str(error).partition("\n")[0]
            self._lost = f"{first}, in {', '.join(began) or 'no test'}"
            raise MachineError(f"{self._lost}\n{error}") from error
        except Exception as error:
            self._lost = f"there is no VM: {error}"
            raise

    def _take(self, event: dict[str, Any]) -> None:
        match event:
            case {"event": "began", "test": test}:
                self.went[test] = Went()
            case {"event": "went", "test": test, "how": how, "seconds": seconds, "text": text}:
                self.went[test].add(how, seconds, text)
            case {"event": "ended", "test": test}:
                self._over[test] = True
            case {"event": "broken", "test": test, "text": text}:
                raise MachineError(f"{test} could not be collected in the VM\n{text}")
            case {"event": "done", "status": status}:
                self.status = status


def run_in_vm(args: Sequence[str], *, timeout: float) -> dict[str, Went]:
    """Boot a VM for these arguments of pytest; return how every test went.

    Raises MachineError if it was not done in time, or if it ran none.
    """
    with Inside(args, timeout=timeout) as inside:
        went = inside.all()
    if not went:
        raise MachineError(f"no test ran in the VM (pytest ended with {inside.status})")
    return went
