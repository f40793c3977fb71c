"""What a new process makes of the journal that it finds."""

import msgspec
import pytest
from msgspec.structs import replace

from cmdc_runtime.events import (
    AgentAbort,
    AgentEnd,
    AgentRecovered,
    RecordSetAside,
    StreamReset,
    ToolExecutionEnd,
)
from cmdc_runtime.messages import Message, TokenUsage, ToolCall
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.process import DAEMON_RESTARTED
from cmdc_runtime.reasons import Other, Signal
from cmdc_runtime.subagent import CLIENT_TOOL
from workers.core.budget import Grant
from workers.core.children import Child
from workers.core.conversation import repair, tool_names, uncertain_calls
from workers.core.evolve import EVOLVE, rebuild
from workers.core.loops import fingerprint
from workers.core.records import (
    RECORDS,
    ApprovalDecided,
    ApprovalRequested,
    AttachedTool,
    CallKept,
    Compacted,
    CycleEnded,
    CycleStarted,
    MessageAdded,
    ModelChanged,
    Noted,
    PluginsChanged,
    PromptDiscarded,
    PromptQueued,
    Resumed,
    RunStep,
    Steered,
    SubagentSpawned,
    SubagentSpent,
    TodosChanged,
    ToolEnded,
    ToolsChanged,
    ToolStarted,
    ToolStepRecorded,
    TurnSpent,
    UserAnswered,
    UserAsked,
)
from workers.core.recovery import drop_cycle, resume
from workers.core.state import Memory, PendingAsk, PluginFacts, Policy, State, Steering, ToolFacts
from workers.core.step import (
    AskPlugins,
    CallModel,
    CountSubagents,
    Publish,
    RunTools,
    Step,
    WriteRecord,
)
from workers.core.tool_calls import may_have_acted

KILLED = Signal(number=9, name="SIGKILL")
TOOLS = (ToolFacts("read", is_repeatable=True), ToolFacts("write"))
STARTED = CycleStarted(command_id="p-1", text="go", at_ms=1)
ASKING = MessageAdded(
    message=Message.assistant(
        "", (ToolCall(call_id="r", name="read"), ToolCall(call_id="w", name="write"))
    )
)
DONE = MessageAdded(message=Message.assistant("done"))
GIVEN = MessageAdded(message=Message(role="user", content="left", metadata={"steering": ["s-1"]}))
NEXT = PromptQueued(command_id="p-2", text="next")
USED = TokenUsage(prompt_tokens=3, total_tokens=3)
LEAVE = fingerprint("write", {}, None)
WANTED = ApprovalRequested(id="approval-4", call_id="w", tool="write", args={}, requested_at_ms=5)
APPROVED = ApprovalDecided(approval_id="approval-4", decision="approve_once")
CHILD = SubagentSpawned(child_id="s.1", call_id="w", ref="w:sub-1", tokens=5)
OVER = CycleEnded(command_id="p-1", outcome="finished")


def memory_of(*records, **policy):
    plugins = (PluginFacts("p", policy.pop("hooks", frozenset())),)
    first = Memory(policy=Policy(**policy), plugins=plugins, model="m", tools=TOOLS)
    return rebuild(first, records)


def resumed(*records, **policy):
    return resume(memory_of(*records, **policy), 2, KILLED, 9)


def began(call_id, granted=None):
    return ToolStarted(call_id=call_id, at_ms=5, granted=granted)


def ended(call_id):
    return ToolEnded(message=Message.tool_result(call_id, "fine"))


def of(step, kind):
    return [effect for effect in step.effects if isinstance(effect, kind)]


def events(step, kind):
    return [reported.event for reported in of(step, Publish) if isinstance(reported.event, kind)]


def kept(step):
    return [effect.record for effect in of(step, WriteRecord)]


def said_of(step):
    return events(step, AgentRecovered)[0].resumed


# --- replay -------------------------------------------------------------------------------------


def test_every_record_is_folded():
    """A record without a row would be lost at the next crash."""
    missing = set(RECORDS) - set(EVOLVE)

    assert missing == set(), f"{missing} -> add a row in workers/core/evolve.py"


