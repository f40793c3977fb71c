"""The thread that works on what is put in: when it does, and what it does when it cannot."""

import threading

import pytest
import structlog

from workers.builtin.telemetry import outlet as module
from workers.builtin.telemetry.outlet import Outlet

SOON_S = 20.0
NEVER_S = 3600.0
AT_ONCE_S = 0.001


class BatchWorker:
    """Takes down what it is given; it can be held, and it can fail."""

    def __init__(self):
        self.taken = []
        self.prepared = 0
        self.error = None
        self.closed = threading.Event()
        self.gate = threading.Event()
        self.gate.set()
        self.prepares = threading.Event()
        self.prepares.set()
        self.entered = threading.Event()

    def prepare(self):
        assert self.prepares.wait(SOON_S)
        self.prepared += 1
        return self

    def close(self):
        self.closed.set()

    def work(self, things):
        self.entered.set()
        assert self.gate.wait(SOON_S)
        if self.error is not None:
            raise self.error
        self.taken.append(list(things))


@pytest.fixture
def worker():
    return BatchWorker()


def outlet_of(worker, interval_s=NEVER_S):
    return Outlet("outlet", worker.prepare, interval_s)


def test_a_flush_has_everything_done(worker):
    """In one go, in order, in a thread of its own."""
    outlet = outlet_of(worker)
    for number in range(5):
        outlet.put(number)

    assert outlet.flush(SOON_S)
    assert worker.taken == [[0, 1, 2, 3, 4]]
    assert worker.prepared == 1


def test_nothing_is_begun_before_there_is_something(worker):
    """A plugin that hears nothing costs nothing."""
    outlet = outlet_of(worker)

    assert outlet.flush(SOON_S)
    assert worker.prepared == 0
    assert outlet._tank._thread is None


def test_what_is_put_in_is_worked_on_after_a_while(worker):
    """Nobody has to flush."""
    outlet = outlet_of(worker, AT_ONCE_S)
    outlet.put(1)

    assert worker.entered.wait(SOON_S)
    assert outlet.flush(SOON_S)
    assert worker.taken == [[1]]


def test_much_does_not_wait(worker):
    """Whatever the interval."""
    outlet = outlet_of(worker)
    for number in range(module.WAITING_MANY):
        outlet.put(number)

    assert worker.entered.wait(SOON_S)


def test_a_flush_has_a_bound(worker):
    """Who waits is not held up by a collector that does not answer."""
    outlet = outlet_of(worker)
    worker.gate.clear()
    outlet.put(1)

    assert not outlet.flush(AT_ONCE_S)
    worker.gate.set()
    assert outlet.flush(SOON_S)


def test_a_preparation_has_a_time_of_its_own(worker):
    """An import on a busy machine takes nothing from the time that the work has; it has a bound."""
    outlet = outlet_of(worker)
    worker.prepares.clear()
    outlet.put(1)
    assert not outlet.flush(AT_ONCE_S, prepare_s=AT_ONCE_S)
    opener = threading.Timer(10 * AT_ONCE_S, worker.prepares.set)
    worker.gate.clear()
    opener.start()

    assert not outlet.flush(AT_ONCE_S, prepare_s=SOON_S)
    assert worker.prepared == 1
    worker.gate.set()
    assert outlet.flush(SOON_S, prepare_s=0.0)
    opener.join(SOON_S)


def test_what_is_too_much_is_lost_and_counted(worker, monkeypatch):
    """Memory is bounded while nothing can be sent."""
    monkeypatch.setattr(module, "WAITING_MAX", 3)
    outlet = outlet_of(worker, AT_ONCE_S)
    worker.gate.clear()
    outlet.put("held")
    assert worker.entered.wait(SOON_S)
    with structlog.testing.capture_logs() as entries:
        for number in range(5):
            outlet.put(number)
        worker.gate.set()
        assert outlet.flush(SOON_S)

    assert worker.taken == [["held"], [0, 1, 2]]
    assert [(entry["event"], entry["lost"]) for entry in entries] == [("plugin_thread.overrun", 2)]


def test_work_that_fails_is_the_end_of_it(worker):
    """It is reported once, nothing more is kept, and nobody waits."""
    outlet = outlet_of(worker)
    worker.error = ValueError("a bug")
    with structlog.testing.capture_logs() as entries:
        outlet.put(1)
        assert not outlet.flush(SOON_S)
    outlet._tank._thread.join(SOON_S)
    outlet.put(2)

    assert not outlet.flush(AT_ONCE_S)
    assert outlet._tank._waiting == []
    assert [(entry["event"], entry["log_level"]) for entry in entries] == [
        ("plugin_thread.crashed", "error")
    ]


def test_a_preparation_that_fails_is_the_end_of_it(worker):
    """As where an exporter cannot be made."""
    outlet = Outlet("outlet", lambda: 1 / 0, NEVER_S)
    with structlog.testing.capture_logs() as entries:
        outlet.put(1)
        assert not outlet.flush(SOON_S)

    assert [entry["event"] for entry in entries] == ["plugin_thread.crashed"]


def test_an_outlet_that_nobody_has_any_more_ends(worker):
    """What waits is worked on first; nobody waits for that."""
    outlet = outlet_of(worker)
    outlet.put(1)
    thread = outlet._tank._thread
    del outlet
    thread.join(SOON_S)

    assert not thread.is_alive()
    assert worker.taken == [[1]]
    assert worker.closed.is_set()


def test_an_idle_outlet_that_nobody_has_any_more_ends(worker):
    """Also with nothing to do."""
    outlet = outlet_of(worker)
    outlet.put(1)
    assert outlet.flush(SOON_S)
    thread = outlet._tank._thread
    del outlet
    thread.join(SOON_S)

    assert not thread.is_alive()
    assert worker.closed.is_set()
