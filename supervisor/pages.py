"""A session's past in parts of bounded size. Pure."""

from collections.abc import Callable, Mapping
from typing import Final

from cmdc_runtime.requests import PastCommand, PastPage, PastPart, PastRecord
from supervisor.adapters.journal.base import Past
from supervisor.core.limits import HISTORY_ITEMS_MAX, PAST_BYTES_MAX


def page_of(past: Past, part: PastPart, after: int) -> PastPage:
    """Return one part of ``past``, of records and commands those behind ``after``.

    At least one of them, if there is one, and else as many as ``PAST_BYTES_MAX`` and
    ``HISTORY_ITEMS_MAX`` allow.
    """
    return _PARTS[part](past, after)


def _spec(past: Past, _after: int) -> PastPage:
    return PastPage(spec=past.row.spec, snapshot_seq=past.snapshot_seq)


def _snapshot(past: Past, _after: int) -> PastPage:
    return PastPage(snapshot=past.snapshot, snapshot_seq=past.snapshot_seq)


def _records(past: Past, after: int) -> PastPage:
    left = [row for row in past.records if row.seq > after]
    fits = _fitting([len(row.body) for row in left])
    records = tuple(PastRecord(row.seq, row.incarnation, row.kind, row.body) for row in left[:fits])
    return PastPage(records=records, snapshot_seq=past.snapshot_seq, is_last=fits == len(left))


def _commands(past: Past, after: int) -> PastPage:
    left = [row for row in past.commands if row.seq > after]
    fits = _fitting([len(row.body) + len(row.answer or b"") for row in left])
    commands = tuple(
        PastCommand(row.seq, row.command_id, row.at_ms, row.body, row.answer) for row in left[:fits]
    )
    return PastPage(commands=commands, snapshot_seq=past.snapshot_seq, is_last=fits == len(left))


def _fitting(sizes: list[int]) -> int:
    """Return how many of these go into one answer, the first ones."""
    total = 0
    for count, size in enumerate(sizes[:HISTORY_ITEMS_MAX]):
        total += size
        if count and total > PAST_BYTES_MAX:
            return count
    return min(len(sizes), HISTORY_ITEMS_MAX)


_PARTS: Final[Mapping[PastPart, Callable[[Past, int], PastPage]]] = {
    "spec": _spec,
    "snapshot": _snapshot,
    "records": _records,
    "commands": _commands,
}
