"""Providers: what answers a model request with a stream of chunks, and how it may fail.

A provider yields text, thinking and tool calls as they come, then one ``UsageChunk`` where the
usage is known, then one ``FinishChunk``, which is always the last. Everything that goes wrong
leaves ``stream`` as one ``ProviderError``; a stream that ends without a finish is an error too.

To write a provider, give an object with ``stream``, or a function of a request, as the option
``provider``, and let ``classify`` decide what kind of failure an exception is. Where it knows
prices and limits of its models, give it the methods of ``ModelTable`` and ``AnswerTable`` too; ask
for them by ``context_window_of``, ``price_usd_of`` and ``answer_tokens_of``. What models take
beside text is in ``MediaTable``.
"""

import contextlib
import inspect
import math
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import msgspec

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.errors import ExtensionError, InvalidFields
from cmdc_runtime.ids import CallId
from cmdc_runtime.message_parts import Medium
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.plain import short
from cmdc_runtime.redaction import printed, printed_fields


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a model gets of one tool; ``parameters`` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: dict[str, object]


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """One question to a model.

    ``model`` is ``provider:model_id`` or ``provider/model_id``; an empty ``system`` is left out;
    ``max_tokens`` bounds the reply, None leaves that to the provider. ``response_format`` is a JSON
    Schema that the reply's text shall be valid by, None asks for free text. How a provider puts it
    to a model is its own affair, and no promise: who needs a valid reply checks it.

    The metadata of messages, and that of the system prompt, say what stands beside them. A
    provider reads what it knows, such as ``cache_control``, and sends nothing of the rest.

    ``blobs`` are the bytes of the images and files of messages (``Message.parts``), by their
    digests. What is not there is left out of this request, and the provider says so to the model.

    ``former_opts`` are options that the session had before: nothing of them is sent, and no reason
    of a failure may show a credential of them, since a server may still have it.
    """

    __repr__ = printed
    __rich_repr__ = printed_fields

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    system_metadata: dict[str, object] = {}
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    response_format: dict[str, object] | None = None
    provider_opts: dict[str, object] = {}
    former_opts: tuple[dict[str, object], ...] = ()
    blobs: dict[str, bytes] = {}


