"""What the log has of a start that works on the journal for long."""

import threading

import pytest
from structlog.testing import capture_logs

from supervisor.adapters.journal.progress import Progress
from supervisor.adapters.journal.sqlite import SqliteStore

WAIT_S = 30.0


class Awaited(Progress):
    """Goes on with the next piece of work when it was logged."""

    def __init__(self):
        """Log at once."""
        super().__init__(first_s=0.0, every_s=0.001)
        self.reported = threading.Event()

    def begin(self, doing, total_bytes=0):
        """Wait for the line."""
        assert self.reported.wait(WAIT_S)
        super().begin(doing, total_bytes)

    def report(self):
        """Say that it came."""
        super().report()
        self.reported.set()


def test_a_start_that_takes_long_says_so(tmp_path):
    """Also while its thread is in a call that reports nothing itself; and nothing when it is up."""
    store = SqliteStore(tmp_path / "state", "process")
    store._progress = Awaited()
    with capture_logs() as logs:
        store.open()
        threads = {one.name for one in threading.enumerate()}
        store.close()

    assert logs[0]["event"] == "journal.opening"
    assert logs[0]["elapsed_s"] >= 0
    assert "journal-progress" not in threads


def test_what_is_not_known_is_not_reported():
    """A new piece of work begins at nothing, and one of unknown size has no figures."""
    progress = Progress()
    with capture_logs() as logs:
        progress.begin("checking all pages", 8 * 2**20)
        progress.done_bytes = 3 * 2**20
        progress.report()
        progress.begin("having SQLite check all of the copy")
        progress.report()
    reported = [
        {k: v for k, v in one.items() if k not in {"elapsed_s", "log_level"}} for one in logs
    ]

    assert reported == [
        {
            "event": "journal.opening",
            "doing": "checking all pages",
            "done_mib": 3,
            "total_mib": 8,
        },
        {"event": "journal.opening", "doing": "having SQLite check all of the copy"},
    ]


def test_short_work_says_nothing():
    """Nor is anything left of what would have said it, whether the work fails or not."""
    with (
        capture_logs() as logs,
        pytest.raises(ValueError, match="no"),
        Progress(first_s=WAIT_S).logged(),
    ):
        raise ValueError("no")

    assert logs == []
    assert "journal-progress" not in {one.name for one in threading.enumerate()}
