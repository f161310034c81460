"""Using up what is shared: processes, memory in every disguise, files, time, output.

Every program stops by itself far above its limit: at 300 processes, at 600 MB.
"""

from __future__ import annotations

import os
import resource
import shutil
from typing import TYPE_CHECKING

import pytest
from hostile.target import LIMITS, SLOW, not_on_gvisor, told_by

from rookhold_exec.executor import SandboxPlan
from rookhold_types.limits import MIB, Limits
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from hostile.target import Target

SMALL_MB = 64


def small(target: Target, **more: int) -> Limits:
    return target.limits(mem_mb=SMALL_MB, **more)


# Processes


def test_a_fork_fails_at_the_limit_and_the_job_goes_on(target: Target) -> None:
    told = target.ask(
        """
made = 0
try:
    for _ in range(300):
        if os.fork() == 0:
            signal.pause()
        made += 1
except OSError as error:
    told["refused"] = errno.errorcode[error.errno]
told["made"] = made
""",
        limits=target.limits(max_pids=32),
    )
    assert told["refused"] == "EAGAIN"
    assert 8 <= told["made"] <= 32 + target.kind.runtime_pids


@not_on_gvisor("a fork is refused by its own kernel, which tells nobody")
@pytest.mark.root
@pytest.mark.groups("pids")
def test_a_refused_fork_is_told(target: Target) -> None:
    code = "for _ in range(300):\n    if os.fork() == 0:\n        signal.pause()\n"
    result = target.run("python", code, limits=target.limits(max_pids=32))
    assert "process_limit_reached" in result.rules


def test_threads_count_like_processes(target: Target) -> None:
    told = target.ask(
        """
import threading
over = threading.Event()
made = 0
try:
    for _ in range(300):
        threading.Thread(target=over.wait, daemon=True).start()
        made += 1
except RuntimeError:
    told["refused"] = True
over.set()
told["made"] = made
""",
        limits=target.limits(max_pids=32),
    )
    assert told["refused"]
    assert 8 <= told["made"] <= 32 + target.kind.runtime_pids


@not_on_gvisor("only what lives is a process of the host's there")
def test_the_dead_that_nobody_buries_count_too(target: Target) -> None:
    told = target.ask(
        """
made = 0
try:
    for _ in range(300):
        if os.fork() == 0:
            os._exit(0)
        made += 1
except OSError as error:
    told["refused"] = errno.errorcode[error.errno]
told["made"] = made
""",
        limits=target.limits(max_pids=32),
    )
    assert told["refused"] == "EAGAIN"
    assert told["made"] <= 32


def test_a_fork_bomb_ends_with_its_job(target: Target) -> None:
    result = target.run(
        "python",
        """
import mmap
from time import monotonic, sleep
counter = mmap.mmap(-1, 4096)
until = monotonic() + 1.5
while monotonic() < until:
    try:
        child = os.fork()
    except OSError:
        sleep(0.01)
        continue
    if child == 0:
        count = int.from_bytes(counter[:4], "little") + 1
        counter[:4] = count.to_bytes(4, "little")
        if count > 300:
            os._exit(0)
""",
        limits=target.limits(max_pids=32, wall_seconds=3),
    )
    assert result.report.status in {JobStatus.SUCCEEDED, JobStatus.TIMED_OUT}
    assert result.seconds < 20 * SLOW
    assert target.run("bash", "echo next").stdout == b"next\n"


def test_a_fork_bomb_leaves_room_for_the_job_beside(target: Target) -> None:
    bomb = """
import time
print("ready", flush=True)
until = time.monotonic() + 3
while time.monotonic() < until:
    try:
        if os.fork() == 0:
            time.sleep(3)
            os._exit(0)
    except OSError:
        time.sleep(0.01)
time.sleep(30)
"""
    attacker, _ = target.together(bomb, 'told["forked"] = apart(os.getpid) != ""')
    assert told_by(attacker) == {"forked": True}


# Memory


@pytest.mark.parametrize(
    "way",
    [
        pytest.param("blocks.append(bytearray(b'x') * (1 << 20))", id="as_heap"),
        pytest.param(
            "blocks.append(mmap.mmap(-1, 1 << 20)); blocks[-1].write(bytes(1 << 20))",
            id="as_shared_mappings",
        ),
        pytest.param(
            "blocks.append(os.memfd_create('x')); os.write(blocks[-1], bytes(1 << 20))",
            id="as_memory_files",
        ),
        pytest.param(
            "blocks.append(mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS));"
            " blocks[-1].write(bytes(1 << 20)); os.fork() or signal.pause()",
            id="as_children_s_copies",
        ),
    ],
)
@pytest.mark.root
@pytest.mark.groups("memory")
def test_memory_over_the_limit_ends_the_job(target: Target, way: str) -> None:
    code = f"import mmap\nblocks = []\nfor _ in range(600): {way}\nprint('all of it')\n"
    report = target.run("python", code, limits=small(target)).report
    assert report.status is JobStatus.OOM_KILLED
    assert report.killed_by == "cgroup-oom"


