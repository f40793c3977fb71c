"""What becomes of an answer is the same without litellm as with it, one server asked both ways.

The answers are generated, whole and broken ones, and cut into pieces anywhere. What is compared is
what a session has of a reply: text, thoughts, calls, usage with its price, finish, and the kind of
a failure with status and wait.
"""

import asyncio
import contextlib

import pytest

from cmdc_runtime.extensions.provider import (
    FinishChunk,
    ModelRequest,
    ProviderError,
    TextChunk,
    ThinkingChunk,
    ToolCallChunk,
    UsageChunk,
)
from cmdc_runtime.messages import Message
from tests.contract.providers.differences import DIFFERENCES
from tests.contract.providers.streams import answer_of
from workers.builtin.providers import default
from workers.builtin.providers.litellm import litellm
from workers.builtin.wires import http

pytestmark = [
    pytest.mark.slow,
    # litellm and pydantic disagree about each other's newest versions; both work.
    pytest.mark.filterwarnings("ignore:Items? .* `ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
]
MODELS = {"openai": "openai:gpt-4o", "anthropic": "anthropic:claude-sonnet-4-5"}
WAYS = ({}, {"via": "litellm"})
ANSWERS = 60
"""On each wire."""
NO_STATUS = "no status is made up"
SLICE = 15
"""Answers in one test."""


class Server:
    """Answers each request with ``answer``, over HTTP."""

    def __init__(self):
        self.answer, self.base = None, ""

    @contextlib.asynccontextmanager
    async def serve(self):
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self

    async def _answer(self, reader, writer):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))
            answer = self.answer
            fields = {**answer.headers, "connection": "close", "transfer-encoding": "chunked"}
            lines = [f"HTTP/1.1 {answer.status} So", *(f"{k}: {v}" for k, v in fields.items())]
            writer.write("\r\n".join([*lines, "", ""]).encode())
            for piece in filter(None, answer.pieces):
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        writer.close()


@pytest.fixture(scope="module")
def runner():
    """One loop for all, as in an agent: connections are kept per loop."""
    with asyncio.Runner() as runner:
        yield runner
        runner.run(http.close())
        runner.run(litellm.close_litellm_async_clients())


async def made(wire, base, way):
    """Ask once; return all that a session would have of the answer."""
    options = {"api_base": base, "api_key": "no-key-at-all", "timeout": 20} | way
    request = ModelRequest(
        model=MODELS[wire], messages=(Message.user("hi"),), provider_opts=options
    )
    chunks, failure = [], None
    try:
        async with contextlib.aclosing(default.create().stream(request)) as stream:
            async for chunk in stream:
                chunks.append(chunk)  # noqa: PERF401 - what came before a failure counts
    except ProviderError as error:
        failure = error.kind, error.status, error.retry_after_s
    return {**reply_of(chunks), "failure": failure}


def reply_of(chunks):
    """Put chunks together."""
    calls = {}
    for one in chunks:
        if isinstance(one, ToolCallChunk):
            call_id, name, written = calls.get(one.index, (None, None, ""))
            calls[one.index] = (one.call_id or call_id, one.name or name, written + one.arguments)
    # None at all are the same to a session as an empty object.
    calls = {index: (*named, written or "{}") for index, (*named, written) in calls.items()}
    usages = [one.usage for one in chunks if isinstance(one, UsageChunk)]
    return {
        "text": "".join(one.text for one in chunks if isinstance(one, TextChunk)),
        "thinking": "".join(one.text for one in chunks if isinstance(one, ThinkingChunk)),
        "calls": calls,
        "usages": [(u.prompt_tokens, u.completion_tokens, u.cached_tokens or 0) for u in usages],
        "costs": [round(one.cost_usd, 12) for one in usages],
        "finish": [one.reason for one in chunks if isinstance(one, FinishChunk)],
        "last": type(chunks[-1]).__name__ if chunks else None,
    }


@pytest.mark.parametrize("first", range(0, ANSWERS, SLICE))
@pytest.mark.parametrize("wire", MODELS)
def test_an_answer_is_the_same_both_ways(runner, wire, first):
    """Each number is one answer, given twice."""

    async def compare():
        async with Server().serve() as server:
            for number in range(first, first + SLICE):
                server.answer = answer_of(wire, number)
                lean, by_litellm = [await made(wire, server.base, way) for way in WAYS]
                if server.answer.status == 200 and by_litellm["failure"] is not None:
                    assert NO_STATUS in DIFFERENCES
                    kind, _, wait_s = by_litellm["failure"]
                    by_litellm["failure"] = kind, None, wait_s

                assert lean == by_litellm, (wire, number, server.answer)

    runner.run(compare())


@pytest.mark.parametrize("wire", MODELS)
def test_the_answers_are_of_all_kinds(wire):
    """Else the test above would show little."""
    answers = [answer_of(wire, number) for number in range(ANSWERS)]
    bodies = [b"".join(one.pieces) for one in answers]
    whole = {"openai": b'"usage"', "anthropic": b"message_stop"}[wire]
    thoughts, calls = (b"thinking", b"reasoning_content"), (b"tool_use", b"tool_calls")
    marks = (thoughts, calls, (b"\r\n",), (b"error",))

    assert sum(one.status != 200 for one in answers) == ANSWERS / 5
    assert sum(whole in one for one in bodies) > ANSWERS / 3
    assert all(any(mark in one for mark in many for one in bodies) for many in marks)
