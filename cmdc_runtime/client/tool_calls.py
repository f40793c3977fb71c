"""The calls of tools that run in this program: taken, made once, and answered.

A session publishes each as ``ClientToolCalled``. The client that has attached the tool takes the
call, which is over otherwise, runs the tool, and sends what came of it; both are commands like any
other, so a lost connection or a daemon that is followed by the next one costs nothing. A call comes
again when its agent has died: it has the same reference, is not made again, and is answered with
what came of it. A sync tool has a thread of its own; an ``async def`` runs in the client's loop,
or, where the client has threads, in one loop that all such tools of this program share.
"""

import asyncio
import contextlib
import contextvars
import inspect
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from cmdc_runtime import foreign
from cmdc_runtime.client.address import offload
from cmdc_runtime.client.connection import Connection
from cmdc_runtime.client.limits import (
    ANSWERS_KEPT_MAX,
    CALL_RETRY_S,
    CALL_TRIES_MAX,
    RESULT_CHARS_MAX,
    THREAD_START_S,
)
from cmdc_runtime.client.logged import ClientLog
from cmdc_runtime.client.queues import AsyncQueue
from cmdc_runtime.client.resuming import definition_of
from cmdc_runtime.client.selection import Selection
from cmdc_runtime.client.subscription import Subscription
from cmdc_runtime.commands import AnswerToolCall, ClientAnswer, TakeToolCall
from cmdc_runtime.errors import AskNotFound, CmdcError, SessionError, TransientError, UsageError
from cmdc_runtime.events import ClientToolCalled, Envelope, ToolExecutionEnd
from cmdc_runtime.extensions.context import Context, SessionPort
from cmdc_runtime.extensions.schema import text_of
from cmdc_runtime.extensions.tool import Effect, Tool, ToolError
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.ids import CallId, SessionId
from cmdc_runtime.packing import client_tools
from cmdc_runtime.plain import mended, problem_of
from cmdc_runtime.requests import (
    FindSession,
    GetDefinition,
    SessionDefinition,
    SessionInfo,
    StartSession,
)
from cmdc_runtime.spec import AgentSpec
from cmdc_runtime.user_values import unpacked

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], Coroutine[Any, Any, T]]
"""Runs an ``async def`` of the application's where such code belongs."""

_log = ClientLog(__name__)


class ServedTools:
    """The tools that one client has attached to sessions, and the calls of them."""

    def __init__(self, *, has_own_loop: bool) -> None:
        """Serve none yet; ``has_own_loop``: the client's loop is no place for application code."""
        self._has_own_loop = has_own_loop
        self._sessions: dict[SessionId, _ServedSession] = {}

    async def serve_started(
        self, connection: Connection, request: StartSession, since: int
    ) -> None:
        """Answer the calls of the tools of this program that a session begins with."""
        if not client_tools.are_known():
            return
        definition, group_id = definition_of(bytes(request.agent)), request.group_id
        of_agents = (tool for one in definition.handoffs for tool in one.agent.tools or ())
        tools = client_tools.tools_of((*definition.tools, *of_agents))
        if tools:
            facts = _facts_of(request.session_id, definition, group_id)
            await self._serve(connection, facts, tools, since)

    async def serve(
        self, connection: Connection, session_id: SessionId, tools: dict[str, Tool], since: int
    ) -> None:
        """Answer the calls of ``tools``, by owner, that a session publishes behind ``since``."""
        served = self._sessions.get(session_id)
        if served is not None and served.is_of(connection):
            served.tools.update(tools)
            return
        known: SessionDefinition = await connection.ask(GetDefinition(session_id=session_id))
        facts = _facts_of(session_id, definition_of(known.agent), known.group_id)
        await self._serve(connection, facts, tools, since)

    async def _serve(
        self, connection: Connection, facts: "_Facts", tools: dict[str, Tool], since: int
    ) -> None:
        run = _in_tools_loop if self._has_own_loop else _here
        served = _ServedSession(connection, facts, tools, run)
        self._sessions[served.session_id] = served
        await served.follow(since)
        connection.spawn(self._until_over(served))

    async def _until_over(self, served: "_ServedSession") -> None:
        try:
            await served.answer_all()
        finally:
            if self._sessions.get(served.session_id) is served:
                del self._sessions[served.session_id]


