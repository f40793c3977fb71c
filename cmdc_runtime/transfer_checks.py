"""What a session's file must be before any of it is kept: numbers, order, ids and bodies.

Who reads a file asks here, the program that sends it and the daemon that takes it alike. What
passes can be written to a journal and taken over from it. What only the agent can tell, whether a
record or a command means something to it, is left to the agent: every body is one whole value in
MessagePack, so it harms nobody but the session that it is of.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from cmdc_runtime.checkpoints import CHECKPOINTS_MAX, facts_problem
from cmdc_runtime.codec import decode_as, is_answer
from cmdc_runtime.errors import ProtocolError, UsageError
from cmdc_runtime.ids import is_session_id
from cmdc_runtime.plain import packed_problem, text_problem, whole_problem
from cmdc_runtime.ranges import (
    COUNT_MAX,
    INCARNATION_MAX,
    INDEX_MAX,
    NAME_CHARS_MAX,
    TIME_MS_MAX,
)
from cmdc_runtime.requests import Origin, PastCommand, PastRecord, ReplayedBatch, StartSession
from cmdc_runtime.transfer import CheckpointPart, Header, Whole

VALUES_MAX: Final = 2_000_000
"""Of one body, such as a snapshot of 8 MiB; looking at so many takes about a second."""
_HEADER: Final = (
    ("exported_ms", 0, TIME_MS_MAX),
    ("created_ms", 0, TIME_MS_MAX),
    ("incarnation", 1, INCARNATION_MAX),
    ("restarts", 0, INCARNATION_MAX),
    ("last_index", 0, INDEX_MAX),
    ("snapshot_seq", 0, INDEX_MAX),
)
_BATCH: Final = (("first", 1, INDEX_MAX), ("count", 1, COUNT_MAX))


def check_whole(whole: Whole) -> StartSession:
    """Return the definition of the session of a file that may be kept.

    Raises:
        UsageError: it may not; the message names the first thing that is wrong, and its place.
    """
    problem = next(_problems(whole), None)
    if problem is not None:
        raise UsageError(f"the file's session cannot be kept: {problem}")
    return _spec_of(whole.header.spec)


def _problems(whole: Whole) -> Iterator[str]:
    header = whole.header
    yield from _header_problems(header)
    if not whole.snapshot and header.snapshot_seq:
        yield f"header: snapshot_seq: {header.snapshot_seq}, and there is no snapshot"
    yield from _record_problems(whole.records, header)
    yield from _command_problems(whole.commands)
    yield from _order_problems(whole)
    yield from _event_problems(whole.events, header)
    yield from _checkpoint_problems(whole.checkpoints)
    yield from _body_problems(whole)


def _header_problems(header: Header) -> Iterator[str]:
    if not is_session_id(header.session_id):
        yield f"header: session_id: no session can be called {header.session_id[:80]!r}"
    yield from _number_problems(header, _HEADER, "header")
    try:
        spec = _spec_of(header.spec)
    except UsageError as error:
        yield f"header: {error}"
        return
    yield from _spec_problems(spec, header)


def _spec_problems(spec: StartSession, header: Header) -> Iterator[str]:
    """Yield what is wrong with a definition; whose child it was is no matter: it becomes a root."""
    origin = Origin(session_id=spec.session_id) if spec.origin is None else spec.origin
    named = (("parent_id", spec.parent_id), ("origin", origin.session_id))
    for name, session_id in (("session_id", spec.session_id), *named):
        if session_id is not None and not is_session_id(session_id):
            yield f"header: spec: {name}: no session can be called {session_id[:80]!r}"
    if spec.session_id != header.session_id:
        yield f"header: spec: session_id: {spec.session_id!r}, and the file is of another session"
    names = (
        ("group_id", spec.group_id),
        ("start_id", spec.start_id or None),
        ("origin", origin.checkpoint_id),
    )
    for name, value in names:
        if value is not None and (wrong := _name_problem(value)) is not None:
            yield f"header: spec: {name}: {wrong}"
    if spec.parent_incarnation is not None:
        wrong = whole_problem(spec.parent_incarnation, 1, INCARNATION_MAX)
        if wrong is not None:
            yield f"header: spec: parent_incarnation: {wrong}"


def _spec_of(data: bytes) -> StartSession:
    try:
        spec: StartSession = decode_as(StartSession, data)
    except ProtocolError as error:
        raise UsageError(f"spec: the session's definition cannot be read here: {error}") from error
    return spec


def _record_problems(records: Sequence[PastRecord], header: Header) -> Iterator[str]:
    ranges = (("seq", header.snapshot_seq + 1, INDEX_MAX), ("incarnation", 0, header.incarnation))
    for at, one in enumerate(records):
        yield from _number_problems(one, ranges, f"records[{at}]")
        if (wrong := _name_problem(one.kind)) is not None:
            yield f"records[{at}]: kind: {wrong}"


def _command_problems(commands: Sequence[PastCommand]) -> Iterator[str]:
    seen: set[str] = set()
    for at, one in enumerate(commands):
        place = f"commands[{at}]"
        yield from _number_problems(one, (("seq", 1, INDEX_MAX), ("at_ms", 0, TIME_MS_MAX)), place)
        if (wrong := _name_problem(one.id)) is not None:
            yield f"{place}: id: {wrong}"
        if one.id in seen:
            yield f"{place}: id: {one.id[:80]!r} is that of an earlier one"
        seen.add(one.id)
        if one.answer is not None and not is_answer(one.answer, one.id):
            yield f"{place}: answer: it is no answer to this command"


def _order_problems(whole: Whole) -> Iterator[str]:
    """Yield where records and commands do not count as one, each from one to the next."""
    for name, rows in (("records", whole.records), ("commands", whole.commands)):
        yield from _unordered((one.seq for one in rows), name)
    shared = {one.seq for one in whole.records} & {one.seq for one in whole.commands}
    if shared:
        yield f"commands: seq: {min(shared)} is that of a record, too"


def _unordered(numbers: Iterable[int], name: str) -> Iterator[str]:
    before = 0
    for at, number in enumerate(numbers):
        if number <= before:
            yield f"{name}[{at}]: seq: {number} comes behind {before}"
        before = number


def _event_problems(events: Sequence[ReplayedBatch], header: Header) -> Iterator[str]:
    last = 0
    for at, one in enumerate(events):
        place = f"events[{at}]"
        yield from _number_problems(one, _BATCH, place)
        if one.first <= last:
            yield f"{place}: first: {one.first} comes behind {last}"
        last = one.first + one.count - 1
        if last > header.last_index:
            yield f"{place}: it ends with {last}, and last_index is {header.last_index}"


def _checkpoint_problems(parts: Sequence[CheckpointPart]) -> Iterator[str]:
    if len(parts) > CHECKPOINTS_MAX:
        yield f"checkpoints: {len(parts):,} of them, and a session has {CHECKPOINTS_MAX:,} at most"
    for at, one in enumerate(parts):
        if (wrong := facts_problem(one.facts, one.body)) is not None:
            yield f"checkpoints[{at}]: {wrong}"


def _body_problems(whole: Whole) -> Iterator[str]:
    for place, body in _bodies(whole):
        if (wrong := packed_problem(body, values_max=VALUES_MAX)) is not None:
            yield f"{place}: {wrong}"


def _bodies(whole: Whole) -> Iterator[tuple[str, bytes]]:
    """Yield everything that only an agent opens, with its place."""
    yield "header: spec", whole.header.spec
    if whole.snapshot:
        yield "snapshot", whole.snapshot
    rows: tuple[tuple[str, Sequence[Any]], ...] = (  # Any: each has a body
        ("records", whole.records),
        ("commands", whole.commands),
        ("events", whole.events),
        ("checkpoints", whole.checkpoints),
    )
    for name, holders in rows:
        yield from ((f"{name}[{at}]: body", one.body) for at, one in enumerate(holders))


def _number_problems(
    holder: object, ranges: Iterable[tuple[str, int, int]], place: str
) -> Iterator[str]:
    for name, low, high in ranges:
        if (wrong := whole_problem(getattr(holder, name), low, high)) is not None:
            yield f"{place}: {name}: {wrong}"


def _name_problem(name: str) -> str | None:
    if not name:
        return "it is empty"
    return text_problem(name, chars_max=NAME_CHARS_MAX, one_line=True)
