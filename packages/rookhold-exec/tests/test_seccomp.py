"""The filter: what its bytes decide about any call, and what real programs meet under it."""

import hashlib
import random
import shutil
import struct
import subprocess
import sys
from errno import EPERM
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookhold_exec import seccomp

pytestmark = pytest.mark.x86_64

HERE = Path(__file__).parent
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
ENOSYS = 38
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
X86_64, I386, X32_BIT = 0xC000003E, 0x40000003, 0x40000000
WORDS = st.integers(0, 2**64 - 1)


@pytest.fixture(scope="module")
def policy() -> dict[str, Any]:
    from rookhold_exec.seccomp.build import load_policy

    return load_policy()


@pytest.fixture(scope="module")
def numbers(policy: dict[str, Any]) -> dict[str, int]:
    import pyseccomp

    names = {rule["call"] for rule in policy["allow_if"]}
    for group in ("allow", "refused", "pretend_missing"):
        names |= {name for each in policy[group].values() for name in each}
    return {name: pyseccomp.resolve_syscall(pyseccomp.Arch.X86_64, name) for name in sorted(names)}


def program() -> bytes:
    code = seccomp.program("x86_64")
    assert code is not None
    return code


INSTRUCTIONS = list(struct.iter_unpack("=HBBI", program()))


def decide(nr: int, *args: int, arch: int = X86_64) -> int:
    from rookhold_exec.seccomp import reference

    return reference.decide(program(), nr, *args, machine=arch)


def meets(rule: dict[str, Any], args: list[int]) -> bool:
    return all(
        (args[each["arg"]] & each.get("mask", 2**64 - 1)) in each.get("any", [each.get("is")])
        for each in rule["where"]
    )


def under_filter(*argv: str, filter_file: Path | None = None) -> subprocess.CompletedProcess[str]:
    where = filter_file or Path(seccomp.__file__).parent / "x86_64.bpf"
    return subprocess.run(
        [PYTHON, "-I", HERE / "confine.py", where, *argv],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"},
    )


def calls(code: str) -> str:
    """Run Python under the filter; `call(number, *args)` gives the errno of a raw system call."""
    head = (
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "def call(number, *args):\n"
        "    ctypes.set_errno(0)\n"
        "    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, args))\n"
        "    return ctypes.get_errno() if result == -1 else 0\n"
    )
    done = under_filter(PYTHON, "-I", "-c", head + code)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_building_again_gives_the_committed_bytes(policy: dict[str, Any]) -> None:
    from rookhold_exec.seccomp.build import build

    assert build(policy) == program()


def test_checking_says_whether_the_committed_bytes_are_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rookhold_exec.seccomp import build

    assert build.main(["--check"]) == 0
    monkeypatch.setattr(build, "PROGRAM", tmp_path / "made.bpf")
    assert build.main(["--check"]) == 1
    assert "not what the policy makes" in capsys.readouterr().err
    assert build.main([]) == 0
    assert build.main(["--check"]) == 0
    assert (tmp_path / "made.bpf").read_bytes() == program()


def test_a_policy_that_contradicts_itself_is_not_built(policy: dict[str, Any]) -> None:
    from rookhold_exec.seccomp.build import PolicyError, build

    also_refused = policy | {"allow": policy["allow"] | {"more": ["ptrace"]}}
    misspelt = policy | {"allow": policy["allow"] | {"more": ["opne"]}}
    for wrong in (also_refused, misspelt, policy | {"highest": 300}):
        with pytest.raises(PolicyError):
            build(wrong)