async def index_before(connection: Connection, request: StartSession) -> int:
    """Return how far a session is that is started again under its id, with tools of ours."""
    if not client_tools.are_known():
        return 0
    try:
        found: SessionInfo = await connection.ask(FindSession(session_id=request.session_id))
    except CmdcError:  # a new one, as most are
        return 0
    return found.last_index


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a call's ``Context`` has of its session: what that was started with."""

    session_id: SessionId
    working_dir: str
    packed_user_data: dict[str, Any]  # Any: ``user_values.packed``
    group_id: str | None
    config_facts: dict[str, Any] | None  # Any: fields of a Config

    def context(self, call_id: CallId) -> Context:
        """Return the context of one call, which may change its ``user_data``.

        Raises:
            UnreadableValueError: another program has put something in it that is not known here.
        """
        return Context(
            session_id=self.session_id,
            call_id=call_id,
            working_dir=self.working_dir,
            user_data=unpacked(self.packed_user_data),
            group_id=self.group_id,
            config_facts=self.config_facts,
            session=SESSION_ELSEWHERE,
        )


def _facts_of(session_id: SessionId, definition: AgentSpec, group_id: str | None) -> _Facts:
    given = definition.user_data
    return _Facts(session_id, definition.working_dir, given, group_id, definition.config_facts)


class _ServedSession:
    """One session's tools of this program."""

    def __init__(
        self,
        connection: Connection,
        facts: _Facts,
        tools: dict[str, Tool],
        run: "Run[Any]",  # Any: whatever a tool returns
    ) -> None:
        self.session_id = facts.session_id
        self._facts = facts
        self.tools = dict(tools)
        self._connection = connection
        self._run = run
        self._queue: AsyncQueue[Envelope] = AsyncQueue()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._calls: dict[CallId, str] = {}
        self._answers: OrderedDict[str, ClientAnswer] = OrderedDict()

    def is_of(self, connection: Connection) -> bool:
        """Say whether it is served over this connection."""
        return self._connection is connection

    async def follow(self, since: int) -> None:
        """Begin to hear of calls."""
        selection = Selection([ClientToolCalled, ToolExecutionEnd])
        self._subscription = Subscription(self._connection, self._queue, selection)
        dispatcher = self._connection.dispatcher
        await dispatcher.follow(self.session_id, self._subscription, since)

    async def answer_all(self) -> None:
        """Answer calls until the session is over, or the connection."""
        with contextlib.suppress(CmdcError):  # the session is over
            while True:
                event = (await self._queue.get(None)).event
                if self._subscription.is_lagging:
                    self._subscription.refill()
                if isinstance(event, ClientToolCalled) and event.owner in self.tools:
                    self._begin(event)
                elif isinstance(event, ToolExecutionEnd):
                    self._end(event.call_id)

    def _begin(self, call: ClientToolCalled) -> None:
        """Make a call, or answer again for one that was made; one that runs is taken again."""
        if call.ref in self._running:
            self._connection.spawn(_kept(self._retake(call)))
            return
        known = self._answers.get(call.ref)
        work = self._make(call) if known is None else self._send_answer(call, known)
        task = self._running[call.ref] = self._connection.spawn(_kept(work))
        self._calls[call.call_id] = call.ref
        task.add_done_callback(lambda _done: self._forget(call))

    def _forget(self, call: ClientToolCalled) -> None:
        self._running.pop(call.ref, None)
        if self._calls.get(call.call_id) == call.ref:
            del self._calls[call.call_id]

    def _end(self, call_id: CallId) -> None:
        """End a call that is over for its session; what a thread does goes on unheard."""
        task = self._running.get(self._calls.get(call_id, ""))
        if task is not None:
            task.cancel()

    async def _retake(self, call: ClientToolCalled) -> None:
        await self._sent(call, TakeToolCall(ref=call.ref))

    async def _make(self, call: ClientToolCalled) -> None:
        if not await self._sent(call, TakeToolCall(ref=call.ref)):
            return
        answer = await self._made(call)
        self._answers[call.ref] = answer
        while len(self._answers) > ANSWERS_KEPT_MAX:
            self._answers.popitem(last=False)
        await self._send_answer(call, answer)

    async def _made(self, call: ClientToolCalled) -> ClientAnswer:
        tool = self.tools[call.owner]
        try:
            context = foreign.call(lambda: self._facts.context(call.call_id))
            arguments = foreign.call(lambda: tool.check(call.args))
            value = await self._value(tool, arguments, context)
            return foreign.call(lambda: _answer(value))
        except ForeignError as failed:
            if not isinstance(failed.error, ToolError):
                problem = foreign.summary_of(failed.error, None)
                said = {"tool": call.name, "call_id": call.call_id, "problem": problem}
                _log.error("tool.crashed", cause=failed.error, **said)
                return ClientAnswer(ok=False, error=problem)
            return ClientAnswer(ok=False, error=foreign.text_of(failed.error, None) or call.name)

    async def _value(self, tool: Tool, arguments: dict[str, Any], context: Context) -> Any:
        """Return what the tool returns (Any: whatever that is); it is code of the application's."""
        if tool.isolation == "task":  # as of every async def
            return await self._run(foreign.wait(lambda: tool.execute(arguments, context)))
        copied = contextvars.copy_context()

        def work() -> Any:  # Any: as above
            return foreign.call(lambda: copied.run(tool.execute, arguments, context))

        value = await offload(work)
        if not foreign.call(lambda: inspect.isawaitable(value)):
            return value
        return await self._run(foreign.wait(lambda: value))

    async def _send_answer(self, call: ClientToolCalled, answer: ClientAnswer) -> None:
        try:
            await self._sent(call, AnswerToolCall(ref=call.ref, outcome=answer))
        except UsageError as error:  # no answer that can be sent
            failure = ClientAnswer(ok=False, error=_UNSENDABLE.format(error))
            await self._sent(call, AnswerToolCall(ref=call.ref, outcome=failure))

    async def _sent(self, call: ClientToolCalled, command: TakeToolCall | AnswerToolCall) -> bool:
        """Say whether the session has taken the command; False: nobody waits for the call.

        Raises:
            UsageError: it cannot be sent.
        """
        problem: CmdcError | None = None
        for _ in range(CALL_TRIES_MAX):
            try:
                await self._connection.send(self.session_id, command)
            except AskNotFound:
                return False
            except TransientError as error:  # no daemon is there, or it has no room
                problem = error
                await asyncio.sleep(CALL_RETRY_S)
            except SessionError as error:
                problem = error
                break
            else:
                return True
        said = {"tool": call.name, "call_id": call.call_id, "problem": str(problem)}
        _log.warning("call.not_sent", sent=type(command).__name__, **said)
        return False


