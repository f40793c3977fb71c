"""The session's tools as they stand: found by name, described anew, opened, exchanged and called.

``CodeOpener`` opens what commands bring while the session lives: each packed code is a step, as in
rebuilding. Foreign code runs then. The process may die of it, and the command, which the journal
has, comes again to the next one. So the step stands in the heartbeat for as long as that code
may run, whatever else the agent does meanwhile. Commands have their turns one after another: two
that are open at a time could not be distinguished by a death.

``Job`` is one call as it is to be run: its tool, its arguments as the tool takes them, and what
people see.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec
import structlog

from cmdc_runtime import foreign, plain
from cmdc_runtime.bounded_check import CheckTooLongError, bounded
from cmdc_runtime.commands import AttachTools, ReplaceTools
from cmdc_runtime.extensions.actions import APPROVAL_TIMEOUT_S, RequireApproval
from cmdc_runtime.extensions.context import SessionFacts, ToolContext
from cmdc_runtime.extensions.provider import ToolSpec
from cmdc_runtime.extensions.tool import Tool, ToolError
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.heartbeats import packed_step
from cmdc_runtime.ids import CommandId
from cmdc_runtime.messages import ToolCall
from cmdc_runtime.packed_code import Packed, digest_of
from workers.core.assemble import read_arguments
from workers.core.inputs import FoundTool, Result, ToolsLoaded
from workers.core.state import ToolFacts
from workers.core.step import ChangeTools, ExchangeTools, RunTools
from workers.loader import LoadError, load_tools, with_code
from workers.mcp.servers import McpServers
from workers.threads import Threads
from workers.toolhost.wire import fit

# --- opened as a step -----------------------------------------------------------------------------

_T = TypeVar("_T")

_NO_STEP: Final = 0


class CodeOpener:
    """What opens the packed code of one session's commands."""

    def __init__(self, report_step: Callable[[int], None] = lambda _step: None) -> None:
        """Call ``report_step`` with each step before it is taken, and 0 when it is over."""
        self._report_step = report_step
        self._turn = asyncio.Lock()
        self._threads = Threads("opener")

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the commands before this one; each of them opens for a bounded time."""
        async with self._turn:
            yield

    @contextmanager
    def step(self, packed: Packed) -> Iterator[None]:
        """Be at the step of this packed code; in a turn."""
        self._report_step(packed_step(digest_of(packed)))
        try:
            yield
        finally:
            self._report_step(_NO_STEP)

    async def run(self, work: Callable[[], _T]) -> _T:
        """Return what ``work``, which raises nothing, returns in a thread of its own.

        Who is cancelled meanwhile leaves the thread alone.

        Raises:
            RuntimeError: the system gives no more threads.
        """
        return await self._threads.call(work)


# --- tools ----------------------------------------------------------------------------------------

log = structlog.get_logger()

REPEATABLE: Final = frozenset({"read", "idempotent"})
"""Effects with which a call may be made again."""
SHELL: Final = "shell"
"""The built-in tool that runs commands."""
LOAD_S: Final = 60.0
"""For all tools of one command to be opened, which runs their modules."""

_keys: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class LoadedTool:
    """A tool and its packed code; ``key`` names it in this process and to its host."""

    tool: Tool
    packed: Packed
    key: int = field(default_factory=lambda: next(_keys), compare=False)

    def facts(self) -> ToolFacts:
        """Return what the tables know of it."""
        tool = self.tool
        chars = len(msgspec.json.encode(_spec(tool, ToolContext())))
        is_repeatable = tool.effects in REPEATABLE
        named: object = tool.run_strategy  # a stranger's class may have another thing there
        return ToolFacts(
            tool.name,
            is_repeatable,
            tool.isolation,
            self.packed,
            chars,
            run_strategy=named if isinstance(named, str) else "",
        )


@dataclass(frozen=True, slots=True)
class Reserve:
    """Tools that wait for their agent: those of all agents, and what the session's own put by.

    ``takes_servers``: who acts has the tools of MCP servers, too.
    """

    of_agents: tuple[LoadedTool, ...] = ()
    put_by: tuple[LoadedTool, ...] = ()
    takes_servers: bool = True


NO_RESERVE: Final = Reserve()


def shell_of(tools: Iterable[LoadedTool], otherwise: str) -> str:
    """Return what reads the commands of a session: what its shell tool was given, if anything."""
    for one in tools:
        if one.packed.ref == SHELL and one.packed.data is not None:
            options: dict[str, Any] = msgspec.msgpack.decode(one.packed.data)  # Any: its options
            if kind := options.get("shell"):
                return str(kind)
    return otherwise


class Toolbox:
    """The tools in their order."""

    def __init__(
        self,
        tools: Iterable[LoadedTool],
        post: Callable[[Result], None],
        opener: CodeOpener | None = None,
        reserve: "Reserve" = NO_RESERVE,
    ) -> None:
        """Begin with ``tools``; ``opener`` is the session's, ``reserve`` has the rest of them."""
        self._tools = {one.tool.name: one for one in tools}
        self._of_agents = {_known_as(one): one for one in reserve.of_agents}
        self._put_by = {_known_as(one): one for one in reserve.put_by}
        self._takes_servers = reserve.takes_servers
        self._post = post
        self._opener = opener or CodeOpener()
        self._loaded: dict[CommandId, dict[str, LoadedTool]] = {}
        self._joined: dict[str, LoadedTool] = {}

    @property
    def schemas(self) -> tuple[ToolSpec, ...]:
        """The names and parameters of all tools."""
        return tuple(schema_of(one) for one in self._all())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tools."""
        return tuple(one.tool.name for one in self._all())

    def find(self, name: str) -> LoadedTool | None:
        """Return the tool of this name."""
        return self._tools.get(name) or self._joined.get(name)

    def join(self, servers: McpServers) -> None:
        """Have the tools that MCP servers have now in the place of those that they had before.

        An agent with tools of its own has none of these.
        """
        tools = servers.tools(self._tools) if self._takes_servers else ()
        self._joined = {one.name: LoadedTool(one, _of_server(one.name)) for one in tools}

    def specs(self, where: ToolContext) -> tuple[ToolSpec, ...]:
        """Return the tools as a provider gets them now; the shell is that of the shell tool."""
        there = replace(where, shell=shell_of(self._tools.values(), where.shell))
        return tuple(_spec(one.tool, there) for one in self._all())

    def _all(self) -> Iterator[LoadedTool]:
        """Yield all tools; one that was attached outranks a server's of its name."""
        yield from self._tools.values()
        yield from (one for name, one in self._joined.items() if name not in self._tools)

    async def load(self, command_id: CommandId, command: AttachTools | ReplaceTools) -> None:
        """Open what a command brings, in a thread, and post what is in it.

        What was opened is there for the ``change`` that comes of the post, and gone after it.
        """
        async with self._opener.turn():
            opened = await self._opened(command.tools)
        good = [one for one, _ in opened if one is not None]
        self._loaded[command_id] = {one.tool.name: one for one in good}
        found = tuple(one for _, one in opened)
        try:
            self._post(ToolsLoaded(command_id, command, found))
        finally:
            del self._loaded[command_id]

    def change(self, change: ChangeTools) -> tuple[LoadedTool, ...]:
        """Exchange tools, and return those that are gone; calls of them go on."""
        gone = [self._tools.pop(name, None) for name in change.detached]
        loaded = self._loaded.get(change.load_id, {})
        self._tools.update({name: loaded[name] for name in change.attached})
        return tuple(one for one in gone if one is not None)

    def exchange(self, exchange: ExchangeTools) -> tuple[LoadedTool, ...]:
        """Have the tools of another agent, and return those that are gone; calls of them go on."""
        before = self._tools
        pool = self._of_agents | self._put_by | {_known_as(one): one for one in before.values()}
        self._tools = {one.name: pool[_facts_known_as(one)] for one in exchange.tools}
        self._put_by = {key: pool[key] for key in map(_facts_known_as, exchange.put_by)}
        self._takes_servers = exchange.takes_servers
        kept = {one.key for one in self._tools.values()}
        return tuple(one for one in before.values() if one.key not in kept)

    async def _opened(
        self, all_packed: Sequence[Packed]
    ) -> list[tuple[LoadedTool | None, FoundTool]]:
        try:
            async with asyncio.timeout(LOAD_S):
                return [await self._one(packed) for packed in all_packed]
        except TimeoutError:
            late = "{}: not loaded within {:g} s"
            labels = [packed.label for packed in all_packed]
            return [(None, FoundTool(one, None, late.format(one, LOAD_S))) for one in labels]

    async def _one(self, packed: Packed) -> tuple[LoadedTool | None, FoundTool]:
        with self._opener.step(packed):
            one = await self._opener.run(lambda: _open(packed))
            if isinstance(one, str):
                return None, FoundTool(packed.label, None, one)
            return one, FoundTool(packed.label, one.facts())  # its description is its code, too


