"""The jobs of the stream: what each does, and how it may end if nobody disturbs it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

MIB = 1 << 20
_FAST = {"wall_seconds": 120}  # a slow disk or a busy machine must not end it


@dataclass(frozen=True, kw_only=True)
class Program:
    """One kind of job. `printed`, if known, is exactly what it prints when it succeeds.

    `hostile` ones run on isolating backends only; `cancel_after` is the longest time, in seconds,
    after which the stream cancels it.
    """

    name: str
    language: str
    code: str
    ends: frozenset[str] = frozenset({"succeeded"})
    printed: bytes | None = None
    stdin: str | None = None
    limits: Mapping[str, int] = field(default_factory=lambda: _FAST)
    files: Mapping[str, bytes] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    hostile: bool = False
    cancel_after: float | None = None
    weight: int = 2

    @property
    def printed_sha256(self) -> str | None:
        return None if self.printed is None else hashlib.sha256(self.printed).hexdigest()


def _ends(*statuses: str) -> frozenset[str]:
    return frozenset(statuses)


QUICK = Program(
    name="quick", language="bash", code="echo quick", printed=b"quick\n", limits=_FAST, weight=6
)
LONG = Program(
    name="long",
    language="bash",
    code="for n in $(seq 200); do echo $n; sleep 0.02; done",
    printed="".join(f"{n}\n" for n in range(1, 201)).encode(),
    weight=0,
)
FLOOD = Program(
    name="flood",
    language="python",
    code="import time\nfor n in range(60):\n    print('x' * 99 + '\\n', end='', flush=True)\n"
    "    print('\\n'.join(['y' * 40] * 100), flush=True)\n    time.sleep(0.02)",
    printed=(b"x" * 99 + b"\n" + (b"y" * 40 + b"\n") * 100) * 60,
    weight=1,
)
COLLECTED = Program(
    name="collected",
    language="bash",
    code="head -c 2000000 /dev/zero > output/one; head -c 2000000 /dev/zero > output/two",
    outputs=("output/one", "output/two"),
    printed=b"",
    weight=1,
)

PROGRAMS: tuple[Program, ...] = (
    QUICK,
    LONG,
    FLOOD,
    COLLECTED,
    Program(name="python", language="python", code="print(6 * 7)", printed=b"42\n", weight=5),
    Program(name="node", language="node", code="console.log(6 * 7)", printed=b"42\n", weight=2),
    Program(
        name="exit", language="python", code="raise SystemExit(3)", ends=_ends("failed"), weight=2
    ),
    Program(
        name="signal",
        language="bash",
        code="kill -SEGV $$; sleep 9",
        ends=_ends("failed"),
        weight=1,
    ),
    Program(
        name="slow",
        language="python",
        code="import time\nfor n in range(20): print(n, flush=True); time.sleep(0.02)",
        printed="".join(f"{n}\n" for n in range(20)).encode(),
        weight=3,
    ),
    Program(
        name="echo",
        language="bash",
        code="cat - input/given/file",
        stdin="from stdin\n",
        files={"input/given/file": b"\x00from a file\xff"},
        printed=b"from stdin\n\x00from a file\xff",
    ),
    Program(
        name="bytes",
        language="python",
        code="import os\nos.write(1, bytes(range(256)) * 500)",
        printed=bytes(range(256)) * 500,
        weight=1,
    ),
    Program(
        name="cut",
        language="python",
        code="import sys; sys.stdout.write('z' * 3_000_000)",
        printed=b"z" * MIB,
        weight=1,
    ),
    Program(
        name="kept",
        language="bash",
        code="mkdir -p output/a && echo kept > output/a/kept",
        outputs=("output/a/kept",),
        printed=b"",
    ),
    Program(
        name="missing",
        language="bash",
        code="echo there > output/there",
        outputs=("output/there", "output/absent"),
        ends=_ends("error"),
        weight=1,
    ),
    Program(
        name="daemon",
        language="bash",
        code="(setsid sleep 60 > /dev/null 2>&1 &); (sleep 61 &); echo left",
        printed=b"left\n",
    ),
    Program(
        name="wall",
        language="bash",
        code="trap '' TERM; echo began; while :; do sleep 7; done",
        ends=_ends("timed_out"),
        limits={"wall_seconds": 1},
        weight=1,
    ),
    Program(
        name="cpu",
        language="python",
        code="while True: pass",
        ends=_ends("failed", "timed_out"),
        limits={"wall_seconds": 3, "cpu_seconds": 1},
        weight=1,
    ),
    Program(
        name="cancelled",
        language="bash",
        code="echo waiting; sleep 50 & sleep 50",
        ends=_ends("cancelled"),
        limits={"wall_seconds": 60},
        cancel_after=0.5,
        weight=3,
    ),
    Program(
        name="memory",
        language="python",
        code="held = bytearray(300 << 20)\nheld[::4096] = b'x' * len(held[::4096])",
        ends=_ends("oom_killed", "succeeded", "failed"),  # not every host can limit memory
        limits={"wall_seconds": 120, "mem_mb": 64},
        hostile=True,
        weight=1,
    ),
    Program(
        name="bomb",
        language="bash",
        code="f() { f | f & }; f 2> /dev/null; sleep 0.3; echo over",
        ends=_ends("succeeded", "failed", "timed_out"),
        limits={"wall_seconds": 2, "max_pids": 32},
        hostile=True,
        weight=1,
    ),
    Program(
        name="murder",
        language="bash",
        code="kill -STOP -1; kill -9 -1; kill -9 $$",
        ends=_ends("failed", "timed_out"),
        limits={"wall_seconds": 2},
        hostile=True,
        weight=1,
    ),
)


def offered(sandbox: str, languages: tuple[str, ...]) -> tuple[Program, ...]:
    """Return what may run on a backend: nothing hostile where nothing confines it."""
    confined = sandbox != "off"
    return tuple(
        program
        for program in PROGRAMS
        if program.language in languages and (confined or not program.hostile)
    )


def pick(dice: random.Random, programs: tuple[Program, ...]) -> Program:
    return dice.choices(programs, weights=[program.weight for program in programs])[0]