@pytest.mark.root
@pytest.mark.groups("memory")
def test_memory_in_pipes_is_memory_of_the_job(target: Target) -> None:
    result = target.run(
        "python",
        """
import fcntl
full = 0
try:
    for _ in range(500):
        reading, writing = os.pipe2(os.O_NONBLOCK)
        try:
            fcntl.fcntl(writing, 1031, 1 << 20)
        except OSError:
            pass
        try:
            while True:
                full += os.write(writing, bytes(1 << 16))
        except BlockingIOError:
            pass
        os.write(1, b"%d\\n" % (full >> 20))
except OSError:
    pass
""",
        limits=target.limits(mem_mb=32),
    )
    held = max(int(line) for line in result.stdout.split() if line.isdigit())
    assert held <= 32 + target.kind.runtime_mb
    if result.report.status is not JobStatus.OOM_KILLED:
        assert result.report.status is JobStatus.SUCCEEDED


@pytest.mark.root
@pytest.mark.groups("memory")
def test_memory_in_sockets_is_memory_of_the_job(target: Target) -> None:
    result = target.run(
        "python",
        """
import socket
full, held = 0, []
try:
    for _ in range(480):
        pair = socket.socketpair()
        held.append(pair)
        for each in pair:
            each.setblocking(False)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
            try:
                while True:
                    full += each.send(bytes(1 << 15))
            except BlockingIOError:
                pass
        os.write(1, b"%d\\n" % (full >> 20))
except OSError:
    pass
""",
        limits=target.limits(mem_mb=32),
    )
    held = max(int(line) for line in result.stdout.split() if line.isdigit())
    assert held <= 32 + target.kind.runtime_mb
    assert result.report.status is JobStatus.OOM_KILLED


@not_on_gvisor("its own kernel's sockets are memory of its own")
@pytest.mark.x86_64
def test_nothing_is_hung_on_a_socket_that_no_group_is_charged_for(target: Target) -> None:
    # A filter is some 80 KiB of the kernel's own memory, the keys of one socket 128 KiB.
    told = target.ask("""
import socket, struct
code = b"".join(struct.pack("HBBI", 0, 0, 0, n) for n in range(4095))
code += struct.pack("HBBI", 6, 0, 0, 0xFFFF)
buffer = ctypes.create_string_buffer(code, len(code))
program = struct.pack("HxxxxxxP", 4096, ctypes.addressof(buffer))
SO_ATTACH_FILTER, SO_ATTACH_REUSEPORT_CBPF, TCP_MD5SIG = 26, 51, 14
for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        for option in (SO_ATTACH_FILTER, SO_ATTACH_REUSEPORT_CBPF):
            outcome = attempted(one.setsockopt, socket.SOL_SOCKET, option, program)
            told[f"{family.name} {option}"] = outcome
key = struct.pack("HHI", 2, 0, 0x0100007F).ljust(128, b"\\0")
key += struct.pack("BBHiI", 0, 0, 4, 0, 0)[:8] + bytes(4) + b"k" * 80
with socket.socket() as one:
    told["key"] = attempted(one.setsockopt, socket.IPPROTO_TCP, TCP_MD5SIG, key[:216])
    groups = socket.inet_aton("224.0.0.9") + socket.inet_aton("127.0.0.1")
    told["membership"] = attempted(one.setsockopt, 0, socket.IP_ADD_MEMBERSHIP, groups)
""")
    assert set(told.values()) == {"EPERM"}, told


@not_on_gvisor("one table of its own stands for all of it")
@pytest.mark.root
@pytest.mark.groups("memory")
def test_page_tables_of_empty_memory_are_memory_of_the_job(target: Target) -> None:
    # Reads touch the one page of zeroes: nothing is used but the tables, 4 KiB for every 2 MiB.
    result = target.run(
        "python",
        """
ANONYMOUS = 0x4022  # private, without a reserve
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
touched = 0
for _ in range(1200):
    at = libc.mmap(None, 1 << 30, 1, ANONYMOUS, -1, 0)
    if at in (None, ctypes.c_void_p(-1).value):
        break
    libc.madvise(at, 1 << 30, 15)
    for offset in range(0, 1 << 30, 2 << 20):
        ctypes.c_char.from_address(at + offset).value
        touched += 1
    os.write(1, b"%d\\n" % (touched >> 8))
told["touched"] = touched
""",
        limits=small(target),
    )
    assert result.report.status is JobStatus.OOM_KILLED
    assert int(result.stdout.split()[-1]) <= SMALL_MB


