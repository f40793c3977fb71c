"""What of a session's life is written down: an agent's memory is the fold of these.

To add a record: one class here and its case in ``workers/core/rebuild.py``; a test says which is
missing. A field is only ever added, with a default: old journals must stay readable.
"""

from typing import Any, Final, Literal

import msgspec

from cmdc_runtime.ids import CallId, CommandId, Incarnation
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.reasons import snake

OutcomeKind = Literal["finished", "aborted", "failed", "dropped"]


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag=snake):
    """Base of all records."""


class PromptQueued(Record, frozen=True, kw_only=True):
    """A prompt was accepted while a cycle ran."""

    command_id: CommandId
    text: str


class CycleStarted(Record, frozen=True, kw_only=True):
    """A cycle began with ``text`` as the user's message; the prompt leaves the queue."""

    command_id: CommandId
    text: str
    at_ms: int


class Said(Record, frozen=True, kw_only=True):
    """An answer, or what there was of it, was added to the conversation."""

    message: Message


class TurnSpent(Record, frozen=True, kw_only=True):
    """A request was answered and used this much."""

    usage: TokenUsage


class ToolStarted(Record, frozen=True, kw_only=True):
    """One call is about to run."""

    call_id: CallId
    at_ms: int


class ToolEnded(Record, frozen=True, kw_only=True):
    """One call has its result."""

    message: Message


class CycleEnded(Record, frozen=True, kw_only=True):
    """A cycle is over."""

    command_id: CommandId
    outcome: OutcomeKind
    reason: str | None = None


class PromptDiscarded(Record, frozen=True, kw_only=True):
    """A queued prompt was dropped by an abort."""

    command_id: CommandId


class Resumed(Record, frozen=True, kw_only=True):
    """A new process went on with the running cycle; counts its crashes."""

    incarnation: Incarnation


RECORDS: Final[tuple[type[Record], ...]] = tuple(Record.__subclasses__())
_decoder: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(
    PromptQueued
    | CycleStarted
    | Said
    | TurnSpent
    | ToolStarted
    | ToolEnded
    | CycleEnded
    | PromptDiscarded
    | Resumed
)  # Any: the union; mypy has no name for it


def decode_record(body: bytes) -> Record:
    """Return the record that ``body`` holds.

    Raises:
        msgspec.DecodeError: it holds none.
    """
    try:
        record = _decoder.decode(body)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(f"not a record: {error}") from error
    assert isinstance(record, Record)  # noqa: S101 - the decoder's union guarantees it
    return record
