"""The daemon's threads for blocking work are all there from the beginning."""

import threading

import pytest

from supervisor import daemon
from supervisor.daemon import THREADS, started_threads


def test_all_threads_run_before_there_is_work():
    """Nothing that is submitted later starts one."""
    before = threading.active_count()
    with started_threads() as executor:
        started = threading.active_count()
        done = list(executor.map(lambda number: number, range(3 * THREADS)))

        assert started - before == THREADS
        assert threading.active_count() == started
        assert done == [*range(3 * THREADS)]


def test_system_without_threads_is_reported_at_the_start(monkeypatch):
    """What was started ends again, and the error is Python's own."""
    before, start = threading.active_count(), threading.Thread.start
    started = []

    def refuse(thread):
        if len(started) == THREADS // 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(daemon.threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        started_threads()
    for thread in started:
        thread.join(10.0)

    assert threading.active_count() == before
