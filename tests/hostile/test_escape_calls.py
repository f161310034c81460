"""Into the kernel: calls that no job needs, and the other doors to the ones it may not make."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from hostile.target import Target

pytestmark = pytest.mark.x86_64

# Every one with arguments that do nothing even where the call is allowed.
REFUSED = {
    "bpf": (321, "0, bytes(72), 72", "EPERM"),
    "perf_event_open": (298, "bytes([1, 0, 0, 0, 112]) + bytes(107), 0, -1, -1, 0", "EPERM"),
    "userfaultfd": (323, "1", "EPERM"),
    "io_uring_setup": (425, "1, bytes(120)", "ENOSYS"),
    "io_setup": (206, "1, bytes(8)", "ENOSYS"),
    "kexec_load": (246, "0, 0, None, 0", "EPERM"),
    "kexec_file_load": (320, "-1, -1, 0, None, 0", "EPERM"),
    "init_module": (175, 'None, 0, b""', "EPERM"),
    "finit_module": (313, '-1, b"", 0', "EPERM"),
    "delete_module": (176, 'b"rookhold-none", 0', "EPERM"),
    "seccomp": (317, "2, 0, bytes(4)", "EPERM"),
    "syslog": (103, "3, ctypes.create_string_buffer(256), 256", "EPERM"),
    "vmsplice": (278, "-1, None, 0, 0", "EPERM"),
    "memfd_secret": (447, "0", "EPERM"),
    "mbind": (237, "None, 0, 0, None, 0, 0", "EPERM"),
    "move_pages": (279, "0, 0, None, None, None, 0", "EPERM"),
    "quotactl": (179, "0x800002, None, 0, None", "EPERM"),
    "acct": (163, 'b"/tmp/none"', "EPERM"),
    "swapon": (167, 'b"/tmp/none", 0', "EPERM"),
    "reboot": (169, "0, 0, 0, None", "EPERM"),  # no magic number: never a real one
    "iopl": (172, "3", "EPERM"),
    "ioperm": (173, "0x80, 1, 1", "EPERM"),
    "modify_ldt": (154, "0, None, 0", "EPERM"),
    "sethostname": (170, 'b"owned", 5', "EPERM"),
    "settimeofday": (164, "None, bytes(8)", "EPERM"),
    "kcmp": (312, "os.getpid(), os.getpid(), 0, 0, 0", "EPERM"),
    "lookup_dcookie": (212, "0, None, 0", "EPERM"),
    "landlock_restrict_self": (446, "-1, 0", "ENOSYS"),
    "a call of newer kernels": (600, "", "ENOSYS"),
}
# gVisor answers from its own kernel, and the host's is not asked. It does these; the errno with
# which it refuses the others depends on its version.
DONE_INSIDE = {"io_setup", "io_uring_setup", "mbind", "move_pages", "seccomp", "syslog", "kcmp"}


@pytest.fixture(scope="module")
def outcomes(target: Target) -> dict[str, str]:
    """What came of all of them, each made by a child of one job."""
    lines = [
        f'told["{name}"] = apart(lambda: called({number}, {arguments}))'
        for name, (number, arguments, _) in REFUSED.items()
    ]
    told: dict[str, str] = target.ask("\n".join(lines))
    return told


@pytest.mark.parametrize("name", REFUSED, ids=lambda name: name.replace(" ", "_"))
def test_a_call_into_the_kernel_is_refused(
    target: Target, outcomes: dict[str, str], name: str
) -> None:
    if not target.gvisor:
        assert outcomes[name] == REFUSED[name][2]
    elif name not in DONE_INSIDE:
        assert outcomes[name] != "done"


def test_nothing_of_the_host_changed_by_them(target: Target, outcomes: dict[str, str]) -> None:
    switches = ("kernel/core_pattern", "kernel/hostname", "kernel/domainname", "kernel/tainted")
    before = [Path("/proc/sys", name).read_text() for name in switches]
    swaps, modules = Path("/proc/swaps").read_text(), Path("/proc/modules")
    loaded = modules.read_text() if modules.exists() else ""
    assert target.run("bash", "echo still").stdout == b"still\n"
    assert len(outcomes) == len(REFUSED)
    assert [Path("/proc/sys", name).read_text() for name in switches] == before
    assert Path("/proc/swaps").read_text() == swaps
    assert "rookhold" not in loaded


def test_the_keys_of_the_kernel_are_out_of_reach(target: Target) -> None:
    told = target.ask("""