def test_a_conversation_becomes_a_memory():
    """What was said, called, queued and dropped leaves its mark."""
    memory = memory_of(
        STARTED,
        Resumed(incarnation=2),
        NEXT,
        PromptQueued(command_id="p-3", text="never"),
        PromptDiscarded(command_id="p-3"),
        Steered(ref="s-1", text="left"),
        ASKING,
        TurnSpent(usage=USED),
        began("w"),
        ended("r"),
        TodosChanged(todos=({"content": "sow"},)),
    )

    assert [said.role for said in memory.messages] == ["user", "assistant"]
    assert (memory.cycle.crashes, memory.cycle.turns, memory.turns) == (1, 1, 1)
    assert (memory.usage, memory.latest_prompt, memory.context) == (USED, "p-3", (3, 2))
    assert [queued.command_id for queued in memory.queue] == ["p-2"]
    assert memory.steering == (Steering("s-1", "left"),)
    assert [(call.started_at_ms, call.result is None) for call in memory.calls] == [
        (None, False),
        (5, True),
    ]
    assert [seen.outcome for seen in memory.outcomes] == ["dropped"]
    assert memory.todos == ({"content": "sow"},)
    assert len(memory.call_hashes) == 2


def test_steering_that_was_given_waits_no_more():
    """Between turns, and as the prompt of a cycle of its own."""
    opened = CycleStarted(
        command_id="s-2", text="right", at_ms=2, metadata={"steering": ["s-2", "s-3"]}
    )
    steered = tuple(Steered(ref=f"s-{number}", text="x") for number in (1, 2, 3))

    assert [one.ref for one in memory_of(STARTED, *steered, GIVEN).steering] == ["s-2", "s-3"]
    assert memory_of(STARTED, *steered, GIVEN, OVER, opened).steering == ()


def test_what_people_decided_survives():
    """An approval that waits, one that was granted, one that is used up, a question's answer."""
    asked = (STARTED, ASKING, UserAsked(ref="r:ask-1", call_id="r"))
    answer = UserAnswered(ref="r:ask-1", response="x")
    waiting = memory_of(*asked, WANTED)
    given = memory_of(*asked, answer, WANTED, APPROVED)
    used = memory_of(*asked, WANTED, APPROVED, began("w", LEAVE))

    assert [one.id for one in waiting.approvals] == ["approval-4"]
    assert waiting.cycle.is_blocked
    assert (waiting.asks, waiting.answers) == ((PendingAsk("r:ask-1", "r"),), ())
    assert (given.asks, given.answers) == ((), ((PendingAsk("r:ask-1", "r"), "x"),))
    assert (given.approvals, given.granted, used.granted) == ((), (LEAVE,), ())


def test_settings_survive():
    """Tools that came and went, and the model."""
    packed = Packed(kind="ref", label="new", ref="tools:new")
    tool = AttachedTool(name="new", is_repeatable=True, isolation="task", packed=packed)
    memory = memory_of(
        ToolsChanged(attached=(tool,), detached=("read",)),
        ModelChanged(model="y:n", provider_opts={"seed": 1}),
    )

    assert [found.name for found in memory.tools] == ["write", "new"]
    assert memory.tool("new").packed == packed
    assert (memory.model, memory.provider_opts) == ("y:n", {"seed": 1})


def test_a_compaction_is_done_once():
    """Its summary stands where the messages stood, and was paid for."""
    summary = Message(id="m-2-summary", role="user", content="short")
    memory = memory_of(STARTED, DONE, Compacted(evicted=2, summary=summary, usage=USED))

    assert (memory.messages, memory.base, memory.usage) == ((summary,), 1, USED)


def test_subagents_survive_until_they_are_counted():
    """What they may spend is reserved; what they used is their parent's."""
    spent = SubagentSpent(child_id="s.1", usage=USED)
    running = memory_of(STARTED, ASKING, CHILD)
    over = memory_of(STARTED, ASKING, CHILD, spent, spent)

    assert running.children == (Child("s.1", "w", "w:sub-1", Grant(5)),)
    assert (over.children, over.spawns, over.usage) == ((), 1, USED)


