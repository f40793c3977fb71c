"""What ``cmdc ps`` shows of sessions that answer, and of those that do not."""

import contextlib
import re
import types

import msgspec
import pytest
from click.testing import CliRunner

from cmdc_runtime.cli import listing
from cmdc_runtime.cli.listing import SessionTable, state_of
from cmdc_runtime.commands import Status

UP = Status(
    state="idle",
    session_id="s-up",
    incarnation=1,
    turns=3,
    total_tokens=70,
    uptime_ms=61_000,
    model="a:b",
    pid=7,
)
STARTED = Status(state="idle", session_id="s-new", incarnation=1, model="a:b", pid=8)
OVER = Status(state="ended", session_id="s-over", incarnation=2, restarts=4, reason="normal")


@pytest.fixture
def shown(monkeypatch):
    """Return the cells of each row that ``cmdc ps --all`` prints, by session and column."""
    exchange = types.SimpleNamespace(
        list_sessions=lambda: [UP, STARTED], list_inactive=lambda: [OVER]
    )
    engine = types.SimpleNamespace(exchange=exchange, call=lambda found: found)
    monkeypatch.setattr(listing, "running_engine", lambda _address: contextlib.nullcontext(engine))
    printed = CliRunner().invoke(listing.ps, ["--all"], catch_exceptions=False).output
    names, *rows = [re.split(r" {2,}", line.strip()) for line in printed.splitlines()]
    return {row[0]: dict(zip(names, row, strict=True)) for row in rows}


def test_what_nobody_knows_of_an_ended_session_is_no_number(shown):
    """Its agent is gone with its counters; what the daemon knows is there."""
    over = shown["s-over"]

    assert {over[name] for name in ("PID", "MODEL", "TURNS", "QUEUED", "TOKENS", "COST", "UP")} == {
        "-"
    }
    assert (over["STATE"], over["RESTARTS"], over["REASON"]) == ("ended", "4", "normal")


def test_what_a_session_reports_is_shown_though_it_is_none(shown):
    """A new one has no turn yet, and says so."""
    up, new = shown["s-up"], shown["s-new"]

    assert (up["MODEL"], up["TURNS"], up["TOKENS"]) == ("a:b", "3", "70")
    assert (new["TURNS"], new["QUEUED"], new["TOKENS"]) == ("0", "0", "0")
    assert "-" not in (up["UP"], new["UP"])


# --- on a terminal ----------------------------------------------------------------------------

LONG = [
    Status(
        state=state,
        session_id=f"invoices-of-the-year-2026-checked-by-{number}-and-then-by-somebody-else",
        incarnation=1,
        turns=120,
        total_tokens=1_234_567,
        cost_usd=12.3456,
        uptime_ms=90_061_000,
        model="openrouter:some-vendor/some-very-long-model-name-2026-11-28",
        pid=4_194_303,
        restarts=number,
        group_id="accounting-department",
        parent_id="month-end",
        pending_approvals=("a-1", "a-2"),
        pending_questions=("q-1",),
        reason="exception: LookupError: no account of this name",
    )
    for number, state in enumerate(["executing_tools", "unresponsive"])
]


def rendered(found, width, *, is_all=True):
    """Return the lines of a table as text."""
    lines = SessionTable(found, is_all, width).lines()
    return ["".join(piece.text for piece in line).rstrip() for line in lines]


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize(
    "found", [LONG, [UP, STARTED, OVER], [UP, *LONG]], ids=["long", "short", "all"]
)
def test_nothing_is_broken_inside_a_word(found, width):
    """Every line fits unless a single name is longer, and every word of a line is a whole one."""
    lines = rendered(found, width)
    whole = {
        word
        for one in found
        for column in listing.COLUMNS
        for word in [column.name, *column.cell(one).split()]
    }

    assert {word for line in lines for word in line.split()} <= whole
    assert [
        line
        for line in lines
        if len(line) > width and line not in {one.session_id for one in found}
    ] == []
    assert {one.session_id for one in found} <= whole & {
        word for line in lines for word in line.split()
    }


def test_a_long_name_has_a_line_of_its_own():
    """What stands in the other columns begins on the next line, where it is with the others."""
    head, *lines = rendered([UP, *LONG], 80)

    assert lines[1] == LONG[0].session_id
    assert lines[2].index("executing_tools") == lines[0].index("idle") == head.index("STATE")


def test_a_pipe_gets_all_columns_that_say_something():
    """There is no width, so nothing is left out but what no row has."""
    head = rendered([UP, OVER], None)[0]
    full = rendered(LONG, None)[0]

    assert head.split() == [
        *("SESSION", "STATE", "PID", "MODEL", "TURNS", "QUEUED", "TOKENS", "COST"),
        *("RESTARTS", "UP", "REASON"),
    ]
    assert full.split()[-3:] == ["GROUP", "PARENT", "REASON"]


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, "idle"),
        ({"pending_approvals": ("a-1",)}, "idle, waits: approval"),
        (
            {"pending_approvals": ("a-1", "a-2"), "pending_questions": ("q",)},
            "idle, waits: 2 approvals, question",
        ),
        ({"spent_limit": "max_cost_usd_exceeded"}, "idle, waits: budget"),
    ],
    ids=["nothing", "approval", "several", "budget"],
)
def test_the_state_says_what_a_person_is_waited_for(changes, shown):
    """Approvals, questions and a spent budget; each is a field of the status."""
    assert state_of(msgspec.structs.replace(UP, **changes)) == shown
