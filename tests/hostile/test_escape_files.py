"""Out through files: devices, links, the kernel's own files, and what the next job would run."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from hostile.target import Target

# Writing to one of these would change the host, or make it run something.
SWITCHES = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/domainname",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/kernel/panic",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/kernel/shmmax",
    "/proc/sys/kernel/msgmax",
    "/proc/sys/kernel/core_uses_pid",
    "/proc/sys/fs/binfmt_misc/register",
    "/proc/sys/fs/mqueue/queues_max",
    "/proc/sys/fs/file-max",
    "/proc/sys/fs/suid_dumpable",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/net/core/somaxconn",
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/drop_caches",
    "/proc/sysrq-trigger",
    "/proc/kmsg",
    "/proc/irq/default_smp_affinity",
    "/proc/bus/pci/00/00.0",
    "/proc/scsi/scsi",
    "/proc/mtrr",
    "/sys/kernel/uevent_helper",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/power/state",
    "/sys/fs/cgroup/release_agent",
    "/sys/fs/cgroup/cgroup.procs",
    "/sys/fs/cgroup/memory/release_agent",
]
# Harmless where they are still there: opening is the attack, nothing is written.
TO_READ = ["/proc/kcore", "/proc/kmsg", "/proc/kpagecount", "/proc/kpageflags", "/dev/mem"]


def test_no_switch_of_the_kernel_opens_for_writing(target: Target) -> None:
    told = target.ask(f"""
for path in {SWITCHES!r}:
    told[path] = opened(path, os.O_WRONLY)
for top, names, files in os.walk("/proc/sys"):
    for name in files:
        path = os.path.join(top, name)
        if path not in told and opened(path, os.O_WRONLY) == "done":
            with open(path, "r+") as file:  # some let everybody open them, and then refuse
                told[path] = attempted(os.write, file.fileno(), file.read().encode())
""")
    open_ones = sorted(path for path, outcome in told.items() if outcome == "done")
    assert open_ones == target.on([], gvisor=[path for path in open_ones if path in INSIDE])


INSIDE: set[str] = set()  # of gVisor's own kernel, which a job may turn for itself


def test_the_memory_of_the_kernel_does_not_open(target: Target) -> None:
    told = target.ask(f"""
for path in {TO_READ!r}:
    told[path] = opened(path)
""")
    assert "done" not in told.values(), told


def test_no_address_of_the_kernel_is_told(target: Target) -> None:
    told = target.ask("""
text = readable("/proc/kallsyms") + readable("/proc/modules")
lines = text.decode().splitlines()
told["addresses"] = [line for line in lines if any(
    part.removeprefix("0x").strip("0") for part in line.split()
    if len(part.removeprefix("0x")) == 16 and all(c in "0123456789abcdef" for c in part[2:]))][:3]
told["stack"] = readable("/proc/self/stack").decode()
told["wchan"] = readable("/proc/self/wchan").decode()
""")
    assert told["addresses"] == []
    assert told["stack"] == ""


def test_no_control_group_is_seen_or_written(target: Target) -> None:
    told = target.ask("""
told["paths"] = sorted({line.split(":", 2)[2] for line in
                        readable("/proc/self/cgroup").decode().splitlines()})
told["mounted"] = [line for line in readable("/proc/self/mountinfo").decode().splitlines()
                   if " cgroup" in line]
told["tree"] = attempted(os.listdir, "/sys/fs/cgroup")
told["files"] = [path for path in everything("/sys/fs/cgroup", ()) if os.path.isfile(path)]
os.makedirs("/tmp/group", exist_ok=True)
told["version 1"] = called(165, b"none", b"/tmp/group", b"cgroup", 0, b"memory")
told["version 2"] = called(165, b"none", b"/tmp/group", b"cgroup2", 0, None)
""")
    assert told["paths"] in (["/"], [])
    assert told["mounted"] == []
    assert told["tree"] in target.on({"ENOENT"}, gvisor={"ENOENT", "done"})
    assert told["files"] == []
    assert (told["version 1"], told["version 2"]) == ("EPERM", "EPERM")


def test_no_device_node_is_made(target: Target) -> None:
    disks = [Path(path).stat() for path in ("/", "/usr")]
    numbers = sorted({(os.major(each.st_dev), os.minor(each.st_dev)) for each in disks})
    told = target.ask(f"""
