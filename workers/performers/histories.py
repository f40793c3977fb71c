"""Asks the application's functions what the next agent of a handoff sees of the conversation.

Such a function is foreign code: sync code has a thread of its own, what it raises or returns is
reported as a problem, and it has ``FILTER_S`` seconds. A thread that takes longer is left alone.
"""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from cmdc_runtime import foreign, plain
from cmdc_runtime.clock import now_ms
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.messages import Message
from cmdc_runtime.option_checks import Unfit, check_messages
from cmdc_runtime.reasons import LINE_CHARS_MAX
from workers.core.inputs import HistoryFiltered
from workers.core.step import FilterHistory
from workers.threads import Threads

FILTER_S: Final = 30.0
"""For one function to decide: it only looks at messages."""
HISTORY_BYTES_MAX: Final = 8 * 2**20
"""Of what it leaves, half of what a frame may have: one record holds it."""

HistoryFilter = Callable[[list[Message]], Any]  # Any: messages, or an awaitable of them


class HistoryFilters:
    """The functions of one session's handoffs, by the agents that they are for."""

    def __init__(self, filters: Mapping[str, HistoryFilter]) -> None:
        """Ask these."""
        self._filters = filters
        self._threads = Threads("history")

    async def ask(self, wanted: FilterHistory) -> HistoryFiltered:
        """Return what the agent is to see, or why that is not known."""
        try:
            async with asyncio.timeout(FILTER_S):
                found = await self._returned(wanted)
            return self._result(wanted, _checked(found))
        except TimeoutError:
            return self._problem(wanted, f"took longer than {FILTER_S:g} s")
        except ForeignError as error:
            return self._problem(wanted, f"failed: {foreign.summary_of(error.error)}")
        except (Unfit, TypeError) as error:
            return self._problem(wanted, f"returned what can't be a history: {error}")

    async def _returned(self, wanted: FilterHistory) -> object:
        decide = self._filters[wanted.to]
        messages = list(wanted.messages)
        if inspect.iscoroutinefunction(decide):
            return await foreign.wait(lambda: decide(messages))
        found = await self._threads.run(lambda: decide(messages))
        return await foreign.wait(lambda: found) if inspect.isawaitable(found) else found

    def _problem(self, wanted: FilterHistory, what: str) -> HistoryFiltered:
        text = plain.shown(f"the function that decides on the history {what}", LINE_CHARS_MAX)
        return HistoryFiltered(wanted.work, wanted.to, None, now_ms(), problem=text)

    def _result(self, wanted: FilterHistory, messages: tuple[Message, ...]) -> HistoryFiltered:
        return HistoryFiltered(wanted.work, wanted.to, messages, now_ms())


def _checked(found: object) -> tuple[Message, ...]:
    """Return messages as they can be kept.

    Raises:
        TypeError: they are none, or are too many or too large.
    """
    if not isinstance(found, list | tuple):
        raise TypeError(f"expected a list of messages, got {plain.short(found)}")
    messages = check_messages(list(found))
    if any(message.role == "system" for message in messages):
        raise TypeError("a system message: the next agent has its own system prompt")
    if (size := len(msgspec.msgpack.encode(messages))) > HISTORY_BYTES_MAX:
        raise TypeError(f"it has {size:,} bytes, and {HISTORY_BYTES_MAX:,} is the most")
    return tuple(messages)
