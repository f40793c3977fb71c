"""The thread that ends a worker whose main thread does not."""

import subprocess
import sys
import time

import pytest

from cmdc_runtime.process import EXIT_ORPHANED

pytestmark = pytest.mark.process

END_S = 10.0
WORKER = """
import os, subprocess, sys, threading
from workers import guard

guard.ORPHAN_S = 0.2
daemon = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
one = guard.Guard(os.pidfd_open(daemon.pid))
one.start()
"""
LEAVE = "one.leave(7)\n"
LOSE_DAEMON = "daemon.stdin.close()\n"
HANG = "threading.Event().wait()\n"


@pytest.mark.parametrize(
    ("does", "code"),
    [
        pytest.param(LEAVE + HANG, 7, id="leaves and hangs"),
        pytest.param(LEAVE + "sys.exit(3)", 3, id="leaves and ends"),
        pytest.param(LOSE_DAEMON + HANG, EXIT_ORPHANED, id="is orphaned and hangs"),
        pytest.param(LOSE_DAEMON + LEAVE + HANG, 7, id="is orphaned, leaves and hangs"),
        pytest.param("sys.exit(4)", 4, id="ends"),
    ],
)
def test_process_ends_in_time_with_its_own_code(does, code):
    """Whatever the main thread does, the process ends, and the code is the one that was meant."""
    before_s = time.monotonic()
    done = subprocess.run([sys.executable, "-c", WORKER + does], check=False, timeout=END_S)

    assert done.returncode == code
    assert time.monotonic() - before_s < END_S / 2
