"""One life of an MCP server: its process, if it is ours, its connection, the calls of its tools.

``ServerLink.open`` is entered and left by one task, as the SDK's scopes need it; that task then
waits for ``news``. A server that stops answering is found out by who needs it: after a call that
was cut short, and after one that failed for another reason than the tool's own, its tools are asked
for, and where no answer comes the link is lost.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import structlog

from cmdc_runtime.extensions.context import Context, SessionPort
from cmdc_runtime.extensions.sandbox import Sandbox, SandboxError
from cmdc_runtime.extensions.tool import ToolError
from cmdc_runtime.mcp_servers import McpServer, unshared
from workers.core import elicitation
from workers.core.elicitation import Answered, Question
from workers.mcp.host import Declared
from workers.mcp.process import NotStartedError, ServerProcess, ServerProgram
from workers.mcp.shared import ServerFinder, SharedServer

if TYPE_CHECKING:
    from workers.mcp.connection import Connection, ConnectionFailedError, ListedTool

log = structlog.get_logger()

PROBE_S: Final = 5.0
"""For a server to list its tools once more, where it may not answer any longer."""
LIST_AGAIN_S: Final = 1.0
"""Between two lists of a server that keeps on announcing other tools, where no request waits."""
END_S: Final = 1.0
"""For a process whose pipes have closed to be gone, too."""
ASKED_MAX: Final = 3
"""How often the user is asked the same where the answer does not fit."""

PROGRESS: Final = "mcp_progress"
"""The name of the event that says how far a call is."""
PROGRESS_MAX: Final = 500
"""Events of one call; what it reports beyond them is left out."""

_CALL: Final[ContextVar[Context | None]] = ContextVar("the call that runs", default=None)


class LostError(Exception):
    """The server is not there; ``is_final``: another try would end alike."""

    def __init__(self, problem: str, *, is_final: bool = False) -> None:
        """Say why."""
        super().__init__(problem)
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class ServerSurroundings:
    """What every server of a session gets: where it works, and its environment without its own."""

    working_dir: str
    environment: Mapping[str, str]
    state_dir: Path
    """Of the daemon: where logins are."""
    sandbox: Sandbox
    """What its program runs in."""
    finder: ServerFinder
    """Asks the daemon for what sessions share."""


class ServerLink:
    """What is there of a server from its start to its loss; ``listed`` are its tools as of now."""

    def __init__(
        self, declared: McpServer, surroundings: ServerSurroundings, sdk: ModuleType
    ) -> None:
        """Be closed; ``sdk`` is the module ``connection``."""
        self._declared, self._surroundings = declared, surroundings
        self._sdk: Any = sdk  # Any: loaded late
        self._news = asyncio.Event()
        self._announced = self._read = self._needed = 0
        """How often it has announced other tools: so far, before the list, and for who waits."""
        self._moved = asyncio.Event()
        """Set, and replaced by another one, where one of these or the connection changes."""
        self._problem: str | None = None
        self._unheard = ""
        """Why it is not listened to any more, where it has not ended by itself."""
        self._loss: LostError | None = None
        """Why it can't be connected to, which stays so while the rest is cleared away."""
        self._process: ServerProcess | SharedServer | None = None
        self._connection: Connection | None = None
        self._calls: dict[asyncio.Task[Any], tuple[Context, asyncio.Event]] = {}
        self._probe: asyncio.Task[None] | None = None
        self.listed: tuple[ListedTool, ...] = ()

    # --- its life ---------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Start the server, connect and list its tools; at the end of the block it is gone.

        Raises:
            LostError: there is no process, or no answer.
        """
        try:
            async with contextlib.AsyncExitStack() as stack:
                stack.callback(self._close)
                if self._declared.url is None:
                    await self._start(stack)
                else:
                    await self._reach(self._declared.url, stack)
                yield
        except self._sdk.ConnectionFailedError as error:  # it ends so where the server is gone
            raise self._loss or LostError(self._problem or str(error)) from error

    def _close(self) -> None:
        self._connection = None
        self._move()
        if self._probe is not None:
            self._probe.cancel()

    async def news(self) -> str | None:
        """Wait until something happens: return why the server is lost, None: it has other tools."""
        await self._news.wait()
        self._news.clear()
        return self._problem

    async def list_again(self) -> bool:
        """List the tools anew; False: the server does not answer, and is lost."""
        announced = self._announced
        is_listed = await self._answers()
        if is_listed:
            self._read = announced
        self._move()
        return is_listed

    async def rest(self) -> None:
        """Let time pass before the next list, unless a request waits for one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIST_AGAIN_S):
                while self._needed <= self._read and self._problem is None:
                    await self._moved.wait()

    @property
    def is_current(self) -> bool:
        """Whether the list is behind all that the server has announced."""
        return self._read == self._announced

    async def current(self) -> None:
        """Return when the list is behind what is announced by now, or the server is lost.

        That is within ``PROBE_S`` for each of two lists: one may be on its way.
        """
        announced = self._needed = self._announced
        self._move()
        while self._read < announced and self._problem is None and self._connection is not None:
            await self._moved.wait()

    def _move(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    @property
    def stderr_tail(self) -> str:
        """The end of what its process wrote to stderr."""
        return "" if self._process is None else self._process.stderr_tail

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        surroundings = self._surroundings
        environment = {**surroundings.environment, **self._declared.env}
        try:
            command = surroundings.sandbox.server_program(
                self._declared.command, needs_network=self._declared.network
            )
        except SandboxError as error:
            raise LostError(str(error), is_final=True) from error
        confines = surroundings.sandbox.confines
        program = ServerProgram(
            command, surroundings.working_dir, environment, confines_itself=confines
        )
        try:
            process = await self._started(program)
        except NotStartedError as error:
            raise LostError(str(error), is_final=True) from error
        except OSError as error:
            raise LostError(str(error)) from error
        self._process = process
        stack.push_async_callback(process.close)
        watching = asyncio.create_task(self._watch(process), name="mcp-watch")
        stack.callback(watching.cancel)
        try:
            await self._connect(self._sdk.pipes(process), stack)
        except self._sdk.ConnectionFailedError as error:
            self._loss = await self._unconnected(process, error)
            raise self._loss from error

    async def _unconnected(
        self, process: ServerProcess | SharedServer, error: "ConnectionFailedError"
    ) -> LostError:
        """Close a process that can't be spoken to; return why: its own end, or what it said."""
        if await _has_ended(process):
            await process.close()
            return LostError(process.ending(str(error)), is_final=process.is_final)
        await process.close()
        words = process.stderr_tail
        problem = self._unheard or str(error)
        return LostError(f"{problem}: {words}" if words else problem, is_final=error.is_final)

    async def _started(self, program: ServerProgram) -> ServerProcess | SharedServer:
        """Return a process of the session's own, or a connection to one that sessions share."""
        name, surroundings = self._declared.name, self._surroundings
        if self._declared.share == "session":
            return await ServerProcess.start(program, _line_logger(name))
        if program.confines_itself:
            raise NotStartedError(unshared(surroundings.sandbox.name))
        environment = {
            name: text for name, text in program.environment.items() if not _is_mark(name)
        }
        server = Declared(
            command=tuple(program.command),
            working_dir=program.working_dir,
            environment=environment,
        )
        return await SharedServer.connect(surroundings.finder, server)

    async def _reach(self, url: str, stack: contextlib.AsyncExitStack) -> None:
        """Connect by streamable HTTP, or by the older way where the server knows no other."""
        failures: list[ConnectionFailedError] = []
        login = await self._login(url)
        for carry in (self._sdk.streamable, self._sdk.events):
            try:
                async with contextlib.AsyncExitStack() as trial:
                    await self._connect(carry(url, self._declared.headers, login), trial)
                    stack.push_async_exit(trial.pop_all())
                    return
            except self._sdk.ConnectionFailedError as error:
                failures.append(error)
            if login is not None and login.problem is not None:
                raise LostError(str(login.problem), is_final=True)
            if failures[-1].is_answer:
                break
        problem = self._unheard or failures[0].at(url)
        raise LostError(problem, is_final=all(one.is_final for one in failures))

    async def _login(self, url: str) -> Any:  # Any: a Renewing, loaded late; None: there is none
        if self._declared.oauth is None:
            return None
        try:
            state_dir = self._surroundings.state_dir
            return await asyncio.to_thread(self._sdk.login_at, url, self._declared.oauth, state_dir)
        except self._sdk.ConnectionFailedError as error:
            raise LostError(str(error), is_final=True) from error

    async def _connect(self, transport: Any, stack: contextlib.AsyncExitStack) -> None:
        callbacks = self._sdk.Callbacks(
            self._declared.name, self._change, self._ask, self._hear_no_more
        )
        connected = self._sdk.connected(transport, callbacks)
        connection: Connection = await stack.enter_async_context(connected)
        self.listed = await connection.tools()
        self._connection = connection

    async def _watch(self, process: ServerProcess | SharedServer) -> None:
        await process.ended.wait()
        self._lose(process.ending())

    def _change(self) -> None:
        self._announced += 1
        self._news.set()

    def _hear_no_more(self, problem: str) -> None:
        self._unheard = problem
        self._lose(problem)

    def _lose(self, problem: str) -> None:
        if self._problem is None:
            self._problem = problem
            self._news.set()
            self._move()

    async def _answers(self) -> bool:
        """List the tools; say whether the server does so in its time, and lose it if not."""
        if self._connection is None:
            return False
        try:
            async with asyncio.timeout(PROBE_S):
                self.listed = await self._connection.tools()
        except self._sdk.UnusableAnswerError as error:
            self._lose(str(error))
            return False
        except (TimeoutError, self._sdk.ConnectionFailedError) as error:
            why = str(error) or f"nothing within {PROBE_S:g} s"
            self._lose(f"it does not answer any more: {why}")
            return False
        return True

    # --- calls ------------------------------------------------------------------------------------

    # Any: whatever the tool takes.
    async def call(self, own_name: str, args: dict[str, Any], context: Context) -> str:
        """Call a tool; who is cancelled has the server notified.

        Raises:
            ToolError: it fails, or the server does.
        """
        connection, name = self._connection, self._declared.name
        if connection is None:
            raise ToolError(f"the MCP server {name!r} is not there now")
        task, over = asyncio.current_task(), asyncio.Event()
        assert task is not None  # noqa: S101 - calls run in tasks
        self._calls[task] = (context, over)
        token = _CALL.set(context)
        try:
            port = _NothingKept() if context.session is None else context.session
            return await connection.call(own_name, args, _progress_of(name, context), port)
        except self._sdk.UnusableAnswerError as error:
            raise ToolError(
                f"the MCP server {name!r} answered what can't be read: {error}"
            ) from error
        except self._sdk.ConnectionFailedError as error:
            raise ToolError(await self._failure(str(error))) from error
        except asyncio.CancelledError:
            self._probe_soon()
            raise
        finally:
            _CALL.reset(token)
            over.set()
            del self._calls[task]

    async def _failure(self, problem: str) -> str:
        """Return what a call that was not the tool's failure ends with; the server may be gone."""
        name, process = self._declared.name, self._process
        if not self._unheard:
            if process is not None and await _has_ended(process):
                return f"the MCP server {name!r} ended during this call: {process.ending(problem)}"
            if await self._answers():
                return f"the MCP server {name!r} refuses the call: {problem}"
        problem = self._unheard or problem
        return f"the MCP server {name!r} was lost during this call: {problem}"

    def _probe_soon(self) -> None:
        """Look whether the server still answers: one that is stuck in a cut call is ended."""
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._probed(), name="mcp-probe")

    async def _probed(self) -> None:
        await self._answers()

    # --- questions --------------------------------------------------------------------------------

    # Any: a JSON Schema.
    async def _ask(self, asked: Question, schema: Mapping[str, Any] | None) -> Answered:
        """Ask the user, for the call that the server is at; the newest where it does not say."""
        problem = ""
        for _ in range(ASKED_MAX):
            text = f"{asked.text}\n({problem})" if problem else asked.text
            response = await self._response(text, asked.options)
            try:
                return elicitation.answered(response, schema)
            except ValueError as error:
                problem = f"the last answer does not fit: {error}"
        raise ToolError(problem)

    async def _response(self, text: str, options: Sequence[str]) -> Any:  # Any: the application's
        """Return what the user says; where the call ends before, another one that runs asks."""
        own = _CALL.get()
        while running := [one for one in self._calls.values() if own is None or one[0] is own]:
            with contextlib.suppress(_CallOverError):
                return await _response_in(*running[-1], text, options)
        raise ToolError("no call of this server runs, so nobody can be asked")


