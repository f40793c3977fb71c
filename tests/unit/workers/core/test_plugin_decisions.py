"""What becomes of plugins' words: the cycle goes on from where it waits for them, or ends."""

import ast
from pathlib import Path

import pytest

from cmdc_runtime.commands import Abort, Steer, SteerReceipt
from cmdc_runtime.errors import SteeringRejected
from cmdc_runtime.events import (
    AgentAbort,
    AgentEnd,
    SteeringReceived,
    ToolBlocked,
    ToolExecutionEnd,
    ToolKilled,
)
from cmdc_runtime.extensions.hooks import (
    AfterResponse,
    AfterToolBatch,
    BeforeCompact,
    BeforeFinish,
    BeforePrompt,
    BeforeRequest,
    BeforeSteering,
    kind_of,
)
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.messages import Message
from cmdc_runtime.reasons import PluginAborted
from workers.core import cycle
from workers.core.conversation import NOTES, repair
from workers.core.inputs import (
    PluginsAborted,
    PluginsAnswered,
    PluginsReported,
    SteeringAnswered,
    StreamFailed,
    SubagentWanted,
    ToolRefused,
)
from workers.core.records import MessageAdded, Noted, Steered, ToolEnded
from workers.core.state import Memory, State
from workers.core.step import (
    AskAboutSteering,
    AskPlugins,
    CallModel,
    CancelCalls,
    Complete,
    EndSubagents,
    ExitProcess,
    RunTools,
    Summarize,
)
from workers.core.verdict import Aborted, Verdict

NO = Verdict(abort=Aborted("guard", "no"))
MIND = Verdict(interventions=("mind the gap",))
OLD = tuple(Message(id=f"old-{n}", role="user", content="old " * 10) for n in range(12))
STEER = Steer(text="left")


def prompted(session, *hooks, memory=None, **policy):
    """Return a session that was given a prompt, whose plugins listen to ``hooks``."""
    listening = frozenset(map(kind_of, hooks))
    return session.new(memory, hooks=listening, **policy).prompt("go", "p-1")


def heard(session, verdict=None):
    return session.report(PluginsAnswered, verdict or Verdict(), 9)


LIVES = {
    "before_prompt": lambda session: prompted(session, BeforePrompt),
    "before_request": lambda session: prompted(session, BeforeRequest),
    "after_response": lambda session: prompted(session, AfterResponse).call("read:a", "write:b"),
    "after_tool_batch": lambda session: prompted(session, AfterToolBatch).call("read:a").end("a"),
    "before_finish": lambda session: prompted(session, BeforeFinish).answer("done"),
    "before_compact": lambda session: prompted(
        session,
        BeforeCompact,
        memory=Memory(model="x:m", messages=OLD),
        window_of=lambda _model: 100,
    ),
}
"""How a session comes to wait for plugins at each hook that a cycle waits at."""


def waits(session, point):
    """Return a session whose cycle waits for plugins at ``point``."""
    return LIVES[point](session)


POINTS = [kind_of(hook) for hook in cycle._CONTINUATIONS]
every_point = pytest.mark.parametrize("point", POINTS)


def asked_for():
    """Return the names of the hooks that the tables have a cycle wait at."""
    sources = (path.read_text("utf-8") for path in Path(cycle.__file__).parent.glob("*.py"))
    calls = (node for source in sources for node in ast.walk(ast.parse(source)))
    for node in calls:
        match node:
            case ast.Call(
                func=ast.Name("ask_plugins"), args=[_, ast.Call(func=ast.Name(name)), *_]
            ):
                yield name
            case ast.Call(func=ast.Name("ask_plugins")):
                yield f"{ast.unparse(node)}: name the class of the hook in the call"


def test_every_hook_is_gone_on_from():
    """A hook without a row would be waited at for ever."""
    rows = {hook.__name__ for hook in cycle._CONTINUATIONS}

    assert set(asked_for()) == rows, "-> a row of _CONTINUATIONS in workers/core/cycle.py"


@every_point
def test_a_cycle_waits_for_its_plugins(session, point):
    """Nothing else is under way; they are asked under the current number."""
    before = waits(session, point)
    (asked,) = before.of(AskPlugins)

    assert (before.state, before.memory.point) == (State.RUNNING, point)
    assert asked.work == before.memory.work
    assert before.of(CallModel) == before.of(RunTools) == before.of(Summarize) == []


@pytest.mark.parametrize(
    ("point", "effect"),
    [
        ("before_prompt", CallModel),
        ("before_request", CallModel),
        ("after_response", RunTools),
        ("after_tool_batch", CallModel),
        ("before_compact", Summarize),
    ],
)
def test_a_cycle_goes_on_when_they_have_answered(session, point, effect):
    """With what it waited to do."""
    after = heard(waits(session, point))

    assert len(after.of(effect)) == 1
    assert after.memory.point is None


def test_a_cycle_finishes_when_they_have_nothing_to_add(session):
    """Its end is published then, and not before."""
    before = waits(session, "before_finish")
    after = heard(before)

    assert before.events(AgentEnd) == []
    assert (after.state, len(after.events(AgentEnd))) == (State.IDLE, 1)


