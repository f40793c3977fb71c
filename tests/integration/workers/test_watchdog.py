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
from workers import watchdog

watchdog.ORPHAN_S = 0.2
daemon = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
one = watchdog.Watchdog(os.pidfd_open(daemon.pid))
one.start()
"""
LEAVE = "one.leave(7)\n"
LOSE_DAEMON = "daemon.stdin.close()\n"
HANG = "threading.Event().wait()\n"
GRACE = "one.allow(60.0)\n"
SHORT_GRACE = "one.allow(0.1)\n"
NEXT_DAEMON = """
second = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
one.watch(os.pidfd_open(second.pid))
"""
LOSE_NEXT = "one.allow(0.0)\nsecond.stdin.close()\n"


@pytest.mark.parametrize(
    ("does", "code"),
    [
        pytest.param(LEAVE + HANG, 7, id="leaves and hangs"),
        pytest.param(LEAVE + "sys.exit(3)", 3, id="leaves and ends"),
        pytest.param(LOSE_DAEMON + HANG, EXIT_ORPHANED, id="is orphaned and hangs"),
        pytest.param(LOSE_DAEMON + LEAVE + HANG, 7, id="is orphaned, leaves and hangs"),
        pytest.param(SHORT_GRACE + LOSE_DAEMON + HANG, EXIT_ORPHANED, id="outlives its grace"),
        pytest.param(GRACE + LOSE_DAEMON + "sys.exit(5)", 5, id="ends within its grace"),
        pytest.param(GRACE + LOSE_DAEMON + NEXT_DAEMON + LEAVE + HANG, 7, id="is taken over"),
        pytest.param(
            GRACE + LOSE_DAEMON + NEXT_DAEMON + LOSE_NEXT + HANG, EXIT_ORPHANED, id="is lost again"
        ),
        pytest.param("sys.exit(4)", 4, id="ends"),
    ],
)
def test_process_ends_in_time_with_its_own_code(does, code):
    """Whatever the main thread does, the process ends, and the code is the one that was meant."""
    before_s = time.monotonic()
    done = subprocess.run([sys.executable, "-c", WORKER + does], check=False, timeout=END_S)

    assert done.returncode == code
    assert time.monotonic() - before_s < END_S / 2
