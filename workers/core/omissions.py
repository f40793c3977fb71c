"""What of a session's journal is left out when its memory is rebuilt, and why.

A record, or the snapshot, is left out where it has killed processes that read it, where it cannot
be read, where it cannot be after those before it, or where it holds what no process of today could
bear. A ``SetAside`` record names it from then on by its digest, so that it is left out again
wherever the history goes: in the next process, a fork, another daemon. It stays in the journal.
What leans on it and cannot be taken without it is left out as well. What a newer program wrote is
not left out: the start is refused. Of rows that are gone the daemon says where, and which: so the
hole is named in the same way.

Tools are foreign code, which runs when it is unpacked. One that has killed processes is left out in
the same way, by the digest of its packed code, whether it came with the definition or was attached.
So is the ``session_start`` of a plugin that kills there.

Steps of rebuilding are numbered as in ``cmdc_runtime.heartbeats``: 0 is the snapshot, then the
records, and far behind them the packed code and the ``session_start`` of plugins.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from cmdc_runtime import packed_code, plain
from cmdc_runtime.checkpoints import is_newer
from cmdc_runtime.commands import Command
from cmdc_runtime.errors import CheckpointUnreadable
from cmdc_runtime.heartbeats import SNAPSHOT_STEP, greeting_step, packed_step
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.wire.frames import MISPLACED, MISSING
from workers.core.evolve import CODE, GREETING, TOOL, ContradictionError, evolve
from workers.core.records import (
    RECORDS,
    ApprovalRequested,
    Continued,
    CycleStarted,
    MessageAdded,
    PluginOrdered,
    PromptQueued,
    Record,
    SetAside,
    ToolEnded,
    ToolsChanged,
    UserAnswered,
    decode_record,
)
from workers.core.state import Memory

SNAPSHOT: Final = "snapshot"
"""What stands for the kind of a record where the snapshot is left out."""
DIGEST_BYTES: Final = 16
WHY_CHARS_MAX: Final = 500
"""Of why something was set aside."""
KILLED: Final = "processes that read it have died of it"
OPENED: Final = "processes that opened it have died of it; it came with {}"
"""Of a tool; the text names what it came with."""
DIED_AT_SESSION_START: Final = "processes in which it heard session_start have died of that"
"""Of a plugin."""
BROUGHT: Final = "processes that opened {!r}, which it brings, have died of it"
"""Of a command; the text names its packed code."""
MALFORMED: Final = "it cannot be read: {}"
"""Of a record or the snapshot; the text has the decoder's own words."""
OUT_OF_PLACE: Final = "its number is damaged, so that its place among the others is not known"
"""Of a record that could be read."""
UNNAMED: Final = "record"
"""What stands for the kind of a record whose row names none."""
NEWER: Final = (
    "a record is of the kind {!r}, which this program does not know: use the program that wrote "
    "it, or a newer one"
)
LEANS: Final = "it leans on what was set aside: {}"
CONTRADICTS: Final = "the journal is damaged, since this cannot be after what is before it: {}"
"""Of a record that could be read, with nothing left out before it; the text says what is wrong."""
MISSES: Final = "the journal is damaged: of its rows, records and commands, these are gone: {}"
"""Of what stands in the place of rows that are not there."""


def _of_prompt(record: CycleStarted | PromptQueued) -> list[object]:
    call = {} if record.call is None else record.call.arguments
    return [record.metadata, call, record.response_format]


# Any: each function takes the record of its own row.
_FOREIGN: Final[Mapping[type[Record], Callable[[Any], object]]] = {
    MessageAdded: lambda record: [
        record.message.metadata,
        *(call.arguments for call in record.message.tool_calls),
    ],
    ToolEnded: lambda record: record.message.metadata,
    ApprovalRequested: lambda record: record.args,
    UserAnswered: lambda record: record.response,
    PluginOrdered: lambda record: record.payload,
    CycleStarted: _of_prompt,
    PromptQueued: _of_prompt,
}
"""What of a record came from outside and may nest. An older program had no limit for it."""


