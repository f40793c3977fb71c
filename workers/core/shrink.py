"""What becomes of a summary: the conversation gets shorter, and the request or the tool goes on."""

from msgspec.structs import replace

from cmdc_runtime.events import ConversationCompacted
from cmdc_runtime.extensions.hooks import BeforeCompact
from cmdc_runtime.ids import MessageId
from workers.core import compaction, cycle
from workers.core.conversation import is_running, place
from workers.core.expense import over_budget
from workers.core.inputs import CompactWanted, Summarized, SummaryFailed
from workers.core.records import Compacted
from workers.core.state import Asking, Calling, Compacting, Memory
from workers.core.step import AnswerTool, AskPlugins, Step, Summarize


def go_on(step: Step, summarized: Summarized) -> None:
    """Put the summary in place of what it is of, then send the request that waited for it.

    What the summary used may leave too little for the request: then the cycle ends.
    """
    wanted, answering = step.memory.compacting, step.memory.answering
    if wanted is None:
        return
    _shorten(step, wanted, summarized)
    # A summary by size was a guess: an overflow after it is still the first one of the turn.
    step.become(Asking(replace(answering, is_compacted=wanted.trigger == "overflow")))
    if reason := over_budget(step.memory):  # the summary took its share
        cycle.end_at_limit(step, reason, summarized.at_ms)
    else:
        cycle.ask_again(step)


def do_without(step: Step, failed: SummaryFailed) -> None:
    """Go on without a summary: none could be made."""
    if step.memory.compacting is not None:
        cycle.do_without_summary(step, step.memory.compacting, failed.at_ms)


def compact_for_tool(step: Step, wanted: CompactWanted) -> None:
    """Begin the compaction that a running call asks for; the open batch stays as it is."""
    memory = step.memory
    if not is_running(memory, wanted.call_id):
        return
    evicted = cycle.evictable(memory)
    if problem := _problem(memory, evicted):
        step.perform(AnswerTool(wanted.ref, error=problem))
        return
    asked = Compacting(evicted, "request", wanted.ref)
    hook = BeforeCompact(memory.messages[:evicted])
    if not memory.has_hook(type(hook)):
        compact_unless(step, asked, None)
        return
    # Meanwhile the calls run on: plugins are asked under the batch's own number.
    step.become(Calling(asked, is_judged=True))
    step.perform(AskPlugins(memory.work, hook))


def _problem(memory: Memory, evicted: int) -> str | None:
    """Say why a call gets no compaction now, or None."""
    if memory.compacting is not None:
        return "a compaction is under way already"
    if not evicted:
        count = len(memory.messages)
        return f"nothing to compact: the conversation has {count} messages, and all are recent"
    reason = over_budget(memory)
    return f"no summary: {reason}" if reason else None


def compact_unless(step: Step, wanted: Compacting, skipped: str | None) -> None:
    """Sum up what a running call wants to be gone, unless the plugin ``skipped`` is against it."""
    memory = step.memory
    if skipped is None:
        step.become(Calling(wanted))
        step.perform(Summarize(memory.work, memory.model, memory.messages[: wanted.evicted]))
        return
    assert wanted.ref is not None  # noqa: S101 - a call waits for it
    step.become(Calling())
    step.perform(AnswerTool(wanted.ref, error=f"no summary: plugin {skipped} wants none"))


def report(step: Step, summarized: Summarized) -> None:
    """Shorten the conversation and answer the call that asked for it."""
    calling, before = step.memory.activity, len(step.memory.messages)
    if not isinstance(calling, Calling) or calling.compacting is None or calling.is_judged:
        return
    wanted = calling.compacting
    _shorten(step, wanted, summarized)
    step.become(Calling())
    if wanted.ref is not None:
        text = (
            f"Compacted: {before} messages before, {len(step.memory.messages)} after,"
            f" {wanted.evicted} removed; history file: {summarized.history_file or 'none'}"
        )
        step.perform(AnswerTool(wanted.ref, text))


def report_failure(step: Step, failed: SummaryFailed) -> None:
    """Leave the conversation as it is and answer the call why."""
    wanted = step.memory.compacting
    step.become(Calling())
    if wanted is not None and wanted.ref is not None:
        step.perform(AnswerTool(wanted.ref, error=f"no summary: {failed.reason}"))


def _shorten(step: Step, wanted: Compacting, summarized: Summarized) -> None:
    before = len(step.memory.messages)
    # The summary takes the place of the last message that went, so its id is that message's.
    named = MessageId(f"{step.memory.messages[wanted.evicted - 1].id}-summary")
    summary = compaction.summary_message(
        named, summarized.text, wanted.evicted, summarized.history_file
    )
    step.record(Compacted(evicted=wanted.evicted, summary=summary, usage=summarized.usage))
    step.publish(
        ConversationCompacted(
            trigger=wanted.trigger,
            before=before,
            after=len(step.memory.messages),
            history_file=summarized.history_file,
            usage=summarized.usage,
        )
    )
    assert place(step.memory) >= len(step.memory.messages)  # noqa: S101 - places only grow