ADD_KEY, REQUEST_KEY, KEYCTL = 248, 249, 250
SESSION, USER = -3, -4
told["add"] = called(ADD_KEY, b"user", b"canary", b"x", 1, SESSION)
told["request"] = called(REQUEST_KEY, b"user", b"canary", None, 0)
told["id of the session"] = called(KEYCTL, 0, SESSION, 0)
told["join"] = called(KEYCTL, 1, b"_ses", 0, 0, 0)
told["read of the user's"] = called(KEYCTL, 11, USER, ctypes.create_string_buffer(64), 64)
told["link"] = called(KEYCTL, 8, USER, SESSION)
told["persistent"] = called(KEYCTL, 22, -1, SESSION)
""")
    refused = {"EACCES", "EPERM", "ENOSYS", "EOPNOTSUPP"}
    if target.gvisor:  # the newer ones have session keyrings of their own
        told = {
            name: how for name, how in told.items() if name not in ("join", "id of the session")
        }
    assert set(told.values()) <= target.on({"EPERM"}, gvisor=refused), told


def test_the_32_bit_entry_answers_nothing(target: Target) -> None:
    told = target.ask("""
import mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
# push rbx; mov eax, edi; mov ebx, esi; mov ecx, edx; xor edx, edx; int 0x80; pop rbx; ret
page.write(bytes.fromhex("53 89f8 89f3 89d1 31d2 cd80 5b c3"))
code = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int)(
    ctypes.addressof(ctypes.c_char.from_buffer(page)))
GETPID, GETUID, UNSHARE, SOCKETCALL, PERSONALITY = 20, 24, 310, 102, 136
def entered(*arguments):
    result = code(*arguments)
    return errno.errorcode.get(-result, "done") if result < 0 else "done"
told["getpid"] = apart(entered, GETPID, 0, 0)
told["getuid"] = apart(entered, GETUID, 0, 0)
told["unshare"] = apart(entered, UNSHARE, CLONE["user"], 0)
told["personality"] = apart(entered, PERSONALITY, 0x0040000, 0)
""")
    if not target.gvisor:
        assert told == dict.fromkeys(told, "ENOSYS")
    # There it meets the same kernel as every other call, if not the end.
    assert told["unshare"] != "done"
    assert told["personality"] != "done"


def test_32_bit_code_answers_nothing(target: Target) -> None:
    told = target.ask("""
