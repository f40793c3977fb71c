"""The way between two recorded steps: inputs that kept no record, and yet changed where we are.

A request that was sent again, a plugin that had nothing to say, a summary that failed: nothing of
them is in the journal, but the next recorded input says where it found the machine, and only a few
silent inputs lead from one such place to another. All of them come between the same two records, so
it does not matter which of several ways was taken.

To add a silent input: its line in ``_moves``.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from cmdc_runtime.extensions.provider import FailureKind
from workers.core import results
from workers.core.causes import where
from workers.core.inputs import (
    CompactWanted,
    Consulted,
    FirstChunk,
    Result,
    RetryDue,
    StreamFailed,
    SummaryFailed,
)
from workers.core.records import Where
from workers.core.state import Memory, State
from workers.core.step import Step
from workers.core.verdict import Verdict

PLACES_MAX: Final = 2_000
"""How many places are looked at for one way: each of a session's retries is one or two."""


class Found(NamedTuple):
    """Where a way ended: the wanted place, or the one that it began at, if none led there."""

    memory: Memory
    is_there: bool


def find_way(memory: Memory, wanted: Where, at_ms: int) -> Found:
    """Lead the machine to ``wanted`` by silent inputs, the fewest that do."""
    for here in islice(_around(memory, wanted.retries, at_ms), PLACES_MAX):
        if where(here) == wanted:
            return Found(here, is_there=True)
    return Found(memory, is_there=False)


def _around(memory: Memory, retries: int, at_ms: int) -> Iterator[Memory]:
    """Yield where silent inputs lead, the nearest places first, up to so many retries."""
    seen, to_see = {where(memory)}, deque([memory])
    while to_see:
        here = to_see.popleft()
        yield here
        for step in _silent(here, at_ms):
            place = where(step.memory)
            if place.retries <= retries and place not in seen:
                seen.add(place)
                to_see.append(step.memory)


def _silent(memory: Memory, at_ms: int) -> Iterator[Step]:
    """Yield the steps from here that keep no record."""
    for move in _moves(memory, at_ms):
        step = results.apply(memory, move)
        if not step.records:
            yield step


def _moves(memory: Memory, at_ms: int) -> Iterator[Result]:
    state, work = memory.state, memory.work
    if memory.point is not None:
        # A plugin that wants no summary leads to where one that failed does.
        yield Consulted(work, Verdict(), at_ms)
    elif memory.compacting is not None:
        yield SummaryFailed(work, "", at_ms)
    elif state is State.EXECUTING_TOOLS:
        running = next((open_ for open_ in memory.calls if open_.result is None), None)
        if running is not None:
            yield CompactWanted(work, running.call.call_id, "", "")
    elif state in {State.RUNNING, State.STREAMING}:
        yield FirstChunk(work)
        yield StreamFailed(work, FailureKind.TRANSIENT, "", at_ms)
        yield StreamFailed(work, FailureKind.OVERFLOW, "", at_ms)
        yield RetryDue(work, at_ms)
