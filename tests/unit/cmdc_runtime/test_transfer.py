"""A session as a file: whatever happens to it on its way shows."""

import io

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime import transfer
from cmdc_runtime.checkpoints import CheckpointFacts
from cmdc_runtime.errors import UsageError
from cmdc_runtime.requests import PastCommand, PastRecord, ReplayedBatch
from cmdc_runtime.transfer import (
    FORMAT,
    MAGIC,
    PART_BYTES,
    Assembly,
    CheckpointPart,
    CommandsPart,
    End,
    EventsPart,
    Header,
    PiecePart,
    RecordsPart,
    Seal,
    SnapshotPart,
    Whole,
    frame_of,
    in_pieces,
    part_of,
    read_frames,
    rows_in_parts,
)

HEADER = Header(
    format=FORMAT,
    session_id="s-1",
    exported_ms=2,
    created_ms=1,
    is_over=True,
    incarnation=3,
    restarts=1,
    last_index=9,
    spec=b"spec",
    snapshot_seq=4,
)
RECORDS = tuple(PastRecord(seq=seq, incarnation=1, kind="said", body=b"x") for seq in (5, 6))
COMMANDS = (PastCommand(seq=7, id="c-1", at_ms=1, body=b"y", answer=None),)
EVENTS = (ReplayedBatch(first=8, count=2, body=b"z"),)
CHECKPOINT = CheckpointPart(
    facts=CheckpointFacts(
        session_id="s-1",
        checkpoint_id="c-2",
        label=None,
        saved_ms=1,
        schema_version=1,
        metadata=b"\x80",
    ),
    body=b"state",
)
PARTS = (
    HEADER,
    SnapshotPart(body=b"snapshot"),
    RecordsPart(rows=RECORDS),
    CommandsPart(rows=COMMANDS),
    EventsPart(rows=EVENTS),
    CHECKPOINT,
)


def file_of(parts):
    """Return a file with these parts and its end."""
    seal = Seal()
    frames = [frame_of(part) for part in parts]
    for frame in frames:
        seal.add(frame)
    return MAGIC + b"".join(frames) + frame_of(seal.end())


def read(data):
    assembly = Assembly()
    for frame in read_frames(io.BytesIO(data)):
        assembly.add(frame)
    return assembly.whole()


WHOLE = file_of(PARTS)


def test_a_session_comes_out_of_its_file_as_it_went_in():
    """Part by part."""
    assert read(WHOLE) == Whole(
        header=HEADER,
        snapshot=b"snapshot",
        records=list(RECORDS),
        commands=list(COMMANDS),
        events=list(EVENTS),
        checkpoints=[CHECKPOINT],
    )


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 20 * PART_BYTES])
def test_a_long_body_goes_in_pieces(size):
    """A state of more than one part takes comes out whole."""
    body = bytes(range(251)) * (size // 251) + b"x" * (size % 251)
    parts = [
        HEADER,
        *in_pieces(body, lambda rest: SnapshotPart(body=rest)),
        *in_pieces(body, lambda rest: CheckpointPart(facts=CHECKPOINT.facts, body=rest)),
        CHECKPOINT,
    ]
    found = read(file_of(parts))

    assert found.snapshot == body
    assert [one.body for one in found.checkpoints] == [body, CHECKPOINT.body]
    assert max(len(frame_of(part)) for part in parts) <= PART_BYTES + 1024


@given(st.integers(0, len(WHOLE) - 1))
def test_a_file_that_was_cut_anywhere_is_known_for_it(at):
    """Also between two parts."""
    with pytest.raises(UsageError):
        read(WHOLE[:at])


@given(st.integers(0, len(WHOLE) * 8 - 1))
def test_a_file_with_a_bit_flipped_anywhere_is_known_for_it(bit):
    """In a length, a checksum, a body or the end."""
    harmed = bytearray(WHOLE)
    harmed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(UsageError):
        read(bytes(harmed))


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ((), "its end is missing"),
        (PARTS[1:], "does not begin with its header"),
        ((HEADER, *PARTS), "does not begin with its header"),
        ((HEADER, PiecePart(body=b"x"), *PARTS[2:]), "the end of a body is missing"),
        ((*PARTS, PiecePart(body=b"x")), "the end of a body is missing"),
    ],
    ids=["none", "no header", "two headers", "a piece alone", "a piece at the end"],
)
def test_parts_have_their_place(parts, problem):
    """The header once, and first."""
    with pytest.raises(UsageError, match=problem):
        read(file_of(parts))


def test_a_part_that_was_left_out_is_missed():
    """Though each of the others is as it was."""
    data = file_of(PARTS)
    frame = frame_of(PARTS[2])

    with pytest.raises(UsageError, match="parts are missing or changed"):
        read(data.replace(frame, b""))


def test_another_format_is_refused_by_its_number():
    """Nothing of it is taken."""
    for number in (FORMAT + 1, 0, -1):
        other = msgspec.structs.replace(HEADER, format=number)

        with pytest.raises(UsageError, match=f"format {number}, and this program reads 1 to 2"):
            part_of(frame_of(other))


def test_a_part_of_another_program_is_refused():
    """Its checksum is right, but not what it holds."""
    body = b"\x91\xa3odd"
    frame = len(body).to_bytes(4) + transfer.zlib.crc32(body).to_bytes(4) + body

    with pytest.raises(UsageError, match="cannot be read"):
        part_of(frame)


def test_rows_go_together_up_to_a_size():
    """A larger one has a part of its own; none is lost, and their order stays."""
    small = [PastRecord(seq=at, incarnation=1, kind="said", body=b"x" * 100) for at in range(30)]
    large = PastRecord(seq=30, incarnation=1, kind="said", body=b"x" * (PART_BYTES + 1))
    rows = [*small, large, *small]
    parts = list(rows_in_parts(rows, RecordsPart))

    assert [len(part.rows) for part in parts] == [30, 1, 30]
    assert [row for part in parts for row in part.rows] == rows
    assert list(rows_in_parts([], RecordsPart)) == []


def test_what_no_daemon_takes_is_not_written(monkeypatch):
    """The error says what it is and how large."""
    monkeypatch.setattr(transfer, "PART_BYTES_MAX", 10)

    with pytest.raises(UsageError, match=r"a SnapshotPart takes .* at most 10 can be moved"):
        frame_of(SnapshotPart(body=b"12345"))


def test_a_session_has_a_bound(monkeypatch):
    """The daemon that takes it holds it in memory."""
    monkeypatch.setattr(transfer, "TRANSFER_BYTES_MAX", 100)

    with pytest.raises(UsageError, match="more than 100 bytes"):
        read(WHOLE)


def test_an_end_alone_is_no_session():
    """Nothing was said whose it is."""
    assembly = Assembly()
    assembly.add(frame_of(Seal().end()))

    with pytest.raises(UsageError, match="its end is missing"):
        assembly.whole()
    with pytest.raises(UsageError, match="missing or changed"):
        assembly.add(frame_of(End(parts=1, digest=b"")))
