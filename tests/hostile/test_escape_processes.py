"""Out through another process: tracing, memory, signals, identities, what /proc offers of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from faults.victims import children, family
from hostile.target import KIT, LIMITS

from rookhold_exec.executor import KillReason, OutputRecord
from rookhold_types.isolation import Backend

if TYPE_CHECKING:
    from hostile.target import Target


@pytest.mark.x86_64
def test_nobody_is_traced_nor_asks_to_be(target: Target) -> None:
    told = target.ask("""
PTRACE = 101
TRACEME, ATTACH, SEIZE = 0, 16, 0x4206
child = os.fork()
if child == 0:
    signal.pause()
for name, pid in (("first", 1), ("parent", os.getppid() or 1), ("child", child)):
    told["attach " + name] = called(PTRACE, ATTACH, pid, 0, 0)
    told["seize " + name] = called(PTRACE, SEIZE, pid, 0, 0)
told["be traced"] = apart(called, PTRACE, TRACEME, 0, 0, 0)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
""")
    if target.gvisor:  # there a job may look into what is its own
        told = {name: how for name, how in told.items() if "child" not in name}
        assert told.pop("be traced") in {"EPERM", "done"}
    assert told == dict.fromkeys(told, "EPERM")


@pytest.mark.x86_64
def test_the_memory_of_no_other_process_is_read_or_written(target: Target) -> None:
    told = target.ask("""
READV, WRITEV = 310, 311
secret = ctypes.create_string_buffer(b"canary", 8)
child = os.fork()
if child == 0:
    signal.pause()
