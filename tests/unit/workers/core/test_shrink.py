"""What becomes of a summary: for a request that waits for it, and for a tool that asked for it."""

import pytest
from msgspec.structs import replace

from cmdc_runtime.commands import Abort, Steer
from cmdc_runtime.events import AgentAbort, ConversationCompacted
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.messages import Message, TokenUsage
from workers.core.budget import Budget
from workers.core.compaction import COMPACTED
from workers.core.conversation import place, repair
from workers.core.inputs import (
    CompactWanted,
    PluginsAnswered,
    StreamFailed,
    Summarized,
    SummaryFailed,
)
from workers.core.records import Compacted
from workers.core.state import Memory, State
from workers.core.step import AnswerTool, AskPlugins, CallModel, CancelModel, Summarize
from workers.core.verdict import Verdict

USED = TokenUsage(prompt_tokens=9, total_tokens=9)
OLD = tuple(Message(id=f"old-{n}", role="user", content="old " * 10) for n in range(12))
SUMMARY = ("what was said", USED, "history.md", 9)


def long(session, **policy):
    """Return a running session with a long conversation."""
    return session.new(Memory(model="x:m", messages=OLD), **policy).prompt("go", "p-1")


def waiting(session, trigger):
    """Return a session whose request waits for a summary, because of ``trigger``."""
    if trigger == "size":
        return long(session, window_of=lambda _model: 100)
    return long(session).report(StreamFailed, FailureKind.OVERFLOW, "too long", 9)


def compacting(session, **policy):
    """Return a session whose call a waits for a compaction; b runs beside it."""
    batch = long(session, **policy).call("compact_conversation:a", "read:b")
    return batch.report(CompactWanted, "a", "a:compact-1", "long")


every_trigger = pytest.mark.parametrize("trigger", ["size", "overflow"])


@every_trigger
def test_a_request_waits_for_the_summary_of_what_goes(session, trigger):
    """It is of the oldest messages; the model is asked for the answer when it is there."""
    before = waiting(session, trigger)
    (wanted,) = before.of(Summarize)

    assert (before.state, before.of(CallModel)) == (State.RUNNING, [])
    assert wanted.messages == before.memory.messages[: before.memory.compacting.evicted]
    assert wanted.work == before.memory.work


@every_trigger
def test_the_summary_takes_the_place_of_what_it_is_of(session, trigger):
    """It is written down and paid for, and the request goes out with the rest behind it."""
    before = waiting(session, trigger)
    after = before.report(Summarized, *SUMMARY)
    gone = before.memory.compacting.evicted
    (record,) = after.records(Compacted)
    (asked,) = after.of(CallModel)

    assert (record.evicted, record.usage) == (gone, USED)
    assert asked.messages == (record.summary, *before.memory.messages[gone:])
    assert record.summary.metadata[COMPACTED] == gone
    assert after.memory.usage == USED
    assert after.memory.compacting is None
    assert after.events(ConversationCompacted) == [
        ConversationCompacted(
            trigger=trigger,
            before=len(before.memory.messages),
            after=len(asked.messages),
            history_file="history.md",
            usage=USED,
        )
    ]


def test_places_and_ids_go_on(session):
    """The whole conversation is as long as before, so what is said next has an id of its own."""
    before = waiting(session, "overflow")
    after = before.report(Summarized, *SUMMARY)
    answered = after.answer()
    ids = [said.id for said in answered.memory.messages]

    assert place(after.memory) == place(before.memory)
    assert ids[0] == f"old-{before.memory.compacting.evicted - 1}-summary"
    assert ids[-1] == f"m-{len(OLD) + 2}"
    assert len(set(ids)) == len(ids)


def test_a_summary_of_a_summary_has_an_id_of_its_own(session):
    """There is one summary at most, and its name is not that of the one before."""
    after = waiting(session, "overflow").report(Summarized, *SUMMARY)
    first = after.memory.messages[0]
    for number in range(6):
        after = after.answer().prompt("more", f"p-{number}")
    after = after.report(StreamFailed, FailureKind.OVERFLOW, "too long", 9)
    after = after.report(Summarized, *SUMMARY)

    assert sum(COMPACTED in said.metadata for said in after.memory.messages) == 1
    assert after.memory.messages[0].id != first.id


