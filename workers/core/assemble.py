"""The reply that a stream of chunks adds up to, whole or as far as it came.

Ids are arguments: a call without an id, with one that nobody can keep, or with one that the reply
or the conversation has already, gets ``<id_prefix>-<n>``, so that every call can be answered apart
from the others. Nothing of a reply is trusted: a chunk of other types than it says is refused,
texts are mended, arguments that cannot be kept stay what the model wrote, and a usage that cannot
be is none.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, assert_never, get_args, get_type_hints

import msgspec

from cmdc_runtime import plain
from cmdc_runtime.extensions.provider import (
    Chunk,
    FailureKind,
    FinishChunk,
    ProviderError,
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
"""Of the reason why a reply is over."""
TOKENS_MAX: Final = 10**12
"""Of one request: far beyond what any is able to use, and sums of it fit into 64 bits."""
COST_USD_MAX: Final = 1e9
"""The price of one request, for the same reasons."""
CUT: Final = frozenset({"length", "content_filter"})
"""Why a reply is over that may end amid a call: one without arguments has not come to them."""
_MAY_BE_UNKNOWN: Final = frozenset({"cost_usd", "cached_tokens"})


def _types(hint: Any) -> tuple[type, ...]:  # Any: an annotation
    """Return the classes that an annotation names; a ``NewType`` is what it is made of."""
    return tuple(getattr(one, "__supertype__", one) for one in get_args(hint) or (hint,))


CHUNKS: Final[Mapping[type, Mapping[str, tuple[type, ...]]]] = {
    kind: {name: _types(hint) for name, hint in get_type_hints(kind).items()}
    for kind in get_args(Chunk)
}
"""The chunks that a provider may give, and what their fields may be: it is not ours, or reads what
a server says."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said; ``finish_reason`` is None where the stream did not get to its end."""

    text: str = ""
    thinking: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    usage: TokenUsage | None = None
    finish_reason: str | None = None


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
        """Add one piece. Some servers number all calls 0, and give them no ids either."""
        draft = self.open.get(chunk.index)
        if draft is None or _is_next(draft, chunk):
            draft = _Draft(chunk.call_id, "", [])
            self.open[chunk.index] = draft
            self.calls.append(draft)
        draft.call_id = draft.call_id or chunk.call_id
        draft.name = draft.name or chunk.name or ""
        draft.arguments.append(chunk.arguments)


def _is_next(draft: _Draft, chunk: ToolCallChunk) -> bool:
    """Say whether a piece begins another call: with an id of its own, or behind a whole one."""
    if draft.call_id and chunk.call_id:
        return draft.call_id != chunk.call_id
    if not (draft.name and chunk.name and chunk.arguments.strip()):
        return False
    try:
        return bool(read_arguments("".join(draft.arguments)))
    except ValueError:
        return False


def fit(chunk: Chunk) -> Chunk:
    """Return a provider's chunk as it can be taken: its text mended.

    Raises:
        ProviderError: it is none, or has a field of another type; the error names both.
    """
    kind = type(chunk)
    if kind not in CHUNKS:
        raise _refused(f"{kind.__name__} is no chunk of a reply")
    for name, types in CHUNKS[kind].items():
        if not isinstance(value := getattr(chunk, name), types):
            of = " or ".join(one.__name__ for one in types)
            raise _refused(f"{name} of a {kind.__name__} is {type(value).__name__}, not {of}")
    match chunk:
        case TextChunk() | ThinkingChunk():
            return msgspec.structs.replace(chunk, text=plain.mended(chunk.text))
        case _:  # of a call as a whole what cannot be kept is replaced
            return chunk


def _refused(why: str) -> ProviderError:
    return ProviderError(FailureKind.PERMANENT, f"the provider's answer can't be read: {why}")


def assemble(
    chunks: Iterable[Chunk], *, id_prefix: str, used: Collection[CallId] = frozenset()
) -> Reply:
    """Return the reply that ``chunks`` make up, in the order in which they came.

    ``used`` are the ids of earlier calls, which no call of the reply gets.
    """
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
        tool_calls=_tool_calls(drafts.calls, id_prefix, used, is_cut=finish_reason in CUT),
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
        raise ValueError(plain.TOO_DEEP) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        reason = plain.unread_reason(raw, error)
        raise ValueError(f"it is no JSON object: {reason}") from error
    problem = plain.problem_of(arguments)
    if problem is not None:
        raise ValueError(problem)
    return arguments


def _tool_calls(
    drafts: list[_Draft], id_prefix: str, used: Collection[CallId], *, is_cut: bool
) -> tuple[ToolCall, ...]:
    seen = set(used)
    given = {draft.call_id for draft in drafts} | seen
    fresh = (f"{id_prefix}-{n}" for n in itertools.count(1))
    unused = (CallId(call_id) for call_id in fresh if call_id not in given)
    calls = []
    for draft in drafts:
        own = _kept_id(draft.call_id)
        call_id = own if own and own not in seen else next(unused)
        seen.add(call_id)
        calls.append(_tool_call(call_id, draft.name, "".join(draft.arguments), is_cut=is_cut))
    return tuple(calls)


def _tool_call(call_id: CallId, name: str, raw: str, *, is_cut: bool) -> ToolCall:
    name, raw = plain.without_controls(name)[:NAME_CHARS_MAX], plain.mended(raw)
    if is_cut and not raw.strip():
        return ToolCall(call_id=call_id, name=name, malformed="")
    try:
        return ToolCall(call_id=call_id, name=name, arguments=read_arguments(raw))
    except ValueError:
        return ToolCall(call_id=call_id, name=name, malformed=raw)


def _kept_id(call_id: CallId | None) -> CallId | None:
    problem = plain.text_problem(call_id, chars_max=CALL_ID_CHARS_MAX, one_line=True)
    return call_id if problem is None else None
