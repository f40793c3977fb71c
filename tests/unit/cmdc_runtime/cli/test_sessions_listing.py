"""What ``cmdc ps`` shows of sessions that answer, and of those that do not."""

import contextlib
import re
import types

import pytest
from click.testing import CliRunner

from cmdc_runtime.cli import sessions
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
    monkeypatch.setattr(sessions, "running_engine", lambda _address: contextlib.nullcontext(engine))
    printed = CliRunner().invoke(sessions.ps, ["--all"], catch_exceptions=False).output
    names, *rows = [re.split(r" {2,}", line.strip()) for line in printed.splitlines()]
    return {row[0]: dict(zip(names, row, strict=True)) for row in rows}


def test_what_nobody_knows_of_an_ended_session_is_no_number(shown):
    """Its agent is gone with its counters; what the daemon knows is there."""
    over = shown["s-over"]

    assert {over[name] for name in ("PID", "MODEL", "TURNS", "QUEUED", "TOKENS", "COST", "UP")} == {
        "-"
    }
    assert (over["STATE"], over["RESTARTS"], over["REASON"]) == ("ended", "4", "normal")


def test_what_a_session_tells_is_shown_though_it_is_none(shown):
    """A new one has no turn yet, and says so."""
    up, new = shown["s-up"], shown["s-new"]

    assert (up["MODEL"], up["TURNS"], up["TOKENS"]) == ("a:b", "3", "70")
    assert (new["TURNS"], new["QUEUED"], new["TOKENS"]) == ("0", "0", "0")
    assert "-" not in (up["UP"], new["UP"])
