"""Reading /proc/<pid>/stat."""

import pytest

from supervisor.adapters.orphans import parse_stat

REST = "7 40 41 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 123456 1 1"


@pytest.mark.parametrize("name", ["sleep", "a b", "a) S 1 2 3 (b", "(", ")"])
def test_a_command_of_any_name_does_not_shift_the_fields(name):
    """The name is free text in parentheses; the fields count from the last one."""
    line = parse_stat(f"39 ({name}) R {REST}")

    assert (line.pid, line.state, line.ppid, line.sid) == (39, "R", 7, 41)
    assert line.start_ticks == 123456


@pytest.mark.parametrize(
    ("state", "has_ended"), [("R", False), ("S", False), ("T", False), ("Z", True), ("X", True)]
)
def test_a_zombie_has_ended_and_a_stopped_process_has_not(state, has_ended):
    """Whoever waits for a zombie to vanish waits for its parent."""
    assert parse_stat(f"39 (a) {state} {REST}").has_ended is has_ended
