"""The journal's operations as the writer's thread has them: what they check, count and forget."""

import pytest

from cmdc_runtime.errors import InvalidSession, SessionExists
from supervisor.adapters.journal.base import (
    Accepted,
    CheckpointRow,
    DownRow,
    Duplicate,
    EventConflict,
    EventRow,
    MissingWrite,
    SessionEnded,
    SessionRow,
    StaleIncarnation,
)
from supervisor.adapters.journal.memory import MemoryStore
from supervisor.adapters.journal.retention import Bounds

ROW = SessionRow(session_id="s", created_ms=5, spec=b"spec", incarnation=2)


@pytest.fixture(params=[True, False], ids=["remembered", "forgotten"])
def ledger(request):
    """Return a ledger with one session, which remembers it or has to look."""
    return opened(remembers=request.param)


def opened(*, remembers=True, **bounds):
    found = Ledger(Bounds(**bounds), remembers=remembers)
    found.open()
    found.create(ROW)
    return found


class Ledger(MemoryStore):
    """A store in memory; where it remembers nothing, it is as after a restart each time."""

    def __init__(self, bounds, *, remembers):
        super().__init__(bounds)
        self._remembers = remembers

    def _head(self, session_id):
        if not self._remembers:
            self._heads.clear()
        return super()._head(session_id)


def append(ledger, *kinds, incarnation=2, number=0, answers=(), snapshot=b"", events=()):  # noqa: PLR0913
    records = [(kind, kind.encode()) for kind in kinds]
    ledger.append(
        "s", incarnation, records, answers, number=number, snapshot=snapshot, events=events
    )


def event(first, count=1, body=b"x"):
    return EventRow(first=first, count=count, body=body)


def batches(ledger):
    return [(one.first, one.count) for one in ledger.replay("s", 0, 10**9, 100)]


def seqs(ledger):
    return [one.seq for one in ledger.history("s").records]


def test_records_and_commands_are_numbered_in_one_row(ledger):
    """From 1, without a hole, whoever comes between."""
    assert ledger.accept("s", "c1", b"one", 1) == Accepted(1)
    append(ledger, "a", "b")
    assert ledger.accept("s", "c2", b"two", 1) == Accepted(4)
    append(ledger, "c", answers=[("c1", b"done")])

    assert seqs(ledger) == [2, 3, 5]
    assert (ledger.answer("s", "c1"), ledger.answer("s", "c2")) == (b"done", None)
    assert ledger.answer("s", "c3") is None


def test_a_command_is_taken_once(ledger):
    """Who asks again has what came of it, also when the session has ended since."""
    ledger.accept("s", "c", b"one", 1)
    assert ledger.accept("s", "c", b"other", 1) == Duplicate(None)
    append(ledger, answers=[("c", b"done")])
    append(ledger, answers=[("c", b"again")])
    assert ledger.accept("s", "c", b"one", 1) == ledger.accepted("s", "c") == Duplicate(b"done")
    assert ledger.accept("s", "d", b"two", 1) == Accepted(2)
    ledger.ended("s", b"over", 9)

    assert ledger.accept("s", "c", b"one", 1) == Duplicate(b"done")
    assert ledger.accepted("s", "e") is None
    with pytest.raises(SessionEnded, match="s is over"):
        ledger.accept("s", "e", b"new", 1)
    with pytest.raises(InvalidSession):
        ledger.accept("unknown", "c", b"one", 1)


def test_writes_that_are_numbered_are_written_once_and_in_their_order(ledger):
    """One that came before changes nothing, but for events that are not there yet."""
    append(ledger, "a", number=1)
    append(ledger, "b", number=2, events=[event(1)])
    append(ledger, "b", number=2, events=[event(1), event(2)])
    append(ledger, "a", number=1)
    with pytest.raises(MissingWrite, match="write 4 of the session s came before write 3"):
        append(ledger, "d", number=4)
    append(ledger, "n")
    append(ledger, "c", number=3)

    assert seqs(ledger) == [1, 2, 3, 4]
    assert batches(ledger) == [(1, 1), (2, 1)]
    assert ledger.find("s").written == 3