import mmap
MAP_32BIT = 0x40
page = mmap.mmap(-1, 8192, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_32BIT,
                 prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
low = at.to_bytes(4, "little")
# To the 32-bit code segment (0x23) by a far return, the call there, and back (0x33).
to_32 = bytes.fromhex("53 4989e4 bc") + (at + 8000).to_bytes(4, "little")
to_32 += bytes.fromhex("6a23 68") + (at + 256).to_bytes(4, "little") + bytes.fromhex("48cb")
in_32 = bytes.fromhex("b814000000 cd80 ea") + (at + 512).to_bytes(4, "little") + b"\\x33\\0"
back = bytes.fromhex("4c89e4 5b c3")
for offset, text in ((0, to_32), (256, in_32), (512, back)):
    page.seek(offset)
    page.write(text)
code = ctypes.CFUNCTYPE(ctypes.c_int)(at)
def entered():
    result = code()
    return errno.errorcode.get(-result, "done") if result < 0 else "done"
told["getpid"] = apart(entered)
""")
    # An emulated processor may not get as far as the call: then the attempt hangs, and is killed.
    assert told["getpid"] in target.on(
        {"ENOSYS", "signal-9"}, gvisor={"ENOSYS", "signal-11", "EBADF"}
    )


def test_the_x32_entry_answers_nothing(target: Target) -> None:
    told = target.ask("""
X32 = 0x40000000
told["getpid"] = called(X32 | 39)
told["unshare"] = apart(called, X32 | 272, CLONE["user"])
told["ptrace"] = apart(called, X32 | 521, 0, 0, 0, 0)
told["execve of its own number"] = apart(called, X32 | 520, b"/none", None, None)
""")
    inside = {"ENOSYS", "signal-31", "signal-11"}
    assert set(told.values()) <= target.on({"ENOSYS"}, gvisor=inside), told


def test_the_upper_half_of_an_argument_gets_past_nothing(target: Target) -> None:
    told = target.ask("""
HIGH = 1 << 32
UNSHARE, SOCKET, IOCTL, PERSONALITY, PRCTL, MKNOD = 272, 41, 16, 135, 157, 133
told["socket of netlink"] = called(SOCKET, HIGH | 16, 3, 0)
told["raw socket"] = called(SOCKET, 2, HIGH | 3, 1)
told["terminal input"] = called(IOCTL, 0, HIGH | 0x5412, b"x")
told["personality"] = called(PERSONALITY, HIGH | 0x0040000)
told["device"] = called(MKNOD, b"/tmp/device", HIGH | 0o20666, os.makedev(1, 1))
told["filter"] = called(PRCTL, HIGH | 22, 2, bytes(16))
""")
    if target.gvisor:
        del told["socket of netlink"]  # of its own kernel
        assert "done" not in told.values(), told
    else:
        assert told == dict.fromkeys(told, "EPERM")


def test_a_terminal_of_its_own_is_not_fed_and_there_is_no_other(target: Target) -> None:
    told = target.ask("""
import fcntl, termios
told["tty"] = opened("/dev/tty", os.O_RDWR)
told["console"] = opened("/dev/console", os.O_RDWR)
for number, name in ((0x5412, "TIOCSTI"), (0x541C, "TIOCLINUX"), (0x541D, "TIOCCONS")):
    for fd in (0, 1, 2):
        told[f"{name} {fd}"] = attempted(fcntl.ioctl, fd, number, b"x")
told["vhangup"] = called(153)
""")
    assert told.pop("tty") in target.on({"ENXIO"}, gvisor={"ENXIO", "ENOENT", "EIO"})
    assert told.pop("console") == "ENOENT"
    assert told.pop("vhangup") in target.on({"EPERM"}, gvisor={"EPERM", "ENOSYS"})
    assert told == target.on(dict.fromkeys(told, "EPERM"), gvisor=dict.fromkeys(told, "ENOTTY"))


def test_switches_of_a_process_that_reach_further_are_refused(target: Target) -> None:
    told = target.ask("""
PRCTL, PERSONALITY = 157, 135
told["addresses not at random"] = apart(called, PERSONALITY, 0x0040000)
told["readable is executable"] = apart(called, PERSONALITY, 0x0400000)
told["memory layout"] = apart(called, PRCTL, 35, 1, 0x10000, 0, 0)
told["a tracer"] = apart(called, PRCTL, 0x59616D61, -1, 0, 0, 0)
told["secure bits"] = apart(called, PRCTL, 28, 0, 0, 0, 0)
told["a filter of its own"] = apart(called, PRCTL, 22, 2, bytes(16), 0, 0)
told["new privileges again"] = apart(called, PRCTL, 38, 0, 0, 0, 0)
""")
    assert told.pop("new privileges again") == "EINVAL"
    if not target.gvisor:  # who may make its own kernel filter, and lay out its memory
        assert told == dict.fromkeys(told, "EPERM")
