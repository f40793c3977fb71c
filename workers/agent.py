"""One session's agent: feeds commands and results to the tables and has their effects performed.

Inputs are taken one at a time, in the loop's thread, and no effect blocks, so nothing can come
between a decision and its effects. The records, outcomes and events of one step leave as one
message: the records are one transaction, ahead of the events, so what a subscriber has seen the
journal knows; and what the journal knows reaches subscribers, whenever the process dies.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import msgspec
import structlog

from cmdc_runtime import packed_code
from cmdc_runtime.clock import now_ms
from cmdc_runtime.commands import Command, PendingTool, SessionState, Status, UncertainCall
from cmdc_runtime.errors import CmdcError, ProtocolError, UsageError
from cmdc_runtime.events import AgentHibernated, AgentWoken, RecordSetAside
from cmdc_runtime.extensions.context import PendingApproval, PluginContext
from cmdc_runtime.extensions.hooks import SessionEnd, SessionStart
from cmdc_runtime.faults import fault_point
from cmdc_runtime.heartbeats import DROPPED_STEP, RESUME_STEP
from cmdc_runtime.ids import CommandId, EventIndex
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.plain import shown
from cmdc_runtime.reasons import LINE_CHARS_MAX, AnyReason
from cmdc_runtime.spec import AgentSpec, acting
from cmdc_runtime.wire.codec import decode, encode, failed, raw
from cmdc_runtime.wire.frames import (
    Assign,
    Completed,
    HostLost,
    IdleNotice,
    JournalCommand,
    JournalRecord,
    LitellmWanted,
    ServerFound,
    ValueReply,
)
from workers.core import commands, omissions, plugins, recovery, results
from workers.core.causes import Given, Restarted, with_cause
from workers.core.conversation import tool_names, uncertain_calls
from workers.core.evolve import patched
from workers.core.expense import is_priced, over_budget
from workers.core.inputs import Order, PluginsReported, Result, Stopped
from workers.core.records import Record, SetAside
from workers.core.snapshot import SNAPSHOT_BYTES_MAX, Unsaved
from workers.core.snapshot import encode as encode_snapshot
from workers.core.state import Memory, OpenCall, State
from workers.core.step import (
    Complete,
    Outgoing,
    Publish,
    Refuse,
    Step,
    WriteRecord,
)
from workers.core.verdict import Verdict
from workers.link import Link
from workers.performers.deadlines import Deadlines, IdleTimer
from workers.performers.publish import Publisher
from workers.performers.table import Performers

log = structlog.get_logger()

ORDERS_REMEMBERED: Final = 10_000
"""How many durable commands are remembered so that one that comes twice is taken once."""


ReportActivity: TypeAlias = Callable[[str, int, tuple[str, ...], int], None]
"""Takes the state, the turns, the calls in flight and the index of the newest event."""


class Saver:
    """Decides with which write of an agent its whole state goes to the journal."""

    def __init__(self, unsaved: Unsaved | None = None) -> None:
        """Go on from what the journal gave."""
        self._unsaved = unsaved or Unsaved()

    def snapshot(self, step: Step, records: Sequence[JournalRecord]) -> bytes:
        """Return what goes with the ``records`` of ``step``: the state after it, or b"".

        A state that is too large for a frame is left out, and tried again when the records have
        grown by as much as makes another one worth it.
        """
        size = sum(len(record.body) for record in records)
        self._unsaved = self._unsaved.after(len(records), size)
        if not self._unsaved.is_due(step.memory):
            return b""
        snapshot = encode_snapshot(step.memory)
        self._unsaved = Unsaved(newest=len(snapshot))
        if len(snapshot) + size > SNAPSHOT_BYTES_MAX:
            log.info("snapshot.left_out", bytes=len(snapshot), bytes_max=SNAPSHOT_BYTES_MAX)
            return b""
        return snapshot


class Agent:
    """The machine of one session with its performers, its journal and its events."""

    def __init__(self, assign: Assign, memory: Memory, link: Link, publisher: Publisher) -> None:
        """Keep the parts; ``wire`` gives the rest, ``begin`` starts."""
        self._assign = assign
        self._memory = memory
        self._recorded: Memory | None = None  # as it was behind the last step with records
        self._link = link
        self._publisher = publisher
        self._started_s = time.monotonic()
        self._deadlines = Deadlines(self.post)
        self._is_begun = False
        self._saver, self._new_records = Saver(), tuple[Record, ...]()
        self._accepted: deque[CommandId] = deque(maxlen=ORDERS_REMEMBERED)
        self._accepted_ids: set[CommandId] = set()
        self._report: ReportActivity | None = None
        self._reported_calls: tuple[OpenCall, ...] = ()
        self._running_tools: tuple[str, ...] = ()

    def wire(self, performers: Performers, idle_timer: IdleTimer, facts: AgentSpec) -> None:
        """Give the agent what performs its effects, its idle timer, and its definition."""
        self._performers, self._idle_timer, self._facts = performers, idle_timer, facts

    def continue_from(self, saver: Saver, new_records: tuple[Record, ...]) -> None:
        """Go on from what earlier processes have saved; ``begin`` records ``new_records``."""
        self._saver, self._new_records = saver, new_records

    def report_activity_to(self, report: ReportActivity) -> None:
        """Call ``report`` with what the agent does: now, and in each step before its effects."""
        self._report = report
        self._report_activity()

    @property
    def has_session_start(self) -> bool:
        """Whether a plugin has the hook ``session_start``."""
        return self._memory.has_hook(SessionStart)

    async def start_plugins(self) -> str | None:
        """Run the hook ``session_start``; return why a plugin aborts the session, if one does."""
        verdict = await self._performers.notify_plugins(SessionStart())
        abort = verdict.abort
        if abort is None:
            return None
        return f"plugin {abort.plugin}: {shown(abort.reason, LINE_CHARS_MAX)}"

    async def end_plugins(self, *, is_end: bool) -> None:
        """Finish the hooks of the last cycle, and, at the session's end, run ``session_end``."""
        try:
            await self._performers.notified()
            await self._performers.observed()
            if is_end:
                await self._performers.notify_plugins(SessionEnd())
        finally:
            self._publisher.flush()

    def set_hooks(self, hooks: Mapping[str, frozenset[str]]) -> None:
        """Take the hooks that each plugin has in this process: its code may have changed since."""
        self._memory = plugins.with_hooks(self._memory, hooks)

    def memory(self) -> Memory:
        """Return what the session remembers now."""
        return self._memory

    def has_answered(self, model: str) -> bool:
        """Say whether ``model`` is the session's own, and has answered it before."""
        return model == self._memory.model and self._memory.has_answered

    def plugin_crashed(self, plugin: str, where: str, error: str) -> None:
        """Record and publish that a plugin crashed outside of hooks."""
        self.post(PluginsReported(Verdict(crashed=((plugin, where, error),))))

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
            usage=memory.usage,
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
            prompt_mode=acting(self._facts, memory.agent).prompt_mode,
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
            config_facts=self._facts.config_facts,
            state_dir=assign.state_dir or None,
        )

    def begin(
        self,
        reason: AnyReason | None,
        unanswered: Iterable[JournalCommand],
        at: Callable[[int], None] = lambda _step: None,
    ) -> None:
        """Go on where the process before this one ended, then take what it left unanswered.

        ``at`` is called before each step; steps that killed processes are not taken.
        """
        incarnation, killing = self._assign.incarnation, frozenset(self._assign.set_aside)
        self._is_begun = True
        at(DROPPED_STEP if RESUME_STEP in killing else RESUME_STEP)
        if self._new_records:
            self._take(
                self._step(
                    *map(WriteRecord, self._new_records),
                    *map(Publish, _exclusion_events(self._new_records)),
                )
            )
        if RESUME_STEP in killing:
            self._take(recovery.drop_cycle(self._memory, omissions.KILLED, now_ms()))
        elif reason is not None:
            restarted = Restarted(reason, now_ms())
            resumed = recovery.resume(self._memory, incarnation, reason, restarted.at_ms)
            self._take(resumed, restarted)
        elif incarnation > 1:
            self._take(self._step(Publish(AgentWoken(incarnation=incarnation))))
        for step, command in enumerate(unanswered, RESUME_STEP + 1):
            if step in killing:
                self._set_aside(command.id)
            else:
                at(step)
                self.order(command.id, command.body, durable=True, killing=killing)
        self._update_idle_timer()

    def _set_aside(self, command_id: CommandId, packed: Packed | None = None) -> None:
        """Complete a command that kills who takes it, or who loads this packed code of it."""
        event = RecordSetAside(what="command", why=omissions.KILLED)
        if packed is not None:
            name = shown(packed.label, LINE_CHARS_MAX)
            why, digest = omissions.BROUGHT.format(name), packed_code.digest_of(packed)
            event = RecordSetAside(what="command", why=why, digest=digest, name=name)
        step = self._step()
        step.complete(command_id, UsageError(f"the command was set aside: {event.why}"))
        step.publish(event)
        self._take(step)

    def _step(self, *outgoing: Outgoing) -> Step:
        """Return a step that leaves the session as it is, and sends this."""
        return Step(self._memory, list(outgoing))

    def order(
        self,
        command_id: CommandId,
        body: bytes | msgspec.Raw,
        *,
        durable: bool,
        killing: frozenset[int] = frozenset(),
    ) -> None:
        """Take one command; ``durable``: the journal has it and waits for its outcome.

        One that brings packed code whose step is ``killing`` is refused.
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
        if command.durable and self._is_repeated(command_id):
            return
        if (killer := omissions.killing_code(command, killing)) is not None:
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

    def report_idle(self, *, is_misplaced: bool = False) -> None:
        """Send the daemon that the process may hibernate, and how the session stands.

        ``is_misplaced``: the one that wakes has to have litellm.
        """
        self._publisher.flush()
        if is_misplaced:
            self._link.send(LitellmWanted())
        self._link.send(IdleNotice(status=encode(self.status())))

    def adopted(self) -> None:
        """Go on under another daemon."""
        self._performers.renew_host()

    def hear(self, notice: HostLost | ServerFound) -> None:
        """Receive from the daemon how a process beside this one stands."""
        self._performers.hear(notice)

    async def stop(self, *, hibernates: bool = False, ends: bool = False) -> None:
        """End what is under way, processes of tools included.

        Nothing is recorded, unless the session ``ends``: then no other process ends its calls, or
        counts what had come of an answer.
        """
        if ends:
            self.post(Stopped(now_ms()))
        self._idle_timer.stop()
        self._deadlines.stop()
        if hibernates:
            asleep = AgentHibernated()
            self._publisher.publish(asleep)
            self._performers.observe(asleep)
        self._publisher.flush()
        await self._performers.stop()

    def _take(self, step: Step, given: Given | None = None) -> None:
        """Carry out a step; its records say that it came of ``given``."""
        recorded = list(step.records)
        if given is not None:
            recorded = with_cause(recorded, given, self._memory, self._recorded)
        self._memory = step.memory
        if recorded:
            self._recorded = step.memory
        records = [
            JournalRecord(kind=str(one.__struct_config__.tag), body=encode(one)) for one in recorded
        ]
        outcomes = [
            Completed(id=one.id, frame=encode(_outcome(one)))
            for one in step.outgoing
            if isinstance(one, Complete)
        ]
        for one in step.outgoing:
            if isinstance(one, Publish):
                self._publisher.publish(one.event)
                self._performers.observe(one.event)
        if records or outcomes:
            fault_point(self._assign.session_id, records, outcomes, "before")
            snapshot = self._saver.snapshot(step, records)
            self._link.write(records, outcomes, self._publisher.take(), snapshot)
            fault_point(self._assign.session_id, records, outcomes, "after")
        self._report_activity()
        for work in step.work:
            self._performers.perform(work, step.memory)
        self._update_idle_timer(is_activity=given is None or commands.is_activity(given))

    def _report_activity(self) -> None:
        """Report what the agent is about to do: the process may die of it."""
        if self._report is None:
            return
        memory = self._memory
        if memory.calls is not self._reported_calls:
            self._reported_calls = memory.calls
            self._running_tools = tuple(
                f"{seen.call.name} {seen.call.call_id}"
                for seen in memory.calls
                if seen.started_at_ms is not None and seen.result is None
            )
        self._report(
            memory.state.value, memory.turns_begun, self._running_tools, self._publisher.last_index
        )

    def _update_idle_timer(self, *, is_activity: bool = True) -> None:
        """Start or stop the idle timer: idle is who runs nothing and whom nobody waits for."""
        if not self._is_begun:
            return  # what the journal says may be under way is not yet gone on with
        memory = self._memory
        is_idle = memory.state is State.IDLE and not memory.waiters and not memory.children
        has_deadline = self._deadlines.watch(memory)
        self._idle_timer.look(is_idle=is_idle and not has_deadline, is_activity=is_activity)

    def _is_repeated(self, command_id: CommandId) -> bool:
        if command_id in self._accepted_ids:
            return True
        if len(self._accepted) == ORDERS_REMEMBERED:
            self._accepted_ids.discard(self._accepted[0])
        self._accepted.append(command_id)
        self._accepted_ids.add(command_id)
        return False

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
        clients = {asked.call_id for asked in memory.asks if asked.owner}
        return Status(
            # The values of the enum, each of which is one of the words: a test compares them.
            state="hibernated" if assign.looks else cast("SessionState", memory.state.value),
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
            pending_client_calls=tuple(one for one in running if one.call_id in clients),
            incarnation=assign.incarnation,
            restarts=assign.restarts,
            pid=None if assign.looks else os.getpid(),
            parent_id=assign.parent_id,
            group_id=assign.group_id,
            skills=memory.skills,
            last_index=self._publisher.last_index,
            uncertain=_uncertain(memory),
            mcp_servers=self._performers.mcp_status(),
            pending_questions=tuple(one.ref for one in memory.asks if not one.owner),
            spent_limit=over_budget(memory),
            active_at_ms=self._publisher.last_at_ms,
            tool_call_count=memory.calls_asked,
            # Who only looks may not have what knows the model, which takes seconds to load.
            context_window=None if assign.looks else memory.policy.window_of(memory.model),
            current_context_tokens=None if memory.context is None else memory.context[0],
            disabled_tools=_disabled(self._facts, memory),
            agent=None if memory.acting is None else memory.acting.name,
        )


def _exclusion_events(new_records: Iterable[Record]) -> Iterator[RecordSetAside]:
    for one in new_records:
        if isinstance(one, SetAside):
            yield RecordSetAside(what=one.what, why=one.why, digest=one.digest, name=one.name)


def _disabled(spec: AgentSpec, memory: Memory) -> tuple[str, ...]:
    if not memory.left_out:
        return ()
    return tuple(one.label for one in spec.tools if packed_code.digest_of(one) in memory.left_out)


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