def test_replay_starts_from_the_memory_that_is_given():
    """The history that a session was created with comes before its own."""
    first = Memory(messages=(Message.user("before"), Message.assistant("yes")))
    memory = rebuild(first, [STARTED])

    assert memory.cycle.first == 2
    assert memory == rebuild(replace(first), [STARTED])


# --- resume -------------------------------------------------------------------------------------


def test_an_idle_session_stays_idle():
    """The end of a cycle is final, and a note of a crash at rest counts nothing."""
    step = resumed(STARTED, DONE, OVER, Resumed(incarnation=2))

    assert (step.state, kept(step), said_of(step)) == (State.IDLE, [], "idle")
    assert len(step.effects) == 1


def test_a_prompt_that_was_queued_at_rest_gets_its_cycle():
    """The process died between one cycle and the next."""
    step = resumed(STARTED, DONE, NEXT, OVER)

    assert (step.state, step.memory.cycle.command_id) == (State.RUNNING, "p-2")


@pytest.mark.parametrize("before", [(), (DONE,)], ids=["first", "later"])
def test_a_request_is_sent_again(before):
    """Observers discard what they saw of it; the prompt is asked as if nothing had been."""
    first = (STARTED, *before, CycleEnded(command_id="p-1", outcome="failed")) if before else ()
    step = resumed(*first, CycleStarted(command_id="p-9", text="well?", at_ms=2))
    (call,) = of(step, CallModel)

    assert (step.state, said_of(step)) == (State.RUNNING, "stream")
    assert call.messages[-1].content == "well?"
    assert kept(step) == [Resumed(incarnation=2)]
    assert len(events(step, StreamReset)) == 1


def test_an_answer_that_is_whole_is_not_taken_back():
    """The process died while plugins were asked about it: no other answer comes in its place."""
    step = resumed(STARTED, DONE)

    assert (step.state, said_of(step)) == (State.IDLE, "stream")
    assert events(step, StreamReset) == []
    assert [event.messages[-1].content for event in events(step, AgentEnd)] == [
        DONE.message.content
    ]


def test_steering_that_waits_is_given_with_the_request():
    """It is not lost with the process that took it."""
    step = resumed(STARTED, Steered(ref="s-1", text="left"))

    assert of(step, CallModel)[0].messages[-1].content == "left"
    assert step.memory.steering == ()


def test_an_answer_that_is_there_is_not_asked_for_again():
    """Only the end of the cycle was missing."""
    step = resumed(STARTED, DONE)

    assert of(step, CallModel) == []
    assert (step.state, len(events(step, AgentEnd))) == (State.IDLE, 1)
    assert [seen.outcome for seen in step.memory.outcomes] == ["finished"]


def test_plugins_hear_again_of_a_prompt_that_was_not_answered():
    """A guard is not passed by because the process died while it was asked."""
    hooks = frozenset({"before_prompt"})
    first = resumed(STARTED, hooks=hooks)
    later = resumed(STARTED, Steered(ref="s-1", text="x"), GIVEN, hooks=hooks)

    assert [one.hook.text for one in of(first, AskPlugins)] == ["go"]
    assert (of(later, AskPlugins), len(of(later, CallModel))) == ([], 1)


def test_what_plugins_said_survives():
    """Their states, and what the model has not been given."""
    memory = memory_of(Noted(notes=("mind",)), PluginsChanged(states={"p": b"1"}))

    assert (memory.notes, memory.plugin_states) == (("mind",), (("p", b"1"),))


def test_an_answer_in_the_wrong_form_is_still_asked_for_once():
    """The wish that was made before the crash counts."""
    wish = MessageAdded(message=Message(role="user", content="again", metadata={"repair": True}))
    policy = {"response_format": {"type": "integer"}}
    first = resumed(STARTED, DONE, **policy)
    second = resumed(STARTED, DONE, wish, DONE, **policy)

    assert len(of(first, CallModel)) == 1
    assert [seen.outcome for seen in second.memory.outcomes] == ["failed"]


