"""Every event has its line."""

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