def test_only_the_process_of_now_writes(ledger):
    """An earlier one is told which is, and a session that ended has none."""
    with pytest.raises(StaleIncarnation, match=r"incarnation 1 .* incarnation 2"):
        append(ledger, "a", incarnation=1)
    ledger.ended("s", b"over", 9)
    with pytest.raises(StaleIncarnation, match="not alive"):
        append(ledger, "a")


def test_the_next_process_numbers_its_writes_anew(ledger):
    """From 1; an earlier one cannot begin any more, the same one can."""
    append(ledger, "a", number=1)
    ledger.began("s", 2, 0)
    assert ledger.find("s").written == 0
    ledger.began("s", 3, 1)
    append(ledger, "b", incarnation=3, number=1)
    with pytest.raises(StaleIncarnation, match="cannot begin"):
        ledger.began("s", 2, 1)
    row = ledger.find("s")

    assert (row.incarnation, row.restarts, row.written) == (3, 1, 1)
    assert seqs(ledger) == [1, 2]
    with pytest.raises(InvalidSession):
        ledger.began("unknown", 1, 0)
    ledger.ended("s", b"over", 9)
    with pytest.raises(StaleIncarnation):
        ledger.began("s", 4, 1)


def test_events_are_kept_once_and_overlap_no_others(ledger):
    """The same batch again is no news; another one in its place is refused."""
    ledger.publish("s", 1, 3, b"x")
    ledger.publish("s", 1, 3, b"x")
    ledger.publish("s", 5, 2, b"y")
    ledger.publish("s", 4, 1, b"z")
    for first, count, body in ((1, 3, b"other"), (3, 1, b"x"), (2, 4, b"x"), (5, 1, b"y")):
        with pytest.raises(EventConflict, match=f"events {first} to {first + count - 1} .* from"):
            ledger.publish("s", first, count, body)
    ledger.ended("s", b"over", 9)
    ledger.publish("s", 7, 1, b"late")

    assert batches(ledger) == [(1, 3), (4, 1), (5, 2), (7, 1)]
    assert (ledger.last_index("s"), ledger.last_index("unknown")) == (7, 0)
    with pytest.raises(InvalidSession):
        ledger.publish("unknown", 1, 1, b"x")


@pytest.mark.parametrize(("limit", "found"), [(-1, 0), (0, 0), (1, 1), (2, 2), (9, 3)])
def test_an_answer_has_so_many(limit, found):
    """Batches of events, and ends that are told."""
    ledger = opened()
    for number in (1, 2, 3):
        ledger.publish("s", number, 1, b"x")
        ledger.note_down(down(number))

    assert len(ledger.replay("s", 0, 9, limit)) == found
    assert len(ledger.downs("s", 0, limit)) == found


def down(incarnation, body=b"told"):
    return DownRow(session_id="s", incarnation=incarnation, restarting=True, at_ms=9, body=body)


def test_an_end_is_noted_and_its_incarnation_used_no_more(ledger):
    """Also where the start failed before the journal knew of it."""
    first = ledger.note_down(down(2))
    later = ledger.note_down(down(4))
    ledger.note_down(down(3))
    ledger.note_down(DownRow(session_id="s", incarnation=None, restarting=True, at_ms=9, body=b""))

    assert first < later
    assert ledger.find("s").incarnation == 4
    assert [one.incarnation for one in ledger.downs("s", 0, 9)] == [2, 4, 3]
    assert ledger.newest_down("s").incarnation is None
    with pytest.raises(StaleIncarnation):
        append(ledger, "a", incarnation=2)
    ledger.ended("s", b"over", 9)
    ledger.note_down(down(5))
    assert ledger.find("s").incarnation == 4
    ledger.create(ROW)
    with pytest.raises(InvalidSession):
        ledger.note_down(DownRow(**{**vars_of(down(1)), "session_id": "unknown"}))


def vars_of(row):
    return {name: getattr(row, name) for name in row.__slots__}


