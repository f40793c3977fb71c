"""Whatever is written to the journal has fault points, and a place in the crash matrix."""

import re

import pytest

from cmdc_runtime.faults import AGENT, MOMENTS
from scripts.matrix import page
from scripts.matrix.cells import cells_of
from scripts.matrix.situations import SITUATIONS
from scripts.reference.markdown import part_of
from supervisor.adapters.journal.opening import with_fault_points, writes
from supervisor.adapters.journal.operations import WRITES
from supervisor.processes.worker import DAEMON

ROOT = page.ROOT
ELSEWHERE = {
    "restore": "tests/fault/matrix/test_rare_writes.py",
    "prune": "tests/fault/matrix/test_rare_writes.py",
    "keep_blob": "tests/fault/matrix/test_rare_writes.py",
    "code_taken": "tests/fault/cases/test_changed_code.py",
    "tool_told": "tests/fault/test_branch_deaths.py",
    "cut_spent": "tests/fault/test_cut_deaths.py",
    "answer_retracted": "tests/fault/test_guardrail_deaths.py",
    "handed_off": "tests/fault/test_handoff_deaths.py",
    "handoff_failed": "tests/fault/test_handoff_deaths.py",
    "mcp_servers_changed": "tests/fault/test_mcp_deaths.py",
    "mcp_tools_seen": "tests/fault/test_mcp_deaths.py",
    "call_kept": "tests/fault/test_mcp_deaths.py",
}
"""What no life of a session writes, and the test that dies at it."""
FIRST_CELL = re.compile(r"^\| `([\w+]+)` \|", re.MULTILINE)
ROW = re.compile(r"^\| ([^|]+) \|", re.MULTILINE)


def section():
    return part_of(page.ARCHITECTURE, "crash-matrix")


def test_every_write_has_fault_points_of_its_own():
    """By its name, which no other one has."""
    assert writes() == [kind.name for kind in WRITES]
    assert len(set(writes())) == len(WRITES)


def test_every_write_is_in_the_matrix():
    """A new kind of record, or a new write, needs a situation in which it is written.

    A row is not enough: somebody must have died at it. Add the situation to
    ``scripts/matrix/situations.py`` and run ``make matrix``.
    """
    rows = page.writes_reached(page.FULL.read_text(encoding="utf-8"))
    missing = [name for name in page.required() if name not in rows and name not in ELSEWHERE]

    assert missing == [], f"nobody died in {page.FULL.name} at: {', '.join(missing)}"


def test_no_write_of_the_matrix_is_gone():
    """What the page shows is what the code writes today."""
    rows = page.written_in(FIRST_CELL.findall(page.FULL.read_text(encoding="utf-8")))

    assert rows - set(page.required()) == set()


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_what_is_written_elsewhere_dies_there(name):
    """The test that is named has the points of the write."""
    assert name in page.required()
    assert f'"{name}"' in (ROOT / ELSEWHERE[name]).read_text(encoding="utf-8")


def test_the_table_has_the_rows_and_columns_of_the_code():
    """One line for each situation, in order."""
    head, _, *rows = ROW.findall(section())
    columns = section().strip().splitlines()[0].strip("| ").split(" | ")

    assert head == page.COLUMNS[0]
    assert tuple(columns) == page.COLUMNS
    assert rows == [page._title(situation) for situation in SITUATIONS]


def test_the_page_has_a_section_for_each_situation():
    """In the order of the code."""
    headings = re.findall(r"^## (.+)$", page.FULL.read_text(encoding="utf-8"), re.MULTILINE)

    assert headings == [situation.name for situation in SITUATIONS]


def test_the_journal_is_left_alone_where_nobody_looks_for_plans():
    """A daemon as people run it has no fault points."""
    journal = object()

    assert with_fault_points(journal, (), lambda _victim, _session: ()) is journal


def test_both_sides_of_a_write_are_cells():
    """Before and after, for the agent and, where the daemon passes the point, for the daemon."""
    (idle,) = [one for one in SITUATIONS if one.name == "idle"]
    passed = [f"{point}.{moment}" for point in ("agent.said", "append.said") for moment in MOMENTS]
    cells = {(one.point, one.victim) for one in cells_of(idle, passed)}

    assert cells == {
        *((point, AGENT) for point in passed),
        *((point, DAEMON) for point in passed[2:]),
    }
