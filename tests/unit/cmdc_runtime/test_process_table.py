"""Reading /proc/<pid>/stat, and who descends from whom."""

import pytest

from cmdc_runtime.process_table import PAGE_BYTES, ProcessLine, parse_stat, with_descendants

REST = "7 40 41 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 3 0 123456 1 5"


@pytest.mark.parametrize("name", ["sleep", "a b", "a) S 1 2 3 (b", "(", ")"])
def test_a_command_of_any_name_does_not_shift_the_fields(name):
    """The name is free text in parentheses; the fields count from the last one."""
    line = parse_stat(f"39 ({name}) R {REST}")

    assert (line.pid, line.state, line.ppid, line.sid) == (39, "R", 7, 41)
    assert (line.start_ticks, line.threads, line.rss_bytes) == (123456, 3, 5 * PAGE_BYTES)


@pytest.mark.parametrize(
    ("state", "has_ended"), [("R", False), ("S", False), ("T", False), ("Z", True), ("X", True)]
)
def test_a_zombie_has_ended_and_a_stopped_process_has_not(state, has_ended):
    """Whoever waits for a zombie to vanish waits for its parent; one thread alone can be one."""
    alone = REST.replace(" 20 0 3 0 ", " 20 0 1 0 ")

    assert parse_stat(f"39 (a) {state} {alone}").has_ended is has_ended
    assert parse_stat(f"39 (a) {state} {REST}").has_ended is False


def test_descendants_end_where_somebody_is_spared():
    """Who is spared keeps all that is below, and nobody is found twice."""
    parents = {1: 0, 2: 1, 3: 2, 4: 2, 5: 4, 6: 1}
    table = {pid: line_of(pid, ppid) for pid, ppid in parents.items()}

    assert pids(with_descendants([table[2], table[3]], table)) == [2, 3, 4, 5]
    assert pids(with_descendants([table[2]], table, {4})) == [2, 3]
    assert pids(with_descendants([table[2]], table, {2})) == []


def line_of(pid, ppid):
    return ProcessLine(pid=pid, state="S", ppid=ppid, sid=1, start_ticks=0, threads=1, rss_bytes=0)


def pids(lines):
    return sorted(line.pid for line in lines)