def test_calls_that_never_started_run():
    """Nothing was done yet, so even a write may."""
    step = resumed(STARTED, ASKING)

    assert [call.call_id for call in of(step, RunTools)[0].calls] == ["r", "w"]
    assert (step.state, said_of(step)) == (State.EXECUTING_TOOLS, "tools")


def test_only_a_repeatable_call_runs_again():
    """The other one may have taken effect: its result says so, and it is never run again."""
    step = resumed(STARTED, ASKING, began("r"), began("w"))
    (reported,) = events(step, ToolExecutionEnd)
    (note, result) = kept(step)

    assert said_of(step) == "tools"
    assert [call.call_id for call in of(step, RunTools)[0].calls] == ["r"]
    assert (reported.call_id, reported.ok) == ("w", False)
    assert "may or may not" in result.message.content
    assert (note, result.message.is_error) == (Resumed(incarnation=2), True)


def test_a_call_of_a_tool_that_is_gone_does_not_run_again():
    """Nobody knows whether it may."""
    step = resumed(STARTED, ASKING, ToolsChanged(detached=("read",)), began("r"))

    assert [reported.call_id for reported in events(step, ToolExecutionEnd)] == ["r"]


@pytest.mark.parametrize(("ref", "again"), [(CLIENT_TOOL, ["w"]), ("m:write", [])])
def test_a_call_that_a_program_makes_is_asked_for_again(ref, again):
    """It makes each call once, whoever asks how often; nobody else does."""
    packed = Packed(kind="ref", label="write", ref=ref)
    tool = AttachedTool(name="write", is_repeatable=False, isolation="task", packed=packed)
    changed = ToolsChanged(attached=(tool,), detached=("write",))
    step = resumed(STARTED, ASKING, changed, began("r"), ended("r"), began("w"))

    assert [call.call_id for one in of(step, RunTools) for call in one.calls] == again


def test_an_approval_that_was_not_used_is_still_good():
    """The call that had not begun needs nobody; one that had used it up does not run again."""
    allowed = (STARTED, ASKING, WANTED, APPROVED)
    fresh, used = resumed(*allowed), resumed(*allowed, began("w", LEAVE))

    assert of(fresh, RunTools)[0].approved == {"w"}
    assert of(used, RunTools)[0].approved == frozenset()
    assert [call.call_id for call in of(used, RunTools)[0].calls] == ["r"]


def test_a_batch_that_is_over_asks_the_model():
    """Of one result and one uncertain call nothing is left to run."""
    step = resumed(STARTED, ASKING, began("r"), began("w"), ended("r"))

    assert of(step, RunTools) == []
    assert [said.call_id for said in of(step, CallModel)[0].messages[-2:]] == ["r", "w"]


@pytest.mark.parametrize("left", [(), (began("w"),)], ids=["over", "uncertain"])
def test_a_batch_that_waits_for_a_person_rests(left):
    """After a crash too: the model is not asked before somebody decided."""
    last = left or (ended("w"),)
    step = resumed(STARTED, ASKING, WANTED, *last, ended("r"))

    assert (step.state, of(step, CallModel)) == (State.IDLE, [])
    assert [one.id for one in step.memory.approvals] == ["approval-4"]


def test_a_finished_call_is_not_run_again():
    """Its result is there."""
    step = resumed(STARTED, ASKING, began("w"), ended("w"))

    assert [call.call_id for call in of(step, RunTools)[0].calls] == ["r"]
    assert events(step, ToolExecutionEnd) == []


def test_subagents_of_the_process_before_are_counted():
    """They ended with it: nobody waits for them, but what they used is asked for."""
    busy, resting = resumed(STARTED, ASKING, CHILD), resumed(STARTED, ASKING, CHILD, OVER)

    assert busy.effects[-1] == resting.effects[-1] == CountSubagents(("s.1",))
    assert [child.ref for child in busy.memory.children] == [None]