@every_point
def test_what_they_say_to_the_model_is_given_at_the_next_gap(session, point):
    """It is written down when they say it, and once more when the model is given it."""
    before = waits(session, point)
    after = heard(before, MIND)
    noted = after.records(Noted)
    if point == "after_response":
        after = after.end("a", "b")
    if point == "before_compact":
        assert after.memory.notes == MIND.interventions
        return
    given = after.memory.messages[-1]

    assert noted == [Noted(notes=MIND.interventions)]
    assert (given.role, given.content, given.metadata) == ("user", "mind the gap", {NOTES: True})
    assert MessageAdded(message=given) in after.records()
    assert after.of(CallModel)[0].messages[-1] == given
    assert after.memory.notes == ()


@every_point
def test_a_plugin_may_end_the_cycle(session, point):
    """Open calls are not made; the history stays valid and the next prompt has its turn."""
    after = heard(waits(session, point).prompt("then", "p-2"), NO)

    assert [event.reason for event in after.events(AgentAbort)] == ["no"]
    assert [seen.reason for seen in after.memory.outcomes] == ["no"]
    assert after.memory.cycle.command_id == "p-2"
    assert repair(after.memory.messages) == after.memory.messages


def test_a_plugins_abort_may_end_the_process(session):
    """Where the options say so."""
    before = prompted(session, BeforePrompt, exit_on=frozenset({"plugin_aborted"}))
    after = heard(before.prompt("then", "p-2"), NO)

    assert after.effects[-1] == ExitProcess(PluginAborted(plugin="guard", why="no"))
    assert (after.state, after.of(CallModel)) == (State.IDLE, [])


@every_point
def test_an_abort_does_not_wait_for_plugins(session, point):
    """What they say then is late; calls that were not run yet get results."""
    aborted = waits(session, point).give(Abort())
    after = aborted.report(PluginsAnswered, NO, 9)

    assert (aborted.state, aborted.memory.point) == (State.IDLE, None)
    assert repair(aborted.memory.messages) == aborted.memory.messages
    assert after.is_unchanged(aborted)


def test_an_answer_that_nobody_waits_for_changes_nothing(session):
    """Not for a request that is under way."""
    before = session.at(State.RUNNING)

    assert heard(before, NO).is_unchanged(before)


@every_point
def test_plugins_are_asked_again_after_a_crash(session, point):
    """A guard is not passed by because the process died while it was thinking."""
    before = waits(session, point)
    after = before.crash()

    assert [type(one.hook) for one in after.of(AskPlugins)] == [
        type(one.hook) for one in before.of(AskPlugins)
    ]
    assert after.memory.point == point


def test_a_request_may_be_sent_with_other_messages(session):
    """Only this one; the conversation stays as it is, and what is sent is valid."""
    calls = session.at(State.EXECUTING_TOOLS).memory.messages[-1]
    after = heard(waits(session, "before_request"), Verdict(messages=(calls,)))
    (sent,) = after.of(CallModel)

    assert sent.messages[0] == calls
    assert repair(sent.messages) == sent.messages
    assert [said.content for said in after.memory.messages] == ["go"]


def test_steering_that_came_while_plugins_thought_is_given(session):
    """The cycle goes on with it instead of its end."""
    after = heard(waits(session, "before_finish").give(STEER, "s-1"))

    assert (after.state, after.memory.cycle.command_id) == (State.RUNNING, "p-1")
    assert after.of(CallModel)[0].messages[-1].content == "left"


@pytest.mark.parametrize(("trigger", "goes_on"), [("size", True), ("overflow", False)])
def test_a_plugin_may_forbid_a_compaction(session, trigger, goes_on):
    """The request goes out whole, unless it is known not to fit."""
    memory = Memory(model="x:m", messages=OLD)
    if trigger == "size":
        before = waits(session, "before_compact")
    else:
        before = prompted(session, BeforeCompact, memory=memory)
        before = before.report(StreamFailed, FailureKind.OVERFLOW, "too long", 9)
    after = heard(before, Verdict(skipped="refuser"))

    assert len(after.of(CallModel)) == goes_on
    assert after.of(Summarize) == []
    assert bool(after.events(AgentAbort)) != goes_on


# --- calls --------------------------------------------------------------------------------------


def test_a_refused_call_has_its_reason_as_result(session):
    """It was not made; the rest of the batch goes on."""
    before = session.at(State.EXECUTING_TOOLS)
    after = before.report(ToolRefused, "a", "not here", 9)
    over = after.report(ToolRefused, "b", "nor here", 9)

    assert after.events(ToolBlocked) == [ToolBlocked(name="read", call_id="a", reason="not here")]
    assert [given.ok for given in after.events(ToolExecutionEnd)] == [False]
    assert after.memory.calls[0].result.content == "Error: blocked: not here"
    assert after.state is State.EXECUTING_TOOLS
    assert len(over.of(CallModel)) == 1


@pytest.mark.parametrize("call_id", ["a", "z"], ids=["over", "unknown"])
def test_a_call_that_is_over_is_not_refused(session, call_id):
    """Its result stays."""
    before = session.at(State.EXECUTING_TOOLS).end("a")

    assert before.report(ToolRefused, call_id, "no", 9).is_unchanged(before)