def test_a_snapshot_leaves_what_is_of_use():
    """So many answered commands and batches, once a tenth more of them is there."""
    ledger = opened(commands=10, events=10)
    for number in range(1, 12):
        ledger.accept("s", f"c{number}", b"body", 1)
        append(ledger, "r", answers=[(f"c{number}", b"done")], events=[event(number)])
    append(ledger, snapshot=b"first")
    assert (commands(ledger), len(batches(ledger))) == (11, 11)
    ledger.accept("s", "c12", b"body", 1)
    append(ledger, "r", answers=[("c12", b"done")], snapshot=b"second", events=[event(12, 2)])
    assert (commands(ledger), batches(ledger)[0], len(batches(ledger))) == (10, (3, 1), 10)

    for lost in (1, 2):
        ledger.publish("s", lost, 1, b"x")  # it was there, and is not wanted again
    with pytest.raises(EventConflict, match="from 3"):
        ledger.publish("s", 2, 2, b"other")
    for number in (13, 14):
        ledger.accept("s", f"c{number}", b"body", 1)
        append(ledger, answers=[(f"c{number}", b"done")], snapshot=b"x", events=[event(number + 1)])
    assert (commands(ledger), len(batches(ledger))) == (10, 10)
    assert ledger.load("s").snapshot == b"x"
    assert seqs(ledger) == []


def test_what_was_dropped_is_not_put_back_in_part():
    """A batch that reaches from there into a gap is another one."""
    ledger = opened(events=1)
    append(ledger, events=[event(1, 2), event(10)], snapshot=b"x")
    ledger.publish("s", 2, 1, b"x")
    with pytest.raises(EventConflict, match="dropped up to 2"):
        ledger.publish("s", 2, 3, b"x")
    ledger.publish("s", 3, 2, b"x")

    assert batches(ledger) == [(3, 2), (10, 1)]


def test_the_first_event_is_as_any_other(ledger):
    """Another one in its place is refused."""
    ledger.publish("s", 1, 1, b"x")
    with pytest.raises(EventConflict):
        ledger.publish("s", 1, 1, b"other")


def commands(ledger):
    (count,) = ledger._db.execute("SELECT count(*) FROM commands").fetchone()
    return count


def test_an_id_is_used_again_when_its_session_has_ended(ledger):
    """With nothing of it but its ends and its checkpoints."""
    append(ledger, "a")
    ledger.note_down(down(2))
    with pytest.raises(SessionExists, match="s is alive"):
        ledger.create(ROW)
    ledger.ended("s", b"over", 9)
    ledger.ended("s", b"again", 10)
    assert (ledger.find("s").reason, ledger.find("s").ended_ms) == (b"over", 9)
    ledger.create(ROW)

    assert (seqs(ledger), commands(ledger)) == ([], 0)
    assert [one.incarnation for one in ledger.downs("s", 0, 9)] == [None]
    assert [row.session_id for row in ledger.alive()] == ["s"]
    with pytest.raises(InvalidSession):
        ledger.ended("unknown", b"over", 9)


def test_a_past_is_what_another_journal_goes_on_from(ledger):
    """Its records, commands, events and checkpoints; an id that is alive takes none."""
    ledger.accept("s", "c", b"one", 1)
    append(ledger, "a", events=[event(1, 2)])
    saved = CheckpointRow(
        session_id="s",
        checkpoint_id="k",
        label=None,
        saved_ms=1,
        schema_version=1,
        body=b"b",
        metadata=b"",
    )
    ledger.save_checkpoint(saved)
    past, events = ledger.history("s"), ledger.replay("s", 0, 9, 9)
    with pytest.raises(SessionExists):
        ledger.restore(past, events, [saved])
    assert ledger.checkpoint("s", "k") == saved
    assert ledger.past_part("s", "records", 0).records == past.records
    ledger.delete_checkpoint("s", "k")
    assert ledger.checkpoint("s", "k") is None
    ledger.ended("s", b"over", 9)
    ledger.restore(past, events, [saved])

    assert ledger.history("s") == past
    assert batches(ledger) == [(1, 2)]
    assert ledger.checkpoint("s", None).body == b"b"
    assert [one.checkpoint_id for one in ledger.checkpoints("s")] == ["k"]
    with pytest.raises(InvalidSession):
        ledger.save_checkpoint(CheckpointRow(**{**vars_of(saved), "session_id": "unknown"}))


def test_what_ended_long_ago_is_pruned():
    """And only that."""
    ledger = opened()
    ledger.create(SessionRow(session_id="t", created_ms=5, spec=b"", incarnation=1))
    ledger.ended("t", b"over", 9)

    assert ledger.prune(9, 100) == 0
    assert ledger.prune(10, 100) == 1
    assert (ledger.find("t"), ledger.find("s").session_id) == (None, "s")