@pytest.mark.parametrize("records", [(), (ASKING, began("w"))], ids=["asking", "in tools"])
def test_a_cycle_that_kills_its_process_is_aborted(records):
    """The second crash of one cycle is the last: the history is whole, the next prompt runs."""
    crash = Resumed(incarnation=2)
    once = resumed(STARTED, NEXT, *records, max_cycle_crashes=2)
    twice = resumed(STARTED, NEXT, *records, crash, max_cycle_crashes=2)
    (aborted,) = events(twice, AgentAbort)

    assert events(once, AgentAbort) == []
    assert aborted.reason == f"crashed({KILLED})"
    assert aborted.command_id == "p-1"
    assert of(twice, RunTools) == []
    assert twice.memory.cycle.command_id == "p-2"
    assert repair(twice.memory.messages) == twice.memory.messages


KEPT = CallKept(call_id="w", content=b"here", asked=2)


@pytest.mark.parametrize(
    ("kept", "goes_on"),
    [((KEPT,), True), ((KEPT, msgspec.structs.replace(KEPT, content=b"", asked=0)), False)],
)
def test_a_call_goes_on_with_what_it_has_kept(kept, goes_on):
    """Whatever its tool does; one that has gone on from there may have acted."""
    died = resumed(STARTED, NEXT, ASKING, began("w"), *kept, ended("r"))
    runs = of(died, RunTools)

    assert [call.call_id for run in runs for call in run.calls] == (["w"] if goes_on else [])
    assert [dict(run.kept) for run in runs] == ([{"w": (b"here", 2)}] if goes_on else [])
    assert bool(events(died, ToolExecutionEnd)) is not goes_on


def test_a_call_that_is_cut_while_it_has_something_kept_has_not_acted():
    """It is aborted, and is not uncertain."""
    memory = resumed(STARTED, NEXT, ASKING, began("w"), KEPT, ended("r")).memory
    (open_,) = [one for one in memory.calls if one.call.call_id == "w"]

    assert not may_have_acted(memory, open_)
    assert may_have_acted(memory, replace(open_, kept=b""))


ASKS = RunStep(run_id="r@1", strategy="tree", asked="b1")
CAME = RunStep(run_id="r@1", strategy="tree", come="b1")


def reasoning(*steps, crashed=Resumed(incarnation=2), also=()):  # noqa: B008 - it is frozen
    """Return a session whose call has reported these of its run, before a death and after it."""
    reported = [ToolStepRecorded(call_id="r", step=one) for one in steps]
    other = () if also else (ended("w"),)
    return resumed(
        *(STARTED, NEXT, ASKING, began("r"), *also, *other, reported[0], crashed, *reported[1:]),
        max_cycle_crashes=2,
    )


def test_a_run_that_gains_thoughts_goes_on_after_each_death():
    """Each answer of a branch is one: what died before it is not to blame for what comes."""
    for steps in ((ASKS, CAME), (ASKS, CAME, msgspec.structs.replace(ASKS, asked="b2"))):
        gained = reasoning(*steps)

        assert events(gained, AgentAbort) == []
        assert [call.call_id for call in of(gained, RunTools)[0].calls] == ["r"]
        assert gained.memory.cycle.crashes == 1


@pytest.mark.parametrize(("call_id", "aborts"), [("w", 0), ("r", 1)])
def test_a_run_gains_nothing_by_the_name_of_another_runs_branch(call_id, aborts):
    """Each call has its own names: what it reports of one of the other's is no answer."""
    of_w = msgspec.structs.replace(ASKS, asked="c1")
    came_c1 = msgspec.structs.replace(CAME, come="c1")
    died = resumed(
        *(STARTED, NEXT, ASKING, began("r"), began("w")),
        ToolStepRecorded(call_id="r", step=ASKS),
        ToolStepRecorded(call_id="w", step=of_w),
        Resumed(incarnation=2),
        ToolStepRecorded(call_id=call_id, step=came_c1),
        max_cycle_crashes=2,
    )

    assert len(events(died, AgentAbort)) == aborts