class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
mine = ctypes.create_string_buffer(8)
here, there = Part(ctypes.addressof(mine), 8), Part(ctypes.addressof(secret), 8)
def handle(pid):
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1
for name, pid in (("first", 1), ("child", child)):
    for verb, number in (("read", READV), ("write", WRITEV)):
        told[f"{verb} {name}"] = called(
            number, pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    told[f"pidfd of {name}"] = called(438, handle(pid), 0, 0)
told["memory file of the first"] = opened("/proc/1/mem", os.O_RDWR)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
""")
    first = {name: told.pop(name) for name in list(told) if "first" in name}
    memory = first.pop("memory file of the first")
    if target.gvisor:  # whose first process is the job's own
        return
    assert memory in {"ENOENT", "EACCES"}
    assert "done" not in first.values()
    assert told == dict.fromkeys(told, "EPERM")


def test_what_supervises_is_not_seen_in_proc(target: Target) -> None:
    told = target.ask("""
names = ("environ", "cmdline", "maps", "mem", "root", "cwd", "exe", "fd", "ns/mnt", "mountinfo",
         "syscall", "stack", "auxv", "task", "status")
told["seen"] = [name for name in names if os.path.lexists("/proc/1/" + name)]
told["processes"] = len([each for each in os.listdir("/proc") if each.isdigit()])
told["own"] = str(os.getpid()) in os.listdir("/proc")
""")
    # gVisor's first process is the job's own interpreter.
    assert told["own"]
    if not target.gvisor:
        assert told["seen"] == []
        assert told["processes"] == 1


def test_the_roots_of_processes_lead_nowhere_else(target: Target) -> None:
    own = f"/tmp/rookhold-outside-{os.getpid()}"
    Path(own).write_text("outside")
    try:
        told = target.ask(f"""
found = []
for pid in [each for each in os.listdir("/proc") if each.isdigit()] + ["self", "thread-self", "1"]:
    for way in ("root", "cwd", "root/..", "cwd/../..", "fd/0/..", "task/1/root", "fd/1/../.."):
        if os.path.exists(f"/proc/{{pid}}/{{way}}{own}"):
            found.append((pid, way))
told["found"] = found
told["same root"] = os.path.samefile("/", "/proc/self/root")
told["nothing above"] = os.path.samefile("/", "/proc/self/root/../../..")
""")
    finally:
        Path(own).unlink()
    assert told == {"found": [], "same root": True, "nothing above": True}


def test_the_interpreter_is_not_rewritten_through_its_own_process(target: Target) -> None:
    told = target.ask(r"""
import time
told["direct"] = opened("/proc/self/exe", os.O_WRONLY)
told["truncate"] = attempted(os.truncate, "/proc/self/exe", 0)
held = os.open("/proc/self/exe", os.O_PATH)
# A child whose interpreter is /proc/self/exe: what starts it must not be left open for writing.
with open("/tmp/again", "w") as script:
    script.write("#!/proc/self/exe\nimport time; time.sleep(0.2)\n")
os.chmod("/tmp/again", 0o755)
child = os.fork()
if child == 0:
    os.execv("/tmp/again", ["/tmp/again"])
outcomes = set()
for path in (f"/proc/self/fd/{held}", f"/proc/{child}/exe", sys.executable):
    for _ in range(20):
        outcomes.add(opened(path, os.O_WRONLY))
        time.sleep(0.002)
os.waitpid(child, 0)
while_gone = opened(f"/proc/self/fd/{held}", os.O_WRONLY)
told["through descriptors"] = sorted(outcomes | {while_gone})
""")
    refused = {"EROFS", "ETXTBSY", "EACCES", "EPERM"}
    assert told["direct"] in refused
    assert told["truncate"] in refused
    assert set(told["through descriptors"]) <= refused | {"ENOENT"}  # when the child is over


def test_no_descriptor_is_inherited_but_the_three(target: Target) -> None:
    told = target.ask("""
told["open"] = [fd for fd in range(3, 4096) if attempted(os.fstat, fd) == "done"]
told["where"] = [os.readlink(f"/proc/self/fd/{fd}").split(":")[0] for fd in range(3)]
told["up from them"] = [
    opened(f"/proc/self/fd/{fd}/../../../../etc/shadow") for fd in range(3)]
""")
    assert told["open"] == []
    assert "done" not in told["up from them"]
    first, *others = told["where"]
    assert first in target.on({"/dev/null"}, gvisor={"/dev/null", "host"})
    assert others == target.on(["pipe", "pipe"], gvisor=others)
    assert not any(other.startswith("/") and "/dev/" not in other for other in others)


def test_no_power_is_left_and_none_is_got_back(target: Target) -> None:
    told = target.ask("""
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
told["powers"] = {name: int(status[name], 16) for name in
                  ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") if name in status}
told["uid"] = sorted(set(os.getresuid() + os.getresgid()))
told["groups"] = os.getgroups()
class Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]
all_of_them = (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)
told["capset"] = "done" if not libc.capset(
    ctypes.byref(Header(0x20080522, 0)), all_of_them) else errno.errorcode[ctypes.get_errno()]
told["ambient"] = "done" if not libc.prctl(47, 2, 21, 0, 0) else "refused"
""")
    assert set(told["powers"].values()) == {0}
    assert len(told["powers"]) >= 3
    assert 0 not in told["uid"]
    assert told["groups"] in ([], told["uid"])
    assert (told["capset"], told["ambient"]) == ("EPERM", "refused")


def test_nobody_else_s_identity_is_taken(target: Target) -> None:
    told = target.ask("""
others = [0, 1, 65533, 65534, 100000, 210000, 210001] + [os.getuid() + n for n in (1, -1)]
others = [uid for uid in others if uid != os.getuid()]
told["uid"] = sorted({apart(attempted, os.setresuid, uid, uid, uid) for uid in others})
told["gid"] = sorted({apart(attempted, os.setresgid, uid, uid, uid) for uid in others})
told["groups"] = sorted({apart(attempted, os.setgroups, [uid]) for uid in others})
told["fsuid"] = [libc.setfsuid(0), libc.setfsuid(0)]
told["map"] = opened("/proc/self/uid_map", os.O_WRONLY)
told["gid map"] = opened("/proc/self/gid_map", os.O_WRONLY)
told["me"] = os.getuid()
import socket, struct
one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
other.setsockopt(socket.SOL_SOCKET, 16, 1)
told["as root"] = attempted(
    one.sendmsg, [b"x"], [(socket.SOL_SOCKET, 2, struct.pack("iii", os.getpid(), 0, 0))])
told["as the first"] = attempted(
    one.sendmsg, [b"x"],
    [(socket.SOL_SOCKET, 2, struct.pack("iii", 1, os.getuid(), os.getgid()))])
""")
    # In a user namespace of its own the others do not even exist.
    assert set(told["uid"] + told["gid"]) == {target.on("EINVAL", gvisor="EPERM")}
    assert told["groups"] == ["EPERM"]
    assert told["fsuid"] in target.on([[told["me"]] * 2], gvisor=[[told["me"]] * 2, [-1, -1]])
    assert told["as root"] in {"EPERM", "EINVAL"}
    assert told["as the first"] == target.on("EPERM", gvisor=told["as the first"])


def test_a_set_user_id_file_gives_nothing(target: Target) -> None:
    told = target.ask("""
import shutil, subprocess
shutil.copy("/usr/bin/id", "/tmp/id")
told["chown"] = attempted(os.chown, "/tmp/id", 0, 0)
os.chmod("/tmp/id", 0o6755)
told["own"] = int(subprocess.check_output(["/tmp/id", "-u"]))
told["me"] = os.getuid()
# The loader shows this only where a program did not gain anything by being started.
told["system's"] = {}
for path in everything(skipped=("/proc", "/sys", "/tmp", "/work", "/usr/share", "/usr/lib")):
    able = os.path.isfile(path) and not os.path.islink(path) and os.access(path, os.X_OK)
    if able and os.stat(path).st_mode & 0o4000:
        shown = subprocess.run([path, "--version"], env={"LD_SHOW_AUXV": "1"},
                               stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout
        lines = [line.split() for line in shown.splitlines()]
        if lines[:1] and lines[0][0].startswith("AT_"):
            told["system's"][path] = [int(line[1]) for line in lines
                                      if line[:1] in (["AT_EUID:"], ["AT_SECURE:"])]
told["no new privileges"] = libc.prctl(39, 0, 0, 0, 0)
told["flags"] = [path for path in ("/", "/usr", "/tmp", "/work", "/dev/shm")
                 if not os.statvfs(path).f_flag & os.ST_NOSUID]
""")
    assert told["own"] == told["me"]
    assert told["chown"] in {"EPERM", "EINVAL"}
    # A reviewed root has none; the host's own programs have, and gain nothing by it.
    assert bool(told["system's"]) == (target.backend == Backend.NAMESPACES_DEV)
    assert all(sorted(seen) == [0, told["me"]] for seen in told["system's"].values())
    assert told["no new privileges"] == 1
    assert told["flags"] == target.on([], gvisor=told["flags"])


def test_a_file_s_capabilities_give_nothing(target: Target) -> None:
    told = target.ask("""
import shutil, struct, subprocess
shutil.copy("/bin/cat", "/tmp/cat")
value = struct.pack("<5I", 0x02000001, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0)
told["set"] = attempted(os.setxattr, "/tmp/cat", "security.capability", value)
status = subprocess.check_output(["/tmp/cat", "/proc/self/status"], text=True)
told["effective"] = [line.split()[1] for line in status.splitlines() if "CapEff" in line]
""")
    assert told["set"] in {"EPERM", "ENOTSUP"}
    assert told["effective"] == ["0000000000000000"]


def test_the_first_process_is_not_moved_by_any_signal(target: Target) -> None:
    told = target.ask("""
sent = set()
for number in range(1, 65):
    if not (target_is_own := os.getpid() == 1):
        sent.add(attempted(os.kill, 1, number))
        try:
            fd = os.pidfd_open(1)
            sent.add(attempted(signal.pidfd_send_signal, fd, number))
            os.close(fd)
        except OSError as error:
            sent.add(errno.errorcode[error.errno])
told["sent"] = sorted(sent)
""")
    assert set(told["sent"]) <= {"done", "EPERM", "ESRCH", "EINVAL"}
    assert target.ask('told["next"] = 1') == {"next": 1}


def test_priorities_that_would_starve_others_are_refused(target: Target) -> None:
    told = target.ask("""
told["nice"] = attempted(os.setpriority, os.PRIO_PROCESS, 0, -20)
told["real time"] = attempted(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(99))
told["round robin"] = attempted(os.sched_setscheduler, 0, os.SCHED_RR, os.sched_param(1))
told["of the first"] = attempted(os.setpriority, os.PRIO_PROCESS, 1, 19)
told["of everybody"] = attempted(os.setpriority, os.PRIO_USER, 0, -20)
told["ioprio"] = called(251, 1, 0, 1 << 13) if os.uname().machine == "x86_64" else "EPERM"
told["to be killed last"] = "done"
try:
    with open("/proc/self/oom_score_adj", "w") as adjust:
        adjust.write("-1000")
except OSError as error:
    told["to be killed last"] = errno.errorcode[error.errno]
""")
    if target.gvisor:  # of a scheduler and a killer that are its own; the next test looks outside
        return
    assert set(told.values()) <= {"EPERM", "EACCES", "EROFS"}, told


def test_no_process_of_a_job_goes_before_those_of_the_host(target: Target) -> None:
    code = """
attempted(os.setpriority, os.PRIO_PROCESS, 0, -20)
attempted(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(99))
attempted(os.setpriority, os.PRIO_USER, 0, -20)
print("ready", flush=True)
import time
time.sleep(60)
"""
    seen: list[tuple[int, int]] = []

    async def scenario() -> None:
        harness = target.harness
        running = await harness.executor.start(harness.plan("python", KIT + code, limits=LIMITS))
        async for event in running.events():
            if isinstance(event, OutputRecord):
                seen.extend(
                    (os.getpriority(os.PRIO_PROCESS, pid), os.sched_getscheduler(pid))
                    for launcher in children(os.getpid())
                    for supervisor in children(launcher)
                    for pid in family(supervisor)[1:]
                )
                running.kill(KillReason.CANCELLED)
        await running.wait()

    own = os.getpriority(os.PRIO_PROCESS, 0)
    target.harness.do(scenario())
    assert seen
    assert min(nice for nice, _ in seen) >= own
    assert {policy for _, policy in seen} == {os.SCHED_OTHER}


def test_limits_are_not_raised_nor_set_for_others(target: Target) -> None:
    told = target.ask("""
import resource
kinds = {name: getattr(resource, name) for name in
         ("RLIMIT_NPROC", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_CPU", "RLIMIT_MEMLOCK",
          "RLIMIT_CORE")}
def raised(kind, way):
    hard = resource.getrlimit(kind)[1]
    try:
        way(kind, (hard + 1, hard + 1))
    except (OSError, ValueError):
        return "refused"
    return "done"
for name, kind in kinds.items():
    told[name] = raised(kind, resource.setrlimit)
    told[name + " by prlimit"] = raised(kind, lambda k, v: resource.prlimit(0, k, v))
told["of the first"] = "refused"
try:
    if os.getpid() != 1:
        resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))
        told["of the first"] = "done"
except OSError:
    pass
""")
    assert told == dict.fromkeys(told, "refused")
