"""A long past is read in parts, and each costs what an answer has room for."""

from supervisor.adapters.journal.base import CommandRow, Past, RecordRow, SessionRow
from supervisor.adapters.journal.operations import ReadHistory, ReadHistoryPart, RestoreSession
from supervisor.api.handlers import page_of
from supervisor.core.limits import HISTORY_ITEMS_MAX, PAST_BYTES_MAX

ROW = SessionRow(session_id="s-1", created_ms=5, spec=b"spec", incarnation=1)


def past_of(record_sizes, snapshot=b"", commands=2):
    """Return a past with records of these sizes."""
    return Past(
        row=ROW,
        snapshot=snapshot,
        snapshot_seq=1 if snapshot else 0,
        records=tuple(
            RecordRow(seq=at, incarnation=1, kind="turn", body=bytes(size))
            for at, size in enumerate(record_sizes, 2)
        ),
        commands=tuple(
            CommandRow(
                command_id=f"c-{at}",
                seq=len(record_sizes) + at + 2,
                at_ms=1,
                body=b"c",
                answer=b"a",
            )
            for at in range(commands)
        ),
    )


async def read_through(journal, part):
    """Return the rows of all pages of a part, and how many rows were read for each."""
    rows, read, after, is_last = [], [], 0, False
    while not is_last:
        past = await journal.read(ReadHistoryPart("s-1", part, after))
        read.append(len(past.records) + len(past.commands))
        page = page_of(past, part, after)
        rows += [one.seq for one in (*page.records, *page.commands)]
        after, is_last = rows[-1], page.is_last
    return rows, read


def seqs(rows):
    return [one.seq for one in rows]


def test_no_part_reads_more_rows_than_an_answer_has(run):
    """And one, by which it is known that there are more."""
    past = past_of([9] * (2 * HISTORY_ITEMS_MAX + 3), commands=HISTORY_ITEMS_MAX + 1)

    async def work(journal):
        await journal.write(RestoreSession(past))
        return await read_through(journal, "records"), await read_through(journal, "commands")

    (records, of_records), (commands, of_commands) = run(work)

    assert (records, commands) == (seqs(past.records), seqs(past.commands))
    assert of_records == [HISTORY_ITEMS_MAX + 1, HISTORY_ITEMS_MAX + 1, 3]
    assert of_commands == [HISTORY_ITEMS_MAX + 1, 1]


def test_no_part_reads_more_bytes_than_an_answer_has(run):
    """But for one row, which may be larger than an answer is."""
    past = past_of([9, PAST_BYTES_MAX, 9, 9, 9])

    async def work(journal):
        await journal.write(RestoreSession(past))
        return await read_through(journal, "records")

    records, read = run(work)

    assert records == seqs(past.records)
    assert read == [2, 2, 3]


def test_parts_are_those_of_the_history(run):
    """With the snapshot that it begins with; what was asked for alone is read."""

    async def work(journal):
        await journal.write(RestoreSession(past_of([9, 9], snapshot=b"state")))
        parts = [
            await journal.read(ReadHistoryPart("s-1", part, 0)) for part in ("spec", "snapshot")
        ]
        parts += [
            await journal.read(ReadHistoryPart("s-1", part, 0)) for part in ("records", "commands")
        ]
        return (
            await journal.read(ReadHistory("s-1")),
            parts,
            await journal.read(ReadHistoryPart("s-9", "spec", 0)),
        )

    whole, (spec, snapshot, records, commands), unknown = run(work)

    assert {one.snapshot_seq for one in (spec, snapshot, records, commands)} == {whole.snapshot_seq}
    assert spec.row == whole.row
    assert [one.snapshot for one in (snapshot, records)] == [whole.snapshot, b""]
    assert (records.records, records.commands) == (whole.records, ())
    assert (commands.records, commands.commands) == ((), whole.commands)
    assert unknown is None
