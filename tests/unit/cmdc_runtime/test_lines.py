"""Every event and every notice is one line for people."""

from contextlib import suppress

import msgspec
import pytest

from cmdc_runtime import events
from cmdc_runtime.cli.terminal import STYLES
from cmdc_runtime.events.base import EVENT_CHARS_MAX, LEVELS
from cmdc_runtime.ids import CallId, Incarnation, MonitorRef, SessionId
from cmdc_runtime.reasons import (
    LINE_CHARS_MAX,
    Down,
    Evidence,
    Normal,
    Other,
    RestartIntensityExceeded,
    Signal,
    Unresponsive,
)
from scripts.fuzz.entropy import Seeded
from scripts.fuzz.shapes import message_pack
from scripts.reference.sources import declared

KILLED = Signal(number=9, name="SIGKILL")


SAY_NOTHING = {events.MessageStart, events.ThinkingStart}
"""What follows them says all."""


def test_every_event_says_what_happened():
    """A new event needs its line, and facts that are among those that there are."""
    kinds = set(declared(events.Event))
    silent = {kind for kind in kinds if "_line" not in vars(kind)}

    assert silent == SAY_NOTHING
    assert {kind.level for kind in kinds} == set(LEVELS)
    assert {kind.notice for kind in kinds} <= {"", *STYLES}


@pytest.mark.parametrize("kind", declared(events.Event), ids=lambda kind: kind.__name__)
def test_content_is_named_by_its_fields(kind):
    """A field that is renamed leaves no content in the log under its new name."""
    assert set(kind.content_fields) <= set(kind.__struct_fields__)


@pytest.mark.parametrize("kind", declared(events.Event), ids=lambda kind: kind.__name__)
def test_no_event_commands_the_terminal(kind):
    """Whatever its fields hold, an event is one line of bounded length."""
    lines = [str(event) for event in hostile_events(kind)]

    assert lines
    assert all(line.isprintable() and len(line) <= EVENT_CHARS_MAX for line in lines)


def hostile_events(kind):
    """Yield events as a hostile worker may send them, those that decode."""
    for number in range(100):
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            body = message_pack(kind, Seeded(f"{kind.__name__} {number}"))
            yield msgspec.msgpack.decode(body, type=kind)


def test_quoted_text_cannot_command_the_terminal():
    """The arguments of a call are the model's words, and are quoted as such."""
    call = events.ToolExecutionStart(
        name="shell\x1b", call_id=CallId("c"), args={"command": "\x1b[2J\n" * 100}
    )
    line = str(call)

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
    assert str(event) == line


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (
            {"reason": str(KILLED), "in_window": 1, "max_restarts": 3, "next_attempt_s": 0.1},
            (
                "child_terminated root/sessions/session:s/agent: killed by signal 9 (SIGKILL) "
                "(restart 1 of 3)"
            ),
        ),
        (
            {"reason": str(KILLED), "in_window": 4, "max_restarts": 3},
            "child_terminated root/sessions/session:s/agent: killed by signal 9 (SIGKILL)",
        ),
        ({"child": None}, "child_terminated root/sessions/session:s: why"),
    ],
    ids=["restarted", "given up", "no child"],
)
def test_a_report_names_its_session(more, line):
    """All sessions publish on one topic, and all of their agents have one name there."""
    known = {"report": "child_terminated", "context": "why", "child": "agent"}
    event = events.SupervisorReport(supervisor="root/sessions/session:s", **{**known, **more})

    assert str(event) == line


def down(reason=KILLED, *, restarting=True, **more):
    return Down(
        ref=MonitorRef("r"),
        session_id=SessionId("s"),
        reason=reason,
        incarnation=Incarnation(2),
        restarting=restarting,
        **more,
    )


@pytest.mark.parametrize(
    ("notice", "line"),
    [
        (
            down(),
            "process 2 of s is down: killed by signal 9 (SIGKILL); restarting as process 3",
        ),
        (
            down(restarts=2, next_attempt_ms=200, evidence=Evidence(pid=7, killed_by="outside")),
            (
                "process 2 of s (pid 7) is down: killed by signal 9 (SIGKILL), from outside; "
                "restarting in 200 ms as process 3 (restart 2)"
            ),
        ),
        (
            down(next_attempt_ms=0, evidence=Evidence(killed_by="daemon")),
            (
                "process 2 of s is down: killed by signal 9 (SIGKILL), by the daemon; "
                "restarting at once as process 3"
            ),
        ),
        (
            down(Unresponsive(silent_ms=30_000), evidence=Evidence(killed_by="daemon")),
            "process 2 of s is down: unresponsive: silent for 30 s; restarting as process 3",
        ),
        (
            down(Normal(), restarting=False),
            "process 2 of s is down: normal; the session has ended",
        ),
        (
            down(
                RestartIntensityExceeded(restarts=3, seconds=5.0, last=KILLED),
                restarting=False,
                evidence=Evidence(killed_by="outside"),
            ),
            (
                "process 2 of s is down: 3 restarts in 5 s were not enough; "
                "last: killed by signal 9 (SIGKILL), from outside; the session has ended"
            ),
        ),
    ],
    ids=["bare", "later", "at once", "failed", "asked", "given up"],
)
def test_down_is_one_line(notice, line):
    """A crash reads as what happened, why, by whose hand, and what follows."""
    assert str(notice) == line


def test_down_is_short_and_commands_nothing():
    """Whatever a process said of its end."""
    line = str(down(Other(detail="\x1b[2J\n" * 10_000)))

    assert line.isprintable()
    assert len(line) < LINE_CHARS_MAX + 100
