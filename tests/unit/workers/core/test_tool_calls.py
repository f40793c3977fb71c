"""One batch of tool calls: how it starts, which are granted, how it is answered."""

import pytest
from msgspec.structs import replace

from cmdc_runtime.events import ToolBlocked, ToolExecutionEnd
from cmdc_runtime.extensions.hooks import AfterTool
from cmdc_runtime.messages import Message, ToolCall
from tests.unit.workers.core.conftest import taken
from workers.core.conversation import UNCERTAIN_MAX, result_of, uncertain_calls
from workers.core.evolve import begin_call, end_call, open_cycle, say
from workers.core.loops import fingerprint
from workers.core.records import ToolEnded
from workers.core.state import (
    Calling,
    Compacting,
    Memory,
    OpenCall,
    QueuedPrompt,
    State,
    ToolFacts,
)
from workers.core.step import RunTools, Step, WriteRecord
from workers.core.tool_calls import (
    CallEnd,
    call_tools,
    close_call,
    end_calls,
    latest_results,
)

CALLS = (
    ToolCall(call_id="a", name="x"),
    ToolCall(call_id="b", name="y"),
    ToolCall(call_id="c", name="x"),
)
GONE = CallEnd("gone", "over")
CUT = CallEnd("cut", "over", is_cut=True)
READ, WRITE = ToolFacts("x", is_repeatable=True), ToolFacts("x")
LEAVE = fingerprint("x", {}, None)


def executing(**changed):
    opened = open_cycle(Memory(model="m"), QueuedPrompt("p-1", "go"), 1)
    return replace(say(opened, Message.assistant("", CALLS)), **changed)


def run_of(memory, calls=CALLS):
    (run,) = [one for one in taken(call_tools, memory, calls).work if isinstance(one, RunTools)]
    return run


def ended(memory, call_id):
    return end_call(memory, result_of(memory, call_id, f"of {call_id}", is_error=False))


def test_calls_run_as_one_batch():
    """They get a number of their own, and the event says how many they are."""
    memory = executing()
    step = taken(call_tools, memory, CALLS)

    assert run_of(memory) == RunTools(memory.work + 1, 0, "m", CALLS)
    assert (step.state, step.effects[0].event.count) == (State.EXECUTING_TOOLS, 3)


def test_a_batch_of_a_cycle_that_has_cost_a_process_is_suspect():
    """Its calls may be why; a later cycle begins without that."""
    memory = executing()
    crashed = replace(memory, cycle=replace(memory.cycle, crashes=1))

    assert (run_of(memory).is_suspect, run_of(crashed).is_suspect) == (False, True)


def test_a_batch_begins_without_what_an_earlier_one_waited_for():
    """Else a compaction whose call was ended would be in the way of the next one."""
    wanted = Compacting(2, "request", "a:compact")
    memory = executing(activity=Calling(wanted, is_judged=True))
    begun = taken(call_tools, memory, CALLS).memory

    assert (begun.compacting, begun.point) == (None, None)


def test_an_approval_is_for_one_call_and_an_allowed_tool_for_all():
    """The first call of those that are alike has it."""
    assert run_of(executing()).approved == frozenset()
    assert run_of(executing(granted=(LEAVE,))).approved == {"a"}
    assert run_of(executing(granted=(LEAVE, LEAVE))).approved == {"a", "c"}
    assert run_of(executing(always_approved=frozenset({("x", "")}))).approved == {"a", "c"}


def test_a_call_that_runs_again_has_its_approval():
    """It used it up when it began; another call like it has none."""
    memory = begin_call(executing(granted=(LEAVE,)), "a", 5, LEAVE)

    assert run_of(memory).approved == {"a"}


def test_open_calls_can_be_given_results():
    """The batch is whole afterwards, in call order; a second time there is nothing to do."""
    step = taken(
        end_calls, executing(), lambda open_: CallEnd(f"{open_.call.call_id} is gone", "over")
    )

    assert [said.content for said in step.memory.messages[-3:]] == [
        "a is gone",
        "b is gone",
        "c is gone",
    ]
    assert [type(one) for one in step.records] == [ToolEnded] * 3
    assert taken(end_calls, step.memory, lambda _open: GONE) == Step(step.memory)


