"""What becomes of a summary: the conversation gets shorter, and the request or the tool goes on."""

from dataclasses import replace

from cmdc_runtime.events import ConversationCompacted
from cmdc_runtime.extensions.hooks import BeforeCompact
from cmdc_runtime.ids import MessageId
from workers.core import compaction, cycle
from workers.core.changes import compact
from workers.core.conversation import is_running, place
from workers.core.effects import AnswerTool, Consult, Effect, Keep, Publish, Step, Summarize
from workers.core.expense import over_budget
from workers.core.inputs import CompactWanted, Summarized, SummaryFailed
from workers.core.records import Compacted
from workers.core.state import Compacting, Consulting, Memory, Point, State


def go_on(state: State, memory: Memory, summarized: Summarized) -> Step:
    """Put the summary in place of what it is of, then send the request that waited for it.

    What the summary used may leave too little for the request: then the cycle ends.
    """
    if memory.compacting is None:
        return Step(state, memory)
    # A summary by size was a guess: an overflow after it is still the first one of the turn.
    is_last = memory.compacting.trigger == "overflow"
    memory, effects = _shorten(memory, summarized)
    memory = replace(memory, answering=replace(memory.answering, is_compacted=is_last))
    if reason := over_budget(memory):  # the summary took its share
        return cycle.then(cycle.end_at_limit(memory, reason, summarized.at_ms), effects)
    return cycle.then(cycle.ask_again(memory), effects)


def do_without(state: State, memory: Memory, failed: SummaryFailed) -> Step:
    """Go on without the summary that there is none of."""
    if memory.compacting is None:
        return Step(state, memory)
    return cycle.do_without_summary(memory, memory.compacting, failed.at_ms)


def compact_for_tool(state: State, memory: Memory, wanted: CompactWanted) -> Step:
    """Begin the compaction that a running call asks for; the open batch stays as it is."""
    if not is_running(memory, wanted.call_id):
        return Step(state, memory)
    if memory.compacting is not None:
        busy = AnswerTool(wanted.ref, error="a compaction is under way already")
        return Step(state, memory, (busy,))
    evicted = compaction.cut(memory.messages, memory.policy.window_of(memory.model))
    if not evicted:
        count = len(memory.messages)
        short = f"nothing to compact: the conversation has {count} messages, and all are recent"
        return Step(state, memory, (AnswerTool(wanted.ref, error=short),))
    if reason := over_budget(memory):
        return Step(state, memory, (AnswerTool(wanted.ref, error=f"no summary: {reason}"),))
    asked = Compacting(evicted, "request", wanted.ref)
    hook = BeforeCompact(memory.messages[:evicted])
    if not memory.hears(type(hook)):
        return compact_unless(memory, asked, None)
    # Meanwhile the calls run on: plugins are asked under the batch's own number.
    waits = Consulting(Point.COMPACT, asked)
    memory = replace(memory, compacting=asked, consulting=waits)
    return Step(state, memory, (Consult(memory.work, hook),))


def compact_unless(memory: Memory, wanted: Compacting, skipped: str | None) -> Step:
    """Sum up what a running call wants to be gone, unless the plugin ``skipped`` is against it."""
    if skipped is not None:
        memory = replace(memory, compacting=None)
        assert wanted.ref is not None  # noqa: S101 - a call waits for it
        no = AnswerTool(wanted.ref, error=f"no summary: plugin {skipped} wants none")
        return Step(State.EXECUTING_TOOLS, memory, (no,))
    evicted = memory.messages[: wanted.evicted]
    summarize = Summarize(memory.work, memory.model, evicted)
    return Step(State.EXECUTING_TOOLS, replace(memory, compacting=wanted), (summarize,))


def report(state: State, memory: Memory, summarized: Summarized) -> Step:
    """Shorten the conversation and tell the call that asked for it what came of it."""
    if memory.compacting is None or memory.consulting is not None:
        return Step(state, memory)
    before, evicted, ref = len(memory.messages), memory.compacting.evicted, memory.compacting.ref
    memory, effects = _shorten(memory, summarized)
    told = (
        f"Compacted: {before} messages before, {len(memory.messages)} after, {evicted} removed;"
        f" history file: {summarized.history_file or 'none'}"
    )
    answer = () if ref is None else (AnswerTool(ref, told),)
    return Step(state, memory, (*effects, *answer))


def report_failure(state: State, memory: Memory, failed: SummaryFailed) -> Step:
    """Leave the conversation as it is and tell the call why."""
    ref = memory.compacting.ref if memory.compacting is not None else None
    answer = () if ref is None else (AnswerTool(ref, error=f"no summary: {failed.reason}"),)
    return Step(state, replace(memory, compacting=None), answer)


def _shorten(memory: Memory, summarized: Summarized) -> tuple[Memory, tuple[Effect, ...]]:
    wanted = memory.compacting
    assert wanted is not None  # noqa: S101 - a summary is of what was to be compacted
    before = len(memory.messages)
    # The summary takes the place of the last message that went, so its id is that message's.
    named = MessageId(f"{memory.messages[wanted.evicted - 1].id}-summary")
    summary = compaction.summary_message(
        named, summarized.text, wanted.evicted, summarized.history_file
    )
    record = Compacted(evicted=wanted.evicted, summary=summary, usage=summarized.usage)
    memory = compact(memory, wanted.evicted, summary, summarized.usage)
    told = ConversationCompacted(
        trigger=wanted.trigger,
        before=before,
        after=len(memory.messages),
        history_file=summarized.history_file,
        usage=summarized.usage,
    )
    assert place(memory) >= len(memory.messages)  # noqa: S101 - places only grow
    return memory, (Keep(record), Publish(told))