character = {{"memory": (1, 1), "kernel log": (1, 11), "port": (1, 4), "tty": (4, 0),
             "fuse": (10, 229), "kvm": (10, 232), "tun": (10, 200), "loop control": (10, 237)}}
for name, (major, minor) in character.items():
    told[name] = attempted(os.mknod, "/tmp/" + name, 0o20666, os.makedev(major, minor))
for major, minor in {[*numbers, (8, 0), (254, 0), (259, 0)]!r}:
    told[f"disk {{major}}:{{minor}}"] = attempted(
        os.mknod, f"/work/disk{{major}}.{{minor}}", 0o60666, os.makedev(major, minor))
told["made"] = [path for path in everything() if path.startswith(("/tmp", "/work"))
                and os.lstat(path).st_mode & 0o170000 in (0o20000, 0o60000)]
told["by the new call"] = called(259, -100, b"/tmp/at", 0o20666, os.makedev(1, 1))
told["whiteout"] = attempted(os.mknod, "/tmp/whiteout", 0o20666, 0)
""")
    assert told.pop("made") == []
    assert told == dict.fromkeys(told, "EPERM")


def test_only_harmless_devices_are_there(target: Target) -> None:
    told = target.ask("""
found = {}
for path in everything():
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        continue
    if status.st_mode & 0o170000 in (0o20000, 0o60000):
        found[path] = [status.st_mode >> 12, os.major(status.st_rdev), os.minor(status.st_rdev)]
told["devices"] = found
""")
    harmless = {(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0)}
    inside = {(5, 2), (10, 229), (10, 200)}  # gVisor's own: terminals, FUSE, tunnels
    allowed = target.on(harmless, gvisor=harmless | inside)
    kinds = {kind for kind, _, _ in told["devices"].values()}
    assert kinds == {stat.S_IFCHR >> 12}
    assert {(major, minor) for _, major, minor in told["devices"].values()} <= allowed


def test_links_do_not_lead_out_of_the_root(target: Target) -> None:
    name = f"rookhold-outside-{secrets.token_hex(4)}"
    canary = Path("/tmp") / name
    canary.write_text("outside")
    try:
        told = target.ask(f"""
ways = {{
    "absolute": "/tmp/{name}", "relative": "../" * 40 + "tmp/{name}",
    "by proc": "/proc/self/root/tmp/{name}", "by the first": "/proc/1/root/tmp/{name}",
    "by its directory": "/proc/1/cwd/../tmp/{name}",
    "by a thread": "/proc/thread-self/root/../tmp/{name}",
}}
for way, target in ways.items():
    os.symlink(target, "/work/link")
    told[way] = [opened("/work/link"), readable("/work/link").decode()]
    os.unlink("/work/link")
os.symlink("/", "/work/top")
above = "/work/top/../../../tmp/{name}"
told["as a directory"] = [opened(above), readable(above).decode()]
os.symlink("loop", "/work/loop")
told["loop"] = opened("/work/loop")
""")
    finally:
        canary.unlink()
    assert told.pop("loop") == "ELOOP"
    assert {content for _, content in told.values()} == {""}
    if not target.gvisor:  # one of whose versions loses the rest of the way after a link to /
        assert {outcome for outcome, _ in told.values()} <= {"ENOENT", "EACCES"}


def test_files_of_the_system_are_not_linked_into_the_job_s_space(target: Target) -> None:
    told = target.ask("""
files = {"accounts": "/etc/passwd", "interpreter": os.path.realpath(sys.executable),
         "shell": os.path.realpath("/bin/sh"), "library": libc._name or "/etc/hosts"}
for name, path in files.items():
    told[name] = attempted(os.link, path, "/work/" + name)
    told[name + " by descriptor"] = attempted(
        os.link, f"/proc/self/fd/{os.open(path, os.O_RDONLY)}", "/work/" + name)
