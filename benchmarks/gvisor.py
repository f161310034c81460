"""`python -m benchmarks.gvisor`: a gVisor job, over `runsc run` of the same bundle by hand.

By hand is the hardest comparison there is: one process that lives in the namespaces, the root and
the groups of a job, all made beforehand, and starts runsc with the flags and the bundle of a job.
The whole road of a job through the executor is measured against nothing but that command. Both take
turns in one run, with pauses. As root only.
"""

from __future__ import annotations

import argparse
import asyncio  # noqa: TID251 - the executor lives on its loop
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.figures import median, percentile, ratio
from rookhold_exec.backends.gvisor import Gvisor
from rookhold_exec.executor import SandboxPlan
from rookhold_exec.launcher.groups import Groups, _start_time, own_name
from rookhold_exec.rootfs import verify
from rookhold_exec.settings import ExecSettings
from rookhold_types.limits import Limits

if TYPE_CHECKING:
    from rookhold_exec.executor import Report

PROGRAMS = {"bash": ("bash", "echo hello\n"), "python": ("python", "print('hello')\n")}
PAUSE_SECONDS = 0.05
_CANNOT_WAIT = b"while [ -e $said ]; do :; done\\u000a"  # by hand there is nobody to wait for


def by_hand() -> None:
    """Be the process that runs bundles by hand: a line with a program in, milliseconds out."""
    from rookhold_exec.launcher import limits as rlimits
    from rookhold_exec.launcher.gvisor import config, root
    from rookhold_exec.launcher.kernel import MS_NODEV, MS_NOSUID, mount
    from rookhold_exec.unshare import CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWUTS, unshare

    told = json.loads(sys.argv[1])
    groups = Groups([tuple(place) for place in told["places"]], sys.stdin.readline().strip())
    limits = Limits()
    group = groups.create("hand", mem_bytes=limits.mem_mb << 20, pids=4096)
    unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)
    text = config.template(frozenset(), uid=65534, gid=65534).replace(_CANNOT_WAIT, b"")
    runsc, rootfs = (os.open(told[name], os.O_PATH) for name in ("runsc", "rootfs"))
    joins = root.enter(runsc, rootfs, told["places"], groups.name, kvm=False, faults=frozenset())
    plain = MS_NOSUID | MS_NODEV
    mount(b"proc", b"/proc", b"proc", plain, b"")
    mount(b"bundle", root.BUNDLE.encode(), b"tmpfs", plain, b"size=1m,mode=0700")
    mount(b"job", root.SPACE.encode(), b"tmpfs", plain, b"size=64m,nr_inodes=16384,mode=0755")
    for name in ("work", "tmp", "shm"):
        place = Path(root.SPACE, name)
        place.mkdir()
        place.chmod(0o1777)
    for joined in joins:
        root.join(joined, "hand")
    root.show_memory(limits.mem_mb << 20)
    group.join()
    Path(root.BUNDLE, "log").mkdir()
    wanted = rlimits.wanted(cpu_seconds=10, file_bytes=16 << 20, processes=128)
    flags = [f"--root={root.BUNDLE}/state", f"--debug-log={root.BUNDLE}/log/", "--network=none"]
    for line in sys.stdin:
        order = json.loads(line)
        script = Path(root.SPACE, "work", order["script"])
        script.write_text(order["code"])
        argv = [part.encode() for part in order["argv"]]
        environment = {b"PATH": b"/usr/local/bin:/usr/bin:/bin", b"HOME": b"/tmp"}
        bundle = config.build(text, argv, environment, wanted)
        Path(root.BUNDLE, "config.json").write_bytes(bundle)
        run = [root.RUNSC, *flags, *told["runsc_flags"], "run", f"--bundle={root.BUNDLE}", "hand"]
        began = time.perf_counter()
        done = subprocess.run(run, capture_output=True, stdin=subprocess.DEVNULL, env={})
        taken = time.perf_counter() - began
        good = done.returncode == 0 and done.stdout == b"hello\n"
        for left in (Path(root.SPACE, "shm/.rookhold"), *Path(root.BUNDLE, "log").iterdir()):
            left.unlink(missing_ok=True)
        print(taken * 1000 if good else f"failed: {done.stderr!r}", flush=True)


def _forget_groups(places: list[list[Any]]) -> None:
    """Remove the groups that the process by hand lived in to its end, as a launcher would."""
    groups = Groups([tuple(place) for place in places], own_name())
    groups.sweep()
    groups.close()


async def through(executor: Gvisor, language: str, code: str, number: int) -> tuple[float, Report]:
    plan = SandboxPlan(
        job_id=f"measured-{number}", language=language, code=code.encode(), limits=Limits()
    )
    began = time.perf_counter()
    running = await executor.start(plan)
    async for _ in running.events():
        pass
    report = await running.wait()
    return (time.perf_counter() - began) * 1000, report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rootfs")
    parser.add_argument("--runsc", default="/usr/bin/runsc")
    parser.add_argument("--platform", default="ptrace")
    parser.add_argument("--runs", type=int, default=40)
    given = parser.parse_args()
    digest = verify(given.rootfs).digest
    settings = ExecSettings(
        rootfs=given.rootfs,
        rootfs_sha256=digest,
        runsc=given.runsc,
        runsc_platform=given.platform,
        node="none",
    )
    asyncio.run(measure(Gvisor(settings, "measured"), given.runs))
    return 0


async def measure(executor: Gvisor, runs: int) -> None:
    await executor.open()
    surveyed: dict[str, Any] = executor._surveyed
    argv = ["unshare", "--pid", "--fork", "--kill-child", sys.executable]
    hand = subprocess.Popen(  # noqa: ASYNC220 - once, before anything is measured
        [*argv, "-c", "from benchmarks.gvisor import by_hand; by_hand()", json.dumps(surveyed)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert hand.stdin is not None
    assert hand.stdout is not None
    # Named by the number that it has out here: in there it is 1, which lives for ever.
    hand.stdin.write(f"rookhold-{hand.pid}-{_start_time(hand.pid)}\n")
    taken: dict[tuple[str, str], list[float]] = {}
    turns = [(way, name) for way in ("by hand", "job") for name in PROGRAMS] * runs
    random.Random(4).shuffle(turns)
    try:
        for number, (way, name) in enumerate(turns):
            language, code = PROGRAMS[name]
            await asyncio.sleep(PAUSE_SECONDS)
            if way == "job":
                milliseconds, report = await through(executor, language, code, number)
                assert report.exit_code == 0
            else:
                script = {"bash": "job.sh", "python": "job.py"}[language]
                order = {
                    "argv": [executor.locate(executor._settings.interpreters()[language]), script],
                    "script": script,
                    "code": code,
                }
                hand.stdin.write(json.dumps(order) + "\n")
                hand.stdin.flush()
                milliseconds = float(await asyncio.to_thread(hand.stdout.readline))
            taken.setdefault((name, way), []).append(milliseconds)
    finally:
        hand.stdin.close()
        hand.wait(10)
        _forget_groups(surveyed["places"])
        await executor.close()
    for name in PROGRAMS:
        bare = taken[name, "by hand"]
        for way in ("by hand", "job"):
            values = taken[name, way]
            low, middle = percentile(values, 0.1), median(values)
            print(
                f"{name:8} {way:8} median {middle:7.1f} ms  x {ratio(middle, median(bare))}"
                f"   p10 {low:7.1f} ms  x {ratio(low, percentile(bare, 0.1))}"
            )


if __name__ == "__main__":
    sys.exit(main())
