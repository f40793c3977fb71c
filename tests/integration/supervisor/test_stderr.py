"""What the interpreter that runs the tests writes of a crash is taken apart."""

import signal
import subprocess
import sys

import pytest

from supervisor.core.output import split_output

pytestmark = pytest.mark.process

WAIT_S = 10.0

# Two threads park, the main one logs a traceback and crashes; zmq brings extension modules.
# It holds the interpreter's lock as it crashes (PyDLL): the stack of a thread that runs meanwhile
# is read while it changes.
CRASH = """
import ctypes, faulthandler, sys, threading, traceback
import zmq
faulthandler.enable()
parked = threading.Barrier(3)

def park():
    parked.wait()
    threading.Event().wait()

for _ in range(2):
    threading.Thread(target=park, daemon=True).start()
parked.wait()
try:
    1 / 0
except ZeroDivisionError:
    traceback.print_exc()
print("about to crash", file=sys.stderr, flush=True)

def call_native():
    {crash}

call_native()
"""


@pytest.mark.parametrize(
    ("crash", "number"),
    [
        ("ctypes.string_at(0)", signal.SIGSEGV),
        ("ctypes.PyDLL(None).abort()", signal.SIGABRT),
        ("ctypes.pythonapi.Py_FatalError(b'broken')", signal.SIGABRT),
        (
            "faulthandler.dump_traceback(); sys.stderr.flush(); signal.raise_signal(9)",
            signal.SIGKILL,
        ),
    ],
    ids=["segfault", "abort", "fatal error", "asked for"],
)
def test_the_stack_of_a_real_crash_is_reported_from_what_was_logged(crash, number):
    """The thread that crashed comes first; Python's own traceback is not the stack."""
    script = f"import signal{CRASH.replace('{crash}', crash)}"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    output, stack = split_output(done.stderr)
    threads = [line for line in stack.splitlines() if "most recent call first" in line]

    assert done.returncode == -number
    assert "Traceback (most recent call last):" in output.splitlines()
    assert output.splitlines()[-1] == "about to crash"
    assert threads[0].startswith("Current thread 0x")
    assert len([line for line in threads if "C stack" not in line]) == 3
    assert "in call_native" in stack.partition("\nThread 0x")[0]
    assert "in park" in stack
