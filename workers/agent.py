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
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
import structlog

from cmdc_runtime.clock import now_ms
from cmdc_runtime.codec import decode, encode, failed, raw
from cmdc_runtime.commands import Command, PendingTool, Status
from cmdc_runtime.errors import CmdcError, ProtocolError, UsageError
from cmdc_runtime.frames import (
    Answer as AnswerFrame,
)
from cmdc_runtime.frames import (
    Assign,
    JournalCommand,
    JournalRecord,
    Refusal,
    Reply,
    Settled,
)
from cmdc_runtime.ids import CommandId
from cmdc_runtime.reasons import AnyReason
from workers.core import commands, rebuild, results
from workers.core.state import (
    Answer,
    CallModel,
    CancelWork,
    Effect,
    Keep,
    Memory,
    Order,
    Publish,
    Refuse,
    Result,
    RetryDue,
    RunTools,
    Settle,
    Sleep,
    State,
    Step,
    TellStatus,
)
from workers.effects.model import ModelCaller
from workers.effects.publish import Publisher
from workers.effects.tools import ToolRunner
from workers.link import FrameTooLargeError, Link

log = structlog.get_logger()

ORDERS_REMEMBERED: Final = 10_000
"""How many durable commands are remembered so that one that comes twice is taken once."""


class Agent:
    """The machine of one session with its hands: model, tools, journal and events."""

    def __init__(self, assign: Assign, memory: Memory, link: Link, publisher: Publisher) -> None:
        """Keep the parts; ``equip`` gives the rest, ``begin`` starts."""
        self._assign = assign
        self._state = State.IDLE
        self._memory = memory
        self._link = link
        self._publisher = publisher
        self._started_s = time.monotonic()
        self._taken: deque[CommandId] = deque(maxlen=ORDERS_REMEMBERED)
        self._taken_set: set[CommandId] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._on_crash: Callable[[BaseException], None] = lambda _error: None
        # fmt: off
        self._perform: Final[Mapping[type, Callable[[Any], None]]] = {  # Any: the effect of the row
            CallModel:  self._call_model,
            Sleep:      self._sleep,
            RunTools:   self._run_tools,
            CancelWork: self._cancel_work,
            Answer:     self._answer,
            Refuse:     self._refuse,
            TellStatus: self._tell_status,
        }
        # fmt: on

    def equip(
        self,
        model: ModelCaller,
        tools: ToolRunner,
        on_crash: Callable[[BaseException], None],
    ) -> None:
        """Give the agent its hands; a bug in a task of theirs ends the process by ``on_crash``."""
        self._model = model
        self._tools = tools
        self._on_crash = on_crash

    def begin(self, reason: AnyReason | None, unanswered: Iterable[JournalCommand]) -> None:
        """Go on where the process before this one ended, then take what it left unanswered."""
        if reason is not None:
            incarnation = self._assign.incarnation
            self._take(rebuild.resume(self._memory, incarnation, reason, now_ms()))
        for command in unanswered:
            self.order(command.id, command.body, durable=True)

    def order(self, command_id: CommandId, body: bytes | msgspec.Raw, *, durable: bool) -> None:
        """Take one command; ``durable``: the journal has it and waits for its outcome."""
        try:
            command = decode(Command, body)
        except ProtocolError as error:
            refused: Effect = Settle(command_id, error) if durable else Refuse(command_id, error)
            self._take(Step(self._state, self._memory, (refused,)))
            return
        if command.durable and self._has_taken(command_id):
            return
        self._take(commands.apply(self._state, self._memory, Order(command_id, command, now_ms())))

    def post(self, result: Result) -> None:
        """Take one result of our own work."""
        self._take(results.apply(self._state, self._memory, result))

    async def stop(self) -> None:
        """End what is under way, processes of tools included; nothing is recorded."""
        self._model.cancel()
        self._tools.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._publisher.flush()
        await self._tools.settle()

    def _take(self, step: Step) -> None:
        self._state, self._memory = step.state, step.memory
        records = [
            JournalRecord(kind=str(kept.record.__struct_config__.tag), body=encode(kept.record))
            for kept in step.effects
            if isinstance(kept, Keep)
        ]
        settled = [
            Settled(id=effect.id, frame=encode(_outcome(effect)))
            for effect in step.effects
            if isinstance(effect, Settle)
        ]
        for said in step.effects:
            if isinstance(said, Publish):
                self._publisher.publish(said.event)
        if records or settled:
            self._link.write(records, settled, self._publisher.take())
        for effect in step.effects:
            if not isinstance(effect, Keep | Settle | Publish):
                self._perform[type(effect)](effect)

    def _has_taken(self, command_id: CommandId) -> bool:
        if command_id in self._taken_set:
            return True
        if len(self._taken) == ORDERS_REMEMBERED:
            self._taken_set.discard(self._taken[0])
        self._taken.append(command_id)
        self._taken_set.add(command_id)
        return False

    # --- effects --------------------------------------------------------------------------------

    def _call_model(self, effect: CallModel) -> None:
        self._watch(self._model.call(effect))

    def _sleep(self, effect: Sleep) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(
            effect.delay_s, lambda: self.post(RetryDue(effect.work, now_ms()))
        )

    def _run_tools(self, effect: RunTools) -> None:
        for task in self._tools.run(effect):
            self._watch(task)

    def _cancel_work(self, effect: CancelWork) -> None:
        self._model.cancel()
        if self._timer is not None:
            self._timer.cancel()
        if effect.kill != "none":
            self._tools.cancel()

    def _answer(self, effect: Answer) -> None:
        # Who has an answer may ask for the events from then on: they must not be older than it.
        self._publisher.flush()
        try:
            self._link.send(AnswerFrame(id=effect.id, body=encode(effect.value)))
        except FrameTooLargeError as error:
            self._refuse(Refuse(effect.id, UsageError(f"the answer is too large: {error}")))

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

    def status(self) -> Status:
        """Return how the session stands."""
        memory, assign = self._memory, self._assign
        running = [
            PendingTool(
                name=seen.call.name, call_id=seen.call.call_id, started_at_ms=seen.started_at_ms
            )
            for seen in memory.calls
            if seen.result is None and seen.started_at_ms is not None
        ]
        return Status(
            state=self._state.value,
            session_id=assign.session_id,
            turns=memory.turns,
            cost_usd=memory.usage.cost_usd,
            uptime_ms=round((time.monotonic() - self._started_s) * 1000),
            timestamp_ms=now_ms(),
            token_usage=memory.usage,
            total_tokens=memory.usage.total_tokens,
            model=memory.model,
            queued_prompts=len(memory.queue),
            pending_tools=tuple(running),
            incarnation=assign.incarnation,
            restarts=assign.restarts,
            pid=os.getpid(),
            parent_id=assign.parent_id,
            group_id=assign.group_id,
            last_index=self._publisher.last_index,
        )

    def _watch(self, task: asyncio.Task[None]) -> None:
        task.add_done_callback(self._look_at)

    def _look_at(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_crash(error)


def _outcome(effect: Settle) -> Reply | Any:  # Any: a Failed frame
    if isinstance(effect.outcome, CmdcError):
        return failed(effect.id, effect.outcome)
    return Reply(id=effect.id, body=raw(effect.outcome))
