"""Reading steps backwards: all of them, each once, and quickly over what daemons have left out."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.events import ReasoningPrune, RequestStart
from cmdc_runtime.reasons import Normal
from cmdc_runtime.requests import FindSession, Replayed, ReplayedBatch, SessionInfo
from cmdc_runtime.wire.codec import encode_events
from workers.performers.subagents import SPAN, PastEvents

LEFT_OUT = 1_000_000
"""Indexes that a daemon's death leaves out."""
ASKED_MAX = 40
PAGE_BATCHES = 3


class Daemon:
    """Answers as one whose journal has these batches, each the index of its first event and all."""

    def __init__(self, batches):
        self.batches = batches
        self.asked = 0

    async def connected(self):
        return self

    async def ask(self, request):
        self.asked += 1
        last = max((first + len(events) - 1 for first, events in self.batches), default=0)
        if isinstance(request, FindSession):
            return SessionInfo(
                session_id=request.session_id,
                phase="up",
                incarnation=1,
                restarts=0,
                pid=1,
                parent_id=None,
                group_id=None,
                last_index=last,
                reason=Normal(),
            )
        found = [
            ReplayedBatch(first=first, count=len(events), body=encode_events(events))
            for first, events in self.batches
            if first + len(events) > request.after + 1 and first <= request.through
        ]
        page = tuple(found[:PAGE_BATCHES])
        is_all = len(page) == len(found)
        through = request.through if is_all else page[-1].first + page[-1].count - 1
        return Replayed(batches=page, through=through, last=last)


def step(number):
    return 0, ReasoningPrune(run_id="r", strategy="s", thought_ids=(str(number),))


def laid(layout):
    """Return batches of steps and other events, behind gaps, and the numbers of the steps."""
    batches, index, number = [], 1, 0
    for gap, kinds in layout:
        index += gap
        events = []
        for is_step in kinds:
            events.append(step(number) if is_step else (0, RequestStart(model="m", messages=1)))
            number += is_step
        batches.append((index, events))
        index += len(events)
    return batches, [str(one) for one in range(number)]


def steps_of(daemon, count):
    found = asyncio.run(PastEvents(daemon).steps("s-1", "r", count))
    assert [one.index for one in found] == sorted({one.index for one in found})
    return [one.event.thought_ids[0] for one in found]


BATCHES = st.tuples(
    st.sampled_from([0, 0, 1, SPAN - 3, SPAN, 3 * SPAN, LEFT_OUT]),
    st.lists(st.booleans(), min_size=1, max_size=8),
)


@given(st.lists(BATCHES, max_size=12), st.integers(0, 30))
def test_the_latest_steps_are_found_wherever_batches_lie(layout, count):
    """Each once, in their order, though a batch reaches over the border of what is read."""
    batches, numbers = laid(layout)

    assert steps_of(Daemon(batches), count) == numbers[len(numbers) - min(count, len(numbers)) :]


@pytest.mark.parametrize("deaths", [1, 10, 74])
def test_what_daemons_left_out_is_passed_over(deaths):
    """A call that goes on reads its steps before the next death, however many there were."""
    batches, numbers = laid([(0, [True] * 5), *[(LEFT_OUT, [False, False])] * deaths])
    daemon = Daemon(batches)

    assert steps_of(daemon, 5) == numbers
    assert daemon.asked <= ASKED_MAX + deaths
