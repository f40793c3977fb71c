"""The MCP servers of one session: started when a request needs them, kept up, and called.

Each server has one task, which holds what there is of it (``server``) from beginning to end. What
follows from what happens to it is decided in ``core.mcp``. A request begins with ``wait``, and gets
``tools`` then; nothing here holds up the start of an agent.
"""

import asyncio
import contextlib
import hashlib
import importlib
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from cmdc_runtime.commands import McpServerStatus
from cmdc_runtime.errors import InvalidTool
from cmdc_runtime.extensions.context import Context
from cmdc_runtime.extensions.tool import Tool, ToolError, as_tool
from cmdc_runtime.foreign import ForeignError, hidden, summary_of
from cmdc_runtime.lines import one_line
from cmdc_runtime.mcp_servers import McpServer
from cmdc_runtime.wire.frames import ServerFound
from workers.core import mcp, toolset
from workers.core.inputs import McpServerReported, McpToolsListed, Result
from workers.core.mcp import ServerLife, ServerState
from workers.core.state import Memory
from workers.mcp.server import LostError, ServerLink, ServerSurroundings
from workers.threads import Threads

if TYPE_CHECKING:
    from workers.mcp.connection import ListedTool

__all__ = ["McpServers", "ServerSurroundings"]

log = structlog.get_logger()

CONNECT_S_MAX: Final = 600.0
"""For a server to be ready though no request waits for it any more: npx may download it first."""
DIGEST_BYTES: Final = 16
PROBLEM_CHARS_MAX: Final = 1_000
"""Of what is said about a server."""
_SDK: Final = "workers.mcp.connection"
_NO_SDK: Final = "the package mcp is not installed here: pip install 'cmdc-runtime[mcp]'"


ToolCaller = Callable[[str, dict[str, Any], Context], Awaitable[str]]
"""Calls a tool of one server by the server's own name for it (Any: whatever the tool takes)."""


class McpTool(Tool):
    """One tool of a server; what it does nobody knows, so it is not run twice."""

    isolation = "task"
    effects = "write"

    def __init__(self, name: str, listed: "ListedTool", call: ToolCaller) -> None:
        """Be called ``name`` here; ``call`` has the server do it."""
        self.name = name
        self.description = listed.description or listed.name
        self.parameters = listed.parameters
        self._own_name, self._call = listed.name, call

    # Any: whatever the tool takes.
    async def execute(self, args: dict[str, Any], context: Context) -> str:
        """Have the server do it."""
        return await self._call(self._own_name, args, context)


@dataclass(frozen=True, slots=True)
class _Checked:
    """A list of tools: those that a model can have, and why the others can't be had, by name."""

    listed: tuple["ListedTool", ...] = ()
    fit: tuple["ListedTool", ...] = ()
    unfit: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True, eq=False)
class _Server:
    """One server, and where it stands."""

    declared: McpServer
    life: ServerLife
    link: ServerLink | None = None
    """While it is ready."""
    task: asyncio.Task[None] | None = None
    _checked: _Checked = _Checked()

    @property
    def checked(self) -> _Checked:
        """The tools that it lists, each list checked once."""
        listed = () if self.link is None else self.link.listed
        if listed is not self._checked.listed:
            self._checked = _sorted_out(self.declared.name, listed)
        return self._checked

    def allows(self, tool: str) -> bool:
        """Say whether the session wants a tool, by the server's own name for it."""
        return self.declared.allow is None or tool in self.declared.allow


def _sorted_out(server: str, listed: tuple["ListedTool", ...]) -> _Checked:
    """Return a list of tools, checked as tools of a session are."""
    fit: list[ListedTool] = []
    unfit: list[tuple[str, str]] = []
    for tool in listed:
        name = mcp.tool_name(server, tool.name)
        if tool.problem:
            unfit.append((tool.name, f"it is left out: tool {name!r}: {tool.problem}"))
            continue
        try:
            as_tool(McpTool(name, tool, _uncalled))
        except InvalidTool as error:
            unfit.append((tool.name, f"it is left out: {error}"))
            continue
        fit.append(tool)
    return _Checked(listed, tuple(fit), tuple(unfit))


async def _uncalled(name: str, _args: dict[str, Any], _context: Context) -> str:  # Any: the same
    raise ToolError(f"{name!r} is only looked at")


def _digest(tool: "ListedTool") -> str:
    """Return what names a definition: another one has another."""
    parts = msgspec.json.encode([tool.name, tool.description, tool.parameters], order="sorted")
    return hashlib.blake2b(parts, digest_size=DIGEST_BYTES).hexdigest()


