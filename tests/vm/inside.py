"""Tests that run in the VM, and how each of them went."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from .image import alone
from .machine import SILENCE_SECONDS, Machine, MachineError

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

    def __init__(
        self, args: Sequence[str], *, timeout: float, silence: float = SILENCE_SECONDS
    ) -> None:
        self.went: dict[str, Went] = {}
        self.status: int | None = None  # pytest's own, at the end
        self._args = args
        self._timeout = timeout
        self._silence = silence
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

    def boot(self) -> None:
        """Boot the VM if that has not been done."""
        if self._events is None:
            wanted = Machine(self._args, timeout=self._timeout, silence=self._silence)
            machine = self._stack.enter_context(wanted)
            self._events = machine.events()

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
            self.boot()
            assert self._events is not None
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


class Fleet:
    """The tests shared out among VMs that run at once, as each of them uses one processor."""

    def __init__(self, tests: Sequence[str], *, machines: int, timeout: float) -> None:
        self.shares = shared_out(tests, machines)
        self._timeout = timeout
        self._stack = ExitStack()
        self._at: dict[str, Inside] = {}

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
        """Wait until this test is over. All VMs boot with the first call."""
        if not self._at:
            self._stack.enter_context(alone("vm-running"))
            for share in self.shares:
                inside = self._stack.enter_context(Inside(share, timeout=self._timeout))
                self._at |= dict.fromkeys(share, inside)
            for inside in dict.fromkeys(self._at.values()):
                with suppress(Exception):  # the test that needs it will say so
                    inside.boot()
        return self._at[test].result(test)


def shared_out(tests: Sequence[str], machines: int) -> list[list[str]]:
    """Share tests out, a file at a time: what a file sets up is set up once."""
    files: dict[str, list[str]] = {}
    for test in tests:
        files.setdefault(test.partition("::")[0], []).append(test)
    shares: list[list[str]] = [[] for _ in range(machines)]
    for file in sorted(files.values(), key=len, reverse=True):
        min(shares, key=len).extend(file)
    return [share for share in shares if share]


def run_in_vm(args: Sequence[str], *, timeout: float) -> dict[str, Went]:
    """Boot a VM for these arguments of pytest; return how every test went.

    Raises MachineError if it was not done in time, or if it ran none.
    """
    with alone("vm-running"), Inside(args, timeout=timeout, silence=timeout) as inside:
        went = inside.all()
    if not went:
        raise MachineError(f"no test ran in the VM (pytest ended with {inside.status})")
    return went
