"""The journal's operations as the writer's thread has them: what they check, count and forget."""

import pytest

from cmdc_runtime.checked_struct import INDEX_MAX
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
from supervisor.adapters.journal.opening import MemoryStore
from supervisor.adapters.journal.operations import (
    AcceptCommand,
    AppendRecords,
    BeginIncarnation,
    CreateSession,
    DeleteCheckpoint,
    EndSession,
    FindAnswer,
    FindCheckpoint,
    FindCommand,
    FindLastIndex,
    FindNewestDown,
    FindSession,
    ListCheckpoints,
    ListDowns,
    ListEndedSessions,
    ListLiveSessions,
    LoadSession,
    PruneSessions,
    PublishEvents,
    ReadHistory,
    ReadHistoryPart,
    RecordDown,
    ReplayEvents,
    RestoreSession,
    SaveCheckpoint,
)
from supervisor.adapters.journal.schema import Bounds

ROW = SessionRow(session_id="s", created_ms=5, spec=b"spec", incarnation=2)


@pytest.fixture(params=[True, False], ids=["remembered", "forgotten"])
def store(request):
    """Return a store with one session, which remembers it or has to look."""
    return opened(remembers=request.param)


def opened(*, remembers=True, **bounds):
    found = Store(Bounds(**bounds), remembers=remembers)
    found.open()
    found.perform(CreateSession(ROW))
    return found


class Store(MemoryStore):
    """A store in memory; where it remembers nothing, it is as after a restart each time."""

    def __init__(self, bounds, *, remembers):
        super().__init__(bounds)
        self._remembers = remembers

    def perform(self, operation):
        if not self._remembers:
            self.heads.forget()
        return super().perform(operation)


def append(store, *kinds, incarnation=2, number=0, answers=(), snapshot=b"", events=()):  # noqa: PLR0913
    records = [(kind, kind.encode()) for kind in kinds]
    store.perform(
        AppendRecords(
            "s", incarnation, records, answers, number=number, snapshot=snapshot, events=events
        )
    )


def event(first, count=1, body=b"x"):
    return EventRow(first=first, count=count, body=body)


def batches(store):
    return [(one.first, one.count) for one in store.perform(ReplayEvents("s", 0, 10**9, 100))]


def seqs(store):
    return [one.seq for one in store.perform(ReadHistory("s")).records]


def test_records_and_commands_are_numbered_in_one_row(store):
    """From 1, without a hole, whoever comes between."""
    assert store.perform(AcceptCommand("s", "c1", b"one", 1)) == Accepted(1)
    append(store, "a", "b")
    assert store.perform(AcceptCommand("s", "c2", b"two", 1)) == Accepted(4)
    append(store, "c", answers=[("c1", b"done")])

    assert seqs(store) == [2, 3, 5]
    assert (store.perform(FindAnswer("s", "c1")), store.perform(FindAnswer("s", "c2"))) == (
        b"done",
        None,
    )
    assert store.perform(FindAnswer("s", "c3")) is None


def test_a_command_is_taken_once(store):
    """Who asks again has what came of it, also when the session has ended since."""
    store.perform(AcceptCommand("s", "c", b"one", 1))
    assert store.perform(AcceptCommand("s", "c", b"other", 1)) == Duplicate(None)
    append(store, answers=[("c", b"done")])
    append(store, answers=[("c", b"again")])
    assert (
        store.perform(AcceptCommand("s", "c", b"one", 1))
        == store.perform(FindCommand("s", "c"))
        == Duplicate(b"done")
    )
    assert store.perform(AcceptCommand("s", "d", b"two", 1)) == Accepted(2)
    store.perform(EndSession("s", b"over", 9))

    assert store.perform(AcceptCommand("s", "c", b"one", 1)) == Duplicate(b"done")
    assert store.perform(FindCommand("s", "e")) is None
    with pytest.raises(SessionEnded, match="s is over"):
        store.perform(AcceptCommand("s", "e", b"new", 1))
    with pytest.raises(InvalidSession):
        store.perform(AcceptCommand("unknown", "c", b"one", 1))


