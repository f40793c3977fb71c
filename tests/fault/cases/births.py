"""Ends each process that another one forks at its birth, before its first instruction.

Whoever looks for new processes from time to time comes too late now and then. ptrace(2) stops a
child where it is made. It needs no rights beyond those over processes of one's own.
"""

import contextlib
import ctypes
import os
import signal
import threading

SEIZE, INTERRUPT, CONTINUE, DETACH, EVENT_MESSAGE = 0x4206, 0x4207, 7, 17, 0x4201
OPTION_FORKS = 0x2 | 0x4 | 0x8
"""Report fork, vfork and clone, and stop what they make."""
EVENT_FORKS = {1, 2, 3}
EVENT_STOP = 128
WALL = 0x40000000
LOOK_S = 0.0005
STOP_S = 10.0


@contextlib.contextmanager
def no_births(parent):
    """Lend the list of the pids that ``parent`` has forked meanwhile; none of them lives."""
    dead, done, began = [], threading.Event(), threading.Event()
    midwife = threading.Thread(target=_watch, args=(parent, dead, began, done))
    midwife.start()
    try:
        assert began.wait(STOP_S)
        yield dead
    finally:
        done.set()
        midwife.join(STOP_S)
        assert not midwife.is_alive()


def _watch(parent, dead, began, done):
    """Hold the parent up for microseconds at each signal and each fork; one thread does it all."""
    _call(SEIZE, parent, OPTION_FORKS)
    began.set()
    is_leaving = False
    while True:
        pid, status = os.waitpid(parent, WALL | os.WNOHANG)
        if pid == 0:
            if done.wait(LOOK_S) and not is_leaving:
                is_leaving = True
                _call(INTERRUPT, parent)
            continue
        if not os.WIFSTOPPED(status):
            return  # it has ended
        number, event = os.WSTOPSIG(status), status >> 16
        if event in EVENT_FORKS:
            dead.append(_end_child(parent))
        if event == EVENT_STOP and is_leaving:
            _call(DETACH, parent)
            return
        _call(CONTINUE, parent, 0 if event else number)


def _end_child(parent):
    """Kill the child that was just made; its parent hears of that as of any other end."""
    child = ctypes.c_ulong()
    _call(EVENT_MESSAGE, parent, ctypes.addressof(child))
    os.kill(child.value, signal.SIGKILL)
    while os.WIFSTOPPED(os.waitpid(child.value, WALL)[1]):
        pass  # it was about to report that it is there
    return child.value


def _call(request, pid, argument=0):
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.restype = ctypes.c_long
    ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    if ptrace(request, pid, None, argument) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace({request:#x}) of process {pid}")