def test_a_request_goes_out_whole_where_there_is_no_summary(session):
    """A large conversation may still fit; it is not tried a second time in the turn."""
    before = waiting(session, "size")
    after = before.report(SummaryFailed, "busy", 9)

    assert after.of(CallModel)[0].messages == before.memory.messages
    assert (after.memory.compacting, after.memory.answering.is_compacted) == (None, True)


def test_a_request_that_is_known_not_to_fit_ends_the_cycle(session):
    """Without a summary there is nothing else to try."""
    after = waiting(session, "overflow").report(SummaryFailed, "busy", 9)

    assert [event.reason for event in after.events(AgentAbort)] == ["context_overflow"]
    assert (after.state, after.memory.compacting) == (State.IDLE, None)


@every_trigger
def test_an_abort_ends_a_summary_too(session, trigger):
    """What it brings is late."""
    aborted = waiting(session, trigger).give(Abort())
    after = aborted.report(Summarized, *SUMMARY)

    assert CancelModel() in aborted.effects
    assert aborted.memory.compacting is None
    assert after.is_unchanged(aborted)


@every_trigger
def test_a_summary_may_leave_too_little_for_the_request(session, trigger):
    """What was spent on it stays spent, and the conversation short."""
    before = waiting(session, trigger)
    budget = Budget(max_total_tokens=900)
    policy = replace(before.memory.policy, budget=budget)
    before = before.remembering(replace(before.memory, policy=policy))
    after = before.report(Summarized, "short", TokenUsage(total_tokens=899), None, 9)

    assert (after.state, after.of(CallModel)) == (State.IDLE, [])
    assert [event.reason for event in after.events(AgentAbort)] == ["max_total_tokens_exceeded"]
    assert after.memory.usage.total_tokens == 899
    assert COMPACTED in after.memory.messages[0].metadata


@pytest.mark.parametrize(("trigger", "is_last"), [("size", False), ("overflow", True)])
def test_a_summary_by_size_is_not_the_last_try(session, trigger, is_last):
    """It was a guess: what does not fit all the same is summed up once more."""
    after = waiting(session, trigger).report(Summarized, *SUMMARY)

    assert after.memory.answering.is_compacted is is_last


# --- for a tool ---------------------------------------------------------------------------------


def test_a_tool_may_ask_for_a_compaction(session):
    """The open batch stays as it is, and the call waits."""
    after = compacting(session)
    (wanted,) = after.of(Summarize)

    assert after.state is State.EXECUTING_TOOLS
    assert all(message in OLD for message in wanted.messages)
    assert [open_.call.call_id for open_ in after.memory.calls] == ["a", "b"]


@pytest.mark.parametrize("skipped", [None, "refuser"])
def test_plugins_have_a_word_in_what_a_tool_asks_for(session, skipped):
    """The batch runs on while they are asked; the call learns who wants no summary."""
    before = compacting(session, hooks={"before_compact"})
    after = before.report(PluginsAnswered, Verdict(skipped=skipped), 9)
    reported = [(one.ref, one.error) for one in after.of(AnswerTool)]

    assert (before.of(Summarize), len(before.of(AskPlugins))) == ([], 1)
    assert before.state is after.state is State.EXECUTING_TOOLS
    assert len(after.of(Summarize)) == (skipped is None)
    assert reported == (
        [("a:compact-1", "no summary: plugin refuser wants none")] if skipped else []
    )


def test_the_tool_reads_what_came_of_it(session):
    """The conversation is shorter while the batch still runs, and stays valid."""
    before = compacting(session)
    after = before.report(Summarized, *SUMMARY)
    (reported,) = after.of(AnswerTool)
    done = after.end("a", "b")

    assert (reported.ref, reported.error) == ("a:compact-1", None)
    assert "history.md" in reported.value
    assert f"{len(before.memory.messages)} messages before" in reported.value
    assert after.events(ConversationCompacted)[0].trigger == "request"
    assert repair(done.memory.messages) == done.of(CallModel)[0].messages