def _known_as(tool: LoadedTool) -> tuple[str, str]:
    return tool.tool.name, digest_of(tool.packed)


def _facts_known_as(facts: ToolFacts) -> tuple[str, str]:
    assert facts.packed is not None  # noqa: S101 - only tests make tools without
    return facts.name, digest_of(facts.packed)


def _of_server(name: str) -> Packed:
    """Return what stands for the code of a server's tool, which is nowhere."""
    return Packed(kind="ref", label=name)


def _open(packed: Packed) -> LoadedTool | str:
    try:
        (tool,) = load_tools([packed])
    except LoadError as error:
        return str(error)
    return LoadedTool(tool, with_code(packed))


def schema_of(loaded: LoadedTool) -> ToolSpec:
    """Return what a tool takes; nobody has to describe it for that."""
    tool = loaded.tool
    return ToolSpec(name=tool.name, description="", parameters=tool.parameters)


def _spec(tool: Tool, where: ToolContext) -> ToolSpec:
    """Return a tool as a provider gets it; a description that fails is replaced."""
    try:
        description = fit(foreign.call(lambda: str(tool.describe(where))))
    except ForeignError as failed:
        trace = foreign.traceback_of(failed)
        log.error("tool.not_described", tool=tool.name, exception=trace)
        description = tool.description or tool.name
    return ToolSpec(name=tool.name, description=description, parameters=tool.parameters)


