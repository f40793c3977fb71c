"""What a person or a program sees of a running cycle.

``Transcript`` is for people: on a terminal the answer appears as it is made; elsewhere standard
output gets the final answers alone. ``JsonTranscript`` has every event. Both take every event of
the session, whoever caused it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from cmdc_runtime import events
from cmdc_runtime.cli.terminal import Terminal
from cmdc_runtime.cli.text import json_line
from cmdc_runtime.client.exchange import Reply
from cmdc_runtime.errors import CmdcError
from cmdc_runtime.events import Envelope
from cmdc_runtime.ids import CallId
from cmdc_runtime.lines import duration, neutral, one_line
from cmdc_runtime.reasons import Down

_NEW_ANSWERS: Final = (events.RequestStart, events.StreamReset, events.MessageStart)
"""What was shown before one of these is no part of the answer that follows."""


class View(Protocol):
    """Who is shown a cycle."""

    def take(self, envelope: Envelope) -> None:
        """Show one event."""

    def take_down(self, down: Down) -> None:
        """Show that a process ended; may come from another thread."""

    def finish(self, reply: Reply) -> None:
        """Show what came of it."""

    def fail(self, error: CmdcError) -> None:
        """Show that nothing came of it."""


class Transcript:
    """The view for people."""

    def __init__(self, terminal: Terminal) -> None:
        """Write to ``terminal``."""
        self._terminal = terminal
        self._shown = ""
        self._started_ms: dict[CallId, int] = {}

    def take(self, envelope: Envelope) -> None:
        """Show one event."""
        event = envelope.event
        if isinstance(event, _NEW_ANSWERS):
            self._shown = ""
        if event.notice:
            self._terminal.note(str(event), event.notice)
        if special := _SPECIAL.get(type(event)):
            special(self, envelope.at_ms, event)

    def take_down(self, down: Down) -> None:
        """Show that a process ended, unless it was the end of the session."""
        if down.restarting:
            self._terminal.note(str(down), "bad")

    def finish(self, reply: Reply) -> None:
        """Print the answer where it was not shown piece by piece."""
        if self._terminal.is_live:
            self._terminal.end_line()
        else:
            self._terminal.line(neutral(reply.text))

    def fail(self, error: CmdcError) -> None:  # noqa: ARG002 - the caller says it
        """Go to a new line, so that the error has one of its own."""
        self._terminal.end_line()

    def _begin_message(self, _at_ms: int, _event: events.MessageStart) -> None:
        self._terminal.end_line()

    def _text(self, _at_ms: int, event: events.MessageDelta) -> None:
        if self._terminal.is_live:
            self._terminal.piece(neutral(event.delta))
            self._shown += event.delta

    def _thinking(self, _at_ms: int, event: events.ThinkingDelta) -> None:
        if self._terminal.is_live:
            self._terminal.piece(neutral(event.delta), "quiet")

    def _message(self, _at_ms: int, event: events.ResponseComplete) -> None:
        """Show what of the whole answer did not come in pieces: a crash may have taken some."""
        whole, shown, self._shown = event.message.content, self._shown, ""
        if not self._terminal.is_live or whole == shown:
            return
        if not whole.startswith(shown):
            self._terminal.end_line()
            shown = ""
        self._terminal.piece(neutral(whole[len(shown) :]))

    def _tool_started(self, at_ms: int, event: events.ToolExecutionStart) -> None:
        self._started_ms[event.call_id] = at_ms
        self._terminal.note(f"tool {event}")

    def _tool_ended(self, at_ms: int, event: events.ToolExecutionEnd) -> None:
        started_ms = self._started_ms.pop(event.call_id, None)
        took = "" if started_ms is None else f" after {duration(max(0, at_ms - started_ms))}"
        if event.ok:
            self._terminal.note(f"tool {one_line(event.name)} done{took}")
        else:
            failure = f"tool {one_line(event.name)} failed{took}: {one_line(event.text)}"
            self._terminal.note(failure, "warning")


# Any: each takes the event of its own row.
_SPECIAL: Final[Mapping[type[events.Event], Callable[[Transcript, int, Any], None]]] = {
    events.MessageStart: Transcript._begin_message,  # noqa: SLF001 - its own table
    events.MessageDelta: Transcript._text,  # noqa: SLF001
    events.ThinkingStart: Transcript._begin_message,  # noqa: SLF001
    events.ThinkingDelta: Transcript._thinking,  # noqa: SLF001
    events.ResponseComplete: Transcript._message,  # noqa: SLF001
    events.ToolExecutionStart: Transcript._tool_started,  # noqa: SLF001
    events.ToolExecutionEnd: Transcript._tool_ended,  # noqa: SLF001
}


class JsonTranscript:
    """The view for programs: a line for each event, and the outcome as the last one."""

    def __init__(self, terminal: Terminal) -> None:
        """Write to ``terminal``."""
        self._terminal = terminal

    def take(self, envelope: Envelope) -> None:
        """Print the event with its index."""
        self._terminal.line(json_line(envelope))

    def take_down(self, down: Down) -> None:
        """Print nothing: the recovery is an event, and every line but the last one is one."""

    def finish(self, reply: Reply) -> None:
        """Print the reply."""
        self._terminal.line(json_line({"reply": reply}))

    def fail(self, error: CmdcError) -> None:
        """Print the error."""
        self._terminal.line(json_line({"error": {"code": error.code, "message": str(error)}}))
