"""One session's agent: feeds commands and results to the tables and carries out their effects.

Inputs are taken one at a time, in the loop's thread, and no effect blocks, so nothing can come
between a decision and its effects. The records, outcomes and events of one step leave as one
message: the records are one transaction, ahead of the events, so what a subscriber has seen the
journal knows; and what the journal knows subscribers are told, whenever the process dies.
"""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec
import structlog

from cmdc_runtime import packed_code
from cmdc_runtime.clock import now_ms
from cmdc_runtime.commands import Command, PendingTool, Status, UncertainCall
from cmdc_runtime.errors import CmdcError, ProtocolError, UsageError
from cmdc_runtime.events import AgentHibernated, AgentWoken, RecordSetAside
from cmdc_runtime.extensions.hooks import SessionEnd, SessionStart
from cmdc_runtime.extensions.plugin_context import PendingApproval, PluginContext
from cmdc_runtime.faults import fault_point
from cmdc_runtime.heartbeats import DROPPED_STEP, RESUME_STEP
from cmdc_runtime.ids import CommandId, EventIndex
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.pages import Pages
from cmdc_runtime.plain import shown
from cmdc_runtime.reasons import LINE_CHARS_MAX, AnyReason, PlainReason
from cmdc_runtime.spec import AgentSpec
from cmdc_runtime.wire.codec import decode, encode, failed, raw
from cmdc_runtime.wire.frames import (
    Answer as AnswerFrame,
)
from cmdc_runtime.wire.frames import (
    Assign,
    Completed,
    HostLost,
    IdleNotice,
    JournalCommand,
    JournalRecord,
    Refusal,
    ValueReply,
)
from workers.core import aside, commands, plugins, rebuild, results
from workers.core.causes import Given, Recovery, with_cause
from workers.core.conversation import tool_names, uncertain_calls
from workers.core.expense import is_priced
from workers.core.inputs import Order, PluginsSpoke, Result, Stopped
from workers.core.kernel_emits import patched
from workers.core.records import Record, SetAside
from workers.core.state import Memory, OpenCall, State
from workers.core.step import (
    Answer,
    Complete,
    ExitProcess,
    Keep,
    Publish,
    Refuse,
    Said,
    Step,
    TellMessages,
    TellPage,
    TellStatus,
)
from workers.core.verdict import Verdict
from workers.effects.deadlines import Deadlines, Rest
from workers.effects.hands import Hands
from workers.effects.publish import Publisher
from workers.link import Link
from workers.saving import Saver

log = structlog.get_logger()

ORDERS_REMEMBERED: Final = 10_000
"""How many durable commands are remembered so that one that comes twice is taken once."""


Note: TypeAlias = Callable[[str, int, tuple[str, ...], int], None]
"""Takes the state, the turns, the calls in flight and the index of the newest event."""


@dataclass(frozen=True, slots=True)
class Ways:
    """How an agent ends: by a bug in one of its tasks, or because the options say so."""

    on_crash: Callable[[BaseException], None]
    on_exit: Callable[[PlainReason], None]


