"""Carries one plan out against a real session, and says what was wrong with it.

Three things go on at a time: the moves, in their order; the listener, which keeps the books and
never misses an event; and answers to what people are asked, drawn by the seed. Whatever a call is
refused with, beyond what its row in ``_REFUSALS`` expects, is a problem of the session.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.client.session import AsyncSession
from cmdc_runtime.client.stream import AsyncEventStream
from cmdc_runtime.clock import now_ms
from cmdc_runtime.events import Event
from cmdc_runtime.testing import ScriptedModel
from scripts.soak.chance import dice
from scripts.soak.checks import answers_missing, late_reading
from scripts.soak.history import entries_told, problems_of
from scripts.soak.ledger import Ledger
from scripts.soak.meddler import Meddler
from scripts.soak.plan import Move, Plan
from scripts.soak.tools import CHOICES, EXTRAS, twice_done

REST_S: Final = 120.0
"""Until everything that was accepted is over; a cycle takes a second on an idle machine."""
SETTLE_S: Final = 30.0
"""Until a session that rests says so, and its subagents are gone."""
LOOK_AGAIN_S: Final = 0.1
END_S: Final = 15.0
"""For a stream to end with its session."""
KILLED_CALLS_SHARE: Final = 0.02
"""Of calls that the agent is killed in, beside the kills of the plan."""
KILL_S: Final = 0.1
ANSWERED_SHARE: Final = 0.8
"""Of questions; the others are given up by who asks."""
FOR_GOOD_SHARE: Final = 0.1
"""Of approvals: they hold for every call of their tool."""
_PERSON_S: Final = 0.3
"""The longest that a person thinks about an answer."""
_RESTING: Final = frozenset({"idle", "hibernated"})

_REFUSALS: Final[Mapping[str, tuple[type[cmdc.CmdcError], ...]]] = {
    "prompt": (cmdc.QueueFull,),
    "steer": (cmdc.QueueFull, cmdc.SteeringRejected),
    "attach_tool": (cmdc.AlreadyAttached,),
    "attach_tools": (cmdc.ToolValidationFailed,),
    "detach_tool": (cmdc.ToolNotFound,),
    "detach_tools": (cmdc.ToolValidationFailed,),
    "approve": (cmdc.ApprovalNotFound, cmdc.QueueFull),
    "reject": (cmdc.ApprovalNotFound, cmdc.QueueFull),
    "user_respond": (cmdc.AskNotFound,),
    "collect_reply": (cmdc.AgentAborted, cmdc.AgentFailed),
}
"""What a call may be refused with in a session that is well; all others with nothing."""
_PEOPLE: Final[Mapping[tuple[str, bool], float]] = {
    ("approve", True): 5,
    ("approve", False): 1,
    ("reject", False): 2,
    ("reject", True): 1,
    ("ignore", False): 1,
}
"""What a person decides about a call, and whether the session goes on at once; in parts."""


@dataclass(frozen=True, slots=True)
class Place:
    """What all sessions of a run share."""

    client: cmdc.AsyncClient
    models: tuple[ScriptedModel, ScriptedModel]
    folder: Path
    seed: int


class StuckError(Exception):
    """A session does not come to rest, so there is no use in going on with its plan."""


class Driver:
    """One session and what is done to it."""

    def __init__(self, place: Place, plan: Plan) -> None:
        """Start nothing yet."""
        self.ledger = Ledger()
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        self._place = place
        self._plan = plan
        self._accepted: list[str] = []
        self._heard = asyncio.Condition()
        self._besides: set[asyncio.Task[None]] = set()
        self._reactions: set[asyncio.Task[None]] = set()
        self._heard_of = 0
        self._folder = place.folder / plan.name
        self._own: Final[Mapping[str, Callable[..., Coroutine[Any, Any, object]]]] = {
            "pause": self._pause,
            "kill": self._kill,
            "rest": self._rest,
        }
        # Any: each takes the event of its own row.
        self._reacts: Final[Mapping[type[Event], Callable[..., Coroutine[Any, Any, None]]]] = {
            events.AskUser: self._respond,
            events.ApprovalRequired: self._decide,
            events.ToolExecutionStart: self._meet,
            events.SubagentStart: self._meet,
        }

    async def run(self, *, stops: bool) -> None:
        """Carry the plan out and check what came of it; ``stops``: end the session too."""
        session = self._session = await self._start()
        stream = await session.subscribe(since=0)
        listener = asyncio.create_task(self._listen(stream))
        try:
            for move in self._plan.moves:
                await self._make(move)
            await self._come_to_rest()
            await self._check()
            if stops:
                await session.stop()
                await self._end_of(listener)
        finally:
            for task in [listener, *self._besides, *self._reactions]:
                task.cancel()
            await asyncio.gather(listener, *self._besides, *self._reactions, return_exceptions=True)
            await stream.close()

    async def _start(self) -> AsyncSession:
        plan, place = self._plan, self._place
        self._folder.mkdir()
        return await place.client.create_agent(
            model=place.models[0],
            session_id=plan.name,
            system_prompt=f"You are {plan.name}.",
            tools=[CHOICES[name] for name in plan.tools],
            plugins=[(Meddler, {"seed": place.seed})] if plan.is_meddled else [],
            working_dir=str(self._folder),
            **plan.options,
        )

    # --- moves ------------------------------------------------------------------------------------

    async def _make(self, move: Move) -> None:
        if move.delay_s is None:
            await self._call(move.verb, move.arguments)
            return
        task = asyncio.create_task(self._call_later(move.delay_s, move))
        self._besides.add(task)
        task.add_done_callback(self._besides.discard)

    async def _call_later(self, delay_s: float, move: Move) -> None:
        await asyncio.sleep(delay_s)
        await self._call(move.verb, move.arguments)

    async def _call(self, verb: str, arguments: Mapping[str, Any]) -> None:  # Any: of that call
        self.counts[verb] += 1
        call = self._own.get(verb) or getattr(self._session, verb)
        try:
            answer: Any = await call(**self._with_objects(arguments))  # Any: that call's
        except _REFUSALS.get(verb, ()) as error:
            self.counts[f"refused_{error.code}"] += 1
            return
        except cmdc.CmdcError as error:
            self.problems.append(f"{verb}: {type(error).__name__}: {error}")
            return
        if verb == "prompt":
            self._accepted.append(answer.command_id)
        elif verb == "steer":
            self._accepted.append(answer)

    def _with_objects(self, arguments: Mapping[str, Any]) -> dict[str, Any]:  # Any: of that call
        """Return the arguments with what their names stand for."""
        known = {**CHOICES, **EXTRAS}
        given = dict(arguments)
        if "tools" in given:
            given["tools"] = [known[name] for name in given["tools"]]
        if "tool" in given:
            given["tool"] = known[given["tool"]]
        if "model" in given:
            name, opts = self._place.models[given["model"]].model_source()
            given |= {"model": name, "provider_opts": opts}
        return given

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _kill(self) -> None:
        pid = await self._session.agent_pid()
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # --- what comes back --------------------------------------------------------------------------

    async def _listen(self, stream: AsyncEventStream) -> None:
        async for envelope in stream:
            async with self._heard:
                self.ledger.feed(envelope)
                self._heard.notify_all()
            reaction = self._reaction(envelope.event)
            if reaction is not None:
                task = asyncio.create_task(reaction)
                self._reactions.add(task)
                task.add_done_callback(self._reactions.discard)

    def _reaction(self, event: Event) -> Coroutine[Any, Any, None] | None:
        react = self._reacts.get(type(event))
        if react is None:
            return None
        self._heard_of += 1
        return react(dice(self._place.seed, self._plan.name, "reaction", self._heard_of), event)

    async def _meet(self, draw: Random, _begun: Event) -> None:
        if draw.random() < KILLED_CALLS_SHARE:
            await asyncio.sleep(draw.uniform(0, KILL_S))
            await self._call("kill", {})

    async def _respond(self, draw: Random, asked: events.AskUser) -> None:
        await asyncio.sleep(draw.uniform(0, _PERSON_S))
        if draw.random() < ANSWERED_SHARE:
            await self._call("user_respond", {"ref": asked.ref, "response": "yes"})

    async def _decide(self, draw: Random, wanted: events.ApprovalRequired) -> None:
        await asyncio.sleep(draw.uniform(0, _PERSON_S))
        (verb, resumes), *_ = draw.choices(list(_PEOPLE), list(_PEOPLE.values()))
        arguments: dict[str, Any] = {"approval_id": wanted.id, "auto_resume": resumes}
        if verb == "ignore":
            return
        if verb == "approve" and draw.random() < FOR_GOOD_SHARE:
            arguments["kind"] = "approve_always"
        await self._call(verb, arguments)

    # --- the end ----------------------------------------------------------------------------------

    @property
    def _is_at_rest(self) -> bool:
        return self.ledger.is_at_rest and all(map(self.ledger.knows, self._accepted))

    async def _rest(self) -> None:
        """Wait until all that was accepted is over."""
        try:
            async with asyncio.timeout(REST_S), self._heard:
                await self._heard.wait_for(lambda: self._is_at_rest)
        except TimeoutError as error:
            raise StuckError(await self._standing()) from error

    async def _standing(self) -> str:
        books = self.ledger
        unknown = [one for one in self._accepted if not books.knows(one)]
        return (
            f"at {now_ms()}: open {books.open}, waiting {books.waiting},"
            f" steerings {books.steerings_left}, unheard of {unknown};"
            f" {await self._session.status()}; subagents {await self._subagents()}"
        )

    async def _subagents(self) -> list[cmdc.Status]:
        live = await self._place.client.list_sessions()
        return [one for one in live if one.parent_id == self._plan.name]

    async def _come_to_rest(self) -> None:
        """Return when nothing goes on and nobody has anything more to say."""
        while self._besides or self._reactions or not self._is_at_rest:
            await asyncio.gather(*self._besides, *self._reactions)
            await self._rest()
        try:
            async with asyncio.timeout(SETTLE_S):
                while not await self._says_it_rests():  # noqa: ASYNC110 - it is asked
                    await asyncio.sleep(LOOK_AGAIN_S)
        except TimeoutError as error:
            raise StuckError(f"at rest by its events, {await self._standing()}") from error

    async def _says_it_rests(self) -> bool:
        status = await self._session.status()
        left = (status.queued_prompts, status.queued_steering, len(status.pending_tools))
        if status.state not in _RESTING or any(left):
            return False
        return not await self._subagents()

    async def _check(self) -> None:
        messages = await self._session.messages()
        found = [f"history: {one}" for one in problems_of(entries_told(messages), is_request=False)]
        if not self.ledger.counts["conversation_compacted"]:
            found += answers_missing(messages, self.ledger.said)
        found += [f"effect {one} happened twice" for one in twice_done(self._folder)]
        last = await self._session.last_index()
        async with asyncio.timeout(SETTLE_S), self._heard:
            await self._heard.wait_for(lambda: self.ledger.last >= last)
        found += await late_reading(self._session, self.ledger, last)
        self.ledger.close(self._accepted)
        status = await self._session.status()
        self.counts["restarts"] += status.restarts
        self.counts["incarnations"] += status.incarnation
        self.problems += found

    async def _end_of(self, listener: "asyncio.Task[None]") -> None:
        try:
            await asyncio.wait_for(asyncio.shield(listener), END_S)
        except TimeoutError:
            self.problems.append(f"its stream goes on {END_S:g} s after its end")
