"""The line for ``systemctl status``."""

import pytest

from supervisor.core.self_check import status_line


@pytest.mark.parametrize(
    ("phases", "spares", "line"),
    [
        ((), 2, "0 sessions, 2 spares, zygote ready"),
        (("up",), 1, "1 session (1 up), 1 spare, zygote ready"),
        (
            ("up", "hibernated", "up", "restarting"),
            0,
            "4 sessions (2 up, 1 restarting, 1 hibernated), 0 spares, zygote ready",
        ),
        (("ended", "up"), 0, "1 session (1 up), 0 spares, zygote ready"),
    ],
    ids=["none", "one", "several", "ended"],
)
def test_sessions_are_counted_by_phase(phases, spares, line):
    """Phases without a session are left out, and ended sessions are no sessions."""
    assert status_line(phases, spares, "ready") == line


def test_trouble_of_the_journal_comes_first():
    """Nothing else of the line matters as much, and the line may be cut."""
    assert status_line(("up",), 1, "ready", "full: no room") == (
        "journal full: no room; 1 session (1 up), 1 spare, zygote ready"
    )
