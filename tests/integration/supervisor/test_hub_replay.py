"""What the hub gives again where ring, journal and what is under way meet: each event once."""

import asyncio
import contextlib

import pytest
import zmq
from structlog.testing import capture_logs

from cmdc_runtime.wire.frames import Batch
from supervisor.adapters import hub as channel_module
from supervisor.adapters import hub as module
from supervisor.adapters.hub import Hub
from supervisor.adapters.journal.base import EventRow, JournalFailed, JournalOverloaded
from supervisor.adapters.journal.store import Condition, Health

WAIT_S = 10.0
JUMP = 1_000


class Journal:
    """A journal that has some batches, and stores others when the test says so."""

    def __init__(self, *rows):
        self.rows = [EventRow(first=first, count=count, body=body) for first, count, body in rows]
        self.asked, self.storing = 0, []
        self.health, self.problem = Health(), None

    def write(self, publish):
        if self.problem is not None:
            raise self.problem
        self.storing.append(asyncio.get_running_loop().create_future())
        return self.storing[-1]

    async def read(self, replay):
        self.asked += 1
        found = [
            row
            for row in self.rows
            if max(row.first, replay.after_index + 1)
            <= min(row.first + row.count - 1, replay.through_index)
        ]
        return found[: replay.limit]


@contextlib.asynccontextmanager
async def bound(tmp_path, journal):
    """A hub that listens."""
    with zmq.Context() as context:
        hub = Hub(context, journal)
        hub.bind(f"ipc://{tmp_path}/events")
        try:
            yield hub
        finally:
            hub.close()


def played(tmp_path, work, *rows):
    """Return what a coroutine function returns, given a hub and its journal with these rows."""

    async def main():
        journal = Journal(*rows)
        async with asyncio.timeout(WAIT_S), bound(tmp_path, journal) as hub:
            return await work(hub, journal)

    return asyncio.run(main())


def take(hub, first, count=1, *, durable=False, body=b"x"):
    assert hub.take("s", Batch(first=first, count=count, durable=durable), body)


async def given(hub, after, through):
    answer = await hub.replay("s", after, through)
    return [(one.first, one.count) for one in answer.batches], answer.through, answer.last


