"""Two revisions are played in turns, and whatever becomes of the run, no work tree is left."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
RUN = (sys.executable, "-m", "benchmarks.compare")
TINY = "simulation"
FLAGS = ("--repeats", "1", "--no-save")
RUN_S = 200
END_S = 60
NOTHING_COMPARED = 2
INTERRUPTED = 130

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no repository to check out from"),
]


@pytest.fixture
def folder():
    """A place for temporary files."""
    with tempfile.TemporaryDirectory(prefix="b-") as name:
        yield Path(name)


def start(folder, *arguments):
    """Start a comparison that keeps what is temporary in ``folder``."""
    return subprocess.Popen(
        [*RUN, *arguments, *FLAGS],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(run):
    """Return what a run prints and what it complains of, when it has ended."""
    with run:
        return run.communicate(timeout=RUN_S)


def is_gone(folder):
    """Say whether neither a file nor an entry of the repository is left of a work tree."""
    listed = subprocess.run(
        ["git", "worktree", "list", "--porcelain"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return list(folder.iterdir()) == [] and str(folder.resolve()) not in listed.stdout


def test_the_head_beside_the_work_tree(folder):
    """Each metric has a line with both values, and three ratios of two pairs."""
    run = start(folder, "HEAD", TINY, "nonsense", "--pairs", "2")
    printed, complaints = finish(run)
    rows = [line.split() for line in printed.splitlines() if line.startswith(f"{TINY}.")]

    assert run.returncode == 0, complaints
    assert [row[:2] for row in rows] == [
        [f"{TINY}.schedules", "per_min"],
        [f"{TINY}.inputs", "per_s"],
    ]
    for row in rows:
        old, new, ratio, least, most, pairs = map(float, row[2:])
        assert min(old, new, least) > 0
        assert least <= ratio <= most
        assert pairs == 2
    assert "nonsense: left out, not in HEAD (" in printed
    assert is_gone(folder)


@pytest.mark.parametrize("base", ["no-such-revision", "", "HEAD:Makefile"])
def test_a_base_that_is_no_revision_is_named(folder, base):
    """It is one line that says what is wrong."""
    run = start(folder, base)
    printed, complaints = finish(run)

    assert run.returncode == NOTHING_COMPARED
    assert (printed, complaints) == ("", f"BASE={base!r} names no commit of this repository\n")
    assert is_gone(folder)


def test_a_run_that_is_interrupted_leaves_nothing(folder):
    """Neither the work tree nor what plays there."""
    run = start(folder, "HEAD", TINY, "--pairs", "1000")
    playing = wait_for_play(run)
    run.terminate()
    finish(run)
    _, alive = psutil.wait_procs(playing, timeout=END_S)

    assert run.returncode == INTERRUPTED
    assert alive == []
    assert is_gone(folder)


def wait_for_play(run):
    """Return the processes below a run when one of them plays."""
    deadline = time.monotonic() + END_S
    family = []
    while not any(map(plays, family)):
        assert time.monotonic() < deadline
        time.sleep(0.01)  # tidy: nobody says when another process begins
        family = psutil.Process(run.pid).children(recursive=True)
    return family


def plays(process):
    """Say whether a process plays a benchmark."""
    try:
        return process.cmdline()[1:3] == ["-m", "benchmarks"]
    except psutil.NoSuchProcess:
        return False
