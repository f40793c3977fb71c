"""A connection to an MCP server by the official SDK: over pipes of ours, or by HTTP.

Nothing but ``servers`` loads this module, in a thread and when a session has servers: the SDK takes
a second and 60 MB. What the SDK raises is translated by ``failures``. The SDK's own way to end a
call, when the task that made it is cancelled, is kept: it notifies the server, within a bound of
its own. Which era of the protocol a server speaks is found out by the SDK; a server reports other
tools in either era's way, and both end as ``on_change``.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import mcp_types as types
import pydantic
from mcp import Client, MCPError
from mcp.client._transport import TransportStreams
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from cmdc_runtime.extensions.tool import ToolError
from cmdc_runtime.lines import one_line
from cmdc_runtime.mcp_logins import LoginFile, LoginUnreadable
from cmdc_runtime.mcp_oauth import LoginNeeded, Renewing
from cmdc_runtime.version import VERSION
from workers.core import elicitation
from workers.core.elicitation import Answered, Question
from workers.core.mcp_lines import mended_line, unread
from workers.mcp.failures import (
    UNREADABLE,
    ConnectionFailedError,
    UnusableAnswerError,
    translated,
)
from workers.mcp.http import events, streamable
from workers.mcp.process import MESSAGE_BYTES_MAX, ServerProcess
from workers.mcp.streams import Item, SaysTooMuchError, Transport, passed
from workers.mcp.tool_lists import TOOLS_MAX, ListReader, problem_of, summary_of

__all__ = [
    "Callbacks",
    "Connection",
    "ConnectionFailedError",
    "ListedTool",
    "UnusableAnswerError",
    "connected",
    "events",
    "login_at",
    "pipes",
    "streamable",
]

PAGES_MAX: Final = 100
"""Of one list of tools; a server whose list goes on has failed."""
LIST_BYTES_MAX: Final = 4 * 2**20
"""Of what one server says about all its tools."""
LISTEN_S: Final = 5.0
"""For a server to say that it will report changes, before its tools are listed all the same."""
LISTEN_AGAIN_S: Final = 5.0
"""Between two tries to hear of changes, where a server has ended the first."""

AT_FIRST: Final = b"first question"
"""What is kept of a call whose first question waits: nothing of what its server said."""
ROUNDS_MAX: Final = 10
"""Of questions in one call, as the SDK has it."""
STATE_ONLY_S: Final = 0.25
"""Before a call goes on of which the server has asked nothing."""


class OnProgress(Protocol):
    """Takes how far a call is, of how much, and in words."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """Report it."""


class KeepPort(Protocol):
    """The part of ``SessionPort`` by which a call keeps what a later run of it goes on with."""

    @property
    def kept(self) -> bytes:
        """What an earlier run has kept."""

    async def keep(self, content: bytes) -> None:
        """Keep it; raises ToolError."""


# Any, twice: whatever the application sends, and a JSON Schema.
Ask = Callable[[Question, Mapping[str, Any] | None], Awaitable[Answered]]
"""Asks the user for a call of this server; the second is the form."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What a server may want of its session, and what it reports."""

    name: str
    """What the session calls the server."""
    on_change: Callable[[], None]
    """Its list of tools has changed."""
    ask: Ask
    on_lost: Callable[[str], None]
    """It is not listened to any more, and why."""


@dataclass(frozen=True, slots=True)
class ListedTool:
    """One tool as its server lists it."""

    name: str
    description: str
    parameters: dict[str, Any]  # Any: a JSON Schema
    problem: str = ""
    """Why it can't be read; nobody can have it then."""