told["rename"] = attempted(os.rename, "/etc/passwd", "/work/passwd")
told["exchange"] = called(316, -100, b"/etc/passwd", -100, b"/work/job.py", 2)
""")
    assert set(told.values()) <= {"EXDEV", "EROFS", "EPERM", "EACCES", "EINVAL"}, told


def test_what_the_next_job_runs_is_not_changed(target: Target) -> None:
    poison = """
places = [p for p in sys.path if p.startswith("/")] + ["/etc", "/usr/lib", "/lib", "/usr/bin",
    "/usr/local/bin", "/usr/local/lib", "/etc/ld.so.conf.d", "/", "/dev", "/proc", "/bin"]
names = ("sitecustomize.py", "usercustomize.py", "ld.so.preload", "profile", "bash.bashrc", "x.pth")
for place in places:
    for name in names:
        path = os.path.join(place, name)
        if path.startswith(("/work", "/tmp")):
            continue
        try:
            with open(path, "a") as file:
                file.write("print('poisoned')\\n")
            told[path] = "done"
        except OSError:
            pass
for path in ("/etc/passwd", "/etc/hosts", "/etc/ld.so.cache", "/etc/group", "/dev/null",
             os.path.realpath(sys.executable), os.__file__, os.path.realpath("/bin/bash")):
    told[path] = attempted(os.chmod, path, 0o777)
    if path != "/dev/null":
        told[path + " written"] = opened(path, os.O_WRONLY)
    told[path + " removed"] = attempted(os.unlink, path)
"""
    interpreter = Path(os.path.realpath("/usr/bin/python3"))
    before = hashlib.sha256(interpreter.read_bytes()).digest()
    told = target.ask(poison)
    assert set(told.values()) <= {"EROFS", "EPERM", "EACCES"}, told
    after = target.run("python", 'told["clean"] = True')
    assert after.stdout == b'{"clean": true}\n'
    assert after.stderr == b""
    assert hashlib.sha256(interpreter.read_bytes()).digest() == before


def test_the_root_is_read_only_whoever_a_job_may_become(target: Target) -> None:
    told = target.ask("""
for place in ("/", "/etc", "/dev", "/usr", "/usr/bin", "/work/..", "/proc/self/root/etc"):
    told[place] = attempted(os.mkdir, place + "/new")
    told[place + " file"] = opened(place + "/new", os.O_WRONLY | os.O_CREAT)
    told[place + " link"] = attempted(os.symlink, "x", place + "/new")
""")
    # EROFS, not EACCES: it is not only that its owner is another. gVisor asks for the owner first.
    assert set(told.values()) <= target.on({"EROFS"}, gvisor={"EROFS", "EACCES"}), told


def test_device_files_of_the_job_keep_what_they_are(target: Target) -> None:
    target.run(
        "python",
        """
for name in ("null", "zero", "full", "random", "urandom"):
    attempted(os.chmod, "/dev/" + name, 0)
    attempted(os.unlink, "/dev/" + name)
    attempted(os.rename, "/dev/" + name, "/dev/gone")
    attempted(os.truncate, "/dev/" + name, 0)
    attempted(os.utime, "/dev/" + name, (0, 0))
    attempted(os.chown, "/dev/" + name, os.getuid(), -1)
""",
    )
    told = target.ask("""
told["modes"] = sorted({oct(os.stat("/dev/" + name).st_mode) for name in
                        ("null", "zero", "full", "random", "urandom")})
told["old"] = min(os.stat("/dev/" + name).st_mtime for name in ("null", "zero")) < 86400
told["null"] = attempted(open, "/dev/null", "wb")
""")
    assert told == {"modes": ["0o20666"], "old": False, "null": "done"}


@pytest.mark.x86_64
def test_a_crash_leaves_no_image_and_starts_no_helper(target: Target) -> None:
    told = target.ask("""
import resource
told["limit"] = resource.getrlimit(resource.RLIMIT_CORE)
child = os.fork()
if child == 0:
    os.chdir("/tmp")
    os.abort()
told["dumped"] = os.WCOREDUMP(os.waitpid(child, 0)[1])
told["files"] = os.listdir("/tmp")
""")
    # With a limit of 0 the kernel would still start the helper of a piped core_pattern; not with 1.
    assert told["limit"] == [1, 1]
    assert not told["dumped"]
    assert told["files"] == []
