"""The host of one MCP server that sessions share: a worker process above the server's own.

The daemon sends it an address to listen at. An agent connects, shows the token that it has of the
daemon and says what the server is: the first one has it started so, and for all others it must be
the same. From then on both sides speak JSON-RPC by lines, and ``core.switchboard`` decides who each
is for. It knows nothing of the protocol's SDK.

Rules: nobody waits for an agent: one that does not read what is sent to it is disconnected. Agents
wait for the server in turn, one line each. A host lives as long as its server, and ends when nobody
has been connected for a while; another one starts the server again.
"""

import asyncio
import contextlib
import hashlib
import hmac
import os
import resource
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from cmdc_runtime import reasons, redaction
from cmdc_runtime.lines import one_line
from cmdc_runtime.process import EXIT_CRASHED, EXIT_OK
from cmdc_runtime.reasons import PlainReason
from cmdc_runtime.wire.frames import HostServer
from workers.core.switchboard import Sent, Switchboard, ToAgent
from workers.mcp.process import (
    MESSAGE_BYTES_MAX,
    NotStartedError,
    ServerProcess,
    ServerProgram,
)

log = structlog.get_logger()

AGENTS_MAX: Final = 10_000
"""Connected at a time."""
SPARE_FILES: Final = 64
"""Descriptors that agents don't get: the server's pipes, the connection to the daemon."""
GREET_S: Final = 10.0
"""For who connects to say what it wants; an agent has it at hand."""
UNREAD_BYTES_MAX: Final = 2 * MESSAGE_BYTES_MAX
"""Sent to an agent that does not read, or to the server: two of the largest messages."""
STUCK_S: Final = 30.0
"""For a server to read a line, and to say anything after a request was given up. For a session's
own it is less: here calls of others may be what it is busy with."""
PROBLEM_CHARS_MAX: Final = 1_000
"""Of why a server is lost."""
END_S: Final = 1.0
"""For a server whose pipes have closed to be gone, too."""