_KINDS: Final = frozenset(str(kind.__struct_config__.tag) for kind in RECORDS)
_KIND: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""How a program names a kind of record."""


class _Head(msgspec.Struct, frozen=True):
    record: str


def digest_of(body: bytes) -> str:
    """Return what names a record or a snapshot."""
    return hashlib.blake2b(body, digest_size=DIGEST_BYTES).hexdigest()


def set_aside(kind: str, body: bytes, why: str) -> SetAside:
    """Return the record that something is left out from now on; ``kind`` is its row's."""
    what = kind if kind in _KINDS or kind == SNAPSHOT else UNNAMED
    return SetAside(
        digest=digest_of(body), what=what, why=plain.without_controls(why)[:WHY_CHARS_MAX]
    )


def read_records(
    bodies: Iterable[tuple[str, bytes]], killing: frozenset[int], at: Callable[[int], None]
) -> tuple[tuple[Record, ...], tuple[SetAside, ...]]:
    """Return the records that ``bodies``, with their kinds, hold, and what is newly left out.

    In the place of each that is left out stands its ``SetAside``, which changes nothing by itself.
    ``at`` is called before each step.

    Raises:
        msgspec.DecodeError: one is a newer program's; the text names it.
    """
    rows = list(bodies)
    tag = str(SetAside.__struct_config__.tag)
    known_before = (_decoded(kind, body) for kind, body in rows if kind == tag)
    known = {one.digest: one for one in known_before if isinstance(one, SetAside)}
    records: list[Record] = []
    new: list[SetAside] = []
    for step, (kind, body) in enumerate(rows, SNAPSHOT_STEP + 1):
        left: Record | None = known.get(digest_of(body)) if known else None
        if left is None and step in killing:
            left = set_aside(kind, body, KILLED)
            new.append(left)
        elif left is None:
            at(step)
            left = _read(kind, body, new)
        records.append(left)
    return tuple(records), tuple(new)


def kills(packed: Packed, killing: frozenset[int]) -> bool:
    """Say whether opening this packed code is among the steps that are to be left out."""
    return bool(killing) and packed_step(packed_code.digest_of(packed)) in killing


def killing_code(command: Command, killing: frozenset[int]) -> Packed | None:
    """Return the first packed code of a command that kills who opens it, None without any."""
    if not killing:
        return None
    parts = (getattr(command, name) for name in command.__struct_fields__)
    fields = (one for part in parts for one in (part if isinstance(part, tuple) else (part,)))
    found = (one for one in fields if isinstance(one, Packed) and kills(one, killing))
    return next(found, None)


def tools_left_out(records: Iterable[Record]) -> frozenset[str]:
    """Return the digests of the tools that ``records`` set aside."""
    known_before = (one for one in records if isinstance(one, SetAside))
    return frozenset(one.digest for one in known_before if one.what == TOOL)


def set_tool_aside(packed: Packed, name: str, came_with: str) -> SetAside:
    """Return the record that a tool, of this name, is left out from now on."""
    why = OPENED.format(came_with)[:WHY_CHARS_MAX]
    return SetAside(digest=packed_code.digest_of(packed), what=TOOL, why=why, name=name)


def session_starts_set_aside(memory: Memory, killing: frozenset[int]) -> tuple[SetAside, ...]:
    """Return what is to be recorded of the plugins whose ``session_start`` is such a step."""
    if not killing:
        return ()
    digests = [
        (one.name, packed_code.digest_of(one.packed)) for one in memory.plugins if one.packed
    ]
    return tuple(
        SetAside(digest=digest, what=GREETING, why=DIED_AT_SESSION_START, name=name)
        for name, digest in digests
        if greeting_step(digest) in killing
    )


def came_with(packed: Packed, records: Iterable[Record]) -> str:
    """Return what brought a tool that the definition has not: a record, or the state before it."""
    for record in records:
        brought = record.attached if isinstance(record, ToolsChanged) else ()
        if isinstance(record, Continued):
            brought = record.tools or ()
        if any(one.packed == packed for one in brought):
            return f"the record {record.__struct_config__.tag}"
    return "the saved state"