def test_a_compaction_that_is_over_keeps_no_other_call_from_one(session):
    """It gets no error that one is under way."""
    after = compacting(session).report(Summarized, *SUMMARY)
    again = after.report(CompactWanted, "b", "b:compact-1", "long")

    assert (again.of(AnswerTool), len(again.of(Summarize))) == ([], 1)


def test_a_tool_gets_an_error_where_nothing_can_go(session):
    """A short conversation is left alone."""
    batch = session.at(State.EXECUTING_TOOLS)
    after = batch.report(CompactWanted, "a", "a:compact-1", "long")
    (reported,) = after.effects

    assert (reported.ref, reported.value) == ("a:compact-1", None)
    assert "nothing to compact" in reported.error
    assert after.memory == batch.memory


def test_a_budget_holds_for_a_tool_that_asks(session):
    """The summary is a request like any other: it is not made, and the call reads why."""
    batch = long(session, budget=Budget(max_total_tokens=1000)).call("compact_conversation:a")
    policy = replace(batch.memory.policy, budget=Budget(max_total_tokens=10))
    batch = batch.remembering(replace(batch.memory, policy=policy))
    after = batch.report(CompactWanted, "a", "a:compact-1", "long")

    assert after.effects == (
        AnswerTool("a:compact-1", error="no summary: max_total_tokens_exceeded"),
    )
    assert after.memory == batch.memory


def test_an_abort_answers_a_tool_that_waits(session):
    """It may be immune, but there will be no summary for it."""
    after = compacting(session).give(Abort())

    assert [reported.ref for reported in after.of(AnswerTool) if reported.error] == ["a:compact-1"]
    assert CancelModel() in after.effects
    assert after.memory.compacting is None


def test_there_is_one_compaction_at_a_time(session):
    """A second call that wants one gets an error, and the first one is not disturbed."""
    before = compacting(session)
    after = before.report(CompactWanted, "b", "b:compact-1", "long")

    assert [reported.ref for reported in after.effects if reported.error] == ["b:compact-1"]
    assert after.memory == before.memory


def test_the_tool_gets_an_error_where_there_is_no_summary(session):
    """The conversation stays as it is, and another call may try again."""
    before = compacting(session)
    after = before.report(SummaryFailed, "busy", 9)
    again = after.report(CompactWanted, "b", "b:compact-1", "long")

    assert after.effects == (AnswerTool("a:compact-1", error="no summary: busy"),)
    assert after.memory.messages == before.memory.messages
    assert len(again.of(Summarize)) == 1


@pytest.mark.parametrize("call_id", ["b", "z"], ids=["over", "unknown"])
def test_a_call_that_is_over_starts_no_compaction(session, call_id):
    """Nobody would read what came of it."""
    before = long(session).call("read:a", "read:b").end("b")
    after = before.report(CompactWanted, call_id, f"{call_id}:compact-1", "long")

    assert after.is_unchanged(before)


def test_a_steering_that_ends_the_batch_makes_its_summary_late(session):
    """The next request has another number: nothing is taken away under it."""
    before = compacting(session, immune=frozenset())
    steered = before.give(Steer(text="left"), "s-1")
    after = steered.post(Summarized(before.memory.work, *SUMMARY))

    assert steered.state is State.RUNNING
    assert after.is_unchanged(steered)


@pytest.mark.parametrize("state", [State.RUNNING, State.EXECUTING_TOOLS])
@pytest.mark.parametrize("kind", [Summarized, SummaryFailed])
def test_a_summary_that_nobody_asked_for_changes_nothing(session, kind, state):
    """Neither the request under way nor a batch that wants none."""
    before = session.at(state)
    after = before.report(kind, *(SUMMARY if kind is Summarized else ("busy", 9)))

    assert after.is_unchanged(before)
