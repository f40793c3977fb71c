"""What a person and a program get to see of a cycle."""

import json

import pytest

from cmdc_runtime import events
from cmdc_runtime.cli.conversation import JsonTranscript, Transcript
from cmdc_runtime.cli.terminal import Terminal
from cmdc_runtime.client.exchange import Reply
from cmdc_runtime.errors import AgentFailed
from cmdc_runtime.events import Envelope
from cmdc_runtime.ids import CallId, CommandId, EventIndex, SessionId
from cmdc_runtime.messages import Message, TokenUsage


def envelope(event, index=1, at_ms=1000):
    return Envelope(session_id=SessionId("s"), index=EventIndex(index), at_ms=at_ms, event=event)


def reply(text):
    return Reply(text=text, messages=(), usage=TokenUsage(), output=text)


def complete(text):
    return events.ResponseComplete(message=Message.assistant(text))


START = events.MessageStart()
RESET = events.StreamReset()
AGAIN = events.RequestStart(model="m", messages=2)


def piece(text):
    return events.MessageDelta(delta=text)


@pytest.fixture(name="live")
def _live():
    """A terminal that a person looks at."""
    terminal = Terminal()
    terminal.is_live = True
    return terminal


def shown(terminal, seen, capsys):
    transcript = Transcript(terminal)
    for event in seen:
        transcript.take(envelope(event))
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        ([AGAIN, START, piece("Hel"), piece("lo"), complete("Hello")], "Hello"),
        ([AGAIN, START, piece("Hel"), complete("Hello")], "Hello"),
        ([AGAIN, complete("Hello")], "Hello"),
        ([AGAIN, START, piece("Half"), AGAIN, complete("Hello")], "HalfHello"),
        ([START, piece("Half"), RESET, START, piece("Hello"), complete("Hello")], "Half\nHello"),
        ([START, piece("Half"), complete("Hello")], "Half\nHello"),
    ],
    ids=["whole", "tail-lost", "all-lost", "aborted-before", "reset", "other-text"],
)
def test_person_sees_the_whole_answer_once(seen, found, live, capsys):
    """Pieces appear as they come; what a crash has swallowed is shown with the whole answer."""
    assert shown(live, seen, capsys) == found


def test_pipe_gets_answers_only(capsys):
    """Without a terminal the pieces are not written, only what came of them."""
    transcript = Transcript(Terminal())
    for event in (START, piece("Hel"), RESET, START, piece("Hello"), complete("Hello")):
        transcript.take(envelope(event))
    transcript.finish(reply("Hello \x1b[2J"))
    found = capsys.readouterr()

    assert found.out == "Hello \u241b[2J\n"
    assert found.err == "the answer begins anew\n"


def test_tools_are_shown_with_their_times(capsys):
    """A call is shown when it starts, and how long it took when it ends."""
    transcript = Transcript(Terminal())
    call_id = CallId("c")
    start = events.ToolExecutionStart(name="shell", call_id=call_id, args={"command": "ls"})
    good = events.ToolExecutionEnd(name="shell", call_id=call_id, ok=True, text="a b")
    bad = events.ToolExecutionEnd(name="shell", call_id=call_id, ok=False, text="no\nway")
    for event, at_ms in ((start, 1000), (good, 1340), (start, 2000), (bad, 4100)):
        transcript.take(envelope(event, at_ms=at_ms))

    assert capsys.readouterr().err.splitlines() == [
        "tool shell(command='ls')",
        "tool shell done after 340 ms",
        "tool shell(command='ls')",
        "tool shell failed after 2.1 s: no way",
    ]


def test_program_gets_an_outcome_as_the_last_line(capsys):
    """Every line is JSON: the events as they are, then the reply or the error."""
    transcript = JsonTranscript(Terminal())
    transcript.take(envelope(events.AgentStart(command_id=CommandId("c"))))
    transcript.finish(reply("Hello"))
    transcript.fail(AgentFailed("no credit"))
    event, good, bad = map(json.loads, capsys.readouterr().out.splitlines())

    assert (event["index"], event["event"]["kind"]) == (1, "agent_start")
    assert good["reply"]["text"] == "Hello"
    assert bad == {"error": {"code": "agent_failed", "message": "the cycle failed: no credit"}}