@pytest.mark.parametrize(
    ("steps", "also"),
    [
        ((ASKS,), ()),
        ((ASKS, msgspec.structs.replace(ASKS, asked="b2")), ()),
        ((ASKS, msgspec.structs.replace(CAME, is_no_answer=True)), ()),
        ((ASKS, msgspec.structs.replace(CAME, come="own")), ()),
        ((ASKS, CAME), (began("w"),)),
    ],
    ids=["nothing", "asks", "fails", "its own thought", "beside another call"],
)
def test_one_that_gains_none_is_given_up(steps, also):
    """As any cycle that kills its process; so is one whose other call may be what kills it."""
    (aborted,) = events(reasoning(*steps, also=also), AgentAbort)

    assert aborted.reason == f"crashed({KILLED})"


def test_crashes_are_counted_for_each_cycle():
    """The next prompt is not to blame for the one before."""
    step = resumed(STARTED, Resumed(incarnation=2), NEXT, max_cycle_crashes=2)

    assert (step.memory.cycle.command_id, step.memory.cycle.crashes) == ("p-2", 0)


def test_a_daemon_that_was_restarted_charges_no_cycle():
    """The process ended with its daemon, not because of what it was doing."""
    memory = memory_of(STARTED, Resumed(incarnation=2, is_blamed=False), max_cycle_crashes=1)
    step = resume(memory, 3, Other(detail=DAEMON_RESTARTED), 9)

    assert memory.cycle.crashes == step.memory.cycle.crashes == 0
    assert events(step, AgentAbort) == []


def test_the_turns_of_a_cycle_stay_bounded_across_a_crash():
    """Turns that were used before it count."""
    spent = TurnSpent(usage=TokenUsage())
    step = resumed(STARTED, ASKING, spent, ended("r"), ended("w"), max_turns=1)

    assert events(step, AgentAbort)[0].reason == "max_turns_exceeded"


def test_a_write_call_that_was_cut_short_is_uncertain():
    """Its result says so, wherever it is looked for; one that may run again is made again."""
    call = ToolCall(call_id="a", name="deploy")
    said = Message(id="m-2", role="assistant", tool_calls=(call,))
    memory = rebuild(
        Memory(),
        (
            CycleStarted(command_id="p-1", text="go", at_ms=1),
            MessageAdded(message=said),
            ToolStarted(call_id="a", at_ms=2),
        ),
    )
    step = resume(memory, 2, KILLED, 3)
    ended = [
        effect.event
        for effect in step.effects
        if isinstance(effect, Publish) and isinstance(effect.event, ToolExecutionEnd)
    ]

    assert [(one.call_id, one.ok, one.uncertain) for one in ended] == [("a", False, True)]
    assert [one.call_id for one in uncertain_calls(step.memory)] == ["a"]
    assert tool_names(step.memory) == {"a": "deploy"}


def test_a_cycle_that_no_process_lives_through_is_given_up():
    """Its calls end as what they are: one was under way, the other was never made."""
    step = drop_cycle(memory_of(STARTED, NEXT, ASKING, began("w")), "it kills", 9)
    (aborted,) = events(step, AgentAbort)
    ends = {one.call_id: one for one in events(step, ToolExecutionEnd)}

    assert step.effects[0] == Publish(RecordSetAside(what="cycle", why="it kills"))
    assert (aborted.reason, len(events(step, StreamReset))) == ("crashed(it kills)", 1)
    assert {call_id: one.uncertain for call_id, one in ends.items()} == {"r": False, "w": True}
    assert "was not made: the cycle was given up" in ends["r"].text
    assert "the process died while this call ran" in ends["w"].text
    assert step.memory.cycle.command_id == "p-2"
    assert repair(step.memory.messages) == step.memory.messages


def test_where_no_cycle_runs_there_is_none_to_give_up():
    """What was set aside is published, and the session rests where nothing waits."""
    memory = memory_of(STARTED, DONE, OVER)
    reported = Publish(RecordSetAside(what="cycle", why="it kills"))

    assert drop_cycle(memory, "it kills", 9) == Step(memory, [reported])


def test_what_waits_is_begun_though_going_on_was_set_aside():
    """Nobody has to send another prompt before the one that was accepted has its turn."""
    step = drop_cycle(memory_of(STARTED, NEXT, DONE, OVER), "it kills", 9)

    assert step.memory.cycle is not None
    assert (step.memory.cycle.command_id, step.memory.queue) == ("p-2", ())
