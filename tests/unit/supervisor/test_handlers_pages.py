"""A session's past cut into answers, and put together again by the client."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmdc_runtime.client.transfer import READS_MAX, read_past
from cmdc_runtime.errors import TransientError
from supervisor.adapters.journal.base import CommandRow, Past, RecordRow, SessionRow
from supervisor.api.handlers import page_of
from supervisor.core.limits import HISTORY_ITEMS_MAX, PAST_BYTES_MAX

ROW = SessionRow(session_id="s", created_ms=1, spec=b"spec")
sizes = st.lists(st.sampled_from([0, 9, PAST_BYTES_MAX // 2, PAST_BYTES_MAX + 1]), max_size=5)


def past_of(record_sizes, command_sizes, snapshot=b""):
    """Return a past with bodies of these sizes; commands and records take turns."""
    count = len(record_sizes)
    records = [
        RecordRow(seq=2 * at + 2, incarnation=1, kind="said", body=bytes(size))
        for at, size in enumerate(record_sizes)
    ]
    commands = [
        CommandRow(command_id=f"c-{at}", seq=2 * at + 3, at_ms=count, body=bytes(size), answer=b"a")
        for at, size in enumerate(command_sizes)
    ]
    return Past(
        row=ROW,
        snapshot=snapshot,
        records=tuple(records),
        commands=tuple(commands),
        snapshot_seq=1 if snapshot else 0,
    )


class Daemon:
    """Answers from one past after the other, the last one again and again."""

    def __init__(self, *pasts):
        self.pasts, self.pages = list(pasts), []

    async def ask(self, request):
        past = self.pasts.pop(0) if len(self.pasts) > 1 else self.pasts[0]
        page = page_of(past, request.part, request.after)
        self.pages.append(page)
        return page


def read(daemon):
    return asyncio.run(read_past(daemon, "s"))


@settings(max_examples=10)
@given(records=sizes, commands=sizes)
def test_the_pages_of_a_past_are_the_whole_of_it(records, commands):
    """Each row comes once, in order, and no answer is larger than it must be."""
    past = past_of(records, commands, snapshot=b"state")
    daemon = Daemon(past)
    whole = read(daemon)

    assert (whole.spec, whole.snapshot, whole.snapshot_seq) == (b"spec", b"state", 1)
    assert [(row.seq, row.body) for row in whole.records] == [
        (row.seq, row.body) for row in past.records
    ]
    assert [(row.seq, row.id, row.answer) for row in whole.commands] == [
        (row.seq, row.command_id, row.answer) for row in past.commands
    ]
    for page in daemon.pages:
        rows = (*page.records, *page.commands)
        assert len(rows) <= 1 or sum(len(row.body) for row in rows) <= PAST_BYTES_MAX


def test_a_page_has_so_many_rows_and_not_more():
    """Also of rows without a byte."""
    past = past_of([0] * (HISTORY_ITEMS_MAX + 1), [])
    first = page_of(past, "records", 0)
    second = page_of(past, "records", first.records[-1].seq)

    assert (len(first.records), first.is_last) == (HISTORY_ITEMS_MAX, False)
    assert (len(second.records), second.is_last) == (1, True)


def test_a_past_that_is_shortened_meanwhile_is_read_anew():
    """What was read before the newer snapshot does not go with what is there after it."""
    before = past_of([9, 9], [], snapshot=b"older")
    after = replace(past_of([9], [], snapshot=b"newer"), snapshot_seq=7)
    whole = read(Daemon(before, before, after))

    assert (whole.snapshot, whole.snapshot_seq) == (b"newer", 7)


def test_a_past_that_is_shortened_again_and_again_is_given_up():
    """The error says what to do."""
    pasts = [replace(past_of([], [], snapshot=b"s"), snapshot_seq=at) for at in range(50)]
    daemon = Daemon(*pasts)
    with pytest.raises(TransientError, match="try again"):
        read(daemon)

    assert len(daemon.pages) == READS_MAX * 4
