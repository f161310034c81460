"""What every hostile Python program begins with; its text is put before the program's own.

Nothing in the tests imports this file. A program tells what came of each attempt by name; at its
end all of that is one line of JSON. An outcome is "done", or the name of the errno.
"""

import atexit
import ctypes
import errno
import json
import os
import signal  # noqa: F401 - for the programs
import sys  # noqa: F401

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
told = {}

CLONE = {
    "mount": 0x00020000,
    "cgroup": 0x02000000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "network": 0x40000000,
    "time": 0x00000080,
}


def called(number, *arguments):
    """Make a raw system call; return its outcome."""
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *wide)
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]


def attempted(function, *arguments, **named):
    """Call something of Python's; return its outcome."""
    try:
        function(*arguments, **named)
    except OSError as error:
        return errno.errorcode.get(error.errno, repr(error))
    return "done"


def opened(path, flags=os.O_RDONLY):
    """Open a file and close it again; return the outcome. Nothing is written.

    "covered" means that it is the null device, which reads as nothing and takes anything.
    """
    try:
        fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        return errno.errorcode[error.errno]
    covered = os.fstat(fd).st_rdev == os.makedev(1, 3)
    os.close(fd)
    return "covered" if covered else "done"


def apart(function, *arguments):
    """Call it in a child; return its outcome, or the signal that ended the child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            os.write(writing, str(function(*arguments)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    text = b""
    while part := os.read(reading, 4096):
        text += part
    os.close(reading)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return f"signal-{os.WTERMSIG(status)}"
    return text.decode()


def everything(top="/", skipped=("/proc", "/sys", "/usr/share", "/usr/lib", "/usr/include")):
    """Yield the path of every file and directory in sight, links not followed."""
    for directory, names, files in os.walk(top):
        if directory.startswith(skipped):
            names[:] = []
            continue
        yield directory
        for name in files:
            yield f"{directory}/{name}".replace("//", "/")


def readable(path, most=1 << 16):
    """Return the start of a file's content, or nothing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            return os.read(fd, most)
        finally:
            os.close(fd)
    except OSError:
        return b""


def tell():
    print(json.dumps(told), flush=True)


atexit.register(tell)