async def _kept(work: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(CmdcError):  # the client is closed, or has no connection any more
        await work


# --- results --------------------------------------------------------------------------------------

_UNSENDABLE: Final = "the tool has run, but its result cannot be sent: {}"


def _answer(value: object) -> ClientAnswer:
    """Return what a tool has returned as it travels.

    Raises:
        ToolError: it cannot be kept.
    """
    if not isinstance(value, Effect):
        return ClientAnswer(ok=True, value=_text(value))
    if (problem := problem_of(value.payload)) is not None:
        raise ToolError(_UNSENDABLE.format(f"the payload of its effect: {problem}"))
    return ClientAnswer(ok=True, effect=(str(value.name), value.payload, _text(value.text)))


def _text(value: object) -> str:
    return mended(text_of(value))[:RESULT_CHARS_MAX]


# --- loops ----------------------------------------------------------------------------------------


async def _here(work: Coroutine[Any, Any, T]) -> T:
    return await work


async def _in_tools_loop(work: Coroutine[Any, Any, T]) -> T:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _tools_loop()))


class _LoopThread:
    """A thread with the loop in which the ``async def`` tools of synchronous clients run."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._started: Future[asyncio.AbstractEventLoop] = Future()
        threading.Thread(target=self._work, name="cmdc-tools", daemon=True).start()
        self.loop = self._started.result(THREAD_START_S)

    def _work(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._started.set_result(asyncio.get_running_loop())
        await asyncio.get_running_loop().create_future()  # until the program ends


_place: Final[list[_LoopThread]] = []
_lock = threading.Lock()


def _tools_loop() -> asyncio.AbstractEventLoop:
    """Return the loop, started when it is first needed and anew in a fork."""
    with _lock:
        if not _place or _place[-1].pid != os.getpid():
            _place.append(_LoopThread())
        return _place[-1].loop


def _after_fork() -> None:
    global _lock  # noqa: PLW0603 - whoever held it is not in this process
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


# --- the session of a call ------------------------------------------------------------------------


class NotHereError(ToolError, AttributeError):
    """What a call asked of its session is not to be had in this process."""


class _SessionElsewhere:
    """``context.session`` of these tools: it has nothing, and says so; ``hasattr`` is False.

    What a call could ask of its session is the affair of the session's own process.
    """

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # what copies and inspectors look for
            raise AttributeError(name)
        raise NotHereError(
            f'{name} is not to be had in a tool with where="client", which runs in the program '
            "that has attached it: an async def tool without where has it; or return what your "
            "program needs to know, and have it act by its session"
        )


# It stands in for every method of the protocol, and has none.
SESSION_ELSEWHERE: Final = cast("SessionPort", _SessionElsewhere())
