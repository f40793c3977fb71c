# Made by `make sync` of cmdc_runtime/client/runner.py: change that, not this.
"""``cmdc_runtime.client.runner`` for threads."""

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
from cmdc_runtime.client.callers import Pool
from cmdc_runtime.client.cycle import Clock, CycleEvents
from cmdc_runtime.client.default import client as default_client
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
from cmdc_runtime.client.sync.session import Client, Session
from cmdc_runtime.client.typed_answer import Reply
from cmdc_runtime.errors import CmdcError, SessionError, SessionNotAlive
from cmdc_runtime.events import Event, ReasoningDone
from cmdc_runtime.ids import EventIndex
from cmdc_runtime.messages import OpeningCall
from cmdc_runtime.options import Options
from cmdc_runtime.reasoning.result import ReasoningEvent, ReasoningResult, failed

# --- Runner ---------------------------------------------------------------------------------------


class Runner:
    """Runs strategies, for threads."""

    @classmethod
    @spelled
    def run(
        cls,
        strategy: object,
        prompt: str,
        *,
        client: Client | None = None,
        **given: Unpack[RunOptions],
    ) -> ReasoningResult:
        """Have a question thought about by a strategy, and return what the run came to.

        ``strategy`` is what ``reasoning_strategy`` takes; the rest is in ``RunOptions``. A run that
        was cut off by its steps, budget or time has its status and the best answer so far; one
        whose strategy failed, or has ended its process, has "failed", the reason and the best
        answer so far, also where that has ended the session; one whose cycle was aborted, or whose
        call was ended, has "aborted", and its tree so far.

        Raises:
            InvalidOptions: ``problems`` has one line for each wrong argument.
            InvalidText: ``prompt`` is not a non-empty str.
            InvalidTool: ``max_depth`` leaves the given session no level for branches.
            StartFailed: the session did not start, as where ``score`` names what is not there.
            AgentAborted: the prompt of the run was dropped before its cycle began.
            SessionNotAlive: the session had ended before.

        """
        request = RunRequest(strategy, given, (client, Client))
        owner = client or default_client
        if request.session is None:
            base, options = request.definition()
            with cls._made(owner, base, options) as made:
                return cls._follow(made, prompt, request.on_event)
        found = request.session
        if not isinstance(found, Session):
            found = Session(found, owner)
        tool, call = request.guest()
        try:
            found.attach_tool(tool)
            return cls._follow(found, prompt, request.on_event, call)
        finally:
            with contextlib.suppress(CmdcError):  # it has ended, or was not attached
                found.detach_tool(tool.name)

    @staticmethod
    def _made(
        owner: Client,
        base: Options | None,
        options: dict[str, Any],  # Any: see ``Options``
    ) -> Session:
        try:
            return owner.create_agent(base, **options)
        except CmdcError:
            raise
        except BaseException:  # whoever runs this gives up: no session stays behind
            owner._run(Exchange.await_ends)  # noqa: SLF001 - a call of the client that needs no name
            raise

    @staticmethod
    def _follow(
        session: Session,
        prompt: str,
        on_event: OnEvent | None,
        call: OpeningCall | None = None,
    ) -> ReasoningResult:
        found: list[Event] = []
        is_over = False
        before = session.last_index()
        try:
            read = session.client._read  # noqa: SLF001 - a call of the client that needs no name
            with read(session, prompt, CycleEvents(), None, call) as stream:
                for event in stream:
                    found.append(event)
                    if on_event is not None and isinstance(event, ReasoningEvent):
                        Pool.call(on_event, event)
            is_over = True
        except SessionNotAlive as error:
            if not found:
                raise
            so_far = ReasoningResult.of(one for one in found if isinstance(one, ReasoningEvent))
            return so_far if so_far.status != "running" else failed(so_far, str(error))
        finally:
            if not is_over:
                with contextlib.suppress(CmdcError):
                    session.abort(reason=ENDED)
        if (run_id := cut_run(found)) is not None:
            for event in (Runner._rest(session, before, run_id))[run_length(found) :]:
                found.append(event)
                if on_event is not None:
                    Pool.call(on_event, event)
        return result_of(found)

    @staticmethod
    def _rest(session: Session, before: EventIndex, run_id: str) -> list[ReasoningEvent]:
        """Return all events of a run whose cycle is over: its branches end before it does."""
        clock, events = Clock(RUN_END_S), list[ReasoningEvent]()
        with session.subscribe(since=before, types=get_args(ReasoningEvent)) as stream:
            while not (events and isinstance(events[-1], ReasoningDone)):
                try:
                    envelope = stream.get(clock.left_s)
                except (TimeoutError, SessionError):  # nobody publishes its end any more
                    break
                event = envelope.event
                if isinstance(event, ReasoningEvent) and event.run_id == run_id:
                    events.append(event)
        return events


# --- Parallel -------------------------------------------------------------------------------------

Agent: TypeAlias = SessionLike | Options | Mapping[str, Any]  # Any: see ``Options``
"""A session that is there, or what one is made of that ends when it has answered."""


class Parallel:
    """Asks several agents at once, for threads."""

    @staticmethod
    def map(
        question: str | Sequence[str],
        agents: Sequence[Agent],
        *,
        max_parallel: int = 4,
        timeout: float | None = None,
        client: Client | None = None,
    ) -> list[Reply | CmdcError]:
        """Return what each agent answers, in their order; one that fails is there as its error.

        ``question`` is one for all, or as many as there are agents. ``timeout`` is in seconds, for
        each answer.

        Raises:
            UsageError: there are not as many questions as agents, or ``max_parallel`` is no number.

        """
        owner = default_client if client is None else checked_kind(client, Client, "client")
        pairs = checked_pairs(question, agents, max_parallel)

        def ask(pair: tuple[str, Agent]) -> Reply | CmdcError:
            text, agent = pair
            try:
                if isinstance(agent, Options | Mapping):
                    base = agent if isinstance(agent, Options) else None
                    given = {} if isinstance(agent, Options) else named(agent)
                    with owner.create_agent(base, **given) as made:
                        answer: Reply = made.run(text, timeout=timeout)
                        return answer
                if isinstance(agent, Session):
                    return agent.run(text, timeout=timeout)
                return owner.run(checked_id(agent), text, timeout=timeout)
            except CmdcError as error:
                return error

        return Pool.map(ask, pairs, max_parallel)
