"""One batch of tool calls: how it starts, who has leave, how it is answered."""

from dataclasses import replace

from cmdc_runtime.extensions.hooks import AfterTool
from cmdc_runtime.messages import Message, ToolCall
from workers.core.batch import call_tools, give_results, latest_results
from workers.core.conversation import begin_call, end_call, open_cycle, result_of, say
from workers.core.effects import RunTools
from workers.core.loops import fingerprint
from workers.core.records import ToolEnded
from workers.core.state import Compacting, Consulting, Memory, Point, QueuedPrompt, State

CALLS = (
    ToolCall(call_id="a", name="x"),
    ToolCall(call_id="b", name="y"),
    ToolCall(call_id="c", name="x"),
)
LEAVE = fingerprint("x", {}, None)


def executing(**changed):
    opened = open_cycle(Memory(model="m"), QueuedPrompt("p-1", "go"))
    return replace(say(opened, Message.assistant("", CALLS)), **changed)


def run_of(memory, calls=CALLS):
    (run,) = [one for one in call_tools(memory, calls).effects if isinstance(one, RunTools)]
    return run


def ended(memory, call_id):
    return end_call(memory, result_of(memory, call_id, f"of {call_id}", is_error=False))


def test_calls_run_as_one_batch():
    """They get a number of their own and are told how many they are."""
    memory = executing()
    step = call_tools(memory, CALLS)

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
    memory = executing(compacting=wanted, consulting=Consulting(Point.COMPACT, wanted))
    begun = call_tools(memory, CALLS).memory

    assert (begun.compacting, begun.consulting) == (None, None)


def test_a_leave_is_for_one_call_and_an_allowed_tool_for_all():
    """The first call of those that are alike has it."""
    assert run_of(executing()).approved == frozenset()
    assert run_of(executing(allowances=(LEAVE,))).approved == {"a"}
    assert run_of(executing(allowances=(LEAVE, LEAVE))).approved == {"a", "c"}
    assert run_of(executing(always_approved=frozenset({("x", "")}))).approved == {"a", "c"}


def test_a_call_that_runs_again_has_its_leave():
    """It used it up when it began; another call like it has none."""
    memory = begin_call(executing(allowances=(LEAVE,)), "a", 5, LEAVE)

    assert run_of(memory).approved == {"a"}


def test_open_calls_can_be_given_results():
    """The batch is whole afterwards, in call order; a second time there is nothing to do."""
    memory, effects = give_results(executing(), lambda open_: f"{open_.call.call_id} is gone")

    assert [said.content for said in memory.messages[-3:]] == [
        "a is gone",
        "b is gone",
        "c is gone",
    ]
    assert [type(kept.record) for kept in effects] == [ToolEnded] * 3
    assert give_results(memory, lambda _open: "gone") == (memory, ())


def test_a_result_that_is_there_stays():
    """Only the open calls are given the error."""
    memory, effects = give_results(ended(executing(), "b"), lambda _open: "gone")

    assert [said.content for said in memory.messages[-3:]] == ["gone", "of b", "gone"]
    assert len(effects) == 2


def test_the_latest_results_are_those_at_the_end():
    """With the names of their tools, in call order; results of earlier batches are not told."""
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