@pytest.mark.root
@pytest.mark.groups("memory")
def test_reading_more_than_the_limit_is_no_memory_of_the_job(target: Target) -> None:
    told = target.ask(
        """
total = 0
for top, _, files in os.walk("/usr/lib"):
    for name in files:
        path = os.path.join(top, name)
        if not os.path.islink(path):
            with open(path, "rb") as file:
                while part := file.read(1 << 20):
                    total += len(part)
        if total > 200 << 20:
            break
    if total > 200 << 20:
        break
told["read"] = total >> 20
""",
        limits=small(target),
    )
    assert told["read"] > SMALL_MB


def test_memory_is_not_locked_beyond_a_little(target: Target) -> None:
    told = target.ask("""
import mmap, resource
page = mmap.mmap(-1, 1 << 20)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
told["lock"] = "done" if not libc.mlock(
    ctypes.c_void_p(address), ctypes.c_size_t(1 << 20)) else errno.errorcode[ctypes.get_errno()]
told["limit"] = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
""")
    assert told["lock"] == target.on("ENOMEM", gvisor=told["lock"])
    assert told["limit"] <= 64 * 1024


# Space


@pytest.mark.parametrize("place", ["/work", "/tmp", "/dev/shm", "/work/output", "all"])
def test_space_ends_at_its_limit_wherever_it_is_used(target: Target, place: str) -> None:
    before = shutil.disk_usage("/")
    places = ["/work", "/tmp", "/dev/shm"] if place == "all" else [place]
    told = target.ask(f"""
written, refused = 0, ""
try:
    for n in range(600):
        path = {places!r}[n % {len(places)}] + f"/fill{{n}}"
        with open(path, "wb", 0) as file:
            written += file.write(bytes(1 << 20))
except OSError as error:
    refused = errno.errorcode[error.errno]
told["written"], told["refused"] = written >> 20, refused
for n in range(600):
    attempted(os.unlink, {places!r}[n % {len(places)}] + f"/fill{{n}}")
""")
    assert told["refused"] == "ENOSPC"
    assert 32 <= told["written"] <= 64
    assert before.free - shutil.disk_usage("/").free < 512 * MIB


def test_space_of_files_that_were_removed_but_are_open_counts(target: Target) -> None:
    told = target.ask("""
held, written = [], 0
try:
    for n in range(600):
        file = open("/tmp/gone", "wb", 0)
        held.append(file)
        os.unlink("/tmp/gone")
        written += file.write(bytes(1 << 20))
except OSError as error:
    told["refused"] = errno.errorcode[error.errno]
told["written"] = written >> 20
""")
    assert told["refused"] == "ENOSPC"
    assert told["written"] <= 64


def test_the_number_of_directories_is_limited(target: Target) -> None:
    told = target.ask(
        """
made = 0
try:
    for n in range(40000):
        os.mkdir(f"/work/output/{n}")
        made += 1
except OSError as error:
    told["refused"] = errno.errorcode[error.errno]
told["made"] = made
""",
        limits=target.limits(wall_seconds=50),
    )
    assert told["refused"] == "ENOSPC"
    assert 8_000 < told["made"] < 16_384


@not_on_gvisor("thousands of files of any other kind take it half a minute each")
@pytest.mark.parametrize(
    "make",
    [
        pytest.param('open(f"/tmp/{n}", "w").close()', id="files"),
        pytest.param('os.symlink("x" * 200, f"/dev/shm/{n}")', id="links"),
        pytest.param('os.mkfifo(f"/tmp/{n}")', id="pipes"),
    ],
)
def test_the_number_of_files_is_limited_whatever_they_are(target: Target, make: str) -> None:
    told = target.ask(f"""
made = 0
try:
    for n in range(40000):
        {make}
        made += 1
except OSError as error:
    told["refused"] = errno.errorcode[error.errno]
told["made"] = made
""")
    assert told["refused"] == "ENOSPC"
    assert 8_000 < told["made"] < 16_384


