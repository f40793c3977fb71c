"""Ending processes that go on forking, and none but those that are meant."""

import contextlib
import dataclasses
import os
import subprocess
import sys
import time

import pytest

from cmdc_runtime.process_table import end_all, look_up, process_table, with_descendants
from supervisor.adapters.orphans import mark_of

pytestmark = [pytest.mark.process, pytest.mark.fault]

WAIT_S = 10.0
LONG = 30

# Forks a chain: each process starts the next one, and lives on.
CHAIN = """
import os, signal, time
print(flush=True)
for _ in range(100):
    if os.fork():
        signal.pause()
signal.pause()
"""


# A main thread that ends alone; another one lives on.
HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print(flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def deadline():
    return time.monotonic() + WAIT_S


def test_a_pid_that_was_given_to_another_process_hits_nobody():
    """The time of the start belongs to the name of a process."""
    with subprocess.Popen(["sleep", "600"]) as stranger:
        line = look_up(stranger.pid)
        before = dataclasses.replace(line, start_ticks=line.start_ticks - 1)

        assert end_all(lambda: [before], deadline()) == 0
        assert stranger.poll() is None
        assert end_all(lambda: [line], deadline()) == 1
    assert stranger.returncode == -9


def test_what_is_forked_while_its_parents_are_ended_is_ended_too():
    """They are stopped before the first of them is killed, so no child loses its parent."""
    with subprocess.Popen([sys.executable, "-c", CHAIN], stdout=subprocess.PIPE) as first:
        first.stdout.readline()
        seen = set()

        def find():
            table = process_table()
            found = with_descendants([table[first.pid]], table) if first.pid in table else []
            seen.update(line.name for line in found)
            return found

        killed = end_all(find, deadline())
    names = {line.name for line in process_table().values() if not line.has_ended}

    assert first.returncode == -9
    assert killed == len(seen)
    assert seen & names == set()


def test_a_process_whose_main_thread_has_ended_lives_on():
    """It looks like a zombie, and its environment is its other threads' alone."""
    marked = os.environ | {"CMDC_SESSION_ID": "s-1", "CMDC_INCARNATION": "3"}
    with subprocess.Popen(
        [sys.executable, "-c", HEADLESS], stdout=subprocess.PIPE, env=marked
    ) as headless:
        headless.stdout.readline()
        until = deadline()
        while (line := look_up(headless.pid)).state != "Z":
            assert time.monotonic() < until, "its main thread goes on"
            time.sleep(0.001)  # tidy: polls what the kernel alone knows
        mark = mark_of(headless.pid)

        assert not line.has_ended
        assert end_all(lambda: [line], deadline()) == 1
    assert mark == ("s-1", 3)
    assert headless.returncode == -9


def test_nothing_is_killed_while_something_new_turns_up():
    """However many looks that takes: behind a dead parent the rest of a chain can't be found."""
    with contextlib.ExitStack() as stack:
        chain = [stack.enter_context(subprocess.Popen(["sleep", "600"])) for _ in range(LONG)]
        lines = [look_up(one.pid) for one in chain]
        alive = []

        def find():
            alive.append(sum(one.poll() is None for one in chain))
            return lines[: len(alive)] if alive[-1] else []

        killed = end_all(find, deadline())

    assert killed == LONG
    assert alive == [LONG] * (LONG + 1) + [0]


def test_this_process_is_never_ended():
    """Whoever looks for strangers may find itself."""
    assert end_all(lambda: [look_up(os.getpid())], deadline()) == 0