def test_writes_that_are_numbered_are_written_once_and_in_their_order(store):
    """One that came before changes nothing, but for events that are not there yet."""
    append(store, "a", number=1)
    append(store, "b", number=2, events=[event(1)])
    append(store, "b", number=2, events=[event(1), event(2)])
    append(store, "a", number=1)
    with pytest.raises(MissingWrite, match="write 4 of the session s came before write 3"):
        append(store, "d", number=4)
    append(store, "n")
    append(store, "c", number=3)

    assert seqs(store) == [1, 2, 3, 4]
    assert batches(store) == [(1, 1), (2, 1)]
    assert store.perform(FindSession("s")).written == 3


def test_only_the_process_of_now_writes(store):
    """An earlier one gets an error that names it, and a session that ended has none."""
    with pytest.raises(StaleIncarnation, match=r"incarnation 1 .* incarnation 2"):
        append(store, "a", incarnation=1)
    store.perform(EndSession("s", b"over", 9))
    with pytest.raises(StaleIncarnation, match="not alive"):
        append(store, "a")


def test_the_next_process_numbers_its_writes_anew(store):
    """From 1; an earlier one cannot begin any more, the same one can."""
    append(store, "a", number=1)
    store.perform(BeginIncarnation("s", 2, 0))
    assert store.perform(FindSession("s")).written == 0
    store.perform(BeginIncarnation("s", 3, 1))
    append(store, "b", incarnation=3, number=1)
    with pytest.raises(StaleIncarnation, match="cannot begin"):
        store.perform(BeginIncarnation("s", 2, 1))
    row = store.perform(FindSession("s"))

    assert (row.incarnation, row.restarts, row.written) == (3, 1, 1)
    assert seqs(store) == [1, 2]
    with pytest.raises(InvalidSession):
        store.perform(BeginIncarnation("unknown", 1, 0))
    store.perform(EndSession("s", b"over", 9))
    with pytest.raises(StaleIncarnation):
        store.perform(BeginIncarnation("s", 4, 1))


def test_events_are_kept_once_and_overlap_no_others(store):
    """The same batch again is no news; another one in its place is refused."""
    store.perform(PublishEvents("s", 1, 3, b"x"))
    store.perform(PublishEvents("s", 1, 3, b"x"))
    store.perform(PublishEvents("s", 5, 2, b"y"))
    store.perform(PublishEvents("s", 4, 1, b"z"))
    for first, count, body in ((1, 3, b"other"), (3, 1, b"x"), (2, 4, b"x"), (5, 1, b"y")):
        with pytest.raises(EventConflict, match=f"events {first} to {first + count - 1} .* from"):
            store.perform(PublishEvents("s", first, count, body))
    store.perform(EndSession("s", b"over", 9))
    store.perform(PublishEvents("s", 7, 1, b"late"))

    assert batches(store) == [(1, 3), (4, 1), (5, 2), (7, 1)]
    assert (store.perform(FindLastIndex("s")), store.perform(FindLastIndex("unknown"))) == (7, 0)
    with pytest.raises(InvalidSession):
        store.perform(PublishEvents("unknown", 1, 1, b"x"))


@pytest.mark.parametrize(("limit", "found"), [(-1, 0), (0, 0), (1, 1), (2, 2), (9, 3)])
def test_an_answer_has_so_many(limit, found):
    """Batches of events, and ends that are reported."""
    store = opened()
    for number in (1, 2, 3):
        store.perform(PublishEvents("s", number, 1, b"x"))
        store.perform(RecordDown(down(number)))

    assert len(store.perform(ReplayEvents("s", 0, 9, limit))) == found
    assert len(store.perform(ListDowns("s", 0, limit))) == found


def down(incarnation, body=b"down"):
    return DownRow(session_id="s", incarnation=incarnation, restarting=True, at_ms=9, body=body)


