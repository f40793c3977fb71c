"""What of an input is written down with the records of its step, so that it can be played again.

Records tell what was decided, and mostly also what was decided on: ``replaying_inputs.py`` reads
the answer of a model out of ``Said``, and the text of a result out of ``ToolEnded``. What they do
not tell stands in the ``Cause`` of the step's first record. An input whose step keeps no record is
not written down: ``replaying_paths.py`` finds it where it matters.

To add an input: its row in ``_TOLD``, and one in ``replaying_inputs.INPUTS``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from cmdc_runtime.reasons import AnyReason, snake
from workers.core.inputs import (
    ApprovalExpired,
    ApprovalNeeded,
    BranchWanted,
    Consulted,
    CycleExpired,
    Order,
    PluginAskedModel,
    PluginDelegated,
    PluginLoaded,
    PluginsAborted,
    PluginsSpoke,
    QuestionAsked,
    Result,
    SteeringJudged,
    Stopped,
    StreamEnded,
    StreamFailed,
    SubagentDone,
    SubagentWanted,
    Summarized,
    SummaryFailed,
    ToolBegun,
    ToolRefused,
    ToolReturned,
    ToolsLoaded,
    ToolTold,
)
from workers.core.records import Cause, Compacted, Record, ToolEnded, Where
from workers.core.state import Consulting, Memory
from workers.core.verdict import Aborted


@dataclass(frozen=True, slots=True)
class Recovery:
    """A new process goes on where one ended for ``reason``: the input of ``rebuild.resume``."""

    reason: AnyReason
    at_ms: int


Given: TypeAlias = Order | Result | Recovery
"""Whatever makes the machine take a step."""
Kept: TypeAlias = Sequence[Record]
# Any: the input of its own row, and facts of its own.
_Told: TypeAlias = tuple[Callable[[Any], str], Callable[[Any, Kept], dict[str, Any]]]


def where(memory: Memory) -> Where:
    """Return where the machine stands, as far as records do not tell."""
    activity, wanted = memory.activity, memory.compacting
    if isinstance(activity, Consulting):
        wanted = activity.wanted
    return Where(
        state=memory.state.value,
        point="" if memory.point is None else memory.point.value,
        trigger="" if wanted is None else wanted.trigger,
        retries=memory.answering.retries,
        is_compacted=memory.answering.is_compacted,
    )


def with_cause(kept: Kept, given: Given, memory: Memory) -> list[Record]:
    """Return the records of a step, the first with its cause; ``memory`` is from before."""
    if not kept:
        return []
    ref, facts = _TOLD.get(type(given), (_nothing, _none))
    at_ms = given.order.at_ms if isinstance(given, SteeringJudged) else getattr(given, "at_ms", 0)
    cause = Cause(
        name_of(type(given)),
        where(memory),
        ref(given),
        at_ms,
        records=len(kept),
        facts=facts(given, kept),
    )
    return [msgspec.structs.replace(kept[0], cause=cause), *kept[1:]]


def name_of(kind: type) -> str:
    """Return what an input of this class is called in a cause."""
    return _NAMES.get(kind, "") or snake(kind.__name__)


def quote(text: str, content: str) -> list[int] | str:
    """Return where ``text`` stands in ``content``, as place and length, or itself if it does not.

    A record has the text already, with what the kernel added to it.
    """
    place = content.find(text)
    return text if place < 0 else [place, len(text)]


def unquote(quoted: Sequence[int] | str, content: str) -> str:
    """Return the text that ``quote`` was given."""
    if isinstance(quoted, str):
        return quoted
    place, length = quoted
    return content[place : place + length]


def _nothing(_given: object) -> str:
    return ""


def _none(_given: object, _kept: Kept) -> dict[str, Any]:
    return {}


def _aborted(abort: Aborted | None) -> dict[str, Any]:
    return {} if abort is None else {"abort": [abort.plugin, abort.reason]}


def _content(kept: Kept) -> str:
    ended = next((one for one in kept if isinstance(one, ToolEnded)), None)
    return "" if ended is None else ended.message.content


def _of_summary(given: Summarized, kept: Kept) -> dict[str, Any]:
    made = next((one for one in kept if isinstance(one, Compacted)), None)
    content = "" if made is None else made.summary.content
    return {"text": quote(given.text.strip(), content)}


def _of_consulted(given: Consulted, _kept: Kept) -> dict[str, Any]:
    skipped = given.verdict.skipped
    return {
        **_aborted(given.verdict.abort),
        **({} if skipped is None else {"skipped": skipped}),
    }


def _of_judged(given: SteeringJudged, _kept: Kept) -> dict[str, Any]:
    said = given.verdict.interventions
    return {**_aborted(given.verdict.abort), **({"said": list(said)} if said else {})}


def _of_branch(given: BranchWanted, _kept: Kept) -> dict[str, Any]:
    limit = given.limit
    return {"limit": [limit.tokens, limit.cost_usd], "shares": given.shares}


def _of_call(given: Any) -> str:  # Any: a result that is about one call
    return str(given.call_id)


def _of_command(given: Any) -> str:  # Any: an order, or what was loaded for one
    return str(given.id)


# fmt: off
_TOLD: Final[Mapping[type, _Told]] = {
    Order:            (_of_command, _none),
    Recovery:         (_nothing, lambda given, _: {"reason": msgspec.to_builtins(given.reason)}),
    StreamEnded:      (_nothing, _none),
    StreamFailed:     (_nothing, lambda given, _: {"kind": given.kind, "reason": given.reason}),
    Summarized:       (_nothing, _of_summary),
    SummaryFailed:    (_nothing, lambda given, _: {"reason": given.reason}),
    ToolBegun:        (_of_call, _none),
    ApprovalNeeded:   (_of_call, _none),
    ToolTold:         (_of_call, _none),
    ToolReturned:     (_of_call, lambda given, kept: {"text": quote(given.text, _content(kept))}),
    ToolRefused:      (_of_call, lambda given, kept: {"why": quote(given.reason, _content(kept))}),
    QuestionAsked:    (_of_call, _none),
    SubagentWanted:   (_of_call, lambda given, _: {"type": given.subagent_type}),
    BranchWanted:     (_of_call, _of_branch),
    PluginDelegated:  (lambda given: given.plugin, lambda given, _: {"type": given.subagent_type}),
    SubagentDone:     (lambda given: given.child_id, _none),
    ApprovalExpired:  (lambda given: given.approval_id, _none),
    CycleExpired:     (lambda given: given.command_id, _none),
    Stopped:          (_nothing, _none),
    ToolsLoaded:      (_of_command, _none),
    PluginLoaded:     (_of_command, _none),
    Consulted:        (_nothing, _of_consulted),
    PluginsSpoke:     (_nothing, _none),
    PluginAskedModel: (lambda given: given.plugin, _none),
    PluginsAborted:   (_nothing, lambda given, _: _aborted(given.abort)),
    SteeringJudged:   (lambda given: given.order.id, _of_judged),
}
# fmt: on
"""What each input is about, and what the records of its step do not tell of it.

An input without a row keeps no record in any state; a test says so of each.
"""
_NAMES: Final[Mapping[type, str]] = {kind: snake(kind.__name__) for kind in _TOLD}
