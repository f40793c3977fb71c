"""Carries one plan out against a real session, and says what was wrong with it.

Three things go on at a time: the moves, in their order; the listener, which keeps the books and
never misses an event; and answers to what people are asked, drawn by the seed. Whatever a call is
refused with, beyond what its row in ``_REFUSALS`` expects, is a problem of the session.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.client.session import AsyncSession
from cmdc_runtime.client.stream import AsyncEventStream
from cmdc_runtime.commands import Status
from cmdc_runtime.events import Event
from cmdc_runtime.faults import FaultStep
from cmdc_runtime.ids import EventIndex
from cmdc_runtime.reasons import Down
from cmdc_runtime.testing import ScriptedModel
from scripts.soak.chance import dice
from scripts.soak.checks import conversation_problems, effect_problems, end_problems, late_reading
from scripts.soak.client_view import ClientView
from scripts.soak.house import House
from scripts.soak.ledger import Ledger
from scripts.soak.model import prompt_text
from scripts.soak.plan import Move, Plan
from scripts.soak.recall import Recalled, differences, recall
from scripts.soak.tools import CHOICES, EXTRAS, PLUGIN_NAMES, PLUGINS
from scripts.soak.wrongs import Problem, Wrong

_Answer = TypeVar("_Answer")

REST_S: Final = 90.0
"""Until everything that was accepted is over; a life takes a second on an idle machine."""
LOOK_AGAIN_S: Final = 0.02
END_HEARD_S: Final = 20.0
"""For the notice of a session's end to come, once it is stopped."""
QUIET_S: Final = 4.0
"""Without a word of what is awaited: then the session is asked whether anything is to come."""
CYCLE_CRASHES_MAX: Final = 2
"""What a cycle may cost unless the options say otherwise: the kernel's default."""
_PERSON_S: Final = 0.05
"""The longest that a person thinks about an answer."""
_RESTING: Final = frozenset({"idle", "hibernated"})

_REFUSALS: Final[Mapping[str, tuple[type[cmdc.CmdcError], ...]]] = {
    "prompt": (cmdc.QueueFull,),
    "steer": (cmdc.QueueFull, cmdc.SteeringRejected),
    "attach_tools": (cmdc.AlreadyAttached, cmdc.ToolValidationFailed),
    "detach_tool": (cmdc.ToolNotFound,),
    "approve": (cmdc.ApprovalNotFound, cmdc.QueueFull),
    "reject": (cmdc.ApprovalNotFound, cmdc.QueueFull),
    "user_respond": (cmdc.AskNotFound,),
    "attach_plugin": (cmdc.AlreadyAttached,),
    "detach_plugin": (cmdc.PluginNotFound,),
}
"""What a call may be refused with in a session that is well; all others with nothing."""


_UNBORN: Final = (
    *(cmdc.StartFailed, cmdc.DaemonUnavailable, cmdc.SessionExists, cmdc.CommandTimeout),
)
"""What a start may end with where somebody is killed meanwhile."""


@dataclass(frozen=True, slots=True)
class Place:
    """What all lives of a run share."""

    client: cmdc.AsyncClient
    models: tuple[ScriptedModel, ScriptedModel]
    folder: Path
    house: House

    def model(self, number: int) -> tuple[str, dict[str, str]]:
        """Return the name of a model, which no other has, and what leads to it."""
        name, opts = self.models[number].model_source()
        return f"{name}-{number}", opts


class StuckError(Exception):
    """A session does not come to rest, so there is no use in going on with its plan."""


