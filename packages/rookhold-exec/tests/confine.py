"""Install a filter on this process and become another program: `confine.py FILTER PROGRAM ARGS...`.

A program of its own for the tests, with nothing of ours imported.
"""

import ctypes
import os
import sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install(code: bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    program = Program(len(code) // 8, code)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        install(file.read())
    os.execv(sys.argv[2], sys.argv[2:])