def test_an_end_is_noted_and_its_incarnation_used_no_more(store):
    """Also where the start failed before the journal knew of it."""
    first = store.perform(RecordDown(down(2)))
    later = store.perform(RecordDown(down(4)))
    store.perform(RecordDown(down(3)))
    store.perform(
        RecordDown(DownRow(session_id="s", incarnation=None, restarting=True, at_ms=9, body=b""))
    )

    assert first < later
    assert store.perform(FindSession("s")).incarnation == 4
    assert [one.incarnation for one in store.perform(ListDowns("s", 0, 9))] == [2, 4, 3]
    assert store.perform(FindNewestDown("s")).incarnation is None
    with pytest.raises(StaleIncarnation):
        append(store, "a", incarnation=2)
    store.perform(EndSession("s", b"over", 9))
    store.perform(RecordDown(down(5)))
    assert store.perform(FindSession("s")).incarnation == 4
    store.perform(CreateSession(ROW))
    with pytest.raises(InvalidSession):
        store.perform(RecordDown(DownRow(**{**vars_of(down(1)), "session_id": "unknown"})))


def vars_of(row):
    return {name: getattr(row, name) for name in row.__slots__}


def test_a_snapshot_leaves_what_is_of_use():
    """So many answered commands and batches, once a tenth more of them is there."""
    store = opened(commands=10, events=10)
    for number in range(1, 12):
        store.perform(AcceptCommand("s", f"c{number}", b"body", 1))
        append(store, "r", answers=[(f"c{number}", b"done")], events=[event(number)])
    append(store, snapshot=b"first")
    assert (commands(store), len(batches(store))) == (11, 11)
    store.perform(AcceptCommand("s", "c12", b"body", 1))
    append(store, "r", answers=[("c12", b"done")], snapshot=b"second", events=[event(12, 2)])
    assert (commands(store), batches(store)[0], len(batches(store))) == (10, (3, 1), 10)

    for lost in (1, 2):
        store.perform(PublishEvents("s", lost, 1, b"x"))  # it was there, and is not wanted again
    with pytest.raises(EventConflict, match="from 3"):
        store.perform(PublishEvents("s", 2, 2, b"other"))
    for number in (13, 14):
        store.perform(AcceptCommand("s", f"c{number}", b"body", 1))
        append(store, answers=[(f"c{number}", b"done")], snapshot=b"x", events=[event(number + 1)])
    assert (commands(store), len(batches(store))) == (10, 10)
    assert store.perform(LoadSession("s")).snapshot == b"x"
    assert seqs(store) == []


def test_what_was_dropped_is_not_put_back_in_part():
    """A batch that reaches from there into a gap is another one."""
    store = opened(events=1)
    append(store, events=[event(1, 2), event(10)], snapshot=b"x")
    store.perform(PublishEvents("s", 2, 1, b"x"))
    with pytest.raises(EventConflict, match="dropped up to 2"):
        store.perform(PublishEvents("s", 2, 3, b"x"))
    store.perform(PublishEvents("s", 3, 2, b"x"))

    assert batches(store) == [(3, 2), (10, 1)]


def test_the_first_event_is_as_any_other(store):
    """Another one in its place is refused."""
    store.perform(PublishEvents("s", 1, 1, b"x"))
    with pytest.raises(EventConflict):
        store.perform(PublishEvents("s", 1, 1, b"other"))


def commands(store):
    (count,) = store.db.execute("SELECT count(*) FROM commands").fetchone()
    return count


def test_an_id_is_used_again_when_its_session_has_ended(store):
    """With nothing of it but its ends and its checkpoints."""
    append(store, "a")
    store.perform(RecordDown(down(2)))
    with pytest.raises(SessionExists, match="s is alive"):
        store.perform(CreateSession(ROW))
    store.perform(EndSession("s", b"over", 9))
    store.perform(EndSession("s", b"again", 10))
    assert (store.perform(FindSession("s")).reason, store.perform(FindSession("s")).ended_ms) == (
        b"over",
        9,
    )
    store.perform(CreateSession(ROW))

    assert (seqs(store), commands(store)) == ([], 0)
    assert [one.incarnation for one in store.perform(ListDowns("s", 0, 9))] == [None]
    assert [row.session_id for row in store.perform(ListLiveSessions())] == ["s"]
    with pytest.raises(InvalidSession):
        store.perform(EndSession("unknown", b"over", 9))