def test_a_file_ends_at_its_limit(target: Target) -> None:
    told = target.ask(
        """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with open("/tmp/big", "wb", 0) as file:
    told["long"] = attempted(file.truncate, 8 << 30)
    told["allocated"] = attempted(os.posix_fallocate, file.fileno(), 0, 2 << 30)
    told["written"] = sum(1 for _ in range(16) if attempted(file.write, bytes(1 << 20)) == "done")
    told["far"] = attempted(os.pwrite, file.fileno(), b"x", 8 << 30)
""",
        limits=target.limits(max_file_mb=4),
    )
    assert told == {"long": "EFBIG", "allocated": "EFBIG", "written": 4, "far": "EFBIG"}


@not_on_gvisor("it makes directories so slowly; their number has a test, and so has depth")
def test_deep_directories_end_at_the_limit_and_go_away(target: Target) -> None:
    told = target.ask("""
made = 0
os.chdir("/work/output")
try:
    for _ in range(40000):
        os.mkdir("d")
        os.chdir("d")
        made += 1
except OSError as error:
    told["refused"] = errno.errorcode[error.errno]
told["made"] = made
""")
    assert told["refused"] in {"ENOSPC", "ENAMETOOLONG"}
    assert told["made"] < 16_384
    assert target.run("bash", "ls output").stdout == b""


# Things that the kernel counts


def test_descriptors_end_at_their_limit(target: Target) -> None:
    told = target.ask("""
held = []
try:
    for _ in range(5000):
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    refused = errno.errorcode[error.errno]
made = len(held)
for fd in held:
    os.close(fd)
told["made"], told["refused"] = made, refused
""")
    assert told["refused"] == "EMFILE"
    assert 500 < told["made"] < 1024


@not_on_gvisor("they are no descriptors of the host's there")
def test_descriptors_are_not_hoarded_in_sockets(target: Target) -> None:
    told = target.ask("""
import array, socket
# In flight: sent, and closed here. Each pair holds the others.
held, sent = [], 0
null = os.open("/dev/null", os.O_RDONLY)
try:
    for _ in range(400):
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        held.append(pair)
        pair[0].setblocking(False)
        try:
            while sent < 20000:
                pair[0].sendmsg([b"x"], [(1, 1, array.array("i", [null] * 250))])
                sent += 250
        except BlockingIOError:
            pass
except OSError as error:
    told["refused"] = errno.errorcode[error.errno]
told["sent"] = sent
""")
    assert told["refused"] == "ETOOMANYREFS"
    assert told["sent"] <= 1024 + 250


@pytest.mark.parametrize(
    "make",
    [
        pytest.param("os.eventfd(0)", id="event_counters"),
        pytest.param("libc.epoll_create1(0)", id="pollers"),
        pytest.param('os.memfd_create("")', id="memory_files"),
        pytest.param("libc.timerfd_create(1, 0)", id="timers"),
        pytest.param("libc.syscall(289, -1, bytes(8), 8, 0)", id="signal_descriptors"),
    ],
)
@pytest.mark.x86_64
def test_a_job_that_has_all_it_may_leaves_some_for_the_job_beside(
    target: Target, make: str
) -> None:
    hoard = f"""
import select, time
held = []
def more():
    made = {make}
    if isinstance(made, int) and made < 0:
        raise OSError
    return made
try:
    for _ in range(5000):
        held.append(more())
except OSError:
    pass
print("ready", flush=True)
time.sleep(30)
"""
    attacker, _ = target.together(
        hoard,
        f"""
import select
held = []
made = {make}
told["made"] = made if isinstance(made, int) and made < 0 else 0
""",
    )
    assert told_by(attacker) == {"made": 0}


@not_on_gvisor("its own kernel's timers and queues are memory of its own")
@pytest.mark.x86_64
def test_kernel_timers_and_queued_signals_end_at_a_limit_of_the_job_s_own(target: Target) -> None:
    hoard = """
import time
TIMER_CREATE = 222
number = ctypes.c_int()
class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("signo", ctypes.c_int), ("notify", ctypes.c_int),
                ("rest", ctypes.c_char * 48)]
def more():
    return libc.syscall(TIMER_CREATE, ctypes.c_long(1), ctypes.byref(Event(0, 10, 1)),
                        ctypes.byref(number)) == 0
made = 0
while made < 20000 and more():
    made += 1
"""
    beside = hoard.replace("20000", "100") + 'told["made"] = made\n'
    attacker, other = target.together(
        hoard + "print('ready', made, flush=True)\nprint('ready', flush=True)\ntime.sleep(30)\n",
        beside,
    )
    assert told_by(attacker) == {"made": 100}
    made = int(other.stdout.split(b"\n")[0].split()[1])
    assert made <= 4096


