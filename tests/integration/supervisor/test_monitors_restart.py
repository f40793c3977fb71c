"""What a daemon finds recorded of the sessions that an earlier one left, and what it adds."""

import asyncio

import pytest

from cmdc_runtime.reasons import Down, Other, Shutdown, Signal
from cmdc_runtime.wire.codec import decode_as, encode
from supervisor.adapters.journal.base import SessionRow
from supervisor.adapters.journal.operations import CreateSession, EndSession, ListDowns
from supervisor.adapters.journal.sqlite import SqliteJournal
from supervisor.sessions.monitors import NOBODY, MonitorService

KILLED = Signal(number=9, name="SIGKILL")
RESTARTED = Other(detail="the daemon was restarted")
ROW = SessionRow(session_id="s", created_ms=1, spec=b"", incarnation=2, restarts=1)


def down(incarnation, *, restarting=True):
    """Return an end as a session reports it."""
    return Down(
        ref=NOBODY,
        session_id="s",
        reason=KILLED,
        incarnation=incarnation,
        restarting=restarting,
    )


@pytest.fixture
def run(tmp_path):
    """Run a coroutine function with monitors and the journal of a session."""

    async def whole(scenario):
        journal = SqliteJournal(tmp_path / "state")
        await journal.open()
        try:
            await journal.write(CreateSession(ROW))
            return await scenario(MonitorService(journal, None, None))
        finally:
            await journal.close()

    return lambda scenario: asyncio.run(whole(scenario))


async def settled(monitors, *, restarting=True, reason=RESTARTED):
    """Settle the session and return what came of it, and what is recorded now."""
    last = await monitors.recover(ROW, reason, restarting=restarting)
    rows = await monitors.journal.read(ListDowns("s", 0, 9))
    found = [decode_as(Down, row.body) for row in rows]
    return last, [(one.incarnation, one.reason, one.restarting) for one in found]


def test_an_end_that_an_earlier_daemon_left_unreported_is_recorded(run):
    """Once, however often daemons start; the session goes on."""

    async def work(monitors):
        monitors.publish(down(1))
        return await settled(monitors), await settled(monitors)

    right = [(1, KILLED, True), (2, RESTARTED, True)]

    assert run(work) == ((None, right), (None, right))


def test_an_end_that_was_recorded_is_not_recorded_again(run):
    """The daemon died between two processes."""

    async def work(monitors):
        monitors.publish(down(2))
        return await settled(monitors)

    assert run(work) == (None, [(2, KILLED, True)])


def test_a_start_that_failed_before_the_journal_knew_of_it_was_reported(run):
    """Its end is recorded, so the earlier incarnation has ended, too."""

    async def work(monitors):
        monitors.publish(down(2))
        monitors.publish(down(3))
        return await settled(monitors)

    assert run(work) == (None, [(2, KILLED, True), (3, KILLED, True)])


def test_a_hibernated_session_has_not_ended(run):
    """Its process did not end with the daemon: it had none."""

    async def work(monitors):
        monitors.record_hibernation("s", 2)
        return await settled(monitors)

    assert run(work) == (None, [])


def test_a_session_that_is_over_stays_over(run):
    """Its last end was reported, though the journal has it as alive: no second one follows."""

    async def work(monitors):
        monitors.publish(down(2, restarting=False))
        return await settled(monitors)

    last, recorded = run(work)

    assert (last.reason, last.restarting) == (KILLED, False)
    assert recorded == [(2, KILLED, False)]


def test_a_session_that_does_not_go_on_gets_a_last_end(run):
    """Also between two processes, or while it was hibernated."""
    reason = Shutdown(detail="the parent's process ended")

    async def work(monitors):
        monitors.publish(down(2))
        return await settled(monitors, restarting=False, reason=reason)

    last, recorded = run(work)

    assert (last.reason, last.incarnation, last.restarts) == (reason, 2, 1)
    assert recorded == [(2, KILLED, True), (2, reason, False)]


def test_ends_of_an_earlier_session_are_not_those_of_this_one(run):
    """The id was used again: what is recorded of the old one settles nothing."""

    async def work(monitors):
        monitors.publish(down(2, restarting=False))
        await monitors.journal.write(EndSession("s", encode(KILLED), 5))
        await monitors.journal.write(CreateSession(ROW))
        return await settled(monitors)

    assert run(work) == (None, [(2, KILLED, False), (2, RESTARTED, True)])