def test_a_past_is_what_another_journal_goes_on_from(store):
    """Its records, commands, events and checkpoints; an id that is alive takes none."""
    store.perform(AcceptCommand("s", "c", b"one", 1))
    append(store, "a", events=[event(1, 2)])
    saved = CheckpointRow(
        session_id="s",
        checkpoint_id="k",
        label=None,
        saved_ms=1,
        schema_version=1,
        body=b"b",
        metadata=b"",
    )
    store.perform(SaveCheckpoint(saved))
    past, events = store.perform(ReadHistory("s")), store.perform(ReplayEvents("s", 0, 9, 9))
    with pytest.raises(SessionExists):
        store.perform(RestoreSession(past, events, [saved]))
    assert store.perform(FindCheckpoint("s", "k")) == saved
    assert store.perform(ReadHistoryPart("s", "records", 0)).records == past.records
    store.perform(DeleteCheckpoint("s", "k"))
    assert store.perform(FindCheckpoint("s", "k")) is None
    store.perform(EndSession("s", b"over", 9))
    store.perform(RestoreSession(past, events, [saved]))

    assert store.perform(ReadHistory("s")) == past
    assert batches(store) == [(1, 2)]
    assert store.perform(FindCheckpoint("s", None)).body == b"b"
    assert [one.checkpoint_id for one in store.perform(ListCheckpoints("s"))] == ["k"]
    with pytest.raises(InvalidSession):
        store.perform(SaveCheckpoint(CheckpointRow(**{**vars_of(saved), "session_id": "unknown"})))


def test_what_ended_long_ago_is_pruned():
    """And only that."""
    store = opened()
    store.perform(CreateSession(SessionRow(session_id="t", created_ms=5, spec=b"", incarnation=1)))
    store.perform(EndSession("t", b"over", 9))

    assert store.perform(PruneSessions(9, 100)) == 0
    assert store.perform(PruneSessions(10, 100)) == 1
    assert (store.perform(FindSession("t")), store.perform(FindSession("s")).session_id) == (
        None,
        "s",
    )


def end_of(incarnation, *, session_id="s", at_ms=1_000):
    return RecordDown(
        DownRow(
            session_id=session_id,
            incarnation=incarnation,
            restarting=True,
            at_ms=at_ms,
            body=b"down",
        )
    )


def known_ends(store, session_id="s"):
    return [one.incarnation for one in store.perform(ListDowns(session_id, 0, 100))]