def test_a_program_that_decides_otherwise_than_libseccomp_is_not_built(
    policy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rookhold_exec.seccomp import build

    def forgetful(alternatives: Any, allow: int, otherwise: int) -> list[bytes]:
        return made([conditions[:1] for conditions in alternatives], allow, otherwise)

    made = build.rules
    monkeypatch.setattr(build, "rules", forgetful)  # of several conditions only the first is tested
    with pytest.raises(build.PolicyError, match="libseccomp decides otherwise on setpriority"):
        build.build(policy)


def test_libseccomp_decides_as_the_committed_program_does(
    policy: dict[str, Any], numbers: dict[str, int]
) -> None:
    from rookhold_exec.seccomp.reference import disagreement, reference

    theirs = reference(policy, numbers)
    assert disagreement(program(), theirs, policy, numbers) == ""
    assert disagreement(program(), reference(policy | {"allow_if": []}, numbers), policy, numbers)


def test_the_digest_is_of_the_bytes_and_other_machines_have_none() -> None:
    assert seccomp.digest("x86_64") == hashlib.sha256(program()).hexdigest()
    assert seccomp.program("aarch64") is None
    assert seccomp.digest("aarch64") is None


def test_loading_needs_no_library() -> None:
    code = (
        "import sys; from rookhold_exec import seccomp; assert seccomp.program('x86_64');"
        "assert not {'pyseccomp', 'ctypes', 'rookhold_exec.seccomp.build'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_program_only_allows_or_answers_an_errno_and_never_kills() -> None:
    actions = {operand for code, _, _, operand in INSTRUCTIONS if code == 0x06}
    assert actions == {ALLOW, ERRNO | EPERM, ERRNO | ENOSYS}


def test_every_call_number_gets_what_the_policy_says(
    policy: dict[str, Any], numbers: dict[str, int]
) -> None:
    allowed = {numbers[name] for group in policy["allow"].values() for name in group}
    missing = {numbers[name] for group in policy["pretend_missing"].values() for name in group}
    conditional = {numbers[rule["call"]] for rule in policy["allow_if"]}
    for nr in range(700):
        if nr in conditional:
            continue
        expected = ERRNO | EPERM
        if nr in missing or nr > policy["highest"]:
            expected = ERRNO | ENOSYS
        if nr in allowed:
            expected = ALLOW
        assert decide(nr) == expected, nr
        assert decide(nr, *(2**64 - 1,) * 6) == expected, nr


def test_the_other_entries_of_the_kernel_are_closed() -> None:
    for nr in range(700):
        assert decide(nr, arch=I386) == ERRNO | ENOSYS
        assert decide(nr | X32_BIT) == ERRNO | ENOSYS


@given(st.randoms(use_true_random=False), st.lists(WORDS, min_size=6, max_size=6))
def test_conditions_hold_for_any_arguments(
    policy: dict[str, Any], numbers: dict[str, int], pick: random.Random, args: list[int]
) -> None:
    for rule in policy["allow_if"]:
        name = rule["call"]
        near = list(args)
        for each in rule["where"]:  # close to what the rule wants, one bit off at most
            value = pick.choice(each.get("any", [each.get("is")]))
            noise = near[each["arg"]] & ~each.get("mask", 2**64 - 1)
            near[each["arg"]] = (value | noise) ^ pick.choice([0, 0, 0, 1 << pick.randrange(64)])
        for tried in (args, near):
            same = [other for other in policy["allow_if"] if other["call"] == name]
            expected = ALLOW if any(meets(other, tried) for other in same) else ERRNO | EPERM
            assert decide(numbers[name], *tried) == expected, (name, tried)


def test_each_refused_call_is_refused_by_the_kernel(
    policy: dict[str, Any], numbers: dict[str, int]
) -> None:
    refused = [name for group in policy["refused"].values() for name in group]
    missing = [name for group in policy["pretend_missing"].values() for name in group]
    wanted = dict.fromkeys(refused, EPERM) | dict.fromkeys(missing, ENOSYS)
    table = {name: numbers[name] for name in wanted}
    out = calls(f"print({{name: call(nr, 0, 0, 0, 0, 0, 0) for name, nr in {table}.items()}})")
    assert eval(out, {}) == wanted


def test_the_refusals_are_the_filters_and_not_the_kernels() -> None:
    code = "import ctypes; print(ctypes.CDLL(None, use_errno=True).unshare(0))"
    assert under_filter(PYTHON, "-I", "-c", code).stdout == "-1\n"
    bare = subprocess.run([PYTHON, "-I", "-c", code], capture_output=True, check=True, timeout=60)
    assert bare.stdout == b"0\n"


def test_no_clone_makes_a_namespace_but_processes_and_threads_are_made() -> None:
    out = calls(
        "import os, threading\n"
        "flags = {0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000}\n"
        "print({call(56, flag | 17, 0, 0, 0, 0) for flag in flags | {0x8000, 0x7e020000}})\n"
        "print(call(435, 0, 0))\n"
        "pid = os.fork()\n"
        "if pid == 0: os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
        "thread = threading.Thread(target=print, args=('thread',)); thread.start(); thread.join()"
    )
    assert out.splitlines() == [f"{{{EPERM}}}", str(ENOSYS), "7", "thread"]


def test_only_ordinary_sockets_can_be_made() -> None:
    out = calls(
        "import socket as s\n"
        "def make(*a):\n"
        "    try: s.socket(*a).close()\n"
        "    except OSError as e: return e.errno\n"
        "    return 0\n"
        "print([make(f, t) for f in (1, 2, 10) for t in (1, 2)],"
        " make(1, 5), make(1, 1 | 0o2004000))\n"
        "families = [f for f in range(46) if f not in (1, 2, 10)]\n"
        "print({make(f, t, 0) for f in families for t in (1, 2, 3, 5)})\n"
        "print({make(f, 3, p) for f in (2, 10) for p in (0, 1, 6, 255)}"
        " | {make(2, 1, 262), make(2, 2, 1)})\n"
        "s.socketpair()[0].close(); print(call(53, 2, 1, 0, 0))"
    )
    assert out.splitlines() == ["[0, 0, 0, 0, 0, 0] 0 0", "{1}", "{1}", "1"]


def test_the_32_bit_entry_is_refused() -> None:
    # mov eax, 20 (getpid of i386); int 0x80; cdqe; ret
    code = (
        "import ctypes, mmap\n"
        "page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n"
        "page.write(bytes.fromhex('b814000000cd804898c3'))\n"
        "at = ctypes.addressof(ctypes.c_char.from_buffer(page))\n"
        "print(ctypes.CFUNCTYPE(ctypes.c_long)(at)())"
    )
    done = under_filter(PYTHON, "-I", "-c", code)
    without_entry = done.returncode == -11  # a kernel built without it
    assert without_entry or done.stdout == f"{-ENOSYS}\n"


def test_the_x32_entry_is_refused() -> None:
    assert calls(f"print(call({X32_BIT} | 39))") == f"{ENOSYS}\n"


def test_limits_and_priorities_of_others_are_out_of_reach() -> None:
    out = calls(
        "import os, resource, signal\n"
        "parent = os.getppid()\n"
        "print(call(302, parent, 7, 0, 0), call(141, 0, parent, 5), call(203, parent, 8, 0),"
        " call(144, parent, 0, 0), call(314, parent, 0, 0))\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.nice(1)\n"
        "os.sched_setaffinity(0, os.sched_getaffinity(0)); print(resource.getrlimit(4))"
    )
    assert out.splitlines() == ["1 1 1 1 1", "(0, 0)"]


def test_the_options_that_programs_set_on_sockets_are_set() -> None:
    out = calls(
        "import fcntl, os, socket as s\n"
        "value = (1).to_bytes(16, 'little')\n"
        "made = [s.socket(f, t) for f in (s.AF_INET, s.AF_INET6) for t in (1, 2)]\n"
        "tcp, udp, tcp6, udp6 = made\n"
        "told = [call(54, sock.fileno(), 1, n, id(value) + 32, 16) for sock in made"
        " for n in (2, 6, 7, 8, 9, 10, 13, 15, 18, 20, 21, 29, 35)]\n"
        "told += [call(54, sock.fileno(), 6, n, id(value) + 32, 4) for sock in (tcp, tcp6)"
        " for n in (1, 3, 4, 5, 6, 9, 12, 18)]\n"
        "told += [call(54, udp.fileno(), 0, n, id(value) + 32, 4)"
        " for n in (1, 2, 8, 10, 11, 12, 13, 33, 34)]\n"
        "told += [call(54, udp6.fileno(), 41, n, id(value) + 32, 4)"
        " for n in (16, 18, 19, 23, 25, 26)]\n"
        "print(set(told))\n"
        "pair = os.pipe()\n"
        "print({call(72, pair[1], n, value)"
        " for n, value in ((1, 0), (3, 0), (4, 2048), (1030, 9), (1031, 8192), (1032, 0))})"
    )
    assert out == "{0}\n{0}\n"


def test_memory_that_no_group_is_charged_for_is_not_hung_on_a_socket() -> None:
    out = calls(
        "import socket as s\n"
        "unix, tcp, udp6 = s.socket(s.AF_UNIX), s.socket(), s.socket(s.AF_INET6, s.SOCK_DGRAM)\n"
        "print({call(54, unix.fileno(), 1, n, 0, 0) for n in (26, 50, 51, 52)}"
        " | {call(54, tcp.fileno(), 6, n, 0, 0) for n in (14, 31, 33, 38)}"
        " | {call(54, tcp.fileno(), 0, n, 0, 0) for n in (16, 35, 39, 41, 42, 48, 64)}"
        " | {call(54, udp6.fileno(), 41, n, 0, 0) for n in (20, 32, 42, 46, 48, 54, 59, 64)})"
    )
    assert out == f"{{{EPERM}}}\n"


def test_huge_pages_that_the_host_has_set_aside_are_not_taken() -> None:
    out = calls(
        "import mmap, os\n"
        "print({call(9, 0, 1 << 21, 3, flags, -1, 0)"
        " for flags in (0x40022, 0x40021, 0x54040022, 0x78040022)},"
        " {call(319, 0, flags) for flags in (4, 5, 0x54000004)})\n"
        "os.close(os.memfd_create('plain')); mmap.mmap(-1, 4096).close()"
    )
    assert out == f"{{{EPERM}}} {{{EPERM}}}\n"


def test_nothing_is_told_of_what_others_do_with_files() -> None:
    out = calls(
        "import os\nfd = os.open('/usr/bin', os.O_RDONLY)\n"
        "print(call(72, fd, 1026, 0x80000021), call(72, fd, 1 << 32 | 1026, 0x80000021),"
        " call(294, 0), call(253))"
    )
    assert out == f"{EPERM} {EPERM} {ENOSYS} {ENOSYS}\n"


def test_nothing_can_be_pushed_into_a_terminal() -> None:
    out = calls(
        "import os\nmaster, slave = os.openpty()\n"
        "print(call(16, slave, 0x5412, 0), call(16, slave, 0x5412 | 1 << 32, 0), os.isatty(slave))"
    )
    assert out == f"{EPERM} {EPERM} True\n"


def test_fifos_can_be_made_and_devices_cannot(tmp_path: Path) -> None:
    out = calls(
        f"import os, stat\nos.chdir({str(tmp_path)!r})\nos.mkfifo('fifo')\n"
        "def make(mode):\n"
        "    try: os.mknod('device', mode, os.makedev(1, 5))\n"
        "    except OSError as e: return e.errno\n"
        "print(make(stat.S_IFCHR | 0o600), make(stat.S_IFBLK | 0o600))"
    )
    assert out == f"{EPERM} {EPERM}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["fifo"]


@pytest.mark.parametrize(
    "name", ["python.py", "bash.sh", pytest.param("node.js", marks=pytest.mark.node)]
)
def test_ordinary_programs_run(name: str, tmp_path: Path) -> None:
    interpreter = {
        "python.py": PYTHON,
        "bash.sh": "/bin/bash",
        "node.js": shutil.which("node", path="/usr/local/bin:/usr/bin"),
    }[name]
    assert interpreter is not None
    done = under_filter(interpreter, str(HERE / "workloads" / name), str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "all done"