class Agent:
    """The machine of one session with its hands, its journal and its events."""

    def __init__(self, assign: Assign, memory: Memory, link: Link, publisher: Publisher) -> None:
        """Keep the parts; ``equip`` gives the rest, ``begin`` starts."""
        self._assign = assign
        self._memory = memory
        self._recorded: Memory | None = None  # as it was behind the last step that kept records
        self._link = link
        self._publisher = publisher
        self._started_s = time.monotonic()
        self._deadlines = Deadlines(self.post)
        self._pages = Pages(time.monotonic, encode)
        self._is_begun = False
        self._saver, self._news = Saver(), tuple[Record, ...]()
        self._taken: deque[CommandId] = deque(maxlen=ORDERS_REMEMBERED)
        self._taken_set: set[CommandId] = set()
        self._note: Note | None = None
        self._noted_calls: tuple[OpenCall, ...] = ()
        self._tools: tuple[str, ...] = ()
        # fmt: off
        self._perform: Final[Mapping[type, Callable[[Any], None]]] = {  # Any: the effect of the row
            Answer:       self._answer,
            Refuse:       self._refuse,
            TellStatus:   self._tell_status,
            TellMessages: self._tell_messages,
            TellPage:     self._tell_page,
            ExitProcess:  self._exit,
        }
        # fmt: on

    def equip(self, hands: Hands, rest: Rest, ways: Ways, facts: AgentSpec) -> None:
        """Give the agent its hands, what lets it sleep, its ways to end, and its definition."""
        self._hands, self._rest, self._ways, self._facts = hands, rest, ways, facts

    def take_up(self, saver: Saver, news: tuple[Record, ...]) -> None:
        """Go on with what earlier processes have saved; ``news`` are recorded at the beginning."""
        self._saver, self._news = saver, news

    def tell(self, note: Note) -> None:
        """Have ``note`` told what the agent does: now, and in each step before its effects."""
        self._note = note
        self._tell_doing()

    @property
    def greets(self) -> bool:
        """Whether a plugin wants to hear that the process is ready."""
        return self._memory.hears(SessionStart)

    async def greet(self) -> str | None:
        """Tell plugins that the process is ready; return why one of them wants no session."""
        verdict = await self._hands.tell_plugins(SessionStart())
        abort = verdict.abort
        if abort is None:
            return None
        return f"plugin {abort.plugin}: {shown(abort.reason, LINE_CHARS_MAX)}"

    async def farewell(self, *, is_end: bool) -> None:
        """Let plugins hear of the last cycle, and, if it is the session's end, of that."""
        try:
            await self._hands.told_all()
            await self._hands.observed_all()
            if is_end:
                await self._hands.tell_plugins(SessionEnd())
        finally:
            self._publisher.flush()

    def know_hooks(self, hooks: Mapping[str, frozenset[str]]) -> None:
        """Take what each plugin hears in this process: its code may have changed since."""
        self._memory = plugins.with_hooks(self._memory, hooks)

    def memory(self) -> Memory:
        """Return what the session remembers now."""
        return self._memory

    def has_answered(self, model: str) -> bool:
        """Say whether ``model`` is the session's own, and has answered it before."""
        return model == self._memory.model and self._memory.has_answered

    def plugin_crashed(self, plugin: str, where: str, error: str) -> None:
        """Take note of a plugin that crashed outside of hooks."""
        self.post(PluginsSpoke(Verdict(crashed=((plugin, where, error),))))

    def plugin_context(self) -> PluginContext:
        """Return what plugins see of the session now."""
        memory, assign = self._memory, self._assign
        messages = patched(memory)
        said = (message for message in reversed(messages) if message.role == "assistant")
        last = next(said, None)
        return PluginContext(
            session_id=assign.session_id,
            model=memory.model,
            turn=memory.turns_begun,
            total_tokens=memory.usage.total_tokens,
            cost_usd=memory.usage.cost_usd or 0.0,
            is_priced=is_priced(memory),
            user_data=self._facts.user_data,
            parent_id=assign.parent_id,
            group_id=assign.group_id,
            working_dir=self._facts.working_dir,
            todos=memory.todos,
            tools=tuple(tool.name for tool in memory.tools),
            subagents=tuple(one.name for one in self._facts.subagents),
            prompt_mode=self._facts.prompt_mode,
            messages=messages,
            last_assistant_reply=None if last is None else last.content,
            memory_contents=dict(memory.memory_contents),
            approvals=tuple(
                PendingApproval(id=one.id, tool=one.tool, args=one.args) for one in memory.approvals
            ),
            always_approved=memory.always_approved,
            incarnation=assign.incarnation,
            cycle_id=None if memory.cycle is None else memory.cycle.command_id,
            trace_parent=self._facts.trace_parent,
        )

    def begin(
        self,
        reason: AnyReason | None,
        unanswered: Iterable[JournalCommand],
        at: Callable[[int], None] = lambda _step: None,
    ) -> None:
        """Go on where the process before this one ended, then take what it left unanswered.

        ``at`` is told of each step before it is taken; those that killed processes are not.
        """
        incarnation, doomed = self._assign.incarnation, frozenset(self._assign.set_aside)
        self._is_begun = True
        at(DROPPED_STEP if RESUME_STEP in doomed else RESUME_STEP)
        if self._news:
            self._take(self._step(*map(Keep, self._news), *map(Publish, _told(self._news))))
        if RESUME_STEP in doomed:
            self._take(rebuild.drop_cycle(self._memory, aside.KILLED, now_ms()))
        elif reason is not None:
            recovery = Recovery(reason, now_ms())
            resumed = rebuild.resume(self._memory, incarnation, reason, recovery.at_ms)
            self._take(resumed, recovery)
        elif incarnation > 1:
            self._take(self._step(Publish(AgentWoken(incarnation=incarnation))))
        for step, command in enumerate(unanswered, RESUME_STEP + 1):
            if step in doomed:
                self._set_aside(command.id)
            else:
                at(step)
                self.order(command.id, command.body, durable=True, doomed=doomed)
        self._look_at_rest()

    def _set_aside(self, command_id: CommandId, parcel: Packed | None = None) -> None:
        """Answer a command that has killed who took it, or who opened this parcel of it."""
        told = RecordSetAside(what="command", why=aside.KILLED)
        if parcel is not None:
            name = shown(parcel.label, LINE_CHARS_MAX)
            why, digest = aside.BROUGHT.format(name), packed_code.digest_of(parcel)
            told = RecordSetAside(what="command", why=why, digest=digest, name=name)
        step = self._step()
        step.complete(command_id, UsageError(f"the command was set aside: {told.why}"))
        step.publish(told)
        self._take(step)

    def _step(self, *said: Said) -> Step:
        """Return a step that leaves the session as it is, and says this."""
        return Step(self._memory, list(said))

    def order(
        self,
        command_id: CommandId,
        body: bytes | msgspec.Raw,
        *,
        durable: bool,
        doomed: frozenset[int] = frozenset(),
    ) -> None:
        """Take one command; ``durable``: the journal has it and waits for its outcome.

        One that brings a parcel whose step is ``doomed`` is refused.
        """
        try:
            command = decode(Command, body)
        except ProtocolError as error:
            refused = self._step()
            if durable:
                refused.complete(command_id, error)
            else:
                refused.perform(Refuse(command_id, error))
            self._take(refused)
            return
        if command.durable and self._has_taken(command_id):
            return
        if (killer := aside.doomed_parcel(command, doomed)) is not None:
            self._set_aside(command_id, killer)
            return
        order = Order(command_id, command, now_ms())
        self._take(commands.apply(self._memory, order), order)

    def post(self, result: Result) -> None:
        """Take one result of our own work."""
        self._take(results.apply(self._memory, result), result)

    def next_index(self) -> EventIndex:
        """Send what was gathered, and return the index of the next event."""
        self._publisher.flush()
        return EventIndex(self._publisher.last_index + 1)

    def doze(self) -> None:
        """Tell the daemon that the process can be given up, and how the session stands."""
        self._publisher.flush()
        self._link.send(IdleNotice(status=encode(self.status())))

    def adopted(self) -> None:
        """Take note that another daemon watches over the session from now on."""
        self._hands.renew_host()

    def host_lost(self, frame: HostLost) -> None:
        """Take the daemon's word that a tool host can't be had, or has ended."""
        self._hands.host_lost(frame)

    async def stop(self, *, hibernates: bool = False, ends: bool = False) -> None:
        """End what is under way, processes of tools included.

        Nothing is recorded, unless the session ``ends``: then no other process ends its calls.
        """
        if ends:
            self.post(Stopped(now_ms()))
        self._rest.stop()
        self._deadlines.stop()
        if hibernates:
            asleep = AgentHibernated()
            self._publisher.publish(asleep)
            self._hands.observe(asleep)
        self._publisher.flush()
        await self._hands.stop()

    def _take(self, step: Step, given: Given | None = None) -> None:
        """Carry out a step; its records say that it came of ``given``."""
        kept = list(step.records)
        if given is not None:
            kept = with_cause(kept, given, self._memory, self._recorded)
        self._memory = step.memory
        if kept:
            self._recorded = step.memory
        records = [
            JournalRecord(kind=str(one.__struct_config__.tag), body=encode(one)) for one in kept
        ]
        settled = [
            Completed(id=said.id, frame=encode(_outcome(said)))
            for said in step.said
            if isinstance(said, Complete)
        ]
        for said in step.said:
            if isinstance(said, Publish):
                self._publisher.publish(said.event)
                self._hands.observe(said.event)
        if records or settled:
            fault_point(self._assign.session_id, records, settled, "before")
            snapshot = self._saver.snapshot(step, records)
            self._link.write(records, settled, self._publisher.take(), snapshot)
            fault_point(self._assign.session_id, records, settled, "after")
        self._tell_doing()
        for work in step.work:
            if self._hands.can(work):
                self._hands.perform(work, step.memory)
            else:
                self._perform[type(work)](work)
        self._look_at_rest(is_activity=given is None or commands.is_activity(given))

    def _tell_doing(self) -> None:
        """Leave word of what the agent is about to do: the process may die of it."""
        if self._note is None:
            return
        memory = self._memory
        if memory.calls is not self._noted_calls:
            self._noted_calls = memory.calls
            self._tools = tuple(
                f"{seen.call.name} {seen.call.call_id}"
                for seen in memory.calls
                if seen.started_at_ms is not None and seen.result is None
            )
        self._note(memory.state.value, memory.turns_begun, self._tools, self._publisher.last_index)

    def _look_at_rest(self, *, is_activity: bool = True) -> None:
        """Let the session sleep when nothing runs in it and nobody waits for it."""
        if not self._is_begun:
            return  # what the journal says may be under way is not yet gone on with
        memory = self._memory
        is_idle = memory.state is State.IDLE and not memory.waiters and not memory.children
        has_deadline = self._deadlines.watch(memory)
        self._rest.look(is_idle=is_idle and not has_deadline, is_activity=is_activity)

    def _has_taken(self, command_id: CommandId) -> bool:
        if command_id in self._taken_set:
            return True
        if len(self._taken) == ORDERS_REMEMBERED:
            self._taken_set.discard(self._taken[0])
        self._taken.append(command_id)
        self._taken_set.add(command_id)
        return False

    def reply(self, effect: Answer | Refuse) -> None:
        """Answer a question that took a while."""
        self._perform[type(effect)](effect)

    # --- effects --------------------------------------------------------------------------------

    def _answer(self, effect: Answer) -> None:
        # Who has an answer may ask for the events from then on: they must not be older than it.
        self._publisher.flush()
        body, page_id = self._pages.first(effect.value)
        self._link.send(AnswerFrame(id=effect.id, body=body, page_id=page_id))

    def _refuse(self, effect: Refuse) -> None:
        error = effect.error
        self._link.send(
            Refusal(
                id=effect.id, code=error.code, message=str(error), details=encode(error.details())
            )
        )

    def _tell_status(self, effect: TellStatus) -> None:
        self._publisher.flush()
        self._link.send(AnswerFrame(id=effect.id, body=encode(self.status())))

    def _tell_messages(self, effect: TellMessages) -> None:
        memory = self._memory
        system = self._hands.system_message(memory)
        said = (system,) if system.content else ()
        self._answer(Answer(effect.id, (*said, *patched(memory))))

    def _tell_page(self, effect: TellPage) -> None:
        self._answer(Answer(effect.id, self._pages.after(effect.page_id, effect.offset)))

    def _exit(self, effect: ExitProcess) -> None:
        self._ways.on_exit(effect.reason)

    def status(self) -> Status:
        """Return how the session stands, as one that sleeps where this process only looks."""
        memory, assign = self._memory, self._assign
        running = [
            PendingTool(
                name=seen.call.name, call_id=seen.call.call_id, started_at_ms=seen.started_at_ms
            )
            for seen in memory.calls
            if seen.result is None and seen.started_at_ms is not None
        ]
        return Status(
            state="hibernated" if assign.looks else memory.state.value,
            session_id=assign.session_id,
            turns=memory.turns_begun,
            cost_usd=memory.usage.cost_usd,
            uptime_ms=round((time.monotonic() - self._started_s) * 1000),
            timestamp_ms=now_ms(),
            token_usage=memory.usage,
            total_tokens=memory.usage.total_tokens,
            model=memory.model,
            queued_prompts=len(memory.queue),
            queued_steering=len(memory.steering),
            pending_approvals=tuple(one.id for one in memory.approvals),
            pending_tools=tuple(running),
            incarnation=assign.incarnation,
            restarts=assign.restarts,
            pid=None if assign.looks else os.getpid(),
            parent_id=assign.parent_id,
            group_id=assign.group_id,
            last_index=self._publisher.last_index,
            uncertain=_uncertain(memory),
        )

    def watch(self, task: asyncio.Task[None]) -> None:
        """Look after a task of the hands: a bug in it ends the process."""
        task.add_done_callback(self._look_at)

    def _look_at(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._ways.on_crash(error)


def _told(news: Iterable[Record]) -> Iterator[RecordSetAside]:
    for one in news:
        if isinstance(one, SetAside):
            yield RecordSetAside(what=one.what, why=one.why, digest=one.digest, name=one.name)


def _uncertain(memory: Memory) -> tuple[UncertainCall, ...]:
    found = uncertain_calls(memory)
    names = tool_names(memory) if found else {}
    ids = (message.call_id for message in found)
    return tuple(
        UncertainCall(name=names.get(call_id, ""), call_id=call_id)
        for call_id in ids
        if call_id is not None
    )


def _outcome(effect: Complete) -> ValueReply | Any:  # Any: a Failed frame
    if isinstance(effect.outcome, CmdcError):
        return failed(effect.id, effect.outcome)
    return ValueReply(id=effect.id, body=raw(effect.outcome))