class Connection:
    """An open connection; made by ``connected``."""

    def __init__(self, client: Client) -> None:
        """Speak by ``client``."""
        self._client = client

    async def tools(self) -> tuple[ListedTool, ...]:
        """Return all tools that the server lists, in its order.

        Raises:
            UnusableAnswerError: it lists too many, or the list can't be read.
            ConnectionFailedError: it lists none.
        """
        with translated("it lists tools that can't be read"):
            if self._client.server_capabilities.tools is None:
                return ()
            found = await self._pages()
        if len(found) > TOOLS_MAX:
            raise UnusableAnswerError(f"it lists {len(found)} tools, more than {TOOLS_MAX}")
        size = sum(len(json.dumps(one.parameters)) + len(one.description) for one in found)
        if size > LIST_BYTES_MAX:
            raise UnusableAnswerError(f"its tools take {size:,} bytes, over {LIST_BYTES_MAX:,}")
        return found

    async def _pages(self) -> tuple[ListedTool, ...]:
        found: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            page = await self._client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if cursor is None or len(found) > TOOLS_MAX:
                break
        else:
            raise UnusableAnswerError(f"its list of tools has more than {PAGES_MAX} pages")
        return tuple(map(_listed, found))

    async def call(
        self,
        name: str,
        arguments: dict[str, Any],  # Any: whatever the tool takes
        on_progress: OnProgress,
        port: KeepPort,
    ) -> str:
        """Call a tool and return what the model reads.

        While the server waits for the user nothing of the call runs, so that it can be made again
        after a crash: from its beginning while the first question waits, whose answer is what the
        server goes on with, and else with the state that came with the question.

        Raises:
            ToolError: the tool says so.
            UnusableAnswerError: what it answers can't be read.
            ConnectionFailedError: the server refuses the call, or it is gone.
        """
        with translated():
            result = await self._finished(name, arguments, on_progress, port)
        text = _text_of(result)
        if result.is_error:
            raise ToolError(text or "the tool failed, and does not say why")
        return text or "(no output)"

    async def _finished(
        self,
        name: str,
        arguments: dict[str, Any],  # Any: as above
        on_progress: OnProgress,
        port: KeepPort,
    ) -> types.CallToolResult:
        async def send(
            responses: types.InputResponses | None = None, state: str | None = None
        ) -> types.CallToolResult | types.InputRequiredResult:
            try:
                return await self._client.session.call_tool(
                    name,
                    arguments,
                    progress_callback=on_progress,
                    input_responses=responses,
                    request_state=state,
                    allow_input_required=True,
                )
            except RuntimeError as error:  # the result is not as the tool's own schema has it
                raise UnusableAnswerError(one_line(str(error))) from error

        result: types.CallToolResult | types.InputRequiredResult
        is_first = port.kept in {b"", AT_FIRST}
        if is_first:
            result = await send()
        else:
            result = types.InputRequiredResult.model_validate_json(port.kept)
        for _ in range(ROUNDS_MAX):
            if not isinstance(result, types.InputRequiredResult):
                return result
            kept = AT_FIRST if is_first else result.model_dump_json(by_alias=True).encode()
            with contextlib.suppress(ToolError):  # too large: then it is lost with its process
                await port.keep(kept)
            is_first = False
            responses = await self._responses(result)
            await port.keep(b"")  # from here on it may act
            result = await send(responses, result.request_state)
        raise ConnectionFailedError(f"it asks more than {ROUNDS_MAX} times in one call")

    async def _responses(self, asked: types.InputRequiredResult) -> types.InputResponses | None:
        """Return what the user says to each question, one after another."""
        session, responses = self._client.session, dict[str, types.InputResponse]()
        if not asked.input_requests:
            await asyncio.sleep(STATE_ONLY_S)
            return None
        for key, request in asked.input_requests.items():
            context = ClientRequestContext(session=session, request_id=key, meta=None)
            response = await session.dispatch_input_request(context, request)
            if isinstance(response, types.ErrorData):
                raise ConnectionFailedError(response.message)
            responses[key] = response
        return responses


def _listed(tool: types.Tool) -> ListedTool:
    text = tool.description or tool.title or ""
    return ListedTool(tool.name, text, dict(tool.input_schema), problem_of(tool))


@contextlib.asynccontextmanager
async def connected(transport: Transport, callbacks: Callbacks) -> AsyncIterator[Connection]:
    """Speak to a server until the block ends.

    Raises:
        ConnectionFailedError: there is no common version of the protocol, or nobody answers.
    """
    reader = ListReader()

    def read(item: Item) -> Item:
        if isinstance(item, SaysTooMuchError):
            callbacks.on_lost(str(item))
        return reader.read(item)

    client = Client(
        passed(transport, read),
        mode="auto",
        client_info=types.Implementation(name="cmdc-runtime", version=VERSION),
        elicitation_callback=_asker(callbacks),
        message_handler=_listener(callbacks),
        cache=None,
    )
    with translated("it answers what can't be read"):
        async with client:
            reader.version = client.protocol_version
            is_heard = asyncio.Event()
            hearing = asyncio.create_task(_hear(client, callbacks, is_heard), name="mcp-hear")
            try:
                await _within(LISTEN_S, is_heard)
                yield Connection(client)
            finally:
                hearing.cancel()  # not waited for: the SDK may have cancelled whoever is here


# --- what a server reports and asks ---------------------------------------------------------------


