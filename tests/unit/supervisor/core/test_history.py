"""A journal cut into frames that every socket takes."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.wire.codec import decode, encode
from cmdc_runtime.wire.frames import (
    FRAME_BYTES_MAX,
    History,
    JournalCommand,
    JournalRecord,
    ToWorker,
)
from supervisor.core import history
from supervisor.core.history import command_problem, delivery, slices
from supervisor.core.limits import HISTORY_BYTES_MAX, HISTORY_ITEMS_MAX, HOLES_MAX


@dataclass(frozen=True)
class Record:
    body: bytes
    kind: str = "said"
    seq: int = 0


@dataclass(frozen=True)
class Command:
    command_id: str
    body: bytes


@dataclass(frozen=True)
class Kept:
    records: tuple = ()
    unanswered: tuple = ()
    snapshot: bytes = b""
    missing: tuple = ()


def kept(record_sizes, command_sizes):
    return Kept(
        tuple(Record(bytes([at % 256]) * size) for at, size in enumerate(record_sizes)),
        tuple(Command(f"c-{at}", b"x" * size) for at, size in enumerate(command_sizes)),
    )


def bodies(frame):
    return [*frame.records, *frame.commands]


def size_of(frame):
    return sum(len(one.body) for one in bodies(frame))


def test_no_journal_is_one_empty_frame():
    """The worker learns that there is nothing to wait for."""
    assert list(slices(None)) == [History(records=(), commands=(), complete=True)]
    assert list(slices(Kept())) == list(slices(None))


def test_a_short_history_is_one_frame():
    """Records as they were, then the unanswered commands."""
    (frame,) = slices(Kept((Record(b"r", "resumed"),), (Command("c-1", b"p"),)))

    assert frame.records == (JournalRecord(kind="resumed", body=b"r"),)
    assert frame.commands == (JournalCommand(id="c-1", body=b"p"),)
    assert frame.complete


def test_a_process_learns_which_rows_are_gone_in_their_place():
    """Before, between and behind the records that are there."""
    found = (Record(b"a", seq=3), Record(b"b", seq=4), Record(b"c", seq=8))
    (frame,) = slices(Kept(found, missing=((1, 2), (5, 6), (9, 9))))

    assert [(one.kind, one.body) for one in frame.records] == [
        ("-", b"1 to 2"),
        ("said", b"a"),
        ("said", b"b"),
        ("-", b"5 to 6"),
        ("said", b"c"),
        ("-", b"9"),
    ]


# fmt: off
HOLES = {
    "nothing": (0, [],           ()),
    "whole":   (0, [2, 1, 3],    ()),
    "behind":  (7, [8, 9],       ()),
    "first":   (7, [9],          ((8, 8),)),
    "some":    (0, [2, 5, 6, 9], ((1, 1), (3, 4), (7, 8))),
    "before":  (7, [-3, 2, 9],   ((8, 8),)),
    "twice":   (0, [1, 1, 3, 3], ((2, 2),)),
}
# fmt: on


@pytest.mark.parametrize(("after", "numbers", "gone"), HOLES.values(), ids=HOLES)
def test_numbers_that_no_row_has_are_holes(after, numbers, gone):
    """Whatever order they come in."""
    assert history.holes(after, numbers) == gone


def test_many_holes_are_reported_as_so_many():
    """The last ones as one."""
    found = history.holes(0, range(2, 2_000, 2))

    assert len(found) == HOLES_MAX
    assert found[:2] == ((1, 1), (3, 3))
    assert found[-1] == (2 * HOLES_MAX - 1, 1_997)


short = st.lists(st.integers(0, 9), max_size=30)


@given(short, short)
def test_a_cut_history_is_whole_and_in_bounds(record_sizes, command_sizes):
    """Nothing lost, nothing twice, in order; only a single large item exceeds the bound."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "HISTORY_BYTES_MAX", 10)
        patch.setattr(history, "HISTORY_ITEMS_MAX", 3)
        given_ = kept(record_sizes, command_sizes)
        frames = list(slices(given_))

    assert [one.body for frame in frames for one in frame.records] == [
        one.body for one in given_.records
    ]
    assert [one.id for frame in frames for one in frame.commands] == [
        one.command_id for one in given_.unanswered
    ]
    assert [frame.complete for frame in frames] == [False] * (len(frames) - 1) + [True]
    assert all(len(bodies(frame)) <= 3 for frame in frames)
    assert all(size_of(frame) <= 10 or len(bodies(frame)) == 1 for frame in frames)
    assert all(bodies(frame) for frame in frames[:-1])


def test_the_bounds_are_reached():
    """As many items as allowed share a frame; the next one starts another."""
    frames = list(slices(kept([0] * (HISTORY_ITEMS_MAX + 1), [])))

    assert [len(frame.records) for frame in frames] == [HISTORY_ITEMS_MAX, 1]


