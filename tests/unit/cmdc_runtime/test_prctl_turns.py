"""Turns at the processor: what a process asks for, and that somebody's own choice stays."""

import os
import subprocess
import sys

import pytest

PROBE = """
import os, sys, threading
from cmdc_runtime import prctl
policy, steps, user = sys.argv[1:]
os.sched_setscheduler(0, getattr(os, policy), os.sched_param(0))
if user:
    os.setuid(int(user))
asked = threading.Event()
found = []
def look():
    asked.wait()
    found.append(os.sched_getscheduler(0))
thread = threading.Thread(target=look)
thread.start()
prctl.yield_to_others()
asked.set()
thread.join()
found.append(os.sched_getscheduler(0))
prctl.answer_others(steps=int(steps))
print(*found, os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0) - prctl.NICE_AT_FIRST)
"""
NOBODY = "65534"


def played(policy, steps=0, user=""):
    """Return the policies of two threads that yield, the one of who answers, and its niceness."""
    given = [sys.executable, "-c", PROBE, policy, str(steps), user]
    done = subprocess.run(given, capture_output=True, text=True, timeout=60, check=True)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["SCHED_OTHER", "SCHED_BATCH"])
def test_every_thread_yields_and_goes_first_again(policy):
    """And the niceness is what it was."""
    assert played(policy) == [os.SCHED_BATCH, os.SCHED_BATCH, os.SCHED_OTHER, 0]


@pytest.mark.slow
def test_a_policy_that_somebody_has_chosen_stays():
    """A daemon that runs when nobody else does goes on so."""
    assert played("SCHED_IDLE") == [os.SCHED_IDLE, os.SCHED_IDLE, os.SCHED_IDLE, 0]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_steps_are_taken_by_who_may():
    """Nobody else is refused anything but the steps."""
    assert played("SCHED_OTHER", 5)[-2:] == [os.SCHED_OTHER, -5]
    assert played("SCHED_OTHER", 5, user=NOBODY)[-2:] == [os.SCHED_OTHER, 0]
