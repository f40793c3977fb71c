"""Bounds that a worker sets for itself, in a process of its own each."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

WAIT_S = 10.0

WORKER = """
import json, os, resource, subprocess, sys
from workers.limits import LimitError, apply_limits, step_forward

facts = {"stepped": [step_forward(), step_forward()]}
apply_limits(None)
facts["core"] = resource.getrlimit(resource.RLIMIT_CORE)
facts["files"] = resource.getrlimit(resource.RLIMIT_NOFILE)
apply_limits(100)
facts["fewer"] = resource.getrlimit(resource.RLIMIT_NOFILE)
try:
    while True:
        os.dup(0)
except OSError as error:
    facts["full"] = error.errno
os.closerange(3, 100)
facts["child"] = json.loads(subprocess.run(
    [sys.executable, "-c", "import resource; print(list(resource.getrlimit(7)))"],
    capture_output=True, check=True,
).stdout)
facts["score"] = int(open("/proc/self/oom_score_adj").read())
if os.getuid() == 0:
    os.setuid(65534)
try:
    apply_limits(200)
except LimitError as error:
    facts["refused"] = str(error)
print(json.dumps(facts))
"""


def reported_by(prelude=""):
    done = subprocess.run(
        [sys.executable, "-c", prelude + WORKER],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module", name="reported")
def _reported():
    """What a worker says of itself that took one limit after the other."""
    return reported_by()


def test_open_files_are_limited_for_the_process_and_what_it_starts(reported):
    """The limit is hard, so no program takes it back, and None changes nothing."""
    assert reported["files"][1] > 100
    assert reported["fewer"] == [100, 100]
    assert reported["full"] == 24
    assert reported["child"] == [100, 100]


def test_more_than_the_system_allows_is_refused_by_name(reported):
    """The error names the option, the value, the bound, and what can be done."""
    assert reported["refused"].startswith("max_open_files: 200 is more than the 100 ")
    assert "LimitNOFILE=" in reported["refused"]


def test_no_core_is_written(reported):
    """A core would hold what the session has read."""
    assert reported["core"] == [0, 0]


def test_a_worker_is_chosen_before_the_daemon_when_memory_runs_out(reported):
    """Its score is raised once, and what was higher already stays."""
    own = int(Path("/proc/self/oom_score_adj").read_text())
    raised = "open('/proc/self/oom_score_adj', 'w').write('700')\n"

    assert reported["stepped"] == [True, True]
    assert reported["score"] == max(own, 300)
    assert reported_by(raised)["score"] == 700
