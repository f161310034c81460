"""Run tests in the VM by hand: `.venv/bin/python -m tests.vm.run [--shell] [pytest's arguments]`.

Exits as pytest did in there.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as pytest has it

from vm.image import alone
from vm.machine import Machine


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.vm.run", description=__doc__)
    parser.add_argument("--shell", action="store_true", help="a root shell in it, on this terminal")
    parser.add_argument("--timeout", type=float, default=900, help="seconds until it is ended")
    options, rest = parser.parse_known_args()
    began = time.monotonic()
    bound = options.timeout
    machine = Machine(rest, timeout=bound, silence=bound, shell=options.shell)
    with alone("vm-running"), machine:
        if options.shell:
            machine.wait()
            return 0
        for event in machine.events():
            match event:
                case {"event": "went", "test": test, "how": how, "seconds": seconds, "text": text}:
                    print(f"{how:8}{seconds:8.2f} s  {test}", *[text] if text else [], sep="\n")
                case {"event": "broken", "test": test, "text": text}:
                    print(f"broken   {test}\n{text}")
                case {"event": "collected", "tests": tests}:
                    print(f"{tests} tests, collected after {time.monotonic() - began:.0f} s")
                case {"event": "done", "status": status, "seconds": seconds}:
                    print(f"pytest ended with {status} after {seconds} s")
                    return int(status)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
