"""What leaves its parent, its group and its session, hears no SIGTERM and never stands still.

Every process of it holds the writing end of a fifo: a reader sees the end of the file exactly when
none is left.
"""

import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path

GENERATION_S = 0.002
"""Each process lives so long, and forks the next one before it ends."""
STORM_CHAINS = 20 * (os.cpu_count() or 1)
FUSE_S = 60.0
"""They end by themselves then, should nobody end them."""

COMMAND = (
    'exec 9> {fifo}; ({disguise}setsid setsid bash -c \'trap "" TERM; echo > {fifo}.left;'
    " for i in $(seq 3000); do sleep 0.02 & wait; done' &) ; {disguise}setsid sleep 60 &"
    " until [ -e {fifo}.left ]; do sleep 0.01; done;"
)
"""The beginning of a shell command, which leaves two kinds of processes behind."""


def storm(fifo, chains=STORM_CHAINS):
    """Start as many chains as keep every core busy with forks alone, or so many."""
    os.open(fifo, os.O_WRONLY)
    for _ in range(chains):
        _start_chain()


def leave(fifo):
    """Start the chain: two forks and a session of its own away from the caller, for good."""
    os.open(fifo, os.O_WRONLY)
    _start_chain()
    Path(f"{fifo}.left").touch()


def has_left(fifo):
    """Say whether what holds the fifo has got away by now; before, a kill of the group ends it."""
    return Path(f"{fifo}.left").exists()


def _start_chain():
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork():
        os._exit(0)
    end = time.monotonic() + FUSE_S
    while time.monotonic() < end:
        time.sleep(GENERATION_S)  # tidy: a process of the chain lives so long
        if os.fork():
            os._exit(0)
    os._exit(0)


@contextmanager
def watched(path):
    """Make the fifo at ``path`` and yield what says whether somebody has it open now."""
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield lambda: is_held(reader)
    finally:
        os.close(reader)


def is_held(reader):
    """Say whether a writer is left."""
    try:
        return os.read(reader, 4096) != b""
    except BlockingIOError:
        return True