async def turns():
    """Give callbacks their turn."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("after", "through", "expected"),
    [
        (0, 10, ([(1, 1), (4, 2)], 10, 5)),
        (0, 5, ([(1, 1), (4, 2)], 5, 5)),
        (1, 3, ([], 3, 0)),
        (9, 9, ([], 9, 0)),
    ],
)
def test_a_session_without_a_stream_is_what_the_journal_has(tmp_path, after, through, expected):
    """One that ended long ago: all else is gone, as far as was asked for and no further."""

    async def look(hub, _journal):
        return await given(hub, after, through), hub.last_index("s"), hub.taken_index("s")

    assert played(tmp_path, look, (1, 1, b"x"), (4, 2, b"x")) == (expected, 0, 0)


def test_who_lags_a_little_costs_the_journal_nothing(tmp_path):
    """All of it is in the ring."""

    async def look(hub, journal):
        hub.open_channel("s", 10, 7)
        take(hub, 8)
        take(hub, 9)
        return await given(hub, 7, 9), journal.asked

    assert played(tmp_path, look) == (([(8, 1), (9, 1)], 9, 9), 0)


def test_a_stream_of_which_less_is_kept_gives_the_newest(tmp_path):
    """And more of what comes then; one that is not there is resized for nobody."""

    async def work(hub, _journal):
        hub.open_channel("s", 10, 0)
        for first in range(1, 6):
            take(hub, first)
        hub.resize("s", 2)
        hub.resize("stranger", 2)
        small = await given(hub, 0, 9)
        hub.resize("s", 3)
        take(hub, 6)
        return small, await given(hub, 0, 9)

    small, larger = played(tmp_path, work)

    assert small[0] == [(4, 1), (5, 1)]
    assert larger[0] == [(4, 1), (5, 1), (6, 1)]


def test_who_lags_by_one_more_than_the_ring_has_gets_it_from_the_journal(tmp_path):
    """And what the ring has from the ring, with what the journal never had."""

    async def look(hub, journal):
        hub.open_channel("s", 10, 7)
        take(hub, 8)
        take(hub, 9, durable=True)
        journal.storing[0].set_result(None)
        await hub.flushed("s")
        return await given(hub, 6, 9), journal.asked

    rows = [(7, 1, b"x"), (9, 1, b"x")]

    assert played(tmp_path, look, *rows) == (([(7, 1), (8, 1), (9, 1)], 9, 9), 1)


def test_no_event_is_given_twice(tmp_path):
    """An agent that was adopted publishes again, in other batches, what the journal has."""

    async def look(hub, _journal):
        hub.open_channel("s", 10, 2)
        take(hub, 3)
        take(hub, 4)
        return await given(hub, 0, 4)

    assert played(tmp_path, look, (1, 3, b"x")) == ([(1, 3), (4, 1)], 4, 4)


def test_an_answer_has_so_many_batches(tmp_path, monkeypatch):
    """The rest comes with the next ones: the journal's first, then the ring's."""
    monkeypatch.setattr(module, "REPLAY_BATCHES_MAX", 2)

    async def look(hub, _journal):
        hub.open_channel("s", 10, 3)
        take(hub, 4)
        return [await given(hub, after, 4) for after in (0, 2)]

    rows = [(first, 1, b"x") for first in (1, 2, 3)]

    assert played(tmp_path, look, *rows) == [([(1, 1), (2, 1)], 2, 4), ([(3, 1), (4, 1)], 4, 4)]


def test_an_answer_that_is_full_ends_with_a_whole_batch(tmp_path, monkeypatch):
    """Of the ring, too: what does not fit is asked for again."""
    monkeypatch.setattr(module, "REPLAY_BYTES_MAX", 20)

    async def look(hub, _journal):
        hub.open_channel("s", 10, 1)
        for first in (2, 4, 6):
            take(hub, first, 2, body=b"0123456789")
        return [await given(hub, after, 7) for after in (0, 1, 3)]

    found = played(tmp_path, look, (1, 1, b"x"))

    assert found == [
        ([(1, 1), (2, 2), (4, 2)], 5, 7),
        ([(2, 2), (4, 2)], 5, 7),
        ([(4, 2), (6, 2)], 7, 7),
    ]


@pytest.mark.parametrize(
    ("rows", "after", "through", "expected"),
    [
        ([(1, 2)], 0, 10, ([(1, 2)], JUMP)),
        ([(1, 2)], 5, 10, ([], JUMP)),
        ([(1, 2), (500, 1)], 0, 10, ([(1, 2)], 499)),
        ([(JUMP, 1)], 5, 10, ([], JUMP - 1)),
        ([(JUMP + 2, 1)], 5, 10, ([], JUMP)),
        ([], 5, JUMP - 1, ([], JUMP)),
        ([], 5, JUMP, ([], JUMP)),
        ([(10, 1)], 5, 10, ([(10, 1)], 10)),
        ([], 5, JUMP + 1, ([(JUMP + 1, 1)], JUMP + 1)),
    ],
)
def test_a_jump_is_reported_as_lost_by_one_answer(tmp_path, rows, after, through, expected):
    """From the last event before it to the first one behind it, whoever has that."""

    async def look(hub, journal):
        hub.open_channel("s", 10, JUMP)
        take(hub, JUMP + 1)
        take(hub, JUMP + 2)
        return await given(hub, after, through), journal.asked

    (batches, end, last), asked = played(tmp_path, look, *((*row, b"x") for row in rows))

    assert ((batches, end), last) == (expected, JUMP + 2)
    assert asked <= 2 - (through >= JUMP)


def test_what_is_published_is_given_while_more_is_under_way(tmp_path):
    """Who has all of that waits for the rest."""

    async def look(hub, journal):
        hub.open_channel("s", 10, 0)
        take(hub, 1)
        take(hub, 2, durable=True)
        first = await given(hub, 0, 2)
        waiting = asyncio.ensure_future(given(hub, 1, 2))
        await turns()
        is_done = waiting.done()
        journal.storing[0].set_result(None)
        return first, is_done, await waiting

    assert played(tmp_path, look) == (([(1, 1)], 1, 2), False, ([(2, 1)], 2, 2))


def test_nothing_is_published_before_it_is_stored(tmp_path):
    """Each by its own answer of the journal, which stores them in their order."""

    async def look(hub, journal):
        hub.open_channel("s", 10, 0)
        for first in (1, 2, 3):
            take(hub, first, durable=True)
        found = []
        for stored in journal.storing:
            stored.set_result(None)
            await turns()
            found.append(hub.last_index("s"))
        return found

    assert played(tmp_path, look) == [1, 2, 3]


def test_indexes_that_are_gone_are_passed_over_in_their_turn(tmp_path):
    """Behind what is on its way to the journal; nothing else has to come for it."""

    async def look(hub, journal):
        hub.open_channel("s", 10, 0)
        take(hub, 1, durable=True)
        hub.skip("s", 1_000)
        before = hub.last_index("s")
        journal.storing[0].set_result(None)
        await turns()
        return before, hub.last_index("s")

    assert played(tmp_path, look) == (0, 1_001)


@pytest.mark.parametrize("is_late", [True, False])
def test_a_journal_that_is_late_is_in_the_log(tmp_path, monkeypatch, is_late):
    """The end that is reported waits no longer for it."""
    monkeypatch.setattr(channel_module, "PUBLISH_WAIT_S", 0.01)

    async def look(hub, journal):
        hub.open_channel("s", 10, 0)
        take(hub, 1, durable=True)
        if not is_late:
            journal.storing[0].set_result(None)
        await hub.flushed("s")
        await hub.flushed("unknown")

    with capture_logs() as logs:
        played(tmp_path, look)

    assert [one["event"] for one in logs] == ["event.delayed"] * is_late


def test_who_waits_for_what_is_let_go_learns_it_at_once(tmp_path, monkeypatch):
    """And who follows hears how far it is, before the next tick."""
    monkeypatch.setattr(channel_module, "EVENTS_WAITING_BYTES_MAX", 0)
    monkeypatch.setattr(module, "WATERMARK_S", 3_600.0)

    async def look(hub, journal):
        hub.open_channel("s", 10, 0)
        take(hub, 1, durable=True)
        take(hub, 2)
        waiting = asyncio.ensure_future(given(hub, 0, 2))
        await turns()
        marked = []
        monkeypatch.setattr(hub, "_mark", lambda channel: marked.append(channel.ring.last))
        journal.storing[0].set_result(None)
        return await waiting, marked, hub._channels["s"].watermarks_left

    assert played(tmp_path, look) == (([(1, 1)], 2, 2), [2], module.WATERMARKS_AFTER)


@pytest.mark.parametrize("refuses", [True, False], ids=["refused", "failed"])
@pytest.mark.parametrize("has_failed", [True, False])
def test_an_event_that_cannot_be_stored_alone_is_published(tmp_path, has_failed, refuses):
    """Unless the daemon ends for it: then the agent keeps it, and sends it to the next one."""

    async def look(hub, journal):
        hub.open_channel("s", 10, 0)
        if refuses:
            journal.problem = JournalOverloaded("full")
        take(hub, 1, durable=True)
        if has_failed:
            journal.health.turn(Condition.FAILED, "the disk is gone")
        if not refuses:
            journal.storing[0].set_exception(JournalFailed("the disk is gone"))
        await turns()
        return hub.last_index("s")

    with capture_logs() as logs:
        last = played(tmp_path, look)

    assert last == (0 if has_failed else 1)
    assert [one["event"] for one in logs] == ([] if has_failed else ["event.not_journaled"])


def test_an_event_with_its_records_is_published_when_they_are_safe(tmp_path):
    """By one write of somebody else; where that is called off, nothing is."""
    problems = []

    async def look(hub, journal):
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: problems.append(context))
        hub.open_channel("s", 10, 0)
        stored, gone = loop.create_future(), loop.create_future()
        assert hub.take("s", Batch(first=1, count=1, durable=True), b"x", stored)
        before = hub.last_index("s")
        stored.set_result(None)
        await turns()
        assert hub.take("s", Batch(first=2, count=1, durable=True), b"x", gone)
        gone.cancel()
        await turns()
        return before, hub.last_index("s"), journal.storing

    with capture_logs() as logs:
        assert played(tmp_path, look) == (0, 1, [])
    assert (problems, logs) == ([], [])


def test_the_newest_of_the_ended_are_still_given(tmp_path, monkeypatch):
    """Late readers get their last events; a session that begins anew is none of the ended."""
    monkeypatch.setattr(module, "CHANNELS_ENDED_MAX", 2)

    async def look(hub, _journal):
        for session_id in ("a", "s", "b", "c", "d"):
            hub.open_channel(session_id, 10, 5)
        hub.close_channel("a")
        hub.close_channel("s")
        hub.open_channel("s", 10, 5)
        hub.close_channel("b")
        before = [hub.last_index(one) for one in "asb"]
        hub.close_channel("c")
        hub.close_channel("d")
        return before, [hub.last_index(one) for one in "asbcd"]

    assert played(tmp_path, look) == ([5, 5, 5], [0, 5, 0, 5, 5])