NOTICE: Final = b'{"cmdc":'
"""What a line of the host's own begins with; no message of the protocol does."""
_DIGEST_BYTES: Final = 16


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What a server is: who says the same shares it."""

    command: tuple[str, ...]
    working_dir: str
    environment: dict[str, str]

    @property
    def key(self) -> str:
        """The name of the server: another one has another."""
        parts = msgspec.json.encode(self, order="sorted")
        return hashlib.blake2b(parts, digest_size=_DIGEST_BYTES).hexdigest()


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of an agent."""

    token: str
    server: Declared


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the host's own: the server is ready, or over with a ``problem``.

    ``is_final``: another start would end alike.
    """

    cmdc: str
    problem: str = ""
    is_final: bool = False

    @property
    def line(self) -> bytes:
        """The notice as it is sent."""
        return msgspec.json.encode(self) + b"\n"


READY: Final = "ready"
ENDED: Final = "ended"


class ServerHost:
    """One host, from ``listen`` to ``close``; ``end`` is called when it is over, and why."""

    def __init__(
        self,
        order: HostServer,
        contained: Callable[[], Awaitable[None]],
        end: Callable[[int, PlainReason | None], None],
    ) -> None:
        """Do nothing yet; ``contained`` returns when what is started ends with this process."""
        self._order, self._contained, self._end = order, contained, end
        self._board = Switchboard()
        self._connected: dict[int, asyncio.StreamWriter] = {}
        self._agents: dict[int, asyncio.StreamWriter] = {}
        """Those of them that may speak to the server."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._agents_max = min(AGENTS_MAX, max(1, files - SPARE_FILES))
        self._last = 0
        self._notice = b""
        self._secrets: frozenset[str] = frozenset()
        """Of the server's environment: hidden in what is said of it."""
        self._listener: asyncio.Server | None = None
        self._process: ServerProcess | None = None
        self._starting, self._turn = asyncio.Lock(), asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._heard_s = 0.0
        self._is_over = False

    async def listen(self) -> None:
        """Let agents connect.

        Raises:
            OSError: there can be no socket at the address.
        """
        own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(own.fileno(), 0o600)  # before it has a name
            own.bind(self._order.address)
            self._listener = await asyncio.start_unix_server(
                self._take, sock=own, limit=MESSAGE_BYTES_MAX
            )
        except BaseException:
            own.close()
            raise
        self._wait_for_agents()

    async def close(self) -> None:
        """End the server and every connection; why it is lost is sent before."""
        self._is_over = True
        for timer in self._timers.values():
            timer.cancel()
        if self._listener is not None:
            self._listener.close()
        with contextlib.suppress(OSError):
            await asyncio.to_thread(Path(self._order.address).unlink, missing_ok=True)
        own = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in self._connected.values():
            writer.write(self._notice)
            writer.close()  # what is written still goes out
        if self._process is not None:
            await self._process.close()

    # --- agents ---------------------------------------------------------------------------------

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve who has connected, in a task that is looked after."""
        if self._is_over or len(self._connected) >= self._agents_max:
            log.warning("mcp_host.full", agents=len(self._connected))
            writer.transport.abort()
            return
        self._last += 1
        self._connected[self._last] = writer
        self._spawn(self._serve(self._last, reader, writer), f"agent-{self._last}")

    async def _serve(
        self, agent: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            if await self._greeted(reader, writer):
                await self._speak(agent, reader, writer)
        except (OSError, EOFError, asyncio.LimitOverrunError, TimeoutError) as error:
            log.debug("mcp_host.agent_gone", agent=agent, problem=str(error))
        finally:
            if not self._is_over:
                del self._connected[agent]
                writer.close()

    async def _greeted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Hear who it is, and have the server started; False: it gets nothing here."""
        async with asyncio.timeout(GREET_S):
            line = await reader.readuntil(b"\n")
        try:
            greeting = msgspec.json.decode(line, type=Greeting)
        except (msgspec.DecodeError, RecursionError):
            return False
        if not hmac.compare_digest(greeting.token.encode(), self._order.token.encode()):
            log.warning("mcp_host.refused", problem="a wrong token")
            return False
        if greeting.server.key != self._order.key:
            writer.write(Notice(cmdc=ENDED, problem="it is another server").line)
            return False
        async with self._starting:
            if self._process is None and not self._is_over:
                await self._start(greeting.server)
        if self._process is None or self._is_over:
            return False
        writer.write(Notice(cmdc=READY).line)
        return True

    async def _speak(
        self, agent: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass on what an agent says, until it is gone."""
        self._agents[agent] = writer
        self._board.join(agent)
        self._set_timer("linger", None)
        try:
            while True:
                line = await reader.readuntil(b"\n")
                for one in self._board.from_agent(agent, line, self._now_s()):
                    await self._pass_on(one)
        finally:
            if not self._is_over:
                self._agents.pop(agent, None)
                self._send(self._board.leave(agent, self._now_s()))
                self._wait_for_agents()

    async def _pass_on(self, sent: Sent) -> None:
        """Send the server a line when it has read those before: agents take turns."""
        if isinstance(sent, ToAgent):
            self._send_to_agent(sent)
            return
        async with self._turn:
            self._send((sent,))
            process = self._process
            if process is None or self._is_over:
                return
            try:
                async with asyncio.timeout(STUCK_S):
                    await process.stdin.drain()
            except TimeoutError:
                self._over(f"it has read nothing for {STUCK_S:g} s")
            except OSError:
                pass  # it is ending, which its reader reports

    def _wait_for_agents(self) -> None:
        """End when nobody has been connected for the time that is given."""
        if not self._agents and not self._is_over:
            self._set_timer("linger", self._order.linger_s, self._leave)

    def _leave(self) -> None:
        if not self._agents and not self._starting.locked():
            self._is_over = True
            self._end(EXIT_OK, reasons.Normal())

    # --- the server -----------------------------------------------------------------------------

    async def _start(self, declared: Declared) -> None:
        order = self._order
        marks = {"CMDC_SESSION_ID": order.name, "CMDC_INCARNATION": str(order.generation)}
        environment: Mapping[str, str] = {**declared.environment, **marks}
        program = ServerProgram(declared.command, declared.working_dir, environment)
        self._secrets = redaction.forms_of(redaction.secrets_by_name({"env": declared.environment}))
        await self._contained()
        try:
            self._process = await ServerProcess.start(program, self._log)
        except NotStartedError as error:
            self._over(str(error), is_final=True)
            return
        self._spawn(self._hear(self._process), "server")

    async def _hear(self, process: ServerProcess) -> None:
        """Pass on what the server says, until it is gone."""
        problem = ""
        try:
            while True:
                line = await process.stdout.readuntil(b"\n")
                self._heard_s = self._now_s()
                self._send(self._board.from_server(line, self._heard_s))
        except asyncio.LimitOverrunError:
            problem = f"it says more than {MESSAGE_BYTES_MAX} bytes at once"
        except (OSError, EOFError):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await process.ended.wait()
        self._over(problem or process.ending(), is_final=process.is_final)

    def _log(self, line: str) -> None:
        log.info("mcp_server.wrote", text=redaction.hidden(line, self._secrets))

    def _probe(self) -> None:
        """Look whether the server still answers, once a request of it was given up."""
        if "probe" in self._timers or self._is_over:
            return
        asked_s = self._now_s()
        self._send((self._board.probe(),))

        def look() -> None:
            del self._timers["probe"]
            if self._heard_s < asked_s:
                self._over(f"it does not answer any more: nothing within {STUCK_S:g} s")

        self._set_timer("probe", STUCK_S, look)

    def _over(self, problem: str, *, is_final: bool = False) -> None:
        """End since the server is lost; ``close`` notifies the agents. Idempotent."""
        if self._is_over:
            return
        self._is_over = True
        problem = one_line(redaction.hidden(problem, self._secrets), PROBLEM_CHARS_MAX)
        log.warning("mcp_host.server_lost", problem=problem)
        self._notice = Notice(cmdc=ENDED, problem=problem, is_final=is_final).line
        self._end(EXIT_CRASHED, reasons.Other(detail=problem))

    # --- both -----------------------------------------------------------------------------------

    def _send(self, sent: Iterable[Sent]) -> None:
        """Write what is to be said; nobody waits here."""
        for one in sent:
            if isinstance(one, ToAgent):
                self._send_to_agent(one)
            elif self._process is not None and not self._is_over:
                self._process.stdin.write(one.line + b"\n")
                if self._process.stdin.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
                    self._over("it does not read what it is sent")
                elif one.cancels:
                    self._probe()

    def _send_to_agent(self, sent: ToAgent) -> None:
        writer = self._agents.get(sent.agent)
        if writer is None:
            return
        writer.write(sent.line + b"\n")
        if writer.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            log.warning("mcp_host.agent_disconnected", agent=sent.agent, problem="it does not read")
            writer.transport.abort()

    def _set_timer(
        self, name: str, after_s: float | None, call: Callable[[], None] | None = None
    ) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()
        if after_s is not None and call is not None:
            self._timers[name] = asyncio.get_running_loop().call_later(after_s, call)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:  # Any: asyncio's own
        task = asyncio.create_task(work, name=f"mcp-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("mcp_host.failed", exc_info=error)
            self._over(f"its host failed: {error}")

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()
