"""Monitors of one daemon, with the real journal: what is recorded, sent and refused."""

import asyncio

import pytest

from cmdc_runtime.errors import InvalidSession, Overloaded
from cmdc_runtime.reasons import Down, Evidence, NoProcess, Normal, Signal
from cmdc_runtime.requests import Monitor, SessionInfo
from cmdc_runtime.wire.codec import decode_as
from supervisor.adapters.journal.base import DownRow, JournalFailed, JournalOverloaded, SessionRow
from supervisor.adapters.journal.operations import (
    CreateSession,
    FindNewestDown,
    ListDowns,
    RecordDown,
)
from supervisor.adapters.journal.sqlite import SqliteJournal
from supervisor.core.limits import CLIENT_SILENT_S, DOWNS_READ_MAX
from supervisor.sessions import monitors as module
from supervisor.sessions.monitors import NOBODY, MonitorService

WAIT_S = 10.0
KILLED = Signal(number=9, name="SIGKILL")


class BrokenJournal(SqliteJournal):
    """A journal that refuses or fails when the test says so."""

    refusal = failure = None

    def write(self, operation):
        if not isinstance(operation, RecordDown):
            return super().write(operation)
        if self.refusal is not None:
            raise self.refusal
        if self.failure is None:
            return super().write(operation)
        failed = asyncio.get_running_loop().create_future()
        failed.set_exception(self.failure)
        return failed

    def read(self, query):
        if isinstance(query, FindNewestDown) and self.failure is not None:
            raise self.failure
        return super().read(query)


class Setting:
    """The sessions that there are, the clients that are there, and what they were sent."""

    def __init__(self, journal):
        self.journal = journal
        self.now_s = 0.0
        self.phases = {}
        self.gone = set()
        self.sent = asyncio.Queue()
        self.monitors = MonitorService(journal, self.look_up, self.send, lambda: self.now_s)

    async def start(self, session_id, phase="up"):
        self.phases[session_id] = phase
        await self.journal.write(
            CreateSession(SessionRow(session_id=session_id, created_ms=1, spec=b"", incarnation=1))
        )

    async def look_up(self, session_id):
        if session_id not in self.phases:
            raise InvalidSession(session_id)
        return SessionInfo(
            session_id=session_id,
            phase=self.phases[session_id],
            incarnation=3,
            restarts=2,
            pid=None,
            parent_id=None,
            group_id=None,
            last_index=0,
            reason=Normal(),
        )

    def send(self, client, notice):
        self.sent.put_nowait((client, notice))
        return client not in self.gone

    async def heard(self, count):
        """Return the next notices as (reference, incarnation, number or None)."""
        notices = [(await self.sent.get())[1] for _ in range(count)]
        return [(one.down.ref, one.down.incarnation, one.seq) for one in notices]

    async def set(self, ref, session_id="s", client=b"c", **more):
        request = Monitor(session_id=session_id, ref=ref, **more)
        return (await self.monitors.set(request, client)).since


def down(incarnation=1, *, restarting=True, session_id="s", **more):
    """Return an end as a session reports it."""
    return Down(
        ref=NOBODY,
        session_id=session_id,
        reason=KILLED,
        incarnation=incarnation,
        restarting=restarting,
        **{"at_ms": 1_000 * incarnation} | more,
    )


@pytest.fixture
def run(tmp_path):
    """Run a coroutine function with a setting in which the session ``s`` is up."""

    async def whole(scenario):
        journal = BrokenJournal(tmp_path / "state")
        await journal.open()
        setting = Setting(journal)
        try:
            async with asyncio.timeout(WAIT_S):
                await setting.start("s")
                result = await scenario(setting)
        finally:
            await journal.close()
        assert setting.sent.empty()
        return result

    return lambda scenario: asyncio.run(whole(scenario))