@not_on_gvisor("names are kept by its own kernel, whose memory the heap tests fill")
def test_names_that_do_not_exist_fill_no_memory(target: Target) -> None:
    told = target.ask(
        """
for n in range(60000):
    os.path.lexists(f"/tmp/{n}-" + "x" * 200)
told["looked"] = True
""",
        limits=small(target),
    )
    assert told == {"looked": True}


def test_arguments_without_end_start_nothing(target: Target) -> None:
    told = target.ask("""
import resource
attempted(resource.setrlimit, resource.RLIMIT_STACK, (resource.RLIM_INFINITY,) * 2)
def started(arguments, environment):
    return attempted(os.execve, "/bin/true", arguments, environment)
many, long = ["x" * 1000] * 40000, "x" * (8 << 20)
told["arguments"] = apart(started, ["true", *many], {})
told["environment"] = apart(started, ["true"], {str(n): each for n, each in enumerate(many)})
told["one argument"] = apart(started, ["true", long], {})
""")
    # The errno of gVisor is another.
    assert set(told.values()) <= target.on({"E2BIG"}, gvisor={"E2BIG", "ENAMETOOLONG"}), told


# Time


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("while True: pass", id="alone"),
        pytest.param("os.fork(); os.fork()\nwhile True: pass", id="as_a_family"),
        pytest.param("while True: os.getrandom(1 << 20)", id="inside_the_kernel"),
        pytest.param(
            "import threading\ndef spin():\n  while True: os.urandom(1 << 20)\n"
            "for _ in range(4): threading.Thread(target=spin).start()",
            id="in_threads",
        ),
        pytest.param(
            "while True:\n  if os.fork() == 0:\n    for _ in range(300000): pass\n    os._exit(0)\n"
            "  os.wait()",
            id="in_short_lives",
        ),
    ],
)
def test_cpu_time_ends_the_job_however_it_is_spent(target: Target, code: str) -> None:
    report = target.run("python", code, limits=target.limits(cpu_seconds=1)).report
    assert report.status is JobStatus.FAILED
    assert report.killed_by in {"cgroup-cpu", "supervisor-cpu"}
    assert report.usage is not None
    assert report.usage.cpu_time_usec < 2_500_000


def test_sleeping_is_no_cpu_time_and_ends_at_the_wall_limit(target: Target) -> None:
    limits = target.limits(wall_seconds=1, cpu_seconds=1)
    report = target.run("bash", "sleep 60", limits=limits).report
    assert (report.status, report.killed_by) == (JobStatus.TIMED_OUT, "wall-clock")


# Output


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("while True: os.write(1, b'x' * 65536)", id="an_endless_line"),
        pytest.param("while True: os.write(1, b'line\\n' * 10000)", id="lines"),
        pytest.param("while True: os.write(1, b'\\n' * 65536)", id="empty_lines"),
        pytest.param("while True: os.write(1, b'\\xff' * 65536)", id="what_is_no_text"),
        pytest.param(
            "while True: os.write(1, b'\\x80\\n' * 30000); os.write(2, b'\\n' * 60000)",
            id="on_both_streams",
        ),
    ],
)
def test_a_flood_of_output_is_cut_and_does_not_fill_the_server(target: Target, code: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seconds in (1, 10):  # where the processor is wanted by many, less than is kept comes in one
        limits = target.limits(wall_seconds=seconds, cpu_seconds=20)
        result = target.run("python", code, limits=limits)
        report = result.report
        if "stdout" in result.truncated:
            break
    assert report.killed_by == "wall-clock"
    assert report.stdout.bytes_offered <= MIB
    assert report.stdout.records_offered <= 10_000
    assert report.stdout.bytes_seen > report.stdout.bytes_offered
    assert "stdout" in result.truncated
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
    assert len(os.listdir("/proc/self/fd")) < 200  # noqa: PTH208


def test_output_that_nobody_reads_does_not_hold_up_the_wall_limit(target: Target) -> None:
    async def scenario() -> tuple[object, int]:
        harness = target.harness
        plan: SandboxPlan = harness.plan("python", "while True: print('x' * 1000)", limits=LIMITS)
        plan = SandboxPlan(
            job_id=plan.job_id,
            language="python",
            code=plan.code,
            limits=target.limits(wall_seconds=1),
        )
        running = await harness.executor.start(plan)
        running.discard()  # type: ignore[attr-defined]
        report = await running.wait()
        return report.killed_by, report.wall_time_ms

    killed_by, wall_ms = target.harness.do(scenario())
    assert killed_by == "wall-clock"
    assert wall_ms < 8_000 * SLOW
