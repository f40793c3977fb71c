"""The file that a recording of the tree is written to."""

import os
from itertools import count

import pytest

from supervisor.sessions import tree_runtime
from supervisor.sessions.tree_runtime import FOLDER, RECORDINGS_KEPT_MAX, write_recording


@pytest.fixture
def clock(monkeypatch):
    """Each file has a time, and so a name, of its own."""
    times = count(1_000)
    monkeypatch.setattr(tree_runtime, "now_ms", lambda: next(times))


@pytest.fixture
def _no_mask():
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(path):
    return path.stat().st_mode & 0o777


@pytest.mark.usefixtures("clock", "_no_mask")
def test_a_recording_is_its_owners_alone(tmp_path):
    """It holds what sessions were given; a line is an input."""
    path = write_recording(tmp_path, [b"one", b"two"])

    assert path == tmp_path / FOLDER / "1000.jsonl"
    assert path.read_bytes() == b"one\ntwo\n"
    assert (mode_of(path.parent), mode_of(path)) == (0o700, 0o600)


@pytest.mark.usefixtures("clock")
def test_only_the_newest_are_kept(tmp_path):
    """The oldest goes, and nothing else of the folder."""
    paths = [write_recording(tmp_path, [b"one"])]
    (tmp_path / FOLDER / "note.txt").touch()
    paths += [write_recording(tmp_path, [b"more"]) for _ in range(RECORDINGS_KEPT_MAX + 1)]

    kept = sorted(path for path in (tmp_path / FOLDER).iterdir())
    assert kept == [*paths[2:], tmp_path / FOLDER / "note.txt"]


def test_one_of_the_same_time_stays(tmp_path, monkeypatch):
    """Where none can be written it says so in the log, and the daemon goes on."""
    monkeypatch.setattr(tree_runtime, "now_ms", lambda: 1_000)
    path = write_recording(tmp_path, [b"first"])

    assert write_recording(tmp_path, [b"second"]) is None
    assert path.read_bytes() == b"first\n"