def test_an_end_is_recorded_and_then_reported(run):
    """What is sent has the number of its record, and the record has all that is known."""

    async def work(setting):
        since = await setting.set("r", persistent=True)
        known = Evidence(pid=7, status=-9, killed_by="outside")
        setting.monitors.publish(down(1, evidence=known, restarts=1))
        heard = await setting.heard(1)
        (row,) = await setting.journal.read(ListDowns("s", 0, 9))
        return since, heard, decode_as(Down, row.body).evidence

    since, heard, evidence = run(work)

    assert (since, heard) == (0, [("r", 1, 1_000)])
    assert evidence == Evidence(pid=7, status=-9, killed_by="outside")


def test_an_end_without_a_time_gets_one(run):
    """Numbers are times, so that those of another file are never larger."""

    async def work(setting):
        setting.monitors.publish(down(1, at_ms=0))
        return (await setting.journal.read(FindNewestDown("s"))).at_ms

    assert run(work) > 1_700_000_000_000


@pytest.mark.parametrize("trouble", ["refusal", "failure"])
def test_an_end_that_cannot_be_recorded_is_reported_all_the_same(run, trouble, capsys):
    """In its place among those of its session; the log says that it has no record."""

    async def work(setting):
        await setting.set("r", persistent=True)
        setting.monitors.publish(down(1))
        problem = JournalOverloaded("full") if trouble == "refusal" else JournalFailed("full")
        setattr(setting.journal, trouble, problem)
        setting.monitors.publish(down(2))
        setattr(setting.journal, trouble, None)
        setting.monitors.publish(down(3))
        return await setting.heard(3)

    assert run(work) == [("r", 1, 1_000), ("r", 2, None), ("r", 3, 3_000)]
    assert "down.not_journaled" in capsys.readouterr().out


def test_a_session_never_seen_is_reported_at_once(run):
    """Whether it is asked for the first time or again."""

    async def work(setting):
        await setting.set("r1", "never")
        await setting.set("r2", "never", since=5)
        notices = [(await setting.sent.get())[1] for _ in range(2)]
        return [one.down.reason for one in notices], len(setting.monitors)

    assert run(work) == ([NoProcess(), NoProcess()], 0)


def test_the_end_of_a_session_is_reported_from_its_record(run):
    """Who comes too late gets all of it; what it is given to watch from is just before."""

    async def work(setting):
        setting.monitors.publish(down(2, restarting=False, evidence=Evidence(pid=7)))
        setting.phases["s"] = "ended"
        since = await setting.set("r", persistent=True)
        (_, notice) = await setting.sent.get()
        return since, notice, len(setting.monitors)

    since, notice, left = run(work)

    assert (since, notice.seq, notice.after, left) == (1_999, 2_000, 1_999, 0)
    assert (notice.down.ref, notice.down.evidence) == ("r", Evidence(pid=7))


def test_an_end_without_a_record_is_reported_from_what_is_known(run):
    """A journal of an earlier release has reasons, and no ends."""

    async def work(setting):
        setting.phases["s"] = "ended"
        await setting.set("r1")
        await setting.set("r2", since=9)
        return [(await setting.sent.get())[1].down for _ in range(2)]

    first, second = run(work)

    assert (first.reason, first.incarnation, first.restarts) == (Normal(), 3, 2)
    assert (first.restarting, second.reason) == (False, Normal())


def test_who_was_away_gets_all_that_it_missed(run):
    """However much that is; a monitor that is not persistent gets the first of it."""
    count = 2 * DOWNS_READ_MAX + 1

    async def work(setting):
        for incarnation in range(1, count + 1):
            setting.monitors.publish(down(incarnation))
        await setting.set("r1", persistent=True, since=1_000)
        await setting.set("r2", since=4_000)
        missed = await setting.heard(count)
        setting.monitors.publish(down(count + 1))
        return missed, await setting.heard(1), len(setting.monitors)

    missed, live, left = run(work)

    assert missed[:-1] == [("r1", number, 1_000 * number) for number in range(2, count + 1)]
    assert (missed[-1], live) == (("r2", 5, 5_000), [("r1", count + 1, 1_000 * (count + 1))])
    assert left == 1