def _listener(callbacks: Callbacks) -> Any:  # Any: the SDK's type of a handler
    async def take(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            callbacks.on_change()

    return take


async def _hear(client: Client, callbacks: Callbacks, is_heard: asyncio.Event) -> None:
    """Hear of changes in the way of the newer era; a server of the older one sends them itself.

    ``is_heard`` is set when they are, or can't be: what is listed from then on is not outdated
    without a word. Nobody knows what was missed before a later beginning, so it is a change.
    """
    tools = client.server_capabilities.tools
    is_modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
    if not is_modern or tools is None or not tools.list_changed:
        is_heard.set()
        return

    def begin() -> None:
        if is_heard.is_set():
            callbacks.on_change()
        is_heard.set()

    while True:
        is_begun = False
        with contextlib.suppress(MCPError, SubscriptionLost, RuntimeError, TimeoutError):
            async with client.listen(tools_list_changed=True) as changes:
                begin()
                is_begun = True
                async for _ in changes:
                    callbacks.on_change()
        if not is_begun:
            begin()
        await asyncio.sleep(LISTEN_AGAIN_S)


async def _within(limit_s: float, event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await event.wait()
    event.set()


def _asker(callbacks: Callbacks) -> Any:  # Any: the SDK's type of a callback
    async def ask(_context: object, params: Any) -> types.ElicitResult | types.ErrorData:
        try:
            if params.mode == "url":
                asked = elicitation.url_question(callbacks.name, params.message, params.url)
                found = await callbacks.ask(asked, None)
            else:
                form = dict(params.requested_schema)
                asked = elicitation.question(callbacks.name, params.message, form)
                found = await callbacks.ask(asked, form)
        except (ToolError, ValueError) as error:
            return types.ErrorData(code=types.INVALID_REQUEST, message=str(error))
        content = found.content if found.action == "accept" and params.mode == "form" else None
        return types.ElicitResult(action=found.action, content=content)

    return ask


# --- logins ---------------------------------------------------------------------------------------


def login_at(url: str, user: str, state_dir: Path) -> Renewing:
    """Return what shows a server the tokens of a user who has logged in there.

    Raises:
        ConnectionFailedError: nobody has, or it can't be read.
    """
    file = LoginFile(state_dir, url, user)
    try:
        if file.read() is None:
            raise ConnectionFailedError(str(LoginNeeded(file, "nobody has logged in")))
    except LoginUnreadable as error:
        raise ConnectionFailedError(str(error)) from error
    return Renewing(file)


# --- over pipes -----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def pipes(process: ServerProcess) -> AsyncIterator[TransportStreams]:
    """Carry messages as lines of JSON; the connection is closed where the server is gone."""
    arrived, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, written = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.create_task(_read(process, arrived), name="mcp-read"),
        asyncio.create_task(_write(process, written, arrived), name="mcp-write"),
    ]
    try:
        yield incoming, outgoing
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for stream in (arrived, incoming, outgoing, written):
            stream.close()


async def _read(process: ServerProcess, arrived: Any) -> None:  # Any: anyio's stream
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError), arrived:
        while True:
            try:
                line = await process.stdout.readuntil(b"\n")
            except asyncio.LimitOverrunError:
                await arrived.send(SaysTooMuchError(MESSAGE_BYTES_MAX))
                return
            except (asyncio.IncompleteReadError, OSError):
                return  # it is gone
            if line := line.strip():
                await arrived.send(_message(line))


def _message(line: bytes) -> SessionMessage | Exception:
    """Return a line as a message, with U+FFFD for what is no character in it.

    An answer that can't be read is an error under the number of its request, which fails at once;
    what a server prints besides is no message, and the session goes on.
    """
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        problem = error
    plain = mended_line(line) or line
    with contextlib.suppress(ValueError):
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(plain, by_name=False))
    return _unreadable(plain) or problem


def _unreadable(line: bytes) -> SessionMessage | None:
    """Return the error that stands for an answer that can't be read; None: it is no answer."""
    own, kind = _answered(line)
    if own is None:
        return None
    try:
        kind.model_validate_json(line, by_name=False)
        problem = "it is no message"
    except pydantic.ValidationError as error:
        problem = summary_of(error)
    failure = types.ErrorData(code=types.PARSE_ERROR, message=problem, data=UNREADABLE)
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=own, error=failure))


def _answered(line: bytes) -> tuple[int | str | None, type[pydantic.BaseModel]]:
    """Return the number of the request that a line is to answer, and as what; None: none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        cut = unread(line)
        return (None if cut is None else cut.id), types.JSONRPCResponse
    if not isinstance(found, dict) or "method" in found:
        return None, types.JSONRPCResponse
    own = found.get("id")
    is_id = isinstance(own, int | str) and not isinstance(own, bool)
    kind = types.JSONRPCError if "error" in found else types.JSONRPCResponse
    return (own if is_id else None), kind


async def _write(process: ServerProcess, written: Any, arrived: Any) -> None:  # Any: as above
    try:
        async for one in written:
            text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode() + b"\n")
            await process.stdin.drain()
    except OSError:
        arrived.close()


# --- results --------------------------------------------------------------------------------------


def _text_of(result: types.CallToolResult) -> str:
    """Return a result as text: what is no text is named, with its type and size."""
    parts = [_part_text(part) for part in result.content]
    if not any(parts) and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(filter(None, parts))


def _part_text(part: Any) -> str:  # Any: a part of any kind
    match part:
        case types.TextContent():
            return str(part.text)
        case types.ImageContent() | types.AudioContent():
            return f"[{part.type}: {part.mime_type}, {len(part.data) * 3 // 4:,} bytes]"
        case types.ResourceLink():
            return f"[resource: {part.name}, {part.uri}]"
        case types.EmbeddedResource(resource=types.TextResourceContents() as inner):
            return f"[resource: {inner.uri}]\n{inner.text}"
        case types.EmbeddedResource(resource=types.BlobResourceContents() as inner):
            return f"[resource: {inner.uri}, {len(inner.blob) * 3 // 4:,} bytes]"
        case _:
            return f"[{getattr(part, 'type', 'a part of an unknown kind')}]"
