"""Runs from outside: of a strategy (``Runner.run``), of many questions at once (``Parallel.map``).

A run is a call of the tool ``reason`` in a session: in one that is made for it, or one that is
there already. Its events are the session's, and its result is made of them.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, Unpack, get_args

from cmdc_runtime.client.arguments import (
    SessionLike,
    checked_id,
    checked_kind,
    checked_pairs,
    named,
)
from cmdc_runtime.client.callers import AsyncPool
from cmdc_runtime.client.cycle import Clock, CycleEvents
from cmdc_runtime.client.default import async_client as default_client
from cmdc_runtime.client.exchange import Exchange
from cmdc_runtime.client.run_request import (
    ENDED,
    RUN_END_S,
    OnEvent,
    RunOptions,
    RunRequest,
    cut_run,
    result_of,
    run_length,
    spelled,
)
from cmdc_runtime.client.session import AsyncClient, AsyncSession
from cmdc_runtime.client.typed_answer import Reply
from cmdc_runtime.errors import CmdcError, SessionError, SessionNotAlive
from cmdc_runtime.events import Event, ReasoningDone
from cmdc_runtime.ids import EventIndex
from cmdc_runtime.messages import OpeningCall
from cmdc_runtime.options import Options
from cmdc_runtime.reasoning.result import ReasoningEvent, ReasoningResult, failed

# --- Runner ---------------------------------------------------------------------------------------


class AsyncRunner:
    """Runs strategies, for coroutines."""

    @classmethod
    @spelled
    async def run(
        cls,
        strategy: object,
        prompt: str,
        *,
        client: AsyncClient | None = None,
        **given: Unpack[RunOptions],
    ) -> ReasoningResult:
        """Have a question thought about by a strategy, and return what the run came to.

        ``strategy`` is what ``reasoning_strategy`` takes; the rest is in ``RunOptions``. A run that
        was cut off by its steps, budget or time has its status and the best answer so far; one
        whose strategy failed, or has ended its process, has "failed", the reason and the best
        answer so far, also where that has ended the session; one whose cycle was aborted, or whose
        call was ended, has "aborted", and its tree so far. What ``on_event`` returns is awaited
        where it can be.

        Raises:
            InvalidOptions: ``problems`` has one line for each wrong argument.
            InvalidText: ``prompt`` is not a non-empty str.
            InvalidTool: ``max_depth`` leaves the given session no level for branches.
            StartFailed: the session did not start, as where ``score`` names what is not there.
            AgentAborted: the prompt of the run was dropped before its cycle began.
            SessionNotAlive: the session had ended before.

        """
        request = RunRequest(strategy, given, (client, AsyncClient))
        owner = client or default_client
        if request.session is None:
            base, options = request.definition()
            async with await cls._made(owner, base, options) as made:
                return await cls._follow(made, prompt, request.on_event)
        found = request.session
        if not isinstance(found, AsyncSession):
            found = AsyncSession(found, owner)
        tool, call = request.guest()
        try:
            await found.attach_tool(tool)
            return await cls._follow(found, prompt, request.on_event, call)
        finally:
            with contextlib.suppress(CmdcError):  # it has ended, or was not attached
                await found.detach_tool(tool.name)

    @staticmethod
    async def _made(
        owner: AsyncClient,
        base: Options | None,
        options: dict[str, Any],  # Any: see ``Options``
    ) -> AsyncSession:
        try:
            return await owner.create_agent(base, **options)
        except CmdcError:
            raise
        except BaseException:  # whoever runs this gives up: no session stays behind
            await owner._run(Exchange.await_ends)  # noqa: SLF001 - a call of the client that needs no name
            raise

    @staticmethod
    async def _follow(
        session: AsyncSession,
        prompt: str,
        on_event: OnEvent | None,
        call: OpeningCall | None = None,
    ) -> ReasoningResult:
        found: list[Event] = []
        is_over = False
        before = await session.last_index()
        try:
            read = session.client._read  # noqa: SLF001 - a call of the client that needs no name
            async with read(session, prompt, CycleEvents(), None, call) as stream:
                async for event in stream:
                    found.append(event)
                    if on_event is not None and isinstance(event, ReasoningEvent):
                        await AsyncPool.call(on_event, event)
            is_over = True
        except SessionNotAlive as error:
            if not found:
                raise
            so_far = ReasoningResult.of(one for one in found if isinstance(one, ReasoningEvent))
            return so_far if so_far.status != "running" else failed(so_far, str(error))
        finally:
            if not is_over:
                with contextlib.suppress(CmdcError):
                    await session.abort(reason=ENDED)
        if (run_id := cut_run(found)) is not None:
            for event in (await AsyncRunner._rest(session, before, run_id))[run_length(found) :]:
                found.append(event)
                if on_event is not None:
                    await AsyncPool.call(on_event, event)
        return result_of(found)

    @staticmethod
    async def _rest(session: AsyncSession, before: EventIndex, run_id: str) -> list[ReasoningEvent]:
        """Return all events of a run whose cycle is over: its branches end before it does."""
        clock, events = Clock(RUN_END_S), list[ReasoningEvent]()
        async with await session.subscribe(since=before, types=get_args(ReasoningEvent)) as stream:
            while not (events and isinstance(events[-1], ReasoningDone)):
                try:
                    envelope = await stream.get(clock.left_s)
                except (TimeoutError, SessionError):  # nobody publishes its end any more
                    break
                event = envelope.event
                if isinstance(event, ReasoningEvent) and event.run_id == run_id:
                    events.append(event)
        return events


# --- Parallel -------------------------------------------------------------------------------------

Agent: TypeAlias = SessionLike | Options | Mapping[str, Any]  # Any: see ``Options``
"""A session that is there, or what one is made of that ends when it has answered."""


class AsyncParallel:
    """Asks several agents at once, for coroutines."""

    @staticmethod
    async def map(
        question: str | Sequence[str],
        agents: Sequence[Agent],
        *,
        max_parallel: int = 4,
        timeout: float | None = None,
        client: AsyncClient | None = None,
    ) -> list[Reply | CmdcError]:
        """Return what each agent answers, in their order; one that fails is there as its error.

        ``question`` is one for all, or as many as there are agents. ``timeout`` is in seconds, for
        each answer.

        Raises:
            UsageError: there are not as many questions as agents, or ``max_parallel`` is no number.

        """
        owner = default_client if client is None else checked_kind(client, AsyncClient, "client")
        pairs = checked_pairs(question, agents, max_parallel)

        async def ask(pair: tuple[str, Agent]) -> Reply | CmdcError:
            text, agent = pair
            try:
                if isinstance(agent, Options | Mapping):
                    base = agent if isinstance(agent, Options) else None
                    given = {} if isinstance(agent, Options) else named(agent)
                    async with await owner.create_agent(base, **given) as made:
                        answer: Reply = await made.run(text, timeout=timeout)
                        return answer
                if isinstance(agent, AsyncSession):
                    return await agent.run(text, timeout=timeout)
                return await owner.run(checked_id(agent), text, timeout=timeout)
            except CmdcError as error:
                return error

        return await AsyncPool.map(ask, pairs, max_parallel)
