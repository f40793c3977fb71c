"""Which events a stream shows."""

import pytest

from cmdc_runtime.client.selection import Selection
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.events import (
    AgentAbort,
    Envelope,
    Event,
    EventsLost,
    MessageDelta,
    MessageStart,
    PluginEvent,
    UnknownEvent,
)
from cmdc_runtime.extensions.actions import NAME_CHARS_MAX, BadActionError, Emit
from cmdc_runtime.extensions.plugin import Plugin

EVENTS = (
    MessageStart(),
    MessageDelta(delta="a"),
    AgentAbort(),
    PluginEvent(name="security_audit", payload={}),
    PluginEvent(name="counted", payload={}),
    UnknownEvent(name="newer", data={}),
    EventsLost(first=1, last=2),
)


def shown(types):
    envelopes = [Envelope(session_id="s", index=1, at_ms=0, event=event) for event in EVENTS]
    return [one.event.kind for one in Selection(types).of(envelopes)]


def names(types):
    return [name for name in shown(types) if name != "events_lost"]


@pytest.mark.parametrize(
    ("types", "kinds"),
    [
        (
            None,
            [
                "message_start",
                "message_delta",
                "agent_abort",
                "plugin_event",
                "plugin_event",
                "newer",
                "events_lost",
            ],
        ),
        ([], ["events_lost"]),
        ([MessageDelta, "agent_abort"], ["message_delta", "agent_abort", "events_lost"]),
        (MessageStart, ["message_start", "events_lost"]),
        ("message_start", ["message_start", "events_lost"]),
        ([UnknownEvent], ["newer", "events_lost"]),
    ],
    ids=["all", "none", "class and name", "one class", "one name", "newer ones"],
)
def test_selection_is_by_class_or_name(types, kinds):
    """Classes and names choose alike; what was lost is always shown."""
    assert shown(types) == kinds


@pytest.mark.parametrize("types", [[int], [Event], [5]])
def test_only_events_can_be_chosen(types):
    """A mistake is reported instead of showing nothing for ever."""
    with pytest.raises(InvalidOptions, match="not an event"):
        Selection(types)


def test_an_unknown_name_is_refused_with_the_nearest():
    """And with the way to choose what a plugin emits."""
    with pytest.raises(InvalidOptions) as caught:
        Selection(["agent_ended", "agent_end", "xyzzy", "plugin:", "newer"])

    assert caught.value.problems[0] == (
        "types: no event is called 'agent_ended', did you mean 'agent_end'? One that a plugin or a"
        " tool of yours emits is chosen as 'plugin:agent_ended', those of a newer daemon as"
        " UnknownEvent"
    )
    assert [line.split("'")[1] for line in caught.value.problems[1:]] == [
        "xyzzy",
        "plugin:",
        "newer",
    ]


def test_a_name_of_any_length_is_refused_in_a_line():
    """It is neither compared with all that there are, nor shown whole."""
    with pytest.raises(InvalidOptions) as caught:
        Selection(["x" * 20_000_000])

    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("name", ["", "\ud800", "a\udc00", "x" * (NAME_CHARS_MAX + 1)], ids=ascii)
def test_a_name_that_no_plugin_can_emit_is_refused(name):
    """With what is wrong with it, and no advice that would be refused, too."""
    with pytest.raises(InvalidOptions) as caught:
        Selection([f"plugin:{name}"])
    (problem,) = caught.value.problems

    assert problem.startswith("types: 'plugin:")
    assert "plugin:plugin:" not in problem
    with pytest.raises(BadActionError):
        Emit(name).sealed()


@pytest.mark.parametrize("name", ["a", "plugin:", "a b\n", "x" * NAME_CHARS_MAX], ids=ascii)
def test_a_name_that_a_plugin_can_emit_can_be_chosen(name):
    """Whatever it looks like."""
    ((emitted, _),) = Emit(name).sealed().events()
    event = Envelope(session_id="s", index=1, at_ms=0, event=PluginEvent(name=emitted, payload={}))

    assert Selection([f"plugin:{name}"]).of([event]) == [event]


def test_what_plugins_emit_is_chosen_by_its_name():
    """Ours by their catalogue, others by their ``emits``, all by the prefix."""

    class Counting(Plugin):
        emits = ("counted",)

    chosen = Selection(["counted"])
    counted = Envelope(session_id="s", index=1, at_ms=0, event=EVENTS[4])

    assert Counting.name == "counting"
    assert chosen.of([counted]) == [counted]
    assert names("security_audit") == ["plugin_event"]
    assert names("plugin:counted") == ["plugin_event"]
    assert names(["plugin:other"]) == []
    assert names(PluginEvent) == ["plugin_event"] * 2