class TextChunk(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """A piece of the reply."""

    text: str


class ThinkingChunk(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """A piece of the model's reasoning, which is no part of the reply."""

    text: str


class ToolCallChunk(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """A piece of one tool call; only the first piece of an ``index`` has the id and the name."""

    index: int
    call_id: CallId | None = None
    name: str | None = None
    arguments: str = ""


class UsageChunk(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """What the request has cost."""

    usage: TokenUsage


class FinishChunk(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """The reply is whole; ``reason`` is OpenAI's word: ``stop``, ``tool_calls``, ``length``."""

    reason: str


Chunk: TypeAlias = TextChunk | ThinkingChunk | ToolCallChunk | UsageChunk | FinishChunk


class FailureKind(StrEnum):
    """What the kernel should do about a failed request."""

    TRANSIENT = "transient"
    """Try again after a delay."""
    PERMANENT = "permanent"
    """Give up: the same request fails again."""
    OVERFLOW = "overflow"
    """Make the conversation shorter, then ask once more."""
    TIMEOUT = "timeout"
    """Try again; when the retries end, the provider counts as unreachable."""
    UNREACHABLE = "unreachable"
    """Nobody is at the address: try again only where the model has answered before."""


_KINDS: Final = tuple(kind.value for kind in FailureKind)


class ProviderError(ExtensionError):
    """A request failed; ``reason`` is one readable line without any secret."""

    def __init__(
        self,
        kind: FailureKind | str,
        reason: str,
        *,
        status: int | None = None,
        retry_after_s: float | str | None = None,
    ) -> None:
        """Keep what is known, each as its type says.

        ``kind`` may be the word of one. ``retry_after_s`` is the provider's own wish, in seconds; a
        text that is a number is taken as one, since the header ``Retry-After`` is a text.

        Raises:
            InvalidFields: values are of another kind; the text names each.
        """
        checks = (
            ("kind", kind, _kind_problem),
            ("reason", reason, _reason_problem),
            ("status", status, _status_problem),
            ("retry_after_s", retry_after_s, _wait_problem),
        )
        found = [(name, value, check(value)) for name, value, check in checks]
        if problems := [
            f"ProviderError: {name}: expected {wanted}, got {short(value, (name,))}"
            for name, value, wanted in found
            if wanted is not None
        ]:
            raise InvalidFields(problems)
        super().__init__(reason)
        self.kind = FailureKind(kind)
        self.reason = reason
        self.status = status
        self.retry_after_s = None if retry_after_s is None else float(retry_after_s)


def _kind_problem(kind: object) -> str | None:
    return None if isinstance(kind, str) and kind in _KINDS else f"one of {', '.join(_KINDS)}"


def _reason_problem(reason: object) -> str | None:
    return None if isinstance(reason, str) else "a text"


def _status_problem(status: object) -> str | None:
    is_number = isinstance(status, int) and not isinstance(status, bool)
    return None if status is None or is_number else "a number such as 429, or None"


def _wait_problem(wait_s: object) -> str | None:
    wanted = "a finite number of seconds from 0 on, or None to leave the wait to the agent"
    if wait_s is None:
        return None
    if isinstance(wait_s, bool) or not isinstance(wait_s, int | float | str):
        return wanted
    try:
        return None if 0 <= float(wait_s) < math.inf else wanted
    except (ValueError, OverflowError):  # a date, or a number that no float is
        return wanted


class Provider(Protocol):
    """What answers model requests; one object serves many requests, also at the same time."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Return the chunks of the reply as they come.

        Runs in a task of the agent and must not block its loop. Closing the generator, or
        cancelling the task that iterates, ends the request at the provider too. The caller closes
        it (``contextlib.aclosing``) wherever it may stop before the end.

        Raises:
            ProviderError: for whatever goes wrong, before or between chunks.
        """
        ...


@runtime_checkable
class ModelTable(Protocol):
    """What a provider may know of models beforehand; nothing here calls the provider.

    Both methods are quick enough to be asked before every request, and never raise.
    """

    def context_window(self, model: str) -> int | None:
        """Return how many tokens a request to ``model`` may have; None where that is unknown."""
        ...

    def price_usd(self, model: str, prompt_tokens: int, completion_tokens: int) -> float | None:
        """Return the price of a request in US dollars, no token of it cached.

        None where the model's price is unknown; 0.0 is the price of a model that is free.
        """
        ...


@runtime_checkable
class AnswerTable(Protocol):
    """As ``ModelTable``, of a provider that knows how long the answers of models can be."""

    def answer_tokens(self, model: str) -> int | None:
        """Return how many tokens an answer of ``model`` can have; None where that is unknown."""
        ...


@runtime_checkable
class MediaTable(Protocol):
    """As ``ModelTable``, of a provider that knows what models take beside text."""

    def media(self, model: str) -> frozenset[Medium] | None:
        """Return what ``model`` takes; None where that is unknown, so that all of it is tried."""
        ...


def media_of(provider: Provider, model: str) -> frozenset[Medium] | None:
    """Return what a model takes beside text; None where the provider does not know."""
    return provider.media(model) if isinstance(provider, MediaTable) else None


def answer_tokens_of(provider: Provider, model: str) -> int | None:
    """Return how many tokens an answer can have; None where the provider does not know."""
    return provider.answer_tokens(model) if isinstance(provider, AnswerTable) else None


def context_window_of(provider: Provider, model: str) -> int | None:
    """Return how many tokens a request may have; None where the provider does not know."""
    return provider.context_window(model) if isinstance(provider, ModelTable) else None


def price_usd_of(
    provider: Provider, model: str, prompt_tokens: int, completion_tokens: int
) -> float | None:
    """Return the price of a request in US dollars; None where the provider does not know."""
    if not isinstance(provider, ModelTable):
        return None
    return provider.price_usd(model, prompt_tokens, completion_tokens)


# --- an application's own -------------------------------------------------------------------------


def as_provider(candidate: object) -> Provider:
    """Return the provider that ``candidate`` is, makes or answers as.

    A class is made without arguments. A function takes a ``ModelRequest``: an async generator that
    yields chunks, texts among them or alone, or an ``async def`` that returns the reply's text. So
    does ``stream`` of a class or an object; where it has yielded texts it need not yield the end.

    Raises:
        TypeError: it is nothing of these.
    """
    made = candidate() if isinstance(candidate, type) else candidate
    if callable(getattr(made, "stream", None)):
        return _OfObject(made)
    if inspect.isasyncgenfunction(made) or inspect.iscoroutinefunction(made):
        return _OfFunction(made)
    raise TypeError(
        "expected a class or an object with stream(request), an async generator function of a"
        f" request, or an async function that returns a text; got {short(candidate)}"
    )


_TABLES: Final = ("context_window", "price_usd", "answer_tokens", "media")
"""What a provider may have beside ``stream``: see ``ModelTable`` and those behind it."""


class _OfObject:
    """Asks an object."""

    def __init__(self, asked: Any) -> None:  # Any: what has a ``stream``
        self._stream = asked.stream
        for name in _TABLES:
            if callable(table := getattr(asked, name, None)):
                setattr(self, name, table)

    def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Yield what the object yields, and the end where its pieces are texts that say none."""
        return _chunks(self._stream(request), of_chunks_too=False)


class _OfFunction:
    """Asks a function."""

    def __init__(self, function: Callable[[ModelRequest], Any]) -> None:  # Any: of either kind
        self._function = function

    def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Yield what the function yields, or returns, and the end where it does not say it."""
        return _chunks(self._said(request), of_chunks_too=True)

    async def _said(self, request: ModelRequest) -> AsyncGenerator[Chunk | str, None]:
        if inspect.iscoroutinefunction(self._function):
            yield await self._function(request)
            return
        async with contextlib.aclosing(self._function(request)) as pieces:
            async for one in pieces:
                yield one


async def _chunks(
    said: AsyncGenerator[Chunk | str, None], *, of_chunks_too: bool
) -> AsyncGenerator[Chunk, None]:
    """Yield pieces as chunks, and the end where none is said; without texts only if so wished."""
    needs_end, has_end, has_calls = of_chunks_too, False, False
    async with contextlib.aclosing(said) as pieces:
        async for given in pieces:
            needs_end = needs_end or isinstance(given, str)
            has_end = has_end or isinstance(given, FinishChunk)
            has_calls = has_calls or isinstance(given, ToolCallChunk)
            yield TextChunk(text=given) if isinstance(given, str) else given
    if needs_end and not has_end:
        yield FinishChunk(reason="tool_calls" if has_calls else "stop")


# --- kinds of failures ----------------------------------------------------------------------------

_T, _P, _U = FailureKind.TRANSIENT, FailureKind.PERMANENT, FailureKind.UNREACHABLE
_O, _TO = FailureKind.OVERFLOW, FailureKind.TIMEOUT
# Names of the OpenAI family of exceptions, which most clients share, and of the standard library.
# Left out are names that say less than the status does (BadRequestError, APIError, …).
# fmt: off
CLASS_KINDS: Final[Mapping[str, FailureKind]] = {
    "ContextWindowExceededError":  _O,
    "AuthenticationError":         _P,
    "PermissionDeniedError":       _P,
    "PaymentRequiredError":        _P,
    "NotFoundError":               _P,
    "UnsupportedParamsError":      _P,
    "ContentPolicyViolationError": _P,
    "RejectedRequestError":        _P,
    "RateLimitError":              _T,
    "ConnectionRefusedError":      _U,
    "gaierror":                    _U,
    "Timeout":                     _TO,
    "APITimeoutError":             _TO,
    "TimeoutError":                _TO,
    "TimeoutException":            _TO,
}
STATUS_KINDS: Final[Mapping[int, FailureKind]] = {
    408: _TO,
    409: _T,
    413: _O,
    425: _T,
    429: _T,
    501: _P,
    504: _TO,
    505: _P,
}
WEAK_CLASS_KINDS: Final[Mapping[str, FailureKind]] = {
    "APIConnectionError":      _T,
    "InternalServerError":     _T,
    "ServiceUnavailableError": _T,
    "BadGatewayError":         _T,
    "ConnectionError":         _T,
    "TransportError":          _T,
}
# fmt: on
_STATUS_CLASS_KINDS: Final[Mapping[int, FailureKind]] = {4: _P, 5: _T}
_UNCLEAR_STATUSES: Final = frozenset({None, 400, 413, 422})
"""Statuses that a too long conversation shares with other mistakes: only the text differs."""

OVERFLOW_TEXTS: Final = (
    "context_length_exceeded",
    "max_prompt_tokens",
    "prompt_tokens_exceeded",
    "content_too_large",
    "string_above_max_length",
    "maximum context length",
    "maximum context size",
    "maximum model length",
    "maximum prompt length",
    "maximum input length",
    "context limit",
    "too many tokens",
    "too many input tokens",
    "request too large",
    "range of input length",
    "input token count",
    "prompt token count",
)
"""What vendors call a conversation that does not fit, and nothing else: their codes and phrases."""
_INPUT: Final = r"(?:prompt|inputs?|messages?|conversation|context|request)"
_OVERFLOW_SHAPES: Final = re.compile(
    # The conversation is too long; of "an image input" it is said as well.
    r"(?<!image )(?<!audio )(?<!file )(?<!video )\b(?:prompt|inputs?|messages|conversation|context)"
    r" (?:(?:is|are|was|were) )?(?:too long|too large for|longer than)\b"
    # It has more tokens, or more length, than the model takes.
    rf"|\b{_INPUT}(?: length| size|[ _]tokens?(?: count)?)[^.;]{{0,60}}\bexceed"
    rf"|\b{_INPUT}\b[^.;:]{{0,60}}\bexceed\w*[^.;]{{0,40}}\btoken limit"
    rf"|\b{_INPUT} exceeds? (?:the )?max(?:imum)? length"
    r"|`inputs` (?:tokens \+|must have less than)"
    r"|requested tokens[^.;]{0,40}\bexceed"
    # The model's window is too small for it.
    r"|\b(?:exceed|longer|larger|greater|overflow|too (?:long|large)|fit)\w*\b[^.;]{0,60}"
    r"\bcontext (?:window|length|size)"
    r"|\bcontext (?:window|length|size)\b[^.;]{0,40}\b(?:exceed|full\b|overflow|of only\b)"
    # What to do about it.
    r"|\b(?:reduce|shorten) (?:the (?:length|size) of )?(?:the |your )?"
    r"(?:input |chat |conversation )?(?:prompt|input|messages?|conversation|context)\b"
)
_OTHER_STRING: Final = re.compile(
    r"\binvalid '(?!messages\[\d+\]\.content|input'|input\[\d+\]\.(?:content|output)|instructions'"
    r"|prompt)[^']{1,200}'"
)
"""A parameter that one string is too long for, and that is no part of the conversation."""
_ANSWER_TOO_LONG: Final = (
    # vLLM: the answer is named first.
    re.compile(
        r"max_(?:completion_)?tokens['`]? is too large: (?P<answer>\d{1,18})\b.{0,80}?"
        r"maximum context length is (?P<window>\d{1,18})\b"
    ),
    # OpenAI, DeepSeek, OpenRouter, SGLang: both parts of the sum are named.
    re.compile(
        r"maximum context length (?:is|of) (?P<window>\d{1,18})\b.{0,240}?"
        r"\b(?P<answer>\d{1,18}) (?:tokens )?(?:in|for) the (?:completion|output)"
    ),
    # Anthropic.
    re.compile(r"context limit: \d{1,18} \+ (?P<answer>\d{1,18}) > (?P<window>\d{1,18})\b"),
    # TGI.
    re.compile(
        r"must be <= (?P<window>\d{1,18})\. given: \d{1,18} `inputs` tokens and"
        r" (?P<answer>\d{1,18}) `max_new_tokens`"
    ),
)
"""How vendors report a sum that exceeds the window: of the conversation, and of the answer."""
SPENT_TEXTS: Final = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
"""Codes of vendors for an account that has nothing left: they come with 429, as a limit does that
is over in a moment, but a person has to do something."""
PERMANENT_TEXTS: Final = ("unauthorized", "invalid_api_key", "authentication")
TRANSIENT_TEXTS: Final = (
    "overloaded",
    "rate_limit",
    "rate limit",
    "too many requests",
    "429",
    "500",
    "502",
    "503",
    "504",
    "connection",
    "econnreset",
    "econnrefused",
    "etimedout",
    "fetch failed",
    "socket hang up",
    "request timeout",
    "server_error",
    "timeout",
    "recv_timeout",
    "connect_timeout",
    "read_timeout",
    "stream_timeout",
    "closed",
    "transport_error",
)
_TEXT_KINDS: Final = ((PERMANENT_TEXTS, _P), (TRANSIENT_TEXTS, _T))
"""First match wins, so that what can't succeed is never retried."""


def classify(status: int | None, class_names: Iterable[str], text: str) -> FailureKind:
    """Say what kind of failure an exception is, by its clearest sign.

    ``class_names`` are those of the exception and its bases, most derived first. ``text`` is what
    the server has said: words of a client's own, or of the conversation, are no sign. In order:
    an account that has nothing left, a class that is clear by itself, an overflow's text where the
    status is unclear, the status, a class that only hints, the text. What nothing is known of is
    permanent: no retry is safe for it.
    """
    names = tuple(class_names)
    lowered = text.lower().replace("\\", "")  # of quotes within quotes
    if any(code in lowered for code in SPENT_TEXTS):
        return FailureKind.PERMANENT
    clear = _first(CLASS_KINDS, names)
    # The classes of an overflow come of words too, and some read them wrongly.
    if clear is not None and not (clear is _O and _is_other_limit(lowered)):
        return clear
    if status in _UNCLEAR_STATUSES and _is_overflow(lowered):
        return FailureKind.OVERFLOW
    by_status = _by_status(status)
    if by_status is not None:
        return by_status
    return _first(WEAK_CLASS_KINDS, names) or _by_text(lowered)


def _first(table: Mapping[str, FailureKind], names: tuple[str, ...]) -> FailureKind | None:
    return next((table[name] for name in names if name in table), None)


def _by_status(status: int | None) -> FailureKind | None:
    if status is None:
        return None
    return STATUS_KINDS.get(status) or _STATUS_CLASS_KINDS.get(status // 100)


def _is_overflow(lowered: str) -> bool:
    """Say whether a text means that the conversation does not fit into the model's window.

    What exceeds a limit of another kind, such as the length of the answer that is asked for, an
    image or the number of tools, is cured by no shorter conversation.
    """
    if _is_other_limit(lowered):
        return False
    known = any(part in lowered for part in OVERFLOW_TEXTS)
    return known or _OVERFLOW_SHAPES.search(lowered) is not None


def _is_other_limit(lowered: str) -> bool:
    """Say whether what is too long is no part of the conversation, or the answer all by itself."""
    sums = (found for one in _ANSWER_TOO_LONG if (found := one.search(lowered)) is not None)
    is_answer = any(int(found["answer"]) >= int(found["window"]) for found in sums)
    return is_answer or _OTHER_STRING.search(lowered) is not None


def _by_text(lowered: str) -> FailureKind:
    matches = (kind for texts, kind in _TEXT_KINDS if any(part in lowered for part in texts))
    return next(matches, FailureKind.PERMANENT)
