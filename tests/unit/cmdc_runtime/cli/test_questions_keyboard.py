"""A Ctrl-C at a prompt counts, also one that comes between the prompt and the wait for a key."""

import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cmdc_runtime.cli.questions import typed_line
from cmdc_runtime.cli.terminal import Terminal

WAIT_S = 30.0
AT_THE_PROMPT = """
import readline, signal
from cmdc_runtime.cli.questions import typed_line
from cmdc_runtime.cli.terminal import Terminal

# With the prompt on the screen, before readline waits: what is raised here is dropped by it.
readline.set_pre_input_hook(lambda: signal.raise_signal(signal.SIGINT))
try:
    typed_line(Terminal(), "now> ")
except KeyboardInterrupt:
    print("heard", signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)
"""


@pytest.mark.process
def test_interrupt_right_behind_the_prompt_is_heard():
    """Nobody types, and it ends all the same."""
    ours, theirs = pty.openpty()
    try:
        done = subprocess.Popen(
            [sys.executable, "-c", AT_THE_PROMPT],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        try:
            status = done.wait(WAIT_S)
        finally:
            done.kill()
            done.wait()
        said = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)

    assert (status, "heard True" in said) == (0, True), said


def test_line_from_a_pipe_leaves_everything_as_it_was(monkeypatch, capsys):
    """Handler, descriptor and threads are what they were, with a line and at the end of all."""
    before = state()
    with Path(os.devnull).open() as empty:
        monkeypatch.setattr(sys, "stdin", empty)
        with pytest.raises(EOFError):
            typed_line(Terminal(), "> ")

    assert (state(), capsys.readouterr().err) == (before, "> ")


def state():
    """Return what a wait for a line may not change for good."""
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return signal.getsignal(signal.SIGINT), threading.active_count(), descriptors
