"""What plugins say late, beside other messages, and of a compaction that a call asks for."""

import pytest
from msgspec.structs import replace

from cmdc_runtime.commands import Abort
from cmdc_runtime.events import PluginEvent, PluginModelCall, ToolExecutionEnd, ToolKilled
from cmdc_runtime.extensions.hooks import BeforeCompact, BeforeRequest, kind_of
from cmdc_runtime.messages import Message, TokenUsage
from workers.core.inputs import (
    CompactWanted,
    PluginAskedModel,
    PluginsAborted,
    PluginsAnswered,
    PluginsReported,
)
from workers.core.records import PluginSpent
from workers.core.state import Memory, State, ToolFacts
from workers.core.step import (
    AnswerTool,
    AskPlugins,
    CallModel,
    CancelCalls,
    CancelModel,
    Summarize,
)
from workers.core.verdict import Aborted, Verdict

OLD = tuple(Message(id=f"old-{n}", role="user", content="old " * 10) for n in range(12))
SWITCH = Verdict(
    interventions=("late",), model=("x:late", None), emitted=(("found", 1),), states=(("p", b"1"),)
)


def heard(session, verdict=None):
    return session.report(PluginsAnswered, verdict or Verdict(), 9)


def requesting(session):
    """Return a session whose request waits for plugins."""
    return session.new(hooks=frozenset({kind_of(BeforeRequest)})).prompt("go", "p-1")


@pytest.mark.parametrize("is_late", [False, True])
def test_what_plugins_want_of_a_batch_that_is_over_comes_too_late(session, is_late):
    """What they emitted and what they remember is taken down all the same."""
    before = session.at(State.EXECUTING_TOOLS)
    batch = before.memory.work
    if is_late:
        before = before.give(Abort()).prompt("again", "p-2")
    after = before.post(PluginsReported(SWITCH, batch))

    assert (after.memory.notes, after.memory.model) == (
        ((), "x:m") if is_late else (("late",), "x:late")
    )
    assert dict(after.memory.plugin_states) == {"p": b"1"}
    assert [event.name for event in after.events(PluginEvent)] == ["found"]


def test_what_plugins_say_is_given_with_replaced_messages(session):
    """It comes last, as it does in the conversation."""
    other = Message.user("Say nothing.")
    verdict = Verdict(messages=(other,), interventions=("mind the gap",))
    after = heard(requesting(session), verdict)
    sent = after.of(CallModel)[0].messages

    assert [said.content for said in sent] == ["Say nothing.", "mind the gap"]
    assert [said.content for said in after.memory.messages] == ["go", "mind the gap"]


@pytest.mark.parametrize("is_compacting", [False, True])
def test_an_end_by_a_plugin_ends_what_still_runs(session, is_compacting):
    """Calls that are over are not ended again, and a summary only where one is made."""
    batch = wants_compaction(session) if is_compacting else session.at(State.EXECUTING_TOOLS)
    after = batch.end("b").report(PluginsAborted, Aborted("guard", "no"), 9)

    assert after.of(CancelCalls) == [CancelCalls(("a",))]
    assert after.of(CancelModel) == [CancelModel()] * is_compacting


# --- a compaction that a call asks for ----------------------------------------------------------


def wants_compaction(session, *hooks):
    """Return a session one of whose calls asks for a compaction."""
    busy = session.at(State.EXECUTING_TOOLS, hooks=frozenset(map(kind_of, hooks)))
    memory = replace(busy.memory, messages=(*OLD, *busy.memory.messages))
    busy = busy.remembering(memory).begin("a")
    return busy.report(CompactWanted, "a", "a:compact", "long")


def test_plugins_are_asked_before_a_call_has_the_conversation_compacted(session):
    """The calls run on meanwhile, under their own number."""
    before = wants_compaction(session, BeforeCompact)
    (asked,) = before.of(AskPlugins)
    after = heard(before)

    assert (before.state, before.of(Summarize)) == (State.EXECUTING_TOOLS, [])
    assert (asked.work, asked.hook) == (
        before.memory.work,
        BeforeCompact(OLD[: len(asked.hook.messages)]),
    )
    assert after.of(Summarize)[0].messages == asked.hook.messages
    assert after.state is State.EXECUTING_TOOLS
    assert after.end("a", "b").of(CallModel) != []


def test_without_a_plugin_a_call_has_it_compacted_at_once(session):
    """Nobody is asked who does not listen."""
    assert len(wants_compaction(session).of(Summarize)) == 1


def test_a_plugin_may_prevent_a_compaction_that_a_call_wants(session):
    """The call has its answer, and may ask again."""
    after = heard(wants_compaction(session, BeforeCompact), Verdict(skipped="refuser"))
    (answer,) = after.of(AnswerTool)

    assert (answer.ref, "refuser" in answer.error) == ("a:compact", True)
    assert (after.of(Summarize), after.memory.compacting) == ([], None)
    assert after.state is State.EXECUTING_TOOLS


def test_a_call_that_waits_for_a_compaction_hears_of_an_abort(session):
    """Plugins were still being asked; the call runs on and must not wait for ever."""
    after = wants_compaction(session, BeforeCompact).give(Abort(kill_tools="none"))

    assert [answer.ref for answer in after.of(AnswerTool)] == ["a:compact"]
    assert len(after.of(CancelModel)) == 1
    assert heard(after, Verdict()).is_unchanged(after)


def test_a_thread_that_a_plugin_ends_is_reported_as_abandoned(session):
    """It can't be ended; what it returns is thrown away."""
    tools = (ToolFacts("thread", isolation="thread"), ToolFacts("read"))
    batch = session.new(Memory(model="x:m", tools=tools)).prompt().call("thread:a", "read:b")
    after = batch.begin("a", "b").report(PluginsAborted, Aborted("guard", "no"), 9)

    assert [reported.reason for reported in after.events(ToolKilled)] == ["abandoned", "no"]
    assert [reported.uncertain for reported in after.events(ToolExecutionEnd)] == [True, True]


def test_what_a_plugin_asks_a_model_is_paid_for_by_its_session(session):
    """It is written down and published, and changes nothing else."""
    before = session.at(State.STREAMING)
    used = TokenUsage(total_tokens=4)
    after = before.post(PluginAskedModel("judge", "x:small", used))

    assert after.records() == [PluginSpent(plugin="judge", usage=used)]
    assert after.events() == [PluginModelCall(plugin="judge", model="x:small", usage=used)]
    assert after.memory == replace(before.memory, usage=before.memory.usage + used)
    assert after.state is State.STREAMING