def test_nothing_is_sent_after_a_monitor_was_removed(run):
    """Also when it is removed while it is being set again."""

    async def work(setting):
        setting.monitors.publish(down(1))
        watching = asyncio.create_task(setting.set("r", since=0))
        await asyncio.sleep(0)
        setting.monitors.demonitor("r")
        await watching
        setting.monitors.publish(down(2))
        await setting.journal.read(FindNewestDown("s"))
        return len(setting.monitors)

    assert run(work) == 0


def test_a_monitor_is_not_set_when_the_journal_cannot_be_read(run):
    """The client gets an error, and asks again."""

    async def work(setting):
        setting.journal.failure = JournalFailed("closed")
        with pytest.raises(JournalFailed):
            await setting.set("r")
        return len(setting.monitors)

    assert run(work) == 0


def test_the_same_request_again_changes_nothing(run):
    """Its answer was lost: it says what it said."""

    async def work(setting):
        setting.monitors.publish(down(1))
        first = await setting.set("r", persistent=True)
        setting.monitors.publish(down(2))
        again = await setting.set("r", persistent=True)
        return first, again, await setting.heard(1)

    assert run(work) == (1_000, 1_000, [("r", 2, 2_000)])


def test_a_client_that_is_gone_is_forgotten(run):
    """It sees by its count that it has missed something, and sets its monitors again."""

    async def work(setting):
        before = setting.monitors.notices(b"c")
        await setting.set("r1")
        await setting.set("r2", client=b"d")
        setting.gone.add(b"c")
        setting.monitors.publish(down(1))
        await setting.heard(2)
        return before, setting.monitors.notices(b"c"), len(setting.monitors)

    before, after, left = run(work)

    assert after > before + 1
    assert left == 0


def test_monitors_are_bounded(run, monkeypatch):
    """One too many is refused; setting one again, and one when others went, is not."""
    monkeypatch.setattr(module, "MONITORS_MAX", 2)

    async def work(setting):
        await setting.set("r1")
        since = await setting.set("r2")
        with pytest.raises(Overloaded, match="2 monitors"):
            await setting.set("r3")
        await setting.set("r2", since=since)
        setting.monitors.demonitor("r1")
        await setting.set("r3")
        return len(setting.monitors)

    assert run(work) == 2


def test_monitors_of_silent_clients_make_room(run, monkeypatch):
    """Those of a client that asked lately stay; the other one's count is forgotten with them."""
    for bound in ("MONITORS_MAX", "MONITORS_SWEEP_MIN"):
        monkeypatch.setattr(module, bound, 2)

    async def work(setting):
        setting.monitors._sweep_at = 2
        before = setting.monitors.notices(b"silent")
        await setting.set("r1", client=b"silent")
        await setting.set("r2", client=b"alive")
        setting.now_s = CLIENT_SILENT_S + 1
        setting.monitors.notices(b"alive")
        await setting.set("r3", client=b"alive")
        setting.monitors.publish(down(1))
        heard = await setting.heard(2)
        return heard, before != setting.monitors.notices(b"silent")

    assert run(work) == ([("r2", 1, 1_000), ("r3", 1, 1_000)], True)


def test_hibernation_that_cannot_be_recorded_is_logged(run, capsys):
    """The daemon that follows takes the session for one that ended with this one."""

    async def work(setting):
        for trouble in ("refusal", "failure"):
            setattr(setting.journal, trouble, JournalFailed("full"))
            setting.monitors.record_hibernation("s", 2)
            await asyncio.sleep(0)
            setattr(setting.journal, trouble, None)
        return await setting.journal.read(FindNewestDown("s"))

    assert run(work) is None
    assert capsys.readouterr().out.count("hibernation.not_journaled") == 2


def test_a_row_keeps_what_was_reported(run):
    """The fields by which the journal distinguishes ends are those of the notice."""

    async def work(setting):
        setting.monitors.publish(down(2, restarting=False))
        return await setting.journal.read(FindNewestDown("s"))

    row = run(work)

    assert row == DownRow(
        session_id="s", incarnation=2, restarting=False, at_ms=2_000, body=row.body, seq=2_000
    )
