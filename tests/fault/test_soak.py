"""Many sessions at random, by a seed: prompts, steers, aborts, tool swaps, approvals and kills.

The short form of ``make soak``; what is checked is in ``scripts/soak``.
"""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from scripts.soak.run import Settings, soak

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

SESSIONS = 20
PROMPTS = 6
SEED = 11
ROOT = Path(__file__).parents[2]
BEGUN_S = 60.0
END_S = 40.0
INTERRUPTED = 130


def test_sessions_that_are_driven_at_random_stay_whole():
    """Histories are valid, indexes contiguous, what was accepted ends once, and nothing is left."""
    result = soak(Settings(sessions=SESSIONS, prompts=PROMPTS, seed=SEED))
    done = result.counts

    assert result.violations == []
    assert (done["sessions"], done["prompt"]) == (SESSIONS, SESSIONS * PROMPTS)
    assert [verb for verb in ("steer", "abort", "kill", "replace_tools") if not done[verb]] == []


def test_a_soak_that_is_interrupted_leaves_nothing_behind(tmp_path, poll):
    """A SIGTERM in the middle of a run ends its daemon and its sessions, and clears its folder."""
    with subprocess.Popen(
        [sys.executable, "-m", "scripts.soak", "--sessions", "4", "--prompts", "200", "--no-save"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as run:
        begun = poll(lambda: list(tmp_path.glob("cmdc-soak-*/soak-*")), BEGUN_S)
        family = psutil.Process(run.pid).children(recursive=True)
        run.terminate()
        run.wait(END_S)
    _, alive = psutil.wait_procs(family, timeout=END_S)

    assert begun
    assert run.returncode == INTERRUPTED
    assert family != []
    assert alive == []
    assert list(tmp_path.iterdir()) == []
