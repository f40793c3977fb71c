"""Checkpoints: what is known of one, and what its bytes are.

The same bytes are a session's snapshot in the journal, there without the definition of the agent.
Only agents make and read the ``state``; for everybody else it is opaque. A field is only ever
added, with a default. What an older program must not read raises ``SCHEMA_VERSION``.
"""

import re
from typing import Any, Final

import msgspec

from cmdc_runtime.checked_struct import TIME_MS_MAX, Checked
from cmdc_runtime.errors import CheckpointUnreadable, UsageError
from cmdc_runtime.ids import SessionId
from cmdc_runtime.plain import (
    own,
    owned,
    packed_problem,
    problem_of,
    short,
    text_problem,
    whole_problem,
)
from cmdc_runtime.redaction import printed, printed_fields

SCHEMA_VERSION: Final = 1
CHECKPOINT_BYTES_MAX: Final = 64 * 2**20
"""Of a state with its definition: as much as waits for the journal at a time."""
LABEL_CHARS_MAX: Final = 256
METADATA_BYTES_MAX: Final = 16 * 1024
METADATA_SLACK_BYTES: Final = 1024
"""For what an agent adds to the metadata of whoever asked."""
SCHEMA_VERSION_MAX: Final = 2**31 - 1
CHECKPOINTS_MAX: Final = 1_000
"""Of one session; the next one is refused until some are deleted."""
CHECKPOINT_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """One checkpoint of a session; times are milliseconds.

    ``state`` is what the session remembers, as plain values, and None where only the facts were
    asked for. ``stripped_fields`` are what a process has for itself, and the next one makes anew.
    ``problem`` says why the facts of a checkpoint in a list cannot be read, None where it can.
    """

    __repr__ = printed
    __rich_repr__ = printed_fields

    checkpoint_id: str
    session_id: SessionId
    label: str | None
    saved_at_ms: int
    schema_version: int
    metadata: dict[str, Any] = {}  # Any: whoever made it put it there
    stripped_fields: tuple[str, ...] = ()
    state: dict[str, Any] | None = None  # Any: a field of the state by its name
    problem: str | None = None


class KeptCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint as a backend of the application's own has it."""

    snapshot: Snapshot
    body: bytes


class SavedState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a session is made of.

    ``agent`` is its definition, encoded, and ``group_id`` its group; the journal's own snapshots do
    without, since the definition stands beside them.
    """

    schema_version: int
    state: msgspec.Raw
    agent: bytes = b""
    group_id: str | None = None
    stripped_fields: tuple[str, ...] = ()


class CheckpointWish(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller says of a checkpoint to be made."""

    label: str | None
    metadata: dict[str, Any]  # Any: whatever MessagePack takes


def checkpoint_facts(label: object, metadata: object) -> CheckpointWish:
    """Return what a caller says of a checkpoint, checked.

    Values of classes of the caller's own are what they hold; what would be read back as something
    else, as a tuple or a date, is refused.

    Raises:
        UsageError: it cannot be kept beside a checkpoint.
    """
    label, given = own(label), {} if metadata is None else own(metadata)
    if label is not None and (wrong := _label_problem(label)) is not None:
        raise UsageError(f"label: {wrong}")
    if not isinstance(given, dict) or not all(isinstance(key, str) for key in given):
        raise UsageError("metadata: expected a dict with names as keys")
    wrong = problem_of(given, (dict, list))
    given = given if wrong is not None else owned(given)
    if (wrong := wrong or _change(given)) is not None:
        raise UsageError(f"metadata: {wrong.removeprefix(': ')}")
    size = len(encode_facts(given, ()))
    if size > METADATA_BYTES_MAX:
        raise UsageError(f"metadata: takes {size:,} bytes, at most {METADATA_BYTES_MAX:,} fit")
    kept: Any = label  # Any: it was checked
    return CheckpointWish(label=kept, metadata=given)


def _change(value: Any) -> str | None:  # Any: what ``problem_of`` has nothing against
    """Return what of a value would be read back as something else, with its place, or None."""
    if isinstance(value, bytearray | msgspec.Raw):
        return f": a {type(value).__name__} is no plain value"
    holds = isinstance(value, dict | list)
    parts = value.items() if isinstance(value, dict) else enumerate(value if holds else ())
    found = ((key, _change(part)) for key, part in parts)
    return next((f"[{short(key)}]{wrong}" for key, wrong in found if wrong is not None), None)


class CheckpointFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint as it is kept, without its body; only ``snapshot_of`` opens ``metadata``."""

    session_id: SessionId
    checkpoint_id: str
    label: str | None
    saved_ms: int
    schema_version: int
    metadata: bytes


def checkpoint_id_problem(checkpoint_id: object) -> str | None:
    """Return why no checkpoint can be called so, or None."""
    if isinstance(checkpoint_id, str) and CHECKPOINT_ID.fullmatch(checkpoint_id):
        return None
    return f"checkpoint_id: expected 1 to 128 of A-Z a-z 0-9 _ . : -, got {short(checkpoint_id)}"


def facts_problem(facts: CheckpointFacts, body: bytes) -> str | None:
    """Return why a checkpoint with these facts may not be kept, or None."""
    if (wrong := checkpoint_id_problem(facts.checkpoint_id)) is not None:
        return wrong
    if facts.label is not None and (wrong := _label_problem(facts.label)) is not None:
        return f"label: {wrong}"
    for name, high in (("saved_ms", TIME_MS_MAX), ("schema_version", SCHEMA_VERSION_MAX)):
        if (wrong := whole_problem(getattr(facts, name), 0, high)) is not None:
            return f"{name}: {wrong}"
    if len(body) > CHECKPOINT_BYTES_MAX:
        return f"body: {len(body):,} bytes, at most {CHECKPOINT_BYTES_MAX:,} are kept"
    wrong = _unkept(facts.metadata)
    return None if wrong is None else f"metadata: {wrong}"


def _unkept(metadata: bytes) -> str | None:
    """Return why these metadata may not be kept, or None."""
    if len(metadata) > METADATA_BYTES_MAX + METADATA_SLACK_BYTES:
        return f"{len(metadata):,} bytes, at most {METADATA_BYTES_MAX:,} are kept"
    return packed_problem(metadata, values_max=len(metadata)) or _metadata_problem(metadata)


def _label_problem(label: object) -> str | None:
    if not (isinstance(label, str) and 0 < len(label) <= LABEL_CHARS_MAX):
        shown = type(label).__name__ if not isinstance(label, str) else f"{len(label)} characters"
        return f"expected a str of 1 to {LABEL_CHARS_MAX} characters, got {shown}"
    return text_problem(label, chars_max=LABEL_CHARS_MAX, one_line=True)


class _Metadata(msgspec.Struct, frozen=True, kw_only=True):
    metadata: dict[str, Any] = {}  # Any: whatever MessagePack takes
    stripped_fields: tuple[str, ...] = ()


_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode_facts(metadata: dict[str, Any], stripped_fields: tuple[str, ...]) -> bytes:
    """Return the facts of a checkpoint beside its own fields."""
    return msgspec.msgpack.encode(_Metadata(metadata=metadata, stripped_fields=stripped_fields))


def _metadata_problem(packed: bytes) -> str | None:
    try:
        msgspec.msgpack.decode(packed, type=_Metadata)
    except _UNREADABLE as error:
        return str(error)
    return None


def movable(facts: CheckpointFacts) -> CheckpointFacts:
    """Return facts that a file may hold: metadata that may not be kept are bytes in them."""
    if _unkept(facts.metadata) is None:
        return facts
    kept = facts.metadata[:METADATA_BYTES_MAX]
    return msgspec.structs.replace(facts, metadata=encode_facts({"unreadable": kept}, ()))


def listed_snapshot(facts: CheckpointFacts) -> Snapshot:
    """Return a checkpoint as it is listed; one that cannot be read hides none of the others."""
    if (problem := _metadata_problem(facts.metadata)) is None:
        return snapshot_of(facts)
    readable = msgspec.structs.replace(facts, metadata=encode_facts({}, ()))
    return msgspec.structs.replace(
        snapshot_of(readable), problem=f"its metadata cannot be read: {problem}"
    )


def snapshot_of(facts: CheckpointFacts, body: bytes = b"") -> Snapshot:
    """Return a checkpoint for people, with its state where there is a ``body``.

    Raises:
        CheckpointUnreadable: what is kept of it is damaged, or of a newer program.
    """
    try:
        held = msgspec.msgpack.decode(facts.metadata, type=_Metadata)
    except _UNREADABLE as error:
        raise CheckpointUnreadable(f"checkpoint {facts.checkpoint_id}: {error}") from error
    return Snapshot(
        checkpoint_id=facts.checkpoint_id,
        session_id=facts.session_id,
        label=facts.label,
        saved_at_ms=facts.saved_ms,
        schema_version=facts.schema_version,
        metadata=held.metadata,
        stripped_fields=held.stripped_fields,
        state=plain_state(read_saved(body)) if body else None,
    )


class _Head(msgspec.Struct, frozen=True):
    schema_version: int


def _version_of(body: bytes) -> int:
    return msgspec.msgpack.decode(body, type=_Head).schema_version


def is_newer(body: bytes) -> bool:
    """Say whether a checkpoint or a snapshot is of a newer schema than this program reads."""
    try:
        return _version_of(body) > SCHEMA_VERSION
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def read_saved(body: bytes) -> SavedState:
    """Return what a checkpoint or a snapshot holds.

    Raises:
        CheckpointUnreadable: it is of a newer schema, or damaged.
    """
    try:
        version = _version_of(body)
        if version > SCHEMA_VERSION:
            raise CheckpointUnreadable(
                f"the snapshot is of schema version {version}, and this program reads up to "
                f"{SCHEMA_VERSION}: use the program that wrote it, or a newer one"
            )
        return msgspec.msgpack.decode(body, type=SavedState)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointUnreadable(f"the snapshot is damaged: {error}") from error


def plain_state(saved: SavedState) -> dict[str, Any]:  # Any: a field of the state by its name
    """Return the state as plain values.

    Raises:
        CheckpointUnreadable: it is damaged.
    """
    try:
        state: dict[str, Any] = msgspec.msgpack.decode(saved.state, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointUnreadable(f"the snapshot is damaged: {error}") from error
    return state
