"""What a running call may ask of its session, for calls in the agent's own process.

A call asks by a reference that the tables answer: the question is posted, and the call waits until
``Answers.give`` is called with the same reference. References count from 1 for each attempt, so a
call that runs again after a crash asks for the same things under the same names.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from cmdc_runtime.extensions.tool import ToolError
from cmdc_runtime.ids import CallId
from workers.core.inputs import (
    CompactWanted,
    QuestionAsked,
    Result,
    SubagentWanted,
    ToolEmitted,
)
from workers.toolhost.words import EMITTED_MAX, checked_event, fit

ASKED_MAX: Final = 100
"""Questions, compactions and subagents of one call."""
OPTIONS_MAX: Final = 100
"""Choices of one question."""
TAKEN_S: Final = 10.0
"""For the loop to take what a thread emits; a stuck loop loses it, and the thread is told."""


class Answers:
    """The calls that wait for an answer, by reference."""

    def __init__(self) -> None:
        """Hold none."""
        self._waiting: dict[str, asyncio.Future[Any]] = {}  # Any: what the call asked for

    def give(self, ref: str, value: Any, error: str | None) -> None:  # Any: see above
        """Answer the call that waits by ``ref``; one that is over needs no answer."""
        waiting = self._waiting.get(ref)
        if waiting is None or waiting.done():
            return
        if error is None:
            waiting.set_result(value)
        else:
            waiting.set_exception(ToolError(error))

    async def of(self, ref: str, ask: Callable[[], None]) -> Any:  # Any: see above
        """Ask, and return the answer, which may come at once."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting[ref] = waiting
        try:
            ask()
            return await waiting
        finally:
            if self._waiting.get(ref) is waiting:
                del self._waiting[ref]


class AgentPort:
    """The port of one attempt at a call; see ``SessionPort`` for what the methods promise."""

    def __init__(
        self, work: int, call_id: CallId, post: Callable[[Result], None], answers: Answers
    ) -> None:
        """Belong to the running loop."""
        self._work, self._call_id = work, call_id
        self._post, self._answers = post, answers
        self._loop = asyncio.get_running_loop()
        self._emitted = 0
        self._asked: dict[str, int] = {}
        self._is_open = True

    def close(self) -> None:
        """Say nothing any more: the attempt is over, even if its thread runs on."""
        self._is_open = False

    def emit(self, name: str, payload: object = None) -> None:
        """Tell observers; in a thread, return when the agent has taken it."""
        name, payload = checked_event(name, payload)
        self._emitted += 1
        if self._emitted > EMITTED_MAX:
            raise ToolError(f"a call may emit {EMITTED_MAX} events, and this is one more")
        if self._is_at_home():
            self._tell(name, payload)
            return
        taken = threading.Event()

        def tell() -> None:
            self._tell(name, payload)
            taken.set()

        # A thread waits until its event is taken, so it can't flood the loop.
        self._loop.call_soon_threadsafe(tell)
        if not taken.wait(TAKEN_S):
            raise ToolError(f"the agent did not take the event {name!r} within {TAKEN_S:g} s")

    async def ask_user(self, question: str, options: Sequence[str] = ()) -> object:
        """Ask the user and return the answer."""
        told = tuple(fit(str(option)) for option in options)
        if len(told) > OPTIONS_MAX:
            raise ToolError(f"a question has at most {OPTIONS_MAX} options, got {len(told)}")
        ref = self._ref("ask")
        asked = QuestionAsked(self._work, self._call_id, ref, fit(str(question)), told)
        return await self._answers.of(ref, lambda: self._post(asked))

    async def compact(self, reason: str) -> str:
        """Compact the conversation and return a report."""
        ref = self._ref("compact")
        wanted = CompactWanted(self._work, self._call_id, ref, fit(str(reason)))
        return str(await self._answers.of(ref, lambda: self._post(wanted)))

    async def delegate(self, description: str, subagent_type: str) -> str:
        """Let a subagent do a task and return its answer."""
        ref = self._ref("task")
        wanted = SubagentWanted(
            self._work, self._call_id, ref, fit(str(subagent_type)), fit(str(description))
        )
        return str(await self._answers.of(ref, lambda: self._post(wanted)))

    def _tell(self, name: str, payload: object) -> None:
        if self._is_open:
            self._post(ToolEmitted(self._work, self._call_id, name, payload))

    def _ref(self, kind: str) -> str:
        if not self._is_at_home():
            raise ToolError('only "async def" tools can wait for their session')
        if not self._is_open:
            raise ToolError("the call is over")
        if sum(self._asked.values()) >= ASKED_MAX:
            raise ToolError(f"a call may ask its session {ASKED_MAX} times, and not once more")
        self._asked[kind] = self._asked.get(kind, 0) + 1
        return f"{self._call_id}:{kind}-{self._asked[kind]}"

    def _is_at_home(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:  # a thread without a loop
            return False
