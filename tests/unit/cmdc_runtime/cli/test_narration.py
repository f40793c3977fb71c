"""Every event has its line."""

import pytest

from cmdc_runtime import events
from cmdc_runtime.cli.narration import LOUD, TELLINGS, down_told, told
from cmdc_runtime.cli.terminal import STYLES
from cmdc_runtime.ids import CallId, Incarnation, MonitorRef, SessionId
from cmdc_runtime.reasons import Down, Signal


def test_every_event_can_be_told():
    """The table is total: a new event needs a row in cmdc_runtime/cli/narration.py."""
    missing = set(events.Event.__subclasses__()) - set(TELLINGS)

    assert missing == set()


def test_loud_events_have_a_style():
    """What is told aloud is told in a style that there is."""
    assert set(LOUD) <= set(TELLINGS)
    assert set(LOUD.values()) <= set(STYLES)


def test_quoted_text_cannot_command_the_terminal():
    """The arguments of a call are the model's words, and are quoted as such."""
    call = events.ToolExecutionStart(
        name="shell\x1b", call_id=CallId("c"), args={"command": "\x1b[2J\n" * 100}
    )
    line = told(call)

    assert line.isprintable()
    assert len(line) < 200


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            events.ApprovalRequired(
                id="a-1",
                tool="shell",
                args={"command": "rm x"},
                hint="deletes",
                requested_at_ms=1,
                session_id="s",
                call_id="c",
            ),
            "shell(command='rm x') waits for approval a-1: deletes",
        ),
        (
            events.AskUser(session_id="s", question="Which?", options=("red", "blue"), ref="q-1"),
            "asks: Which? [red | blue] (q-1)",
        ),
        (
            events.AskUser(session_id="s", question="Why?", options=(), ref="q-2"),
            "asks: Why? (q-2)",
        ),
        (
            events.ConversationCompacted(trigger="size", before=9, after=2, history_file="/h.md"),
            "9 messages became 2 (size), in full in /h.md",
        ),
    ],
    ids=["approval", "options", "open question", "compaction"],
)
def test_what_a_person_has_to_answer_names_how(event, line):
    """The reference that an answer needs is in the line, and so is what it is about."""
    assert told(event) == line


def test_down_is_one_line():
    """A crash reads as what happened, why, and what follows."""
    down = Down(
        ref=MonitorRef("r"),
        session_id=SessionId("s"),
        reason=Signal(number=9, name="SIGKILL"),
        incarnation=Incarnation(2),
        restarting=True,
    )

    assert down_told(down) == (
        "process 2 of s is down: killed by signal 9 (SIGKILL); another one follows"
    )