@pytest.mark.parametrize(
    ("records", "commands", "shared"),
    [
        ([4, 6], [], [2]),
        ([4, 7], [], [1, 1]),
        ([5, 6, 4], [], [1, 2]),
        ([], [4, 6], [2]),
        ([], [5, 6, 4], [1, 2]),
        ([4], [6], [2]),
        ([4], [7, 3], [1, 2]),
    ],
)
def test_a_frame_is_filled_to_its_last_byte(monkeypatch, records, commands, shared):
    """As many bytes as allowed share a frame, and the next one begins at nothing."""
    monkeypatch.setattr(history, "HISTORY_BYTES_MAX", 10)

    assert [len(bodies(frame)) for frame in slices(kept(records, commands))] == shared


def test_a_large_command_does_not_share_a_frame():
    """Behind almost a frame full of records it would make one that no socket takes."""
    almost = FRAME_BYTES_MAX - 1024
    frames = list(slices(kept([HISTORY_BYTES_MAX], [almost])))

    assert len(frames) == 2
    assert all(len(encode(frame)) <= FRAME_BYTES_MAX for frame in frames)


@pytest.mark.parametrize("size", [1, HISTORY_BYTES_MAX, 3 * FRAME_BYTES_MAX + 1])
def test_a_snapshot_comes_first_in_pieces(size):
    """As large as it may be, each fits; what follows goes on from it."""
    state = bytes(range(251)) * (size // 251) + b"s" * (size % 251)
    found = list(slices(Kept((Record(b"r"),), (Command("c-1", b"x"),), snapshot=state)))
    *pieces, last = found

    assert b"".join(one.snapshot for one in pieces) == state
    assert all((one.records, one.commands, one.complete) == ((), (), False) for one in pieces)
    assert ([one.body for one in last.records], last.complete) == ([b"r"], True)
    assert max(len(encode(one)) for one in found) <= FRAME_BYTES_MAX


@pytest.mark.parametrize("kind", ["a\x1b[31m", "x" * 65, "half \udc80", None, 7])
@pytest.mark.parametrize("body", [b"\xc1", "text", None])
def test_a_damaged_row_is_in_a_frame_that_an_agent_takes(kind, body):
    """It would wait for the rest of its history otherwise; what is wrong it sees for itself."""
    rows = (Record(b"fine"), Record(body, kind), Record(b"fine"))
    (frame,) = slices(Kept(rows))

    assert decode(ToWorker, encode(frame)) == frame
    assert [one.kind for one in frame.records] == ["said", "", "said"]


BAD_IDS = [b"c-1", None, 7, "half \udc80", "c\0", "c" * 1025]
BAD_BODIES = ["text", None, 7, 1.5, b"", b"\xc1", b"\x92\x01"]


@pytest.mark.parametrize("command_id", BAD_IDS)
def test_a_command_whose_id_is_none_is_given_to_nobody(command_id):
    """Nobody could be answered; what stands around it goes on."""
    rows = (Command("c-1", b"a"), Command(command_id, b"b"), Command("c-3", b"c"))
    (frame,) = slices(Kept(unanswered=rows))

    assert [one.id for one in frame.commands] == ["c-1", "c-3"]
    assert decode(ToWorker, encode(frame)) == frame
    assert [command_problem(one) is None for one in rows] == [True, False, True]


@pytest.mark.parametrize("command_id", ["c", "c" * 1024, "a\x1b[31m"])
def test_a_command_that_can_be_answered_is_given(command_id):
    """However odd its id is: it was accepted."""
    assert command_problem(Command(command_id, b"")) is None


@pytest.mark.parametrize("body", BAD_BODIES)
def test_a_command_whose_body_is_none_is_in_a_frame_that_an_agent_takes(body):
    """In the history as in a delivery; the agent refuses it, so that its sender gets an error."""
    command = Command("c-1", body)
    (frame,) = slices(Kept(unanswered=(command,)))
    sent = encode(delivery(command))

    assert delivery(command).durable
    assert decode(ToWorker, encode(frame)) == frame
    assert encode(decode(ToWorker, sent)) == sent


def test_a_body_that_no_frame_takes_is_cut():
    """The connection would be lost with the frame, and the agent would wait for the rest."""
    longest = "c" * 1024
    rows = Kept((Record(bytes(FRAME_BYTES_MAX)),), (Command(longest, bytes(FRAME_BYTES_MAX)),))
    sent = [*slices(rows), delivery(rows.unanswered[0])]

    assert all(len(encode(frame)) <= FRAME_BYTES_MAX - 1024 for frame in sent)


@pytest.mark.parametrize("snapshot", ["text", 7, "half \udc80"])
def test_a_snapshot_of_another_type_is_sent_as_bytes(snapshot):
    """Who reads it can say what is wrong with it."""
    frames = list(slices(Kept(snapshot=snapshot)))

    assert [decode(ToWorker, encode(frame)) for frame in frames] == frames
    assert all(isinstance(frame.snapshot, bytes) and frame.snapshot for frame in frames[:-1])
    assert len(frames) > 1
