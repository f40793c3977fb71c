"""Which events a stream shows."""

import pytest

from cmdc_runtime.client.feed import Selection
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.events import (
    AgentAbort,
    Envelope,
    Event,
    EventsLost,
    MessageDelta,
    MessageStart,
    UnknownEvent,
)

EVENTS = (
    MessageStart(),
    MessageDelta(delta="a"),
    AgentAbort(),
    UnknownEvent(name="newer", data={}),
    EventsLost(first=1, last=2),
)


def shown(types):
    envelopes = [Envelope(session_id="s", index=1, at_ms=0, event=event) for event in EVENTS]
    return [one.event.kind for one in Selection(types).of(envelopes)]


@pytest.mark.parametrize(
    ("types", "kinds"),
    [
        (None, ["message_start", "message_delta", "agent_abort", "newer", "events_lost"]),
        ([], ["events_lost"]),
        ([MessageDelta, "agent_abort"], ["message_delta", "agent_abort", "events_lost"]),
        (MessageStart, ["message_start", "events_lost"]),
        ("newer", ["newer", "events_lost"]),
        ([UnknownEvent], ["newer", "events_lost"]),
    ],
    ids=["all", "none", "class and name", "one class", "one name", "newer ones"],
)
def test_selection_is_by_class_or_name(types, kinds):
    """Classes and names choose alike; what was lost is always told."""
    assert shown(types) == kinds


@pytest.mark.parametrize("types", [[int], [Event], [5]])
def test_only_events_can_be_chosen(types):
    """A mistake is told instead of showing nothing for ever."""
    with pytest.raises(InvalidOptions, match="not an event"):
        Selection(types)