async def _has_ended(process: ServerProcess | SharedServer) -> bool:
    """Say whether a process has ended, or closed its pipe; it has time to be gone, too."""
    if not process.ended.is_set() and not process.stdout.at_eof():
        return False
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_S):
            await process.ended.wait()
    return True


class _NothingKept:
    """Of a call without a session."""

    kept: Final = b""

    async def keep(self, content: bytes) -> None:
        """Forget it."""


class _CallOverError(Exception):
    """Who asked waits no more."""


# Any: whatever the application sends.
async def _response_in(
    context: Context, over: asyncio.Event, text: str, options: Sequence[str]
) -> Any:
    """Return what the user says to a call; the wait ends with it."""
    if context.session is None:
        raise ToolError("this call has no session, so nobody can be asked")
    asking = asyncio.create_task(_answer(context.session, text, options), name="mcp-ask")
    ending = asyncio.create_task(over.wait(), name="mcp-over")
    try:
        await asyncio.wait({asking, ending}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            raise _CallOverError
        return asking.result()
    finally:
        for task in (asking, ending):
            task.cancel()
        await asyncio.gather(asking, ending, return_exceptions=True)


async def _answer(session: SessionPort, text: str, options: Sequence[str]) -> Any:  # Any: above
    return await session.ask_user(text, options)


def _progress_of(server: str, context: Context) -> Callable[..., Any]:  # Any: an OnProgress
    left = iter(range(PROGRESS_MAX))

    async def report(progress: float, total: float | None, message: str | None) -> None:
        if next(left, None) is not None and context.session is not None:
            payload = {"server": server, "call_id": context.call_id, "progress": progress}
            context.session.emit(PROGRESS, {**payload, "total": total, "message": message})

    return report


def _is_mark(variable: str) -> bool:
    """Say whether a variable says whose session's a process is: a shared server is no session's."""
    return variable.startswith("CMDC_")


def _line_logger(server: str) -> Callable[[str], None]:
    def report(line: str) -> None:
        log.info("mcp_server.wrote", server=server, text=line)

    return report
