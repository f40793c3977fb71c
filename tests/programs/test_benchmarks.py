"""The benchmarks run: two repeats of some of them, for their form and not for their figures."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
RUN = (sys.executable, "-m", "benchmarks")
FORM = ("--json", "--no-save", "--no-crowds", "--repeats", "2")
FIELDS = ["metric", "value", "unit", "baseline", "ratio", "bar", "met", "n", "p50", "p99"]
RUN_S = 100
END_S = 30
INTERRUPTED = 130

pytestmark = [pytest.mark.slow, pytest.mark.process]


@pytest.fixture
def folder():
    """A place for temporary files with a name short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="b-") as name:
        yield Path(name)


def start(folder, subject="faults"):
    """Start a run that keeps what is temporary in ``folder``."""
    environ = os.environ | {"TMPDIR": str(folder)}
    return subprocess.Popen(
        [*RUN, subject, *FORM], cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True
    )


def wait_for_daemon(folder):
    """Return when the run has a daemon with its sockets bound."""
    deadline = time.monotonic() + END_S
    while not any(folder.glob("cmdc-bench-*/run/control.sock")):
        assert time.monotonic() < deadline
        time.sleep(0.01)  # tidy: nobody says when another process has bound its socket


@pytest.mark.parametrize(("subject", "metrics"), [("spawn", 4), ("faults", 3)])
def test_a_benchmark_prints_every_field_of_every_metric(folder, subject, metrics):
    """Each line of a run is one metric with the fields that readers know, and nothing is left."""
    with start(folder, subject) as run:
        printed, _ = run.communicate(timeout=RUN_S)
    found = [json.loads(line) for line in printed.splitlines()]

    assert run.returncode == 0
    assert [list(metric) for metric in found] == [FIELDS] * metrics
    assert [metric["n"] for metric in found] == [2] * metrics
    assert all(metric["value"] > 0 and metric["baseline"] > 0 for metric in found)
    assert list(folder.iterdir()) == []


def test_an_interrupted_benchmark_leaves_nothing_behind(folder):
    """Ctrl-C in the middle of a run ends every process of it and removes its directories."""
    with start(folder) as run:
        wait_for_daemon(folder)
        family = psutil.Process(run.pid).children(recursive=True)
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=END_S)
    _, alive = psutil.wait_procs(family, timeout=END_S)

    assert run.returncode == INTERRUPTED
    assert family != []
    assert alive == []
    assert list(folder.iterdir()) == []