def test_a_plugin_that_hears_of_a_call_may_end_the_cycle(session):
    """Calls and subagents are ended once it is published; who had begun is reported as killed."""
    batch = session.at(State.EXECUTING_TOOLS).begin("a")
    batch = batch.report(SubagentWanted, "a", "a:sub-1", "any", "do it")
    after = batch.report(PluginsAborted, Aborted("guard", "no"), 9)

    assert after.is_announced()
    assert after.events(AgentAbort) == [AgentAbort(reason="no", command_id="p-1")]
    assert after.of(CancelCalls) == [CancelCalls(("a", "b"))]
    assert after.of(EndSubagents) == [EndSubagents(("s.1",))]
    assert [(given.call_id, given.reason) for given in after.events(ToolKilled)] == [("a", "no")]
    assert [kept.message.call_id for kept in after.records(ToolEnded)] == ["a", "b"]
    assert after.state is State.IDLE


def test_what_was_said_before_a_plugin_ends_the_cycle_is_kept(session):
    """Observers have seen it: it is in the history, marked, in this process and the next."""
    after = session.at(State.STREAMING).report(PluginsAborted, Aborted("guard", "no"), 9)
    said = after.memory.messages[-1]

    assert (said.content, said.metadata) == ("part", {"interrupted": True})
    assert after.rebuilt().messages == after.memory.messages


@pytest.mark.parametrize("state", State)
def test_plugins_may_speak_where_nothing_waits(session, state):
    """The work goes on; the model reads between turns."""
    before = session.at(state)
    after = before.post(PluginsReported(MIND))

    assert after.records() == [Noted(notes=MIND.interventions)]
    assert after.memory.notes == MIND.interventions
    assert (after.state, after.memory.work) == (state, before.memory.work)


# --- steerings ----------------------------------------------------------------------------------


def steered(session, state, verdict, **policy):
    """Return a session that was steered in ``state``, after the plugins have heard of it."""
    busy = session.at(state, hooks=frozenset({kind_of(BeforeSteering)}), **policy)
    asked = busy.give(STEER, "s-1")
    (wanted,) = asked.of(AskAboutSteering)
    return asked.post(SteeringAnswered(wanted.order, wanted.command, verdict))


BUSY = [state for state in State if state is not State.IDLE]


@pytest.mark.parametrize("state", BUSY)
def test_a_steering_is_judged_before_it_counts(session, state):
    """Nothing is written down, ended or acknowledged before."""
    before = session.at(state, hooks=frozenset({kind_of(BeforeSteering)}))
    after = before.give(STEER, "s-1")

    assert [type(effect) for effect in after.effects] == [AskAboutSteering]
    assert after.memory == before.memory


@pytest.mark.parametrize("state", BUSY)
def test_a_steering_may_be_rejected(session, state):
    """The caller has the reason; observers hear of it, and nothing is ended for it."""
    after = steered(session, state, NO)

    assert [type(settled.outcome) for settled in after.of(Complete)] == [SteeringRejected]
    assert after.events() == [SteeringReceived(ref="s-1", status="rejected", text="left")]
    assert (after.state, after.memory.steering) == (state, ())


@pytest.mark.parametrize("state", BUSY)
def test_a_steering_may_be_added_to(session, state):
    """What a plugin says belongs to the steering."""
    after = steered(session, state, MIND, immune=frozenset({"read", "write"}))

    assert after.records(Steered) == [Steered(ref="s-1", text="left\n\nmind the gap")]
    assert after.of(Complete) == [Complete("s-1", SteerReceipt(ref="s-1", opened=False))]
    assert after.memory.notes == ()


def test_a_judged_steering_ends_calls(session):
    """As one that nobody judges."""
    after = steered(session, State.EXECUTING_TOOLS, Verdict())

    assert len(after.events(ToolKilled)) == 2
    assert after.of(CallModel)[0].messages[-1].content == "left"


def test_a_steering_that_is_judged_too_late_opens_a_cycle(session):
    """The one that it was meant for is over."""
    busy = session.at(State.RUNNING, hooks=frozenset({kind_of(BeforeSteering)}))
    asked = busy.give(STEER, "s-1")
    (wanted,) = asked.of(AskAboutSteering)
    after = asked.answer().post(SteeringAnswered(wanted.order, wanted.command, Verdict()))

    assert after.memory.cycle.command_id == "s-1"
    assert after.of(Complete) == [Complete("s-1", SteerReceipt(ref="s-1", opened=True))]


@pytest.mark.parametrize("text", [" ", "right"], ids=["empty", "full"])
def test_a_steering_that_is_refused_anyway_is_not_judged(session, text):
    """Without text, or where there is no room for it."""
    hooks = frozenset({kind_of(BeforeSteering)})
    before = session.at(State.RUNNING, hooks=hooks, max_steering_queue=0)
    after = before.give(Steer(text=text), "s-2")

    assert after.of(AskAboutSteering) == []
    assert len(after.of(Complete)) == 1
