"""FR-10: a job finds nothing of the server, of another job or of the host in /proc."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gateway import eventually
from reports.site import running

if TYPE_CHECKING:
    from reports.site import Site

# What to look for comes on stdin, so that it is in no file of the job's own.
LOOK = """
import json, os, subprocess
wanted = [text.encode() for text in json.loads(input())]
child = subprocess.Popen(["sleep", "60"])
found, strangers = [], []

def content(path):
    try:
        if os.path.isdir(path):
            return b" ".join(os.fsencode(os.readlink(f"{path}/{x}")) for x in os.listdir(path))
        with open(path, "rb") as file:
            return file.read(1 << 22)
    except OSError:
        return b""

for name in os.listdir("/proc"):
    if name.isdigit():
        if int(name) not in (1, os.getpid(), child.pid):
            strangers.append(name)
        for part in ("environ", "cmdline", "maps", "fd", "mountinfo", "cgroup", "status"):
            path = f"/proc/{name}/{part}"
            if any(text in content(path) for text in wanted):
                found.append(path)
for path in ("/proc/mounts", "/proc/cmdline", "/proc/net/unix", "/proc/self/mountinfo"):
    if any(text in content(path) for text in wanted):
        found.append(path)
child.kill()
print(json.dumps({"found": found, "strangers": strangers}))
"""
CHANGE = """
import json, os
changed = []
def write(path, text):
    try:
        with open(path, "w") as file:
            file.write(text)
            into = os.fstat(file.fileno())
    except OSError:
        return
    if into.st_rdev != os.makedev(1, 3):  # not the null device, with which some are covered
        changed.append(path)

for path in ("kernel/core_pattern", "kernel/hostname", "vm/overcommit_memory", "fs/file-max",
             "net/ipv4/ip_forward"):
    write("/proc/sys/" + path, "1")
write("/proc/self/oom_score_adj", "-1000")
write("/proc/self/uid_map", "0 0 4294967295")
write("/proc/sysrq-trigger", "h")
write("/proc/1/oom_score_adj", "1000")
for top in ("/sys/fs/cgroup", "/sys", "/dev"):
    for directory, _, files in os.walk(top):
        for file in files:
            if file in ("cgroup.procs", "tasks", "memory.max", "memory.limit_in_bytes", "pids.max"):
                write(f"{directory}/{file}", "0")
print(json.dumps(changed))
"""

# What a kernel of the job's own takes, and the host's never hears of.
OWN = {"/proc/self/oom_score_adj", "/proc/1/oom_score_adj"}


def test_nothing_of_the_server_or_of_another_tenant_is_in_proc(sandbox: Site) -> None:
    argument = f"60.{secrets.randbelow(10**9):09}"
    gateway = sandbox.gateway
    with gateway.client(tenant="other") as other:
        code = f"echo up; sleep {argument}"
        staying = other.submit("bash", code, limits={"wall_seconds": 60})
        assert eventually(60, lambda: other.result(staying.job_id).stdout)
        assert running(argument) or sandbox.own_kernel
        wanted = [
            gateway.api_key,
            gateway.key_file.read_text("ascii").splitlines()[1],
            str(gateway.key_file),
            str(gateway.database),
            str(gateway.home),
            sandbox.other_tenant,
            argument,
        ]
        ran = sandbox.run("python", LOOK, stdin=json.dumps(wanted))
        assert not other.cancel(staying.job_id).already_terminal
        assert other.wait(staying.job_id, 60).status == "cancelled"
    assert ran.ended == ("succeeded", None), ran.result.stderr
    assert json.loads(ran.result.stdout) == {"found": [], "strangers": []}


def test_the_search_finds_what_is_there(sandbox: Site) -> None:
    """Without this, a search that looks nowhere would pass."""
    ran = sandbox.run("python", LOOK, stdin=json.dumps(["LANG=C.UTF-8"]))
    assert f"{json.loads(ran.result.stdout)['found']}".count("environ") >= 2


def test_what_would_change_the_host_or_the_limits_is_refused(sandbox: Site) -> None:
    hostname = Path("/proc/sys/kernel/hostname").read_text("ascii")
    ran = sandbox.run("python", CHANGE)
    assert ran.ended == ("succeeded", None), ran.result.stderr
    changed = set(json.loads(ran.result.stdout))
    assert changed <= (OWN if sandbox.own_kernel else set())
    assert Path("/proc/sys/kernel/hostname").read_text("ascii") == hostname


@pytest.mark.parametrize("path", ["/proc/1/environ", "/proc/1/mem", "/proc/1/maps", "/proc/1/fd"])
def test_of_the_first_process_nothing_but_the_jobs_own_can_be_read(
    sandbox: Site, path: str
) -> None:
    limits = {"wall_seconds": 20}
    ran = sandbox.run("bash", f"cat {path} || ls -l {path}/", limits=limits)
    if sandbox.own_kernel:
        shown = ran.result.stdout  # the first process is the job's own, and shows that
        assert sandbox.gateway.api_key not in shown
        assert str(sandbox.gateway.home) not in shown
        return
    assert ran.result.status == "failed"
    assert ran.result.stdout in {"", "total 0\n"}
