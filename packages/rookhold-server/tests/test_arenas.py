"""The memory of many threads is kept in few places."""

import os
import subprocess
import sys

from rookhold_server import arenas

# Each thread keeps a little memory while all of them run; an arena reserves 64 MiB of addresses.
THREADS = 8
CROWD = f"""
import threading
LIMIT
met = threading.Barrier({THREADS})
def hold():
    kept = bytearray(5000)
    met.wait(30)
crowd = [threading.Thread(target=hold) for _ in range({THREADS})]
for thread in crowd:
    thread.start()
for thread in crowd:
    thread.join()
maps = open("/proc/self/maps").read().splitlines()
ends = [tuple(int(end, 16) for end in line.split()[0].split("-")) for line in maps]
print(sum(1 for low, _ in ends if low % (64 << 20) == 0))
"""


def places(limit: str) -> int:
    program = CROWD.replace("LIMIT", limit)
    env = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, check=True, timeout=60
    )
    return int(done.stdout)


def test_threads_share_what_is_freed() -> None:
    unlimited = places("")
    assert unlimited >= THREADS - 2
    limited = places("from rookhold_server import arenas; arenas.limit()")
    assert limited <= arenas.ARENAS