class Life:
    """One session and what is done to it."""

    def __init__(
        self,
        place: Place,
        plan: Plan,
        gate: Callable[[], Awaitable[object]] | None = None,
        last_kill: Callable[["Life"], Awaitable[None]] | None = None,
    ) -> None:
        """Start nothing yet; ``gate`` is awaited between the session's start and its first move.

        ``last_kill`` ends at least the agent when the session has come to rest, and returns when
        there is a daemon again; without one it is the agent alone.
        """
        self._gate = gate
        self._last_kill = last_kill
        self.plan: Final = plan
        self.ledger: Final = Ledger(plan.options.get("max_cycle_crashes", CYCLE_CRASHES_MAX))
        plugins = (PLUGIN_NAMES[name] for name in plan.plugins)
        self._view: Final = ClientView(place.model(0)[0], plan.tools, plugins)
        self.problems: list[Problem] = []
        self.counts: Counter[str] = Counter()
        self.lines_left = len(plan.faults)
        """Of the plan of faults, how many were not played."""
        self.conversation: list[tuple[str, str]] = []
        """Who said what, once the session has come to rest."""
        self._place = place
        self._plan_file = place.house.faults / f"{plan.name}.plan"
        self._accepted: list[str] = []
        self._texts: dict[str, str] = {}
        self._downs: list[Down] = []
        self._deaths_before = 0
        """Deaths of the daemon before the monitor was set."""
        self._newest = 0
        """The newest incarnation that was seen at rest."""
        self._deaths = 0
        self._is_without_daemon = False
        self._resting: asyncio.Timeout | None = None
        self._heard = asyncio.Condition()
        self._besides: set[asyncio.Task[None]] = set()
        self._reactions = 0
        self.folder: Final = place.folder / plan.name
        self._own: Final[Mapping[str, Callable[..., Coroutine[Any, Any, object]]]] = {
            "pause": self._pause,
            "kill": self._kill,
            "rest": self._rest,
            "below": self._below,
        }
        # Any: each takes the event of its own row.
        self._reacts: Final[Mapping[type[Event], Callable[..., Coroutine[Any, Any, None]]]] = {
            events.AskUser: self._respond,
            events.ApprovalRequired: self._decide,
        }

    def daemon_died(self) -> None:
        """Record that the daemon was killed: calls may fail, and no time counts from now on."""
        self._deaths += 1
        self.ledger.jumps_allowed += 1
        self._is_without_daemon = True
        self._reschedule()

    def daemon_is_back(self) -> None:
        """Give the session all its time again: it could do nothing without a daemon."""
        self._is_without_daemon = False
        self._reschedule()

    def _reschedule(self) -> None:
        if self._resting is not None:
            self._resting.reschedule(self._due_s())

    def _due_s(self) -> float | None:
        """Return until when the session may take to come to what is awaited now."""
        now_s = asyncio.get_running_loop().time()
        return None if self._is_without_daemon else now_s + REST_S

    async def run(self) -> None:
        """Carry the plan out and check what came of it."""
        try:
            session = self._session = await self._start()
        except _UNBORN as error:
            # Killed before it was up, so nothing of it was ever acknowledged.
            if not self.plan.is_armed_early and not self._deaths:
                self._wrong(Wrong.OTHER, f"create_agent: {error}")
            self.counts["unborn"] += 1
            self._disarm()
            return
        stream = await self._patiently(lambda: session.subscribe(since=0))
        monitor = await self._patiently(
            lambda: session.monitor(self._downs.append, persistent=True)
        )
        self._deaths_before = self._deaths
        listener = asyncio.create_task(self._listen(stream))
        try:
            if self._gate is not None:
                async with asyncio.timeout(REST_S):
                    await self._gate()
            await self._live()
            await self._outlive()
            await self._check()
            await self._end()
        except StuckError as stuck:
            self._wrong(Wrong.PROMPT, f"stuck: {stuck}")
            with suppress(cmdc.CmdcError):
                await session.stop()
        finally:
            self._disarm()
            for task in [listener, *self._besides]:
                task.cancel()
            await asyncio.gather(listener, *self._besides, return_exceptions=True)
            await stream.close()
            with suppress(cmdc.CmdcError):
                await session.demonitor(monitor)

    async def _live(self) -> None:
        # A session that goes on from another one is armed by then, and may have died of all of it.
        if not (self.plan.is_armed_early or self.plan.is_armed_late or self.plan.is_continued):
            self._arm()
        for move in self.plan.moves:
            await self._make(move)
        await self._come_to_rest()
        self._disarm()

    async def _end(self) -> None:
        if self.plan.is_armed_late:
            self._arm()
        await self._patiently(self._session.stop)
        self._disarm()
        with suppress(cmdc.SessionNotAlive):
            status = await self._patiently(self._session.status)
            self._wrong(Wrong.OTHER, f"it is alive after its end: {status}")
        await self._check_ends()

    async def _check_ends(self) -> None:
        """See that each end of a process was reported once, the last one as such."""
        due_s = asyncio.get_running_loop().time() + END_HEARD_S
        while not any(not down.restarting for down in self._downs):
            if asyncio.get_running_loop().time() > due_s:
                break
            await asyncio.sleep(LOOK_AGAIN_S)
        is_early = self.plan.is_armed_early or self.plan.is_continued
        last = max((int(down.incarnation) for down in self._downs), default=self._newest)
        first = 0 if is_early or self._deaths_before else 1
        self.problems += end_problems(self._downs, first, max(last, self._newest))

    async def _patiently(self, ask: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Ask, again and again while there is no daemon: the next one is about to come."""
        async with asyncio.timeout(2 * REST_S):
            while True:
                try:
                    return await ask()
                except (cmdc.DaemonUnavailable, cmdc.CommandTimeout):
                    if not self._deaths:
                        raise
                    await asyncio.sleep(LOOK_AGAIN_S)

    async def _start(self) -> AsyncSession:
        if not self.plan.is_continued:
            if self.plan.is_armed_early:
                self._arm()
            return await self._create(self.plan.name)
        async with await self._create(f"{self.plan.name}.saved") as saved:
            receipt = await saved.prompt(prompt_text("saved"))
            await saved.collect_reply(timeout=REST_S)
            self._view.go_on_from(await saved.status(), receipt.command_id)
        name, opts = self._place.model(1)
        self._view.model = name
        self._arm()
        return await self._place.client.resume_session(
            saved, new_id=self.plan.name, model=name, provider_opts=opts
        )

    async def _create(self, name: str) -> AsyncSession:
        plan, place = self.plan, self._place
        self.folder.mkdir(exist_ok=True)
        model, opts = place.model(0)
        return await place.client.create_agent(
            model=model,
            provider_opts=opts,
            session_id=name,
            system_prompt=f"You are {plan.name}!",
            tools=[CHOICES[name] for name in plan.tools],
            plugins=[PLUGINS[name] for name in plan.plugins],
            working_dir=str(self.folder),
            **plan.options,
        )

    def _arm(self) -> None:
        steps = "".join(f"{line}\n" for line in self.plan.faults)
        self._plan_file.write_text(steps, encoding="utf-8")

    def plan_death(self, death: FaultStep) -> None:
        """Have the daemon die by this step, ahead of the plan."""
        with suppress(FileNotFoundError):  # it is not armed now
            left = self._plan_file.read_text(encoding="utf-8")
            self._plan_file.write_text(f"{death}\n{left}", encoding="utf-8")

    def forget_death(self, death: FaultStep) -> None:
        """Go on with the plan as it was before ``plan_death``; the daemon is dead."""
        with suppress(FileNotFoundError):
            head, _, left = self._plan_file.read_text(encoding="utf-8").partition("\n")
            if head == str(death):
                self._plan_file.write_text(left, encoding="utf-8")

    def _disarm(self) -> None:
        """Take the plan away; the steps that are not in it any more have killed."""
        with suppress(FileNotFoundError):
            left = self._plan_file.read_text(encoding="utf-8").splitlines()
            self._plan_file.unlink()
            self.counts["kills"] += len(self.plan.faults) - len(left)
            self.lines_left = len(left)

    def _wrong(self, kind: Wrong, text: str) -> None:
        self.problems.append(Problem(kind, text))

    # --- moves ------------------------------------------------------------------------------------

    async def _make(self, move: Move) -> None:
        if move.delay_s is None:
            await self._call(move.verb, move.arguments)
        else:
            self._besides_that(self._call_later(move.delay_s, move))

    def _besides_that(self, work: Coroutine[Any, Any, None]) -> None:  # Any: asyncio's own
        task = asyncio.create_task(work)
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
            if isinstance(error, cmdc.AskNotFound):
                self.ledger.refused.add(arguments["ref"])
            return
        except cmdc.CmdcError as error:
            if self._deaths and isinstance(error, (cmdc.DaemonUnavailable, cmdc.CommandTimeout)):
                # Nobody has acknowledged it; it may have been taken all the same.
                self.counts["unacknowledged"] += 1
                return
            self._wrong(Wrong.OTHER, f"{verb}: {type(error).__name__}: {error}")
            return
        if verb == "prompt":
            self._accepted.append(answer.command_id)
            self._texts[answer.command_id] = arguments["text"]
        elif verb == "steer":
            self._accepted.append(answer)

    def _with_objects(self, arguments: Mapping[str, Any]) -> dict[str, Any]:  # Any: of that call
        """Return the arguments with what their names stand for."""
        given = dict(arguments)
        if "tools" in given:
            given["tools"] = [EXTRAS[name] for name in given["tools"]]
        if "plugin" in given:
            given["plugin"] = PLUGINS[given["plugin"]]
        if "model" in given:
            name, opts = self._place.model(given["model"])
            given |= {"model": name, "provider_opts": opts}
        return given

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _below(self) -> None:
        """Wait until a subagent is up, or there will be none."""
        while not self._is_at_rest:
            listed = await self._patiently(self._place.client.list_sessions)
            if any(one.parent_id == self._session.id and one.pid for one in listed):
                return
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _kill(self) -> None:
        pid = await self._session.agent_pid()
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.counts["kills"] += 1

    # --- what comes back --------------------------------------------------------------------------

    async def _listen(self, stream: AsyncEventStream) -> None:
        async for envelope in stream:
            async with self._heard:
                self.ledger.feed(envelope)
                self._view.feed(envelope.event)
                self._heard.notify_all()
            react = self._reacts.get(type(envelope.event))
            if react is not None:
                self._reactions += 1
                draw = dice(self.plan.name, "reaction", self._reactions)
                self._besides_that(react(draw, envelope.event))

    async def _respond(self, draw: Random, asked: events.AskUser) -> None:
        await asyncio.sleep(draw.uniform(0, _PERSON_S))
        await self._call("user_respond", {"ref": asked.ref, "response": "yes"})

    async def _decide(self, draw: Random, wanted: events.ApprovalRequired) -> None:
        await asyncio.sleep(draw.uniform(0, _PERSON_S))
        people = self.plan.people
        ((verb, resumes),) = draw.choices(list(people), list(people.values()))
        if verb == "ignore":
            if not wanted.hold:
                return
            verb = "reject"  # the cycle waits for a call that is held
        await self._call(verb, {"approval_id": wanted.id, "auto_resume": resumes})

    # --- the end ----------------------------------------------------------------------------------

    @property
    def _is_at_rest(self) -> bool:
        return self.ledger.is_at_rest and all(map(self.ledger.knows, self._accepted))

    async def _rest(self) -> None:
        """Wait until all that was accepted is over."""
        if not await self._hears(lambda: self._is_at_rest):
            raise StuckError(await self._standing())

    async def _hears(self, what: Callable[[], bool]) -> bool:
        """Return when the books have it, or say that the session rests and will not publish it."""
        seen = -1
        async with self._bounded():
            while True:
                try:
                    async with asyncio.timeout(QUIET_S), self._heard:
                        return await self._heard.wait_for(what)
                except TimeoutError:
                    status = await self._patiently(self._session.status)
                if _is_over(status) and self.ledger.last == seen >= status.last_index:
                    return False
                seen = self.ledger.last

    @asynccontextmanager
    async def _bounded(self) -> AsyncIterator[None]:
        """Give the session ``REST_S`` to come to what is awaited, while there is a daemon."""
        try:
            async with asyncio.timeout_at(self._due_s()) as self._resting:
                yield
        except TimeoutError as error:
            raise StuckError(await self._standing()) from error
        finally:
            self._resting = None

    async def _standing(self) -> str:
        books = self.ledger
        unknown = [one for one in self._accepted if not books.knows(one)]
        try:
            status: object = await self._session.status()
        except cmdc.CmdcError as error:
            status = error
        return (
            f"heard up to {books.last}, open {books.open}, waiting {books.waiting},"
            f" steerings {books.steerings_left}, unheard of {unknown}; {status!r}"
        )

    async def _come_to_rest(self) -> None:
        """Return when nothing goes on and nobody has anything more to say."""
        while True:
            await asyncio.gather(*self._besides)
            await self._rest()
            async with self._bounded():
                if not self._besides and self._is_at_rest and await self._says_it_rests():
                    return
                await asyncio.sleep(LOOK_AGAIN_S)

    async def _says_it_rests(self) -> bool:
        """Say so where all that was published has come, too: an answer overtakes the stream."""
        status = await self._patiently(self._session.status)
        has_heard = self.ledger.last >= status.last_index
        return _is_over(status) and has_heard and not self._besides

    async def _outlive(self) -> None:
        """Have the session killed once more, where it rests, and look what it has lost by it."""
        before = await self._recall()
        self._compare(before, [])
        if self._last_kill is None:
            self._place.house.kill_agents((self.plan.name,))
        else:
            await self._last_kill(self)
        newest = before.status.incarnation
        if not await self._hears(lambda: self.ledger.incarnation > newest):
            self._wrong(Wrong.INDEX, f"no event shows a process after incarnation {newest}")
        after = await self._recall()
        self._compare(after, differences(before, after))
        self.ledger.counts["recovered_idle"] -= 1  # it counts those of the life before
        self.counts["rebuilt"] += 1

    async def _recall(self) -> Recalled:
        """Return what the session remembers at rest; its process may have been killed just now.

        What it has published by then is heard, too: of a branch that ended behind its call, say.
        """
        memories = self._place.house.memories
        async with self._bounded():
            while True:
                found = await self._patiently(lambda: recall(self._session, memories))
                has_heard = self.ledger.last >= found.status.last_index
                if has_heard and _is_over(found.status) and found.is_whole:
                    return found
                await asyncio.sleep(LOOK_AGAIN_S)

    def _compare(self, found: Recalled, others: list[str]) -> None:
        for text in (*self._view.problems(found), *others):
            self._wrong(Wrong.REBUILT, text)

    async def _check(self) -> None:
        status = await self._patiently(self._session.status)
        messages = await self._patiently(self._session.messages)
        last = await self._patiently(self._session.last_index)
        # Behind a loss comes the word of the next process, which the daemon may still be starting.
        await self._hears(lambda: self.ledger.last >= last and not self.ledger.has_lost)
        last = EventIndex(max(last, self.ledger.last))
        self.problems += conversation_problems(messages, self.ledger, self._texts)
        self.problems += effect_problems(self.folder)
        self.problems += await late_reading(self._session, self.ledger, last)
        self.ledger.close(self._accepted)
        self.conversation = [(one.role, one.content) for one in messages if one.role != "system"]
        self.counts["restarts"] += status.restarts
        self.counts["incarnations"] += status.incarnation
        self._newest = int(status.incarnation)


def _is_over(status: Status) -> bool:
    left = (status.queued_prompts, status.queued_steering, len(status.pending_tools))
    return status.state in _RESTING and not any(left)
