"""The jobs of the guided tour: short programs, each printing a little at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Stop:
    """One job of the tour. `shows` says what to look at."""

    language: str
    code: str
    shows: str
    limits: dict[str, int | bool] = field(default_factory=dict)


_PYTHON: Final = """\
import time
for n in (1, 2, 3):
    print(f"{n} x 14 = {n * 14}", flush=True)
    time.sleep(0.2)
"""

_NODE: Final = """\
let n = 0;
const timer = setInterval(() => {
  console.log(`tick ${++n} from node ${process.versions.node}`);
  if (n === 3) clearInterval(timer);
}, 150);
"""

_BASH: Final = """\
echo "I am process $$ of the job"
sleep 0.2
set -- /proc/[0-9]*
echo "processes I can see: $#"
sleep 0.2
echo "hello on stderr" >&2
"""

_NEVER_ENDS: Final = """\
import time
print("I will never stop", flush=True)
while True:
    time.sleep(0.1)
"""

JOBS: Final = (
    Stop("python", _PYTHON, "counting, one line at a time"),
    Stop("node", _NODE, "a timer"),
    Stop("bash", _BASH, "a look around"),
)
ENDLESS: Final = Stop("python", _NEVER_ENDS, "never ends", {"wall_seconds": 1})
ENDLESS_BASH: Final = Stop(
    "bash",
    'echo "I will never stop"; while :; do sleep 0.1; done',
    "never ends",
    {"wall_seconds": 1},
)
REFUSED: Final = Stop("python", "print('hello?')", "wants the internet", {"allow_network": True})

# One digit of the first job's output, as the result artifact holds it.
BEFORE: Final = b"3 x 14 = 42"
AFTER: Final = b"3 x 14 = 43"
EVIDENCE_LANGUAGE: Final = "python"
