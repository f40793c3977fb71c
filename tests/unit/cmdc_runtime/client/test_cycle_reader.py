"""How a reader of one cycle ends, with and without the event of its end."""

import pytest

from cmdc_runtime import events
from cmdc_runtime.client.cycle import Clock, CycleEvents, CycleReader, OpenedCycle, Pieces
from cmdc_runtime.commands import CycleResult
from cmdc_runtime.errors import AgentAborted, UsageError
from cmdc_runtime.events import Envelope
from cmdc_runtime.ids import CommandId, SessionId

MINE = CommandId("c-1")
ABORTED = CycleResult(outcome="aborted", reason="enough")
STARTS = events.AgentStart(command_id=MINE)
ENDS = events.AgentAbort(reason="enough", command_id=MINE)


def ended(view, *heard, is_finished):
    """Return what is raised at the end of these events; ``is_finished``: the stream ends, too."""
    opened = OpenedCycle(SessionId("s-1"), MINE, subscription=None, result=ABORTED)
    reader = CycleReader(opened, view, Clock(None))
    for number, event in enumerate(heard):
        reader.take(Envelope(session_id="s-1", index=number + 1, at_ms=0, event=event))
    if is_finished:
        assert reader.fail(UsageError("the cycle is over")) is None
    return reader.end()


@pytest.mark.parametrize(
    ("view", "heard", "is_raised"),
    [
        (CycleEvents(), (STARTS, ENDS), False),
        (CycleEvents(), (STARTS,), True),
        (Pieces(), (STARTS, ENDS), True),
        (Pieces(), (STARTS,), True),
    ],
)
def test_an_end_is_raised_unless_its_event_was_shown(view, heard, is_raised):
    """Also where the session was asked, since events were lost, and the event came all the same."""
    error = ended(view, *heard, is_finished=ENDS not in heard)

    assert isinstance(error, AgentAborted) == is_raised