class McpServers:
    """All servers of one session."""

    def __init__(
        self,
        memory: Callable[[], Memory],
        surroundings: ServerSurroundings,
        post: Callable[[Result], None],
        on_crash: Callable[[BaseException], None],
        on_import: Callable[[], None],
    ) -> None:
        """Start none.

        ``on_crash`` is called where a task of ours raises, which is a bug; ``on_import`` when the
        SDK was imported, which the process did not have.
        """
        self._memory = memory
        self._servers: dict[str, _Server] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._surroundings = surroundings
        self._post = post
        self._on_crash, self._on_import = on_crash, on_import
        self._threads = Threads("mcp")
        self._changed = asyncio.Event()
        self._is_closed = False
        self.change(memory().mcp_servers)

    def change(self, servers: Iterable[McpServer]) -> None:
        """Have these servers from now on: new ones are declared, those that are gone end."""
        wanted = {one.name: one for one in servers}
        for name in self._servers.keys() - wanted.keys():
            gone = self._servers.pop(name)
            gone.link = None
            if gone.task is not None:
                self._ending.add(gone.task)
                gone.task.add_done_callback(self._ending.discard)
                gone.task.cancel()
        for name, declared in wanted.items():
            self._servers.setdefault(name, _Server(declared, ServerLife()))
        self._wake()

    # --- for requests -----------------------------------------------------------------------------

    @property
    def must_wait(self) -> bool:
        """Whether there is a server that a request waits for; it starts what it needs."""
        self._want()
        return self._next_due_s() is not None or bool(self._outdated())

    def may_have(self, name: str) -> bool:
        """Say whether a tool of this name may be one of a server's."""
        return any(name.startswith(mcp.tool_name(server, "")) for server in self._servers)

    async def wait(self) -> None:
        """Return when each server is ready or failed, or its time is over; it starts them.

        Of one that has announced other tools until now, these are listed then.
        """
        self._want()
        await asyncio.gather(*(link.current() for link in self._outdated()))
        while (due_s := self._next_due_s()) is not None:
            changed = self._changed
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(due_s - time.monotonic()):
                    await changed.wait()

    def tools(self, taken: Iterable[str]) -> tuple[McpTool, ...]:
        """Return the tools of the servers that are ready; ``taken`` are the session's other names.

        A tool that cannot be had is left out, and the status of its server says so.
        """
        memory = self._memory()
        listed = {
            (one.declared.name, tool.name): tool
            for one in self._ready()
            for tool in one.checked.fit
        }
        found: list[McpTool] = []
        for (server, own_name), name in self._names(taken).given.items():
            tool = McpTool(name, listed[server, own_name], self._caller(server))
            tool.needs_approval = toolset.needs_approval(memory, name)
            found.append(tool)
        return tuple(found)

    def _ready(self) -> list[_Server]:
        return [one for one in self._servers.values() if one.life.state is ServerState.READY]

    def _names(self, taken: Iterable[str]) -> mcp.Names:
        """Name the tools that can be had; ``taken`` are the session's other names."""
        wanted = [
            (one.declared.name, tool.name)
            for one in self._ready()
            for tool in one.checked.fit
            if one.allows(tool.name)
        ]
        return mcp.named(wanted, frozenset(taken))

    def _own_names(self) -> mcp.Names:
        """Name the tools that can be had beside those that the session has now."""
        return self._names(tool.name for tool in self._memory().tools)

    def status(self) -> tuple[McpServerStatus, ...]:
        """Return how each server stands."""
        names = self._own_names()
        return tuple(self._status_of(one, names) for one in self._servers.values())

    def found(self, frame: ServerFound) -> None:
        """Receive from the daemon where a shared server is."""
        self._surroundings.finder.found(frame)

    async def close(self) -> None:
        """End all servers; returns when they are gone, or their time to end is over."""
        self._is_closed = True
        tasks = [one.task for one in self._servers.values() if one.task is not None]
        tasks += self._ending
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- one server -------------------------------------------------------------------------------

    def _want(self) -> None:
        for one in self._servers.values():
            life = mcp.wanted(one.life, time.monotonic())
            if life is not one.life and not self._is_closed:
                self._become(one, life)
                one.task = asyncio.create_task(self._keep(one), name=f"mcp-{one.declared.name}")
                one.task.add_done_callback(partial(self._check, one))

    def _check(self, one: _Server, task: asyncio.Task[None]) -> None:
        if self._is_closed or one not in self._servers.values():
            return
        if task.cancelled():  # by a library in it: nobody keeps the server up any more
            self._lose(one, LostError("its task was cancelled"))
        elif (error := task.exception()) is not None:
            self._on_crash(error)

    async def _keep(self, one: _Server) -> None:
        """Connect, and again where the server is lost, until it has failed."""
        while True:
            await self._live(one)
            if one.life.state is ServerState.FAILED:
                return
            await asyncio.sleep(mcp.delay_s(one.life))
            self._become(one, mcp.restarted(one.life))

    async def _live(self, one: _Server) -> None:
        """Be connected until the server is lost."""
        timeout_s = max(one.declared.timeout, CONNECT_S_MAX)
        words = ""
        try:
            link = ServerLink(one.declared, self._surroundings, await self._sdk())
            async with contextlib.AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(timeout_s):
                        await stack.enter_async_context(link.open())
                finally:
                    words = link.stderr_tail
                one.link = link
                self._note(one)
                self._become(one, mcp.ready(one.life))
                problem = await self._stay(one, link)
                # Reported before anything is cleared away: the next request must not meet it.
                self._lose(one, LostError(problem))
        except LostError as error:
            self._lose(one, error)
        except TimeoutError:
            text = f"it is not ready after {timeout_s:g} s{words and ': ' + words}"
            self._lose(one, LostError(text))
        except Exception as error:  # the SDK is not ours: it costs the server and nothing else
            log.exception("mcp_server.crashed", server=one.declared.name)
            self._lose(one, LostError(f"the connection failed: {summary_of(error)}"))

    async def _stay(self, one: _Server, link: ServerLink) -> str:
        """List the tools again when the server says so; return why it is lost."""
        while (problem := await link.news()) is None:
            if await link.list_again():
                self._note(one)
                self._become(one, one.life)
                await link.rest()
        return problem

    def _note(self, one: _Server) -> None:
        """Have the definitions of a server's tools remembered."""
        server, checked = one.declared.name, one.checked
        tools = {mcp.tool_name(server, tool.name): _digest(tool) for tool in checked.fit}
        for _, problem in checked.unfit:
            log.warning("mcp_server.tool_refused", server=server, problem=one_line(problem))
        self._post(McpToolsListed(server, tools))

    def _lose(self, one: _Server, loss: LostError) -> None:
        if one.life.state not in {ServerState.CONNECTING, ServerState.READY}:
            return  # it is reported: what comes of clearing away is nothing new
        one.link = None
        problem, now_s = one_line(hidden(str(loss)), PROBLEM_CHARS_MAX), time.monotonic()
        self._become(one, mcp.lost(one.life, now_s, problem, is_final=loss.is_final))

    async def _sdk(self) -> ModuleType:
        """Return the module of the SDK, which is loaded where it is needed first.

        Raises:
            LostError: there is none.
        """
        is_new = _SDK not in sys.modules
        try:
            module = await self._threads.run(lambda: importlib.import_module(_SDK))
        except ForeignError as error:
            is_missing = isinstance(error.error, ModuleNotFoundError)
            problem = _NO_SDK if is_missing else f"the package mcp does not load: {error}"
            raise LostError(problem, is_final=True) from error
        if is_new:
            self._on_import()
        return module

    def _become(self, one: _Server, life: ServerLife) -> None:
        """Take a new state, and report it to whoever waits and to observers."""
        one.life = life
        self._wake()
        if life.problem:
            log.warning("mcp_server.lost", server=one.declared.name, problem=life.problem)
        if self._is_closed:
            return
        shown = self._status_of(one, self._own_names())
        self._post(McpServerReported(shown.name, shown.state, len(shown.tools), shown.problem))

    def _wake(self) -> None:
        """Wake who waits for servers."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _status_of(self, one: _Server, names: mcp.Names) -> McpServerStatus:
        name, sandbox, checked = one.declared.name, self._surroundings.sandbox, one.checked
        is_confined = one.declared.url is None and sandbox.confines
        missing = set(one.declared.allow or ()) - {tool.name for tool in checked.listed}
        unfit = [problem for tool, problem in checked.unfit if one.allows(tool)]
        problems = [one.life.problem, *unfit, *names.problems.get(name, ())]
        if missing and one.life.state is ServerState.READY:
            problems.append(f"allow names {', '.join(sorted(missing))}, which it does not list")
        return McpServerStatus(
            name=name,
            state=one.life.state.value,
            tools=tuple(given for (server, _), given in names.given.items() if server == name),
            problem=one_line("; ".join(filter(None, problems)), PROBLEM_CHARS_MAX),
            confined_by=sandbox.name if is_confined else "",
            network=one.declared.network,
            share=one.declared.share,
        )

    def _outdated(self) -> list[ServerLink]:
        links = (one.link for one in self._servers.values())
        return [link for link in links if link is not None and not link.is_current]

    def _next_due_s(self) -> float | None:
        """Return until when a request waits; None: there is nothing to wait for."""
        dues = [mcp.due_s(one.life, one.declared.timeout) for one in self._servers.values()]
        now_s = time.monotonic()
        return max((due for due in dues if due is not None and due > now_s), default=None)

    # --- calls ------------------------------------------------------------------------------------

    def _caller(self, server: str) -> ToolCaller:
        async def call(own_name: str, args: dict[str, Any], context: Context) -> str:
            return await self._call(server, own_name, args, context)

        return call

    # Any: whatever the tool takes.
    async def _call(
        self, server: str, own_name: str, args: dict[str, Any], context: Context
    ) -> str:
        one = self._servers.get(server)
        if one is not None and one.link is None:
            await self.wait()
        if one is None or one.link is None:
            problem = "" if one is None else one.life.problem
            raise ToolError(
                f"the MCP server {server!r} is not there now{problem and ': ' + problem}"
            )
        return await one.link.call(own_name, args, context)
