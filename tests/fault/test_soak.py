"""Seeded lives of sessions with seeded kills: the short form of ``make soak``.

What is checked is in ``scripts/soak``.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from scripts.soak.run import Settings, soak

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

SCENARIOS = int(os.environ.get("SOAK_N", "300"))
SEED = 1
DAEMON_KILLED_EVERY = 75
ROOT = Path(__file__).parents[2]
BEGUN_S = 60.0
END_S = 40.0
INTERRUPTED = 130


@pytest.mark.timeout(600)
def test_whoever_is_killed_nothing_is_lost():
    """No acknowledged prompt, no index, no write tool twice, every history valid.

    And whatever a session remembers is there again when its agent and its daemon were killed.
    """
    settings = Settings(scenarios=SCENARIOS, seed=SEED, daemon_killed_every=DAEMON_KILLED_EVERY)
    result = soak(settings)
    done = result.counts

    assert [f"{one.scenario}: {one.problem}" for one in result.violations] == []
    assert done["scenarios"] == SCENARIOS
    assert done["kills"] > SCENARIOS // 2
    assert done["daemon_kills"] >= max(1, SCENARIOS // DAEMON_KILLED_EVERY - 1)
    assert done["rebuilt"] > SCENARIOS * 9 // 10
    assert [name for name in ("idle", "stream", "tools") if not done[f"recovered_{name}"]] == []


@pytest.mark.timeout(BEGUN_S + 3 * END_S)
def test_a_soak_that_is_interrupted_leaves_nothing_behind(tmp_path, poll):
    """A SIGTERM in the middle of a run ends its daemon and its sessions, and clears its folder.

    Where it does not, its stacks are on stderr.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "scripts.soak", "--scenarios", "2000", "--no-save"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONFAULTHANDLER": "1"},
        stdout=subprocess.DEVNULL,
    ) as run:
        begun = poll(lambda: list(tmp_path.glob("cmdc-soak-*/1-*")), BEGUN_S)
        family = psutil.Process(run.pid).children(recursive=True)
        run.terminate()
        try:
            run.wait(END_S)
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGABRT)
    _, alive = psutil.wait_procs(family, timeout=END_S)
    for process in alive:
        process.kill()

    assert begun
    assert run.returncode == INTERRUPTED
    assert family != []
    assert alive == []
    assert list(tmp_path.iterdir()) == []