# fmt: off
STRANGE_SEQS = {
    "the last":         (2**63 - 1,),
    "the first":        (-(2**63),),
    "negative":         (-1,),
    "beyond the edge":  (INDEX_MAX + 1,),
    "at the edge":      (INDEX_MAX,),
    "below the edge":   (INDEX_MAX - 1,),
    "all at the edge":  (INDEX_MAX - 1, INDEX_MAX, INDEX_MAX + 1, 2**63 - 1),
    "at the middle":    (INDEX_MAX // 2, INDEX_MAX // 2 + 3),
    "and now":          (INDEX_MAX, 1_000, 1_001),
}
# fmt: on


@pytest.mark.parametrize("seqs", STRANGE_SEQS.values(), ids=STRANGE_SEQS)
def test_a_damaged_number_of_an_end_hinders_no_other_session(store, seqs):
    """Each of the others gets numbers that can be asked for, all different, in their order."""
    insert = "INSERT INTO downs VALUES (?, 'kid', ?, 1, 5, x'c0')"
    store.perform(CreateSession(SessionRow(session_id="other", created_ms=5, spec=b"")))
    for number, seq in enumerate(seqs):
        store.db.execute(insert, (seq, number))
    given = [store.perform(end_of(number)) for number in range(1, 5)]

    others = [store.perform(end_of(9, session_id="other")), store.perform(end_of(5))]

    assert given == sorted(set(given))
    assert len({*given, *others, *seqs}) == len(given) + len(others) + len(seqs)
    assert all(0 < seq <= INDEX_MAX for seq in (*given, *others))
    assert known_ends(store) == [1, 2, 3, 4, 5]
    assert store.perform(FindNewestDown("s")).incarnation == 5


@pytest.mark.parametrize("seq", [2**63 - 1, -1, INDEX_MAX, INDEX_MAX + 1])
def test_a_damaged_number_of_an_own_end_is_given_to_nobody(store, seq):
    """The end that comes again has one that can be asked for, and the next one has another."""
    store.perform(end_of(1))
    store.db.execute("UPDATE downs SET seq = ?", (seq,))
    given = [store.perform(end_of(1)), store.perform(end_of(2)), store.perform(end_of(3))]

    assert all(0 < one <= INDEX_MAX for one in given)
    assert len(set(given)) == 3
    assert sorted(known_ends(store)) == [1, 2, 3]


def test_a_new_end_comes_behind_those_of_its_session_that_are_damaged(store):
    """However far beyond all times one is, as long as there are numbers behind it."""
    store.perform(end_of(1))
    store.db.execute("UPDATE downs SET seq = ?", (INDEX_MAX - 2,))

    assert store.perform(end_of(2)) == INDEX_MAX - 1
    assert known_ends(store) == [1, 2]


# fmt: off
STRANGE_ENDS = {
    "seq":                 "seq = 9223372036854775807",
    "seq, negative":       "seq = -5",
    "incarnation":         "incarnation = 'many'",
    "incarnation, bytes":  "incarnation = x'ff'",
    "incarnation, large":  "incarnation = 4611686018427387904",
    "incarnation, part":   "incarnation = 1.5",
    "incarnation, below":  "incarnation = -1",
    "restarting":          "restarting = 'y'",
    "restarting, large":   "restarting = 2",
    "at_ms":               "at_ms = 'late'",
    "at_ms, below":        "at_ms = -1",
    "body":                "body = 'text'",
    "body, number":        "body = 7",
}
# fmt: on


@pytest.mark.parametrize("damage", STRANGE_ENDS.values(), ids=STRANGE_ENDS)
def test_a_damaged_end_is_left_out_and_reported(store, damage, capsys):
    """The log has its session and its column; the ends around it are there, the newest included."""
    for number in (1, 2, 3):
        store.perform(end_of(number))
    store.db.execute(f"UPDATE downs SET {damage} WHERE incarnation = 3")
    newest = store.perform(FindNewestDown("s"))
    pages = [store.perform(ListDowns("s", after, 1)) for after in (0, 1_000, 1_001)]

    assert newest.incarnation == 2
    assert known_ends(store) == [1, 2]
    assert [[one.incarnation for one in page] for page in pages] == [[1], [2], []]
    said = capsys.readouterr().out
    assert "down.damaged" in said
    assert f"{damage.partition(' ')[0]}: " in said
    assert "session_id=s" in said


def test_a_page_of_ends_is_full_where_damaged_ones_are_among_them(store):
    """Who asks for the next page until one is not full has all that are sound."""
    for number in range(1, 8):
        store.perform(end_of(number))
    store.db.execute("UPDATE downs SET at_ms = 'late' WHERE incarnation IN (1, 2, 4, 6)")

    assert [one.incarnation for one in store.perform(ListDowns("s", 0, 2))] == [3, 5]
    assert [one.incarnation for one in store.perform(ListDowns("s", 1_004, 2))] == [7]


@pytest.mark.parametrize("ended_ms", [-1, -(2**63), 2**62, 1.5, float("inf"), "abc", "", b"\xff"])
def test_a_session_of_a_damaged_end_is_neither_over_nor_deleted(store, ended_ms):
    """It is listed among those to go on with, behind them; it ends once, and makes room then."""
    store.perform(CreateSession(SessionRow(session_id="alive", created_ms=9, spec=b"")))
    store.db.execute("UPDATE sessions SET ended_ms = ? WHERE session_id = 's'", (ended_ms,))
    store.heads.forget()

    assert store.perform(PruneSessions(2**62, 10)) == 0
    live = store.perform(ListLiveSessions())
    assert [(one.session_id, one.ended_ms) for one in live] == [("alive", None), ("s", ended_ms)]
    assert store.perform(ListEndedSessions(10)) == []
    with pytest.raises(SessionExists):
        store.perform(CreateSession(ROW))
    with pytest.raises(SessionEnded):
        store.perform(AcceptCommand("s", "c1", b"one", 1))
    store.perform(EndSession("s", b"over", 7))
    store.perform(EndSession("s", b"again", 8))
    assert [row.ended_ms for row, _ in store.perform(ListEndedSessions(10))] == [7]
    assert store.perform(PruneSessions(8, 10)) == 1
