"""The part of the contract about evidence: a claim is looked for from inside the job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rookhold_exec.testing.harness import HarnessContract
from rookhold_types.isolation import IsolationClass
from rookhold_types.limits import Limits
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from rookhold_exec.executor import Provenance
    from rookhold_exec.testing.harness import Harness

_NAMESPACES = {
    "user-namespace": "user",
    "pid-namespace": "pid",
    "mount-namespace": "mnt",
    "network-namespace": "net",
    "ipc-namespace": "ipc",
    "uts-namespace": "uts",
    "cgroup-namespace": "cgroup",
}
_LOOK = """
import ctypes, os, resource, json
status = dict(line.split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)
def read_only(path):
    # A kernel of its own may tell it in the list of mounts alone.
    root = next(line.split()[3] for line in open('/proc/mounts') if line.split()[1] == '/')
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY) or 'ro' in root.split(',')
print(json.dumps({
    'namespaces': {n: os.readlink('/proc/self/ns/' + n) for n in os.listdir('/proc/self/ns')},
    'capabilities': [status[name].strip() for name in sorted(status) if name.startswith('Cap')],
    'no_new_privs': ctypes.CDLL(None).prctl(39, 0, 0, 0, 0),
    'seccomp': [int(status.get(k, -1)) for k in ('Seccomp', 'Seccomp_filters')],
    'kernel': open('/proc/version').read(),
    'file': resource.getrlimit(resource.RLIMIT_FSIZE),
    'read_only': [read_only(path) for path in ('/', '/usr')],
    'space': {path: os.statvfs(path).f_blocks * os.statvfs(path).f_frsize
              for path in ('/work', '/tmp', '/dev/shm') if os.path.isdir(path)},
    'interfaces': [line.split(':')[0].strip() for line in open('/proc/net/dev') if ':' in line],
}))
"""


def _filtered(seen: object) -> bool:
    """A filter that this process has too, from a container around both, proves nothing."""
    assert isinstance(seen, list)
    mode, filters = seen
    own = _own("Seccomp_filters")
    return mode == 2 and (filters > own if own >= 0 else _own("Seccomp") == 0)


def _own(name: str) -> int:
    text = Path("/proc/self/status").read_text("ascii", "replace")
    return int(dict(line.split(":", 1) for line in text.splitlines()).get(name, -1))


def claims_hold(provenance: Provenance, seen: dict[str, object], limits: Limits) -> list[str]:
    """Return the controls that are claimed, but not there when looked for from inside."""
    namespaces = seen["namespaces"]
    assert isinstance(namespaces, dict)
    space = seen["space"]
    assert isinstance(space, dict)
    true = {
        control: namespaces.get(name) not in {None, os.readlink(f"/proc/self/ns/{name}")}  # noqa: PTH115
        for control, name in _NAMESPACES.items()
        # A kernel of its own has no links to those that it does not know.
        if name in namespaces or "application-kernel" not in provenance.controls
    }
    true["network-namespace"] &= seen["interfaces"] in (["lo"], [])
    capabilities = seen["capabilities"]
    assert isinstance(capabilities, list)
    true["capabilities-dropped"] = len(capabilities) >= 4 and set(capabilities) == {"0" * 16}
    true["no-new-privileges"] = seen["no_new_privs"] == 1
    true["application-kernel"] = seen["kernel"] != Path("/proc/version").read_text("ascii")
    true["seccomp"] = _filtered(seen["seccomp"])
    true["read-only-root"] = seen["read_only"] == [True, True]
    true["rlimits"] = seen["file"] == [limits.max_file_mb << 20] * 2
    true["workspace-quota"] = len(space) == 3 and len(set(space.values())) == 1
    return [control for control in provenance.controls if not true.get(control, True)]


class ClaimsContract(HarnessContract):
    """Configuration is not evidence, and what is evidence is true."""

    def test_what_is_claimed_is_there_when_looked_for_from_inside(self, harness: Harness) -> None:
        import json

        limits = Limits(max_file_mb=3)
        result = harness.run("python", _LOOK, limits=limits)
        provenance = result.report.provenance
        assert provenance.bootstrap_ready
        assert claims_hold(provenance, json.loads(result.stdout), limits) == []

    def test_the_members_of_the_evidence_agree(self, harness: Harness) -> None:
        provenance = harness.run("python", "print(1)").report.provenance
        posture = harness.executor.posture
        assert list(provenance.controls) == sorted(set(provenance.controls))
        assert provenance.backend == posture.backend
        assert provenance.isolated == (provenance.isolation_class is not IsolationClass.NONE)
        assert provenance.seccomp == ("seccomp" in provenance.controls)
        assert provenance.network_allowed == (provenance.networking == "host")
        assert provenance.network_allowed == ("network-namespace" not in provenance.controls)
        limits, enforced = provenance.effective_limits, provenance.limit_enforcement
        assert limits.allow_network == provenance.network_allowed
        for value, flag in (
            (limits.wall_seconds, enforced.wall),
            (limits.cpu_seconds, enforced.cpu),
            (limits.mem_mb, enforced.mem),
            (limits.max_pids, enforced.pids),
            (limits.max_file_mb, enforced.file),
        ):
            assert (value is not None) == flag

    def test_a_claimed_cpu_limit_ends_four_busy_threads(self, harness: Harness) -> None:
        if not harness.executor.posture.limit_enforcement.cpu:
            return
        code = (
            "import subprocess, sys\n"
            "busy = [sys.executable, '-c', 'while True: pass']\n"
            "children = [subprocess.Popen(busy) for _ in range(4)]\n"
            "[child.wait() for child in children]\n"
        )
        result = harness.run("python", code, limits=Limits(cpu_seconds=1, wall_seconds=20))
        assert result.report.status is JobStatus.FAILED
        assert result.report.killed_by == "cgroup-cpu"
        assert result.rules == ["cpu_limit_exceeded"]
        assert result.report.usage is not None
        assert 1_000_000 <= (result.report.usage.cpu_time_usec or 0) < 2_000_000

    def test_a_claimed_memory_limit_is_told_from_any_other_end(self, harness: Harness) -> None:
        if not harness.executor.posture.limit_enforcement.mem:
            return
        code = "print('before', flush=True); b = bytearray(300 << 20); b[::4096] = b'x' * 76800"
        result = harness.run("python", code, limits=Limits(mem_mb=64, wall_seconds=20))
        assert result.report.status is JobStatus.OOM_KILLED
        assert result.report.killed_by == "cgroup-oom"
        assert result.rules == ["memory_cap_exceeded"]
        assert result.stdout == b"before\n"
        assert result.report.usage is not None
        assert (result.report.usage.memory_peak_bytes or 0) <= 64 << 20

    def test_a_claimed_process_limit_makes_fork_fail_inside(self, harness: Harness) -> None:
        if not harness.executor.posture.limit_enforcement.pids:
            return
        code = (
            "import os, time\n"
            "made = 0\n"
            "try:\n"
            "    while made < 200:\n"
            "        if os.fork() == 0:\n"
            "            time.sleep(60); os._exit(0)\n"
            "        made += 1\n"
            "except BlockingIOError:\n"
            "    pass\n"
            "print(made)\n"
        )
        result = harness.run("python", code, limits=Limits(max_pids=20, wall_seconds=20))
        assert 10 <= int(result.stdout) <= 20
        assert result.report.status is JobStatus.SUCCEEDED

    def test_a_claimed_file_limit_stops_a_file(self, harness: Harness) -> None:
        if not harness.executor.posture.limit_enforcement.file:
            return
        code = (
            "import os, signal\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "fd = os.open('big', os.O_CREAT | os.O_WRONLY)\n"
            "written = 0\n"
            "try:\n"
            "    while True: written += os.write(fd, bytes(1 << 16))\n"
            "except OSError as error:\n"
            "    print(written, error.errno)\n"
        )
        result = harness.run("python", code, limits=Limits(max_file_mb=2))
        assert result.stdout == b"%d 27\n" % (2 << 20)
