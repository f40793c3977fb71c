"""The catalogue of events."""

from typing import get_args

import pytest

from cmdc_runtime.events import AnyEvent, Envelope, Event, MessageDelta, UnknownEvent
from cmdc_runtime.reasons import snake

KINDS = [kind for kind in Event.__subclasses__() if kind is not UnknownEvent]
PIECES = {"message_start", "message_delta", "thinking_start", "thinking_delta"}
REPORTS = {"supervisor_report"}


def test_only_pieces_of_an_answer_and_reports_are_ephemeral():
    """Pieces come again whole, reports are in the log; everything else outlives every crash."""
    ephemeral = {kind.__struct_config__.tag for kind in KINDS if not kind.durable}

    assert ephemeral == PIECES | REPORTS


def test_every_event_has_a_name_of_its_own():
    """Its class's name in small letters."""
    names = [kind.__struct_config__.tag for kind in KINDS]

    assert names == [snake(kind.__name__) for kind in KINDS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_event_is_explained(kind):
    """The reference page is made of its docstring; it can't change once it was published."""
    assert kind.__doc__
    assert kind.__struct_config__.frozen


def test_an_event_names_its_kind():
    """That of an event from a newer daemon is the one that it gave."""
    assert MessageDelta(delta="x").kind == "message_delta"
    assert UnknownEvent(name="of_the_future", data={}).kind == "of_the_future"


def test_an_envelope_says_which_event_of_which_session():
    """Its number and its time are beside the event."""
    event = MessageDelta(delta="x")
    envelope = Envelope(session_id="s", index=3, at_ms=5, event=event)

    assert (envelope.session_id, envelope.index, envelope.at_ms) == ("s", 3, 5)
    assert envelope.event is event


def test_the_union_of_events_has_each_of_them():
    """Type checkers say by it what a match leaves out; the file to edit is events/envelope.py."""
    every = {kind for kind in Event.__subclasses__() if kind.__module__.startswith("cmdc_runtime.")}

    assert {*get_args(AnyEvent)} == every
