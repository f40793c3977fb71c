"""The reply that a stream of chunks adds up to, whole or as far as it came.

Ids are arguments: a call without an id, with one that nobody can keep, or with one that the reply
has already, gets ``<id_prefix>-<n>``, so that every call of a reply can be answered apart from the
others. Nothing of a reply is trusted: texts are mended, arguments that cannot be kept stay what the
model wrote, and a usage that cannot be is none.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, assert_never

import msgspec

from cmdc_runtime import plain
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

CALL_ID_CHARS_MAX: Final = 2**16
"""Of a call's id; some vendors hide a signature of several thousand characters in it."""
NAME_CHARS_MAX: Final = 256
"""Of the name of a tool; vendors take 64 or 128. The rest of a longer one is cut off."""
FINISH_CHARS_MAX: Final = 64
"""Of the word for why a reply is over."""
TOKENS_MAX: Final = 10**12
"""Of one request: far beyond what any is able to use, and sums of it fit into 64 bits."""
COST_USD_MAX: Final = 1e9
"""The price of one request, for the same reasons."""
_MAY_BE_UNKNOWN: Final = frozenset({"cost_usd", "cached_tokens"})


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
                usage = credible(chunk.usage)
            case FinishChunk():
                finish_reason = plain.mended(chunk.reason)[:FINISH_CHARS_MAX]
            case _:
                assert_never(chunk)
    return Reply(
        text=plain.mended("".join(text)),
        thinking=plain.mended("".join(thinking)) or None,
        tool_calls=_tool_calls(drafts.calls, id_prefix),
        usage=usage,
        finish_reason=finish_reason,
    )


def credible(usage: TokenUsage) -> TokenUsage | None:
    """Return ``usage`` if every number in it can be true, else None: then it is unknown."""
    return usage if usage_problem(usage) is None else None


def usage_problem(usage: TokenUsage) -> str | None:
    """Return the first number in ``usage`` that can't be true, by its field, or None."""
    for name in TokenUsage.__struct_fields__:
        number, most = getattr(usage, name), COST_USD_MAX if name == "cost_usd" else TOKENS_MAX
        if number is None and name in _MAY_BE_UNKNOWN:
            continue
        problem = plain.number_problem(number, 0, most)
        if problem is not None:
            return f"{name}: {plain.short(number)}: {problem}"
    return None


def read_arguments(raw: str) -> dict[str, object]:
    """Return the arguments that a model wrote.

    Raises:
        ValueError: they are no JSON object, or one that cannot be kept; it says what is wrong.
    """
    if not raw.strip():
        return {}
    try:
        arguments = msgspec.json.decode(raw, type=dict[str, object])
    except RecursionError:
        raise ValueError(f"it nests more than {plain.DEPTH_MAX} levels deep") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ValueError(f"it is no JSON object: {error}") from error
    problem = plain.problem_of(arguments)
    if problem is not None:
        raise ValueError(problem)
    return arguments


def _tool_calls(drafts: list[_Draft], id_prefix: str) -> tuple[ToolCall, ...]:
    given = {draft.call_id for draft in drafts}
    fresh = (f"{id_prefix}-{n}" for n in range(1, 2 * len(drafts) + 1))
    unused = (CallId(call_id) for call_id in fresh if call_id not in given)
    seen: set[CallId] = set()
    calls = []
    for draft in drafts:
        own = _kept_id(draft.call_id)
        call_id = own if own and own not in seen else next(unused)
        seen.add(call_id)
        calls.append(_tool_call(call_id, draft.name, "".join(draft.arguments)))
    return tuple(calls)


def _tool_call(call_id: CallId, name: str, raw: str) -> ToolCall:
    name, raw = plain.one_line(name)[:NAME_CHARS_MAX], plain.mended(raw)
    try:
        return ToolCall(call_id=call_id, name=name, arguments=read_arguments(raw))
    except ValueError:
        return ToolCall(call_id=call_id, name=name, malformed=raw)


def _kept_id(call_id: CallId | None) -> CallId | None:
    problem = plain.text_problem(call_id, chars_max=CALL_ID_CHARS_MAX, one_line=True)
    return call_id if problem is None else None