def naming(snapshot: bytes, records: Iterable[Record]) -> SetAside | None:
    """Return the record of ``records`` that sets this snapshot aside, None without one."""
    named = [one for one in records if isinstance(one, SetAside) and one.what == SNAPSHOT]
    if not named:
        return None
    digest = digest_of(snapshot)
    return next((one for one in named if one.digest == digest), None)


def is_left_out(snapshot: bytes, records: Iterable[Record]) -> bool:
    """Say whether a record of ``records`` sets this snapshot aside."""
    return naming(snapshot, records) is not None


def damage_of(snapshot: bytes, error: CheckpointUnreadable) -> SetAside:
    """Return the record that a snapshot which raised this is left out from now on.

    Raises:
        CheckpointUnreadable: it is a newer program's.
    """
    if is_newer(snapshot):
        raise error
    return set_aside(SNAPSHOT, snapshot, MALFORMED.format(error))


def _read(kind: str, body: bytes, new: list[SetAside]) -> Record:
    """Return the record of a row; or what stands for it, which is added to ``new``.

    Raises:
        msgspec.DecodeError: it is a newer program's.
    """
    found = _decoded(kind, body)
    if isinstance(found, str):
        found = set_aside(kind, body, found)
        new.append(found)
    return found


def _decoded(kind: str, body: bytes) -> Record | str:
    """Return the record of a row, or why it is left out."""
    if kind == MISPLACED:
        return OUT_OF_PLACE
    if kind == MISSING:
        return MISSES.format(body.decode(errors="replace"))
    try:
        record = decode_record(body)
    except msgspec.DecodeError as error:
        if isinstance(error.__cause__, RecursionError):
            return plain.TOO_DEEP
        if _is_of_newer(kind, body):
            raise msgspec.DecodeError(NEWER.format(kind)) from error
        return MALFORMED.format(error)
    foreign = _FOREIGN.get(type(record))
    if foreign is not None and plain.nests_deeper(foreign(record), plain.DEPTH_MAX + 1):
        return plain.TOO_DEEP
    return plain.PACKED_TOO_DEEP if plain.packed_nests_too_deep(body) else record


def _is_of_newer(kind: str, body: bytes) -> bool:
    """Say whether a newer program made this: it is whole, and says the kind that its row does."""
    if kind in _KINDS or not _KIND.fullmatch(kind):
        return False
    if plain.packed_problem(body, values_max=plain.VALUES_MAX) is not None:
        return False
    try:
        return msgspec.msgpack.decode(body, type=_Head).record == kind
    except msgspec.DecodeError:
        return False


def fold(
    memory: Memory, records: Sequence[Record], at: Callable[[int], None]
) -> tuple[Memory, tuple[SetAside, ...]]:
    """Return ``memory`` after ``records``, and what of them is newly left out.

    That is what contradicts those before it, and what leans on something that is left out. ``at``
    is called before each step. Without either, what cannot be taken is an error.
    """
    new: list[SetAside] = []
    known_before = {one.digest for one in records if isinstance(one, SetAside)}
    is_torn = False
    for step, record in enumerate(records, SNAPSHOT_STEP + 1):
        if isinstance(record, SetAside):
            is_torn = is_torn or record.what not in CODE  # nothing leans on that
            memory = evolve(memory, record)
            continue
        at(step)
        try:
            memory = evolve(memory, record)
        except ContradictionError as error:
            new.append(_left_out(record, (LEANS if is_torn else CONTRADICTS).format(error)))
            is_torn = True
        except Exception as error:
            if not is_torn:
                raise
            new.append(_left_out(record, LEANS.format(type(error).__name__)))
    # By its row's bytes one that was named is known before; these may be others of the same record.
    return memory, tuple(one for one in new if one.digest not in known_before)


def _left_out(record: Record, why: str) -> SetAside:
    kind = str(record.__struct_config__.tag)
    return set_aside(kind, msgspec.msgpack.encode(record), why)
