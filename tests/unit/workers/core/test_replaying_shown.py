"""What people and programs are shown of a replay."""

import msgspec
import pytest
from msgspec.structs import replace

from cmdc_runtime.commands import Abort, Prompt
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.packed_code import Packed
from workers.core.inputs import Order
from workers.core.records import Approval, CodeTaken, CycleEnded, MessageAdded, SetAside
from workers.core.replaying import (
    Difference,
    Entry,
    Unplayable,
    brief,
    of_end,
    of_left_out,
    of_step,
    play,
    whole,
)
from workers.core.state import Memory, PluginFacts, State, Steering, ToolFacts

PACKED = Packed(kind="value", label="secret", data=b"\x00code", python=(3, 11))
ENDED = CycleEnded(command_id="p-1", outcome="failed", reason="why")
ORDER = Order("a-1", Abort(), 5)


def test_a_step_is_shown_by_its_records_and_where_it_leads(session):
    """Numbers of its first and last record, what it came of and when."""
    life = session.new().prompt("go", "p-1").crash().answer("done")
    *_, step = play(life.first, life.entries)

    assert of_step(step) == {
        "kind": "step",
        "first": 3,
        "last": 5,
        "incarnation": 2,
        "at_ms": 8,
        "input": "stream_ended",
        "ref": "",
        "records": ["said", "turn_spent", "cycle_ended"],
        "stands": brief(life.memory),
    }


def test_what_came_of_no_input_has_no_time_and_is_about_nothing():
    """A process took the code that it found, before anybody said anything."""
    (step,) = play(Memory(), [Entry(1, 1, CodeTaken(code={}))])
    shown = of_step(step)

    assert (shown["input"], shown["at_ms"], shown["ref"]) == ("code_taken", 0, "")


def test_how_a_session_stands_is_shown_in_numbers(session):
    """What waits, what runs and what was spent; results that are there run no more."""
    batch = session.at(State.RUNNING).call("read:a", "write:b", "read:c").end("a")
    batch = batch.give(Prompt(text="more"), "p-2")
    memory = replace(
        batch.memory,
        steering=(Steering("s-1", "left"), Steering("s-2", "right")),
        approvals=(
            Approval(id="approval-3", call_id="b", tool="write", args={}, requested_at_ms=1),
        ),
        usage=TokenUsage(total_tokens=7, cost_usd=0.5),
    )

    assert brief(memory) == {
        "state": "executing_tools",
        "turn": 1,
        "queue": 3,
        "calls": 2,
        "approvals": 1,
        "messages": 2,
        "tokens": 7,
        "cost_usd": 0.5,
    }


@pytest.mark.parametrize(
    ("recorded", "now"), [(ENDED, None), (None, ENDED), (ENDED, MessageAdded(message=None))]
)
def test_a_difference_is_shown_with_both_records(recorded, now):
    """Without what they came of, which stands beside them."""
    shown = of_end(Difference(4, "order", ORDER, recorded, now))
    records = {"recorded": recorded, "now": now}

    assert shown == {
        "kind": "difference",
        "number": 4,
        "at_ms": 5,
        "input": "order",
        "ref": "a-1",
        **{name: one and _without_cause(one) for name, one in records.items()},
    }


def _without_cause(record):
    written = msgspec.to_builtins(record)
    return {name: value for name, value in written.items() if name != "input"}


def test_what_cannot_be_played_is_shown_with_its_number():
    """And why."""
    shown = of_end(Unplayable(4, "why not"))

    assert shown == {"kind": "unplayable", "number": 4, "why": "why not"}


def test_what_is_left_out_is_shown_with_what_goes_with_it():
    """Its name in the journal, why, and how many records were decided on it."""
    shown = of_left_out(SetAside(digest="5e94", what="snapshot", why="it kills"), 5)

    assert shown == {
        "kind": "set_aside",
        "what": "snapshot",
        "digest": "5e94",
        "why": "it kills",
        "passed_over": 5,
    }


def test_of_code_only_names_are_shown(session):
    """And of plugins' states how large they are: all else is there as it is."""
    memory = replace(
        session.new().prompt("go", "p-1").answer("done").memory,
        tools=(ToolFacts("mine", packed=PACKED),),
        plugins=(PluginFacts("guard", frozenset(), PACKED),),
        plugin_states=(("guard", b"\x81state"),),
    )
    shown = whole(memory)

    assert (shown["state"], shown["tools"], shown["plugins"]) == ("idle", ["mine"], ["guard"])
    assert shown["plugin_states"] == {"guard": 6}
    assert [said["content"] for said in shown["messages"]] == ["go", "done"]
