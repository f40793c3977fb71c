"""Ending processes that go on forking, and none but those that are meant."""

import dataclasses
import os
import subprocess
import sys
import time

import pytest

from supervisor.adapters.processes import end_all, look_up, process_table, with_descendants

pytestmark = [pytest.mark.process, pytest.mark.fault]

WAIT_S = 10.0

# Forks a chain: each process starts the next one, and lives on.
CHAIN = """
import os, signal, time
print(flush=True)
for _ in range(100):
    if os.fork():
        signal.pause()
signal.pause()
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


def test_this_process_is_never_ended():
    """Whoever looks for strangers may find itself."""
    assert end_all(lambda: [look_up(os.getpid())], deadline()) == 0