# --- calls ----------------------------------------------------------------------------------------

SUMMARY_CHARS_MAX: Final = 200
"""Of what a tool says about a call, for people."""
MALFORMED_CHARS_SHOWN: Final = 200
"""Of arguments that are no JSON object which can be kept."""
TOO_LONG: Final = (
    "Invalid arguments for {}: they cannot be checked: {}. A pattern of this tool's schema may take"
    " too long for such a text: send a shorter or simpler one."
)

T = TypeVar("T")


@dataclass(slots=True)
class Tally:
    """What a call has published, kept and asked the user, in all its runs."""

    steps: int = 0
    kept: bytes = b""
    asked: int = 0
    """Questions by the time that it kept something."""


@dataclass(frozen=True, slots=True)
class Job:
    """One call, what it runs and with which arguments."""

    batch: RunTools
    call: ToolCall
    facts: SessionFacts
    loaded: LoadedTool
    arguments: dict[str, Any]  # Any: whatever the tool takes
    tally: Tally

    @property
    def tool(self) -> Tool:
        """The tool itself."""
        return self.loaded.tool

    def args_given(self, asked: ToolCall) -> dict[str, Any] | None:  # Any: whatever the tool takes
        """Return the arguments that plugins gave the call, None where they left them alone."""
        return None if self.call is asked else self.call.arguments

    def approval(
        self, wanted: RequireApproval | None, *, holds: bool = False
    ) -> RequireApproval | None:
        """Return how a person is to be asked, as plugins or the tool itself want; None if not.

        ``holds``: a call that the tool itself wants to have approved is held for that.

        A tool that fails to answer is not trusted.
        """
        if wanted is not None:
            hint = wanted.hint or self.summary
            return msgspec.structs.replace(wanted, hint=hint)
        try:
            if not foreign.call(lambda: bool(self.tool.wants_approval(self.arguments))):
                return None
        except ForeignError as failed:
            _log_crash(self.call, failed)
        timeout_s = APPROVAL_TIMEOUT_S if holds else None
        return RequireApproval(hint=self.summary, hold=holds, timeout_s=timeout_s)

    @property
    def summary(self) -> str:
        """What the tool says of the call, for people; its name where it says nothing."""
        try:
            text = foreign.call(lambda: str(self.tool.meta(self.arguments)))
        except ForeignError as failed:
            _log_crash(self.call, failed)
            text = self.tool.name
        return fit(text[:SUMMARY_CHARS_MAX])


def checked(call: ToolCall, tool: Tool) -> dict[str, Any]:  # Any: whatever the tool takes
    """Return the arguments of a call as its tool takes them.

    Raises:
        ToolError: they do not fit; the text says what is wrong, for the model.
    """
    if call.malformed is not None:
        raise ToolError(_malformed(call.malformed))
    try:
        return foreign.call(lambda: bounded(lambda: tool.check(call.arguments)))
    except ForeignError as failed:
        if isinstance(failed.error, ToolError):
            raise failed.error from failed
        if isinstance(failed.error, CheckTooLongError):
            log.warning("tool.check_ended", tool=call.name, call_id=call.call_id)
            raise ToolError(TOO_LONG.format(call.name, failed.error)) from failed
        _log_crash(call, failed)
        raise ToolError(str(failed)) from failed


def _log_crash(call: ToolCall, failed: ForeignError) -> None:
    trace = foreign.traceback_of(failed)
    log.error("tool.crashed", tool=call.name, call_id=call.call_id, exception=trace)


_UNUSABLE: Final = "the arguments cannot be used"


def _malformed(raw: str) -> str:
    if not raw.strip():
        return f"{_UNUSABLE}: the answer was cut off before them. Send a JSON object."
    try:
        read_arguments(raw)
    except ValueError as error:
        problem = plain.without_controls(str(error))
    else:
        problem = "it could not be read"  # an older program had other rules
    shown = plain.mended(raw)[:MALFORMED_CHARS_SHOWN]
    return f"{_UNUSABLE}: {problem}: {shown!r}. Send a JSON object."


class Seat:
    """A place among the calls that run at once; a call that waits for a person gives it up."""

    def __init__(self, gate: asyncio.Semaphore) -> None:
        """Take a place behind ``gate`` when entered."""
        self._gate = gate
        self._is_taken = False

    async def __aenter__(self) -> Self:
        """Wait for a place."""
        await self._gate.acquire()
        self._is_taken = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the place to the next."""
        self._leave()

    async def left_for(self, waiting: Awaitable[T]) -> T:
        """Return what comes of ``waiting``, with the place given up until then."""
        self._leave()
        result = await waiting
        await self.__aenter__()
        return result

    def _leave(self) -> None:
        if self._is_taken:
            self._is_taken = False
            self._gate.release()
