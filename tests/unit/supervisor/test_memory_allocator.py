"""What many threads allocate and free does not stay with the process, arena for arena."""

import json
import os
import subprocess
import sys

import pytest

CHILD = """
import json, sys, threading
from pathlib import Path
from supervisor.upkeep.memory import bound_arenas

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

def churn(turn, kept):
    for number in range(THREADS):
        if number == turn:
            block = bytearray(SIZE)
            kept.append(bytes(600))  # takes of a hole that the block leaves
            del block
        barrier.wait()

THREADS, SIZE = 12, 3 * 2**20
if sys.argv[1] == "bound":
    bound_arenas()
bytearray(8 * 2**20)  # the first large block: from here on its like come from the arenas
barrier = threading.Barrier(THREADS)
before, kept = resident(), []
threads = [threading.Thread(target=churn, args=(turn, kept)) for turn in range(THREADS)]
[one.start() for one in threads]
[one.join() for one in threads]
print(json.dumps(resident() - before))
"""
MUCH = 2**23


@pytest.mark.process
def test_large_blocks_of_many_threads_are_given_back():
    """Each thread leaves its hole where nothing is bound; that shows that the test would see it."""
    untuned = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MALLOC_", "GLIBC_"))
    }
    grown = {
        mode: json.loads(subprocess.check_output([sys.executable, "-c", CHILD, mode], env=untuned))
        for mode in ("bound", "free")
    }

    assert grown["bound"] < MUCH < grown["free"]
