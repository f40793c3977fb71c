"""The provider of every session: a vendor whose wire is spoken here is asked without litellm.

Which way a request goes is ``route_of``'s to say. litellm takes seconds to import, so that is done
at the first request that needs it, where nothing has done so before.
"""

import asyncio
import contextlib
import importlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Final, cast

import msgspec
import structlog

from cmdc_runtime.extensions.provider import (
    AnswerTable,
    Chunk,
    FailureKind,
    MediaTable,
    ModelRequest,
    ModelTable,
    Provider,
    ProviderError,
    ToolSpec,
)
from cmdc_runtime.message_parts import Medium
from cmdc_runtime.messages import Message
from cmdc_runtime.provider_options import HEADERS
from cmdc_runtime.version import VERSION
from workers.builtin.providers._answer_call import answer_call
from workers.builtin.providers._facts import check_addresses, check_keys
from workers.builtin.providers._failures import (
    Heard,
    RefusedAnswerError,
    border,
    hidden,
    no_key,
    secrets_of,
)
from workers.builtin.wires import anthropic_messages, openai_chat, table
from workers.builtin.wires.http import Call, answer_to
from workers.builtin.wires.reply import Events, StreamedReply
from workers.builtin.wires.routes import Route, WireFormat, missing_address, route_of, vendor_of
from workers.builtin.wires.table import entry_of, facts_of

log = structlog.get_logger()

END_S: Final = 0.2
"""For a server to end its answer behind the last event, which most do at once."""
LITELLM: Final = "workers.builtin.providers.litellm"
_ANYTHING: Final = (Message.user("Hello."),)
"""What any session may ask."""
_COMMON: Final = {
    "accept": "text/event-stream",
    "content-type": "application/json",
    "user-agent": f"cmdc-runtime/{VERSION}",
}


def create() -> Provider:
    """Return the provider; it keeps nothing between requests but connections."""
    return _Default()


def needs_litellm(
    model: str, provider_opts: dict[str, object], tools: tuple[ToolSpec, ...] = ()
) -> bool:
    """Say whether requests to a model with these tools go by litellm, whatever is asked.

    What is asked, as a schema for the reply that a vendor refuses, may send more of them there.
    """
    request = ModelRequest(
        model=model, messages=_ANYTHING, tools=tools, provider_opts=provider_opts
    )
    try:
        with border(request):
            return route_of(request) is None
    except ProviderError:  # of options that nobody takes: the first request says it
        return False


class _Foreign(Provider, ModelTable, AnswerTable, MediaTable):
    """What litellm's provider is."""


class _Default:
    """See the module."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Yield the reply's chunks as they come; see ``Provider.stream``."""
        with border(request):
            route = route_of(request)
            if route is None and (problem := missing_address(request)) is not None:
                raise ProviderError(FailureKind.PERMANENT, problem)
        chunks = _foreign().stream(request) if route is None else _stream(route, request)
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                yield chunk

    def context_window(self, model: str) -> int | None:
        """Return the tokens that fit into one request; see ``ModelTable``."""
        provider, model_id, vendor = vendor_of(model)
        if vendor is None:
            return _foreign().context_window(model)
        return facts_of(provider, model_id).context_window

    def answer_tokens(self, model: str) -> int | None:
        """Return the tokens that an answer can have; see ``AnswerTable``."""
        provider, model_id, vendor = vendor_of(model)
        if vendor is None:
            return _foreign().answer_tokens(model)
        return facts_of(provider, model_id).answer_tokens

    def media(self, model: str) -> frozenset[Medium] | None:
        """Return what a model takes beside text; see ``MediaTable``."""
        provider, model_id, vendor = vendor_of(model)
        if vendor is None:
            return _foreign().media(model)
        return facts_of(provider, model_id).media

    def price_usd(self, model: str, prompt_tokens: int, completion_tokens: int) -> float | None:
        """Return the price of a request; see ``ModelTable``."""
        provider, model_id, vendor = vendor_of(model)
        if vendor is None:
            return _foreign().price_usd(model, prompt_tokens, completion_tokens)
        counts = table.Counts(prompt=prompt_tokens, completion=completion_tokens)
        return table.cost_of(counts, entry_of(provider, model_id))


def _foreign() -> _Foreign:
    return cast("_Foreign", importlib.import_module(LITELLM).create())


async def _stream(route: Route, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
    heard = Heard()
    with border(request, lambda _request: route.vendor.keys, heard):
        check_addresses(request.provider_opts)
        check_keys(request, route.provider)
        if route.key is None and route.vendor.needs_key:
            raise ProviderError(FailureKind.PERMANENT, no_key(request.model, route.vendor.keys))
        reply, called = _reply_of(route, heard), answer_call(request, route.facts)
        async with contextlib.aclosing(
            _arriving(call_of(route, request), heard, reply)
        ) as arrivals:
            async for events in arrivals:
                for data in events:
                    if reply.is_over:
                        break
                    taken = reply.take(data)
                    for chunk in taken if called is None else called.through(taken):
                        yield chunk
        for chunk in reply.end() if called is None else called.through(reply.end()):
            yield chunk
        if reply.problem is not None:
            problem = hidden(reply.problem, secrets_of(request))
            log.warning("usage.refused", model=request.model, problem=problem)


async def _arriving(
    call: Call, heard: Heard, reply: StreamedReply
) -> AsyncGenerator[list[bytes], None]:
    """Yield the data of events as they come, several at once where they come so.

    What follows the end of the reply is nothing, and neither is how the connection ends then.
    """
    events = Events()
    try:
        async with answer_to(call, heard) as pieces:
            async for piece in pieces:
                yield events.take(piece)
                if reply.is_over:
                    await _ended(pieces)
                    return
    except TimeoutError as error:
        raise ProviderError(FailureKind.TIMEOUT, str(error)) from error
    yield events.rest()
    if not reply.is_over and (body := events.instead()) is not None:
        reply.take_instead(body)


async def _ended(pieces: AsyncIterator[bytes]) -> None:
    """Let an answer come to its end, so that its connection can be used again, if it does soon."""
    with contextlib.suppress(TimeoutError, ConnectionError, RefusedAnswerError):
        async with asyncio.timeout(END_S):
            async for _ in pieces:
                pass


def _reply_of(route: Route, heard: Heard) -> StreamedReply:
    kind: type[StreamedReply] = openai_chat.OpenAIReply
    if route.vendor.wire is WireFormat.ANTHROPIC:
        kind = anthropic_messages.AnthropicReply
    return kind(heard, lambda raw: table.usage_of(raw, route.entry))


def call_of(route: Route, request: ModelRequest) -> Call:
    """Return the request as it is sent."""
    timeout = request.provider_opts.get("timeout")
    if route.vendor.wire is WireFormat.ANTHROPIC:
        address = anthropic_messages.address_of(route)
        own = anthropic_messages.headers_of(route, request)
        body = anthropic_messages.body_of(route, request)
    else:
        address = route.address + openai_chat.PATH
        own = openai_chat.headers_of(route, request)
        body = openai_chat.body_of(route, request)
    headers = {**_COMMON, **own}
    for name in HEADERS:
        given = request.provider_opts.get(name)
        if isinstance(given, Mapping):
            headers |= {one.lower(): value for one, value in given.items() if value is not None}
    return Call(
        address=address,
        headers=headers,
        body=msgspec.json.encode(body),
        silence_s=timeout if isinstance(timeout, int | float) else None,
    )
