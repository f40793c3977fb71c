"""Holds one thread of another process, as a debugger does: the rest of the process goes on.

A signal stops all threads. ptrace(2) stops one, so that an event loop stands still from outside,
without a hook in the program. It needs no rights beyond those over a process of one's own.
"""

import contextlib
import ctypes
import os
from pathlib import Path

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000
TRIES_MAX = 200
OUTSIDE = "-1"
"""What /proc has for a thread that is in no system call."""


@contextlib.contextmanager
def main_thread_held(pid):
    """Hold a process's main thread in a system call, where it does not hold the interpreter."""
    for _ in range(TRIES_MAX):
        _call(SEIZE, pid)
        _call(INTERRUPT, pid)
        os.waitpid(pid, WALL)
        if Path(f"/proc/{pid}/task/{pid}/syscall").read_text().split()[0] != OUTSIDE:
            break
        _call(DETACH, pid)
    else:
        raise TimeoutError(f"process {pid} was never met in a system call")
    try:
        yield
    finally:
        _call(DETACH, pid)


def _call(request, pid):
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.restype = ctypes.c_long
    ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    if ptrace(request, pid, None, None) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace({request:#x}) of process {pid}")