def test_a_result_that_is_there_stays():
    """Only the open calls are given the error."""
    step = taken(end_calls, ended(executing(), "b"), lambda _open: GONE)

    assert [said.content for said in step.memory.messages[-3:]] == ["gone", "of b", "gone"]
    assert len(step.records) == 2


def test_a_call_is_reported_twice():
    """That it started, or now that it was not made, then that it is over; the record is first."""
    begun = begin_call(executing(), "a", 5)
    of_a = taken(close_call, begun, begun.calls[0], CallEnd("fine", "", ok=True)).effects
    of_b = taken(close_call, begun, begun.calls[1], GONE).effects

    assert [type(of_a[0]), *(one.event for one in of_a[1:])] == [
        WriteRecord,
        ToolExecutionEnd(name="x", call_id="a", ok=True, text="fine"),
    ]
    assert [type(of_b[0]), *(one.event for one in of_b[1:])] == [
        WriteRecord,
        ToolBlocked(name="y", call_id="b", reason="over"),
        ToolExecutionEnd(name="y", call_id="b", ok=False, text="gone"),
    ]


def test_the_latest_results_are_those_at_the_end():
    """With the names of their tools, in call order; results of earlier batches are not reported."""
    over = ended(ended(ended(executing(), "c"), "b"), "a")
    again = say(over, Message.assistant("", (ToolCall(call_id="d", name="z"),)))
    odd = say(again, Message(role="tool_result", call_id="e", content="?", is_error=True))

    assert latest_results(over) == (
        AfterTool("x", "a", "of a", is_error=False),
        AfterTool("y", "b", "of b", is_error=False),
        AfterTool("x", "c", "of c", is_error=False),
    )
    assert latest_results(ended(again, "d")) == (AfterTool("z", "d", "of d", is_error=False),)
    assert latest_results(odd) == (AfterTool("", "e", "?", is_error=True),)
    assert latest_results(again) == ()


# --- calls whose outcome nobody knows -----------------------------------------------------------


@pytest.mark.parametrize("end", [GONE, CUT], ids=["not cut", "cut"])
@pytest.mark.parametrize("began", [True, False], ids=["begun", "not begun"])
@pytest.mark.parametrize("tools", [(READ,), (WRITE,), ()], ids=["read", "write", "gone"])
def test_a_call_is_uncertain_if_it_was_cut_and_may_have_acted(end, began, tools):
    """The event, the result, and the text for the model say the same."""
    memory = executing(tools=tools)
    memory = begin_call(memory, "a", 5) if began else memory
    step = taken(close_call, memory, memory.calls[0], end)
    result = step.records[0].message
    reported = step.effects[-1].event
    expected = end.is_cut and began and tools != (READ,)

    assert reported.uncertain == expected
    assert result.metadata == ({"uncertain": True} if expected else {})
    assert reported.text == result.content
    assert ("may or may not have taken effect" in reported.text) == expected
    assert uncertain_calls(step.memory) == ((result,) if expected else ())


def test_the_newest_uncertain_calls_are_reported():
    """As many as a status has room for, whether their batch is over or not; no word of a user's."""
    marked = {"uncertain": True}
    results = tuple(
        Message(role="tool_result", content="", call_id=f"c-{number}", metadata=marked)
        for number in range(UNCERTAIN_MAX + 1)
    )
    asked = Message(role="user", content="x", metadata=marked)
    open_ = OpenCall(CALLS[0], 5, result=results[-1])
    memory = executing(messages=(asked, *results[:-1]), calls=(open_, OpenCall(CALLS[1])))

    assert uncertain_calls(memory) == results[1:]


def test_a_result_of_no_call_is_not_given_to_plugins():
    """A conversation from elsewhere may have one."""
    lost = Message(id="m-1", role="tool_result", content="?")
    known = Message.tool_result("a", "fine")
    results = latest_results(Memory(messages=(lost, known)))

    assert results == (AfterTool("", "a", "fine", False),)
