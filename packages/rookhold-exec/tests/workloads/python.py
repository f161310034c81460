"""A bit of everything that an ordinary Python job does; fails loudly where the kernel refuses."""

import asyncio
import concurrent.futures
import mmap
import multiprocessing
import os
import pty
import resource
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path


async def on_the_loop() -> None:
    process = await asyncio.create_subprocess_exec("/bin/echo", "x", stdout=subprocess.PIPE)
    assert (await process.communicate())[0] == b"x\n"

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await reader.read() == b"hello"
    writer.close()
    server.close()
    assert await asyncio.to_thread(os.getpid) == os.getpid()


def in_files(root: Path) -> None:
    (root / "a").write_text("x")
    shutil.copy2(root / "a", root / "b")
    os.mkfifo(root / "fifo")
    os.link(root / "a", root / "hard")
    (root / "soft").symlink_to("a")
    os.utime(root / "a", (1, 1))
    (root / "a").chmod(0o600)
    os.chown(root / "a", os.getuid(), os.getgid())
    os.truncate(root / "a", 10)
    with (root / "big").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 4096)
        os.fsync(file.fileno())
    (root / "b").rename(root / "c")
    os.statvfs(root)
    with sqlite3.connect(root / "db") as db:
        db.execute("pragma journal_mode=wal")
        db.execute("create table t (a)")
    db.close()
    with tempfile.TemporaryDirectory(dir=root) as inner, tempfile.NamedTemporaryFile(dir=inner):
        pass
    with mmap.mmap(-1, 4096) as memory:
        memory[:1] = b"x"
    os.close(os.memfd_create("x"))


def with_signals() -> None:
    seen = []
    signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    signal.sigtimedwait([signal.SIGUSR1], 0.05) if not seen else None
    deadline = time.monotonic() + 30
    while not seen and time.monotonic() < deadline:
        time.sleep(0.01)
    assert seen
    signal.pthread_kill(threading.get_ident(), 0)
    pidfd = os.pidfd_open(os.getpid())
    signal.pidfd_send_signal(pidfd, 0)
    os.close(pidfd)


def with_sockets() -> None:
    for family in (socket.AF_UNIX, socket.AF_INET):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            socket.socket(family, kind).close()
    left, right = socket.socketpair()
    socket.send_fds(left, [b"x"], [0])
    socket.recv_fds(right, 1, 1)
    assert socket.getaddrinfo("127.0.0.1", 80)
    with select.epoll() as poll:
        poll.register(left, select.EPOLLOUT)
        assert poll.poll(1)
    left.close()
    right.close()


def main() -> None:
    in_files(Path(sys.argv[1]))
    asyncio.run(on_the_loop())
    with_signals()
    with_sockets()
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(abs, [-1, 2]) == [1, 2]
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert list(threads.map(abs, range(100))) == list(range(100))
    assert subprocess.run(["/bin/sh", "-c", "echo $0 | cat"], capture_output=True).returncode == 0
    assert os.waitstatus_to_exitcode(pty.spawn(["/bin/true"])) == 0
    resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    os.nice(1)
    os.getloadavg()
    os.uname()
    sys.stdout.write("all done\n")


if __name__ == "__main__":
    main()
