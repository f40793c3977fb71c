"""The reply that a stream of chunks adds up to, whole or as far as it came.

Ids are arguments: a call without an id, or with one that the reply has already, gets
``<id_prefix>-<n>``, so that every call of a reply can be answered apart from the others.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

import msgspec

from cmdc_runtime.extensions.provider import (
    Chunk,
    FinishChunk,
    TextChunk,
    ThinkingChunk,
    ToolCallChunk,
    UsageChunk,
)
from cmdc_runtime.ids import CallId
from cmdc_runtime.messages import TokenUsage, ToolCall


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said; ``finish_reason`` is None where the stream did not get to its end."""

    text: str
    thinking: str | None
    tool_calls: tuple[ToolCall, ...]
    usage: TokenUsage | None
    finish_reason: str | None


@dataclass(slots=True)
class _Draft:
    """One tool call while its pieces come in."""

    call_id: CallId | None
    name: str
    arguments: list[str]


@dataclass(slots=True)
class _Drafts:
    """The calls in the order of their first pieces, and the open one of each index."""

    calls: list[_Draft] = field(default_factory=list)
    open: dict[int, _Draft] = field(default_factory=dict)

    def add(self, chunk: ToolCallChunk) -> None:
        """Add one piece. A new id on a known index is a new call: some servers send only 0."""
        draft = self.open.get(chunk.index)
        is_other = draft is not None and draft.call_id and chunk.call_id
        if draft is None or (is_other and draft.call_id != chunk.call_id):
            draft = _Draft(chunk.call_id, "", [])
            self.open[chunk.index] = draft
            self.calls.append(draft)
        draft.call_id = draft.call_id or chunk.call_id
        draft.name = draft.name or chunk.name or ""
        draft.arguments.append(chunk.arguments)


def assemble(chunks: Iterable[Chunk], *, id_prefix: str) -> Reply:
    """Return the reply that ``chunks`` make up, in the order in which they came."""
    text: list[str] = []
    thinking: list[str] = []
    drafts = _Drafts()
    usage: TokenUsage | None = None
    finish_reason: str | None = None
    for chunk in chunks:
        match chunk:
            case TextChunk():
                text.append(chunk.text)
            case ThinkingChunk():
                thinking.append(chunk.text)
            case ToolCallChunk():
                drafts.add(chunk)
            case UsageChunk():
                usage = chunk.usage
            case FinishChunk():
                finish_reason = chunk.reason
            case _:
                assert_never(chunk)
    return Reply(
        text="".join(text),
        thinking="".join(thinking) or None,
        tool_calls=_tool_calls(drafts.calls, id_prefix),
        usage=usage,
        finish_reason=finish_reason,
    )


def _tool_calls(drafts: list[_Draft], id_prefix: str) -> tuple[ToolCall, ...]:
    given = {draft.call_id for draft in drafts}
    fresh = (f"{id_prefix}-{n}" for n in range(1, 2 * len(drafts) + 1))
    unused = (CallId(call_id) for call_id in fresh if call_id not in given)
    seen: set[CallId] = set()
    calls = []
    for draft in drafts:
        own = draft.call_id
        call_id = own if own and own not in seen else next(unused)
        seen.add(call_id)
        calls.append(_tool_call(call_id, draft.name, "".join(draft.arguments)))
    return tuple(calls)


def _tool_call(call_id: CallId, name: str, raw: str) -> ToolCall:
    if not raw.strip():
        return ToolCall(call_id=call_id, name=name)
    try:
        arguments = msgspec.json.decode(raw, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ToolCall(call_id=call_id, name=name, malformed=raw)
    return ToolCall(call_id=call_id, name=name, arguments=arguments)
