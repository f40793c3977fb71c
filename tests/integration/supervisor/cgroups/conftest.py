"""Cgroups of this machine for a test, and programs to put into them; all of it is gone afterwards.

Nothing is made but below this process's own cgroups. What the machine does not have is skipped with
the reason that the survey gives.
"""

import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from supervisor.adapters.cgroups import Cgroups
from supervisor.core.cgroups import base_name

WAIT_S = 10.0
POLL_S = 0.01


class Stage:
    """What a test of cgroups needs to be real."""

    @contextmanager
    def surveyed(self, name, **options):
        """Yield the cgroups of one daemon, and see that all of them are removed."""
        cgroups = Cgroups.survey(name, **options)
        paths = [root.path for root in cgroups.roots]
        try:
            yield cgroups
        finally:
            cgroups.close()
        assert [path for path in paths if path.exists()] == []
        assert cgroups.quarantined == frozenset()

    @contextmanager
    def program(self, code):
        """Yield a program that waits for a line on standard input; it is killed at the end."""
        with subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def begin(self, process):
        """Give a program its line."""
        process.stdin.write("\n")
        process.stdin.flush()

    def need(self, cgroups, what, *layers):
        """Skip the test unless one of the layers holds ``what``, and say why it does not."""
        (layer,) = [one for one in cgroups.layers if one.what == what]
        if layer.by not in layers:
            pytest.skip(f"{what} by {layer.by}, not by {' or '.join(layers)}: {layer.why}")

    def poll_for(self, condition):
        """Return the first true answer of ``condition``."""
        deadline, never = time.monotonic() + WAIT_S, threading.Event()
        while not (found := condition()):
            assert time.monotonic() < deadline, "it did not become true"
            never.wait(POLL_S)
        return found


@pytest.fixture
def stage():
    """What makes cgroups and programs."""
    return Stage()


@pytest.fixture
def name(tmp_path):
    """The name of a daemon that is this test's alone."""
    return base_name(str(tmp_path))


@pytest.fixture
def cgroups(name, stage):
    """Whatever this machine allows."""
    with stage.surveyed(name) as found:
        yield found
