"""A memory as bytes and back: a session is rebuilt from these and the records that came after.

What a memory is apart from its policy, which the options give, and from what the running process
has for itself: that a new one finds empty, as after ``replay``. To add a field to ``Memory``, give
it a default and nothing is to be done here, unless it belongs into ``TRANSIENT``.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from cmdc_runtime.checkpoints import SCHEMA_VERSION, SavedState, read_saved
from cmdc_runtime.errors import CheckpointUnreadable
from workers.core.conversation import attached_plugin, attached_tool
from workers.core.evolve import patched
from workers.core.records import Continued, Record, SetAside, field_as
from workers.core.state import Memory, State

SNAPSHOT_RECORDS: Final = 200
"""Records after which the state at the next rest is written as a whole."""
SNAPSHOT_RECORD_BYTES: Final = 2**20
"""The same, in bytes of records."""
SNAPSHOT_SHARE: Final = 4
"""Records must be at least this part of the newest snapshot: so a session writes no more than five
times what it records, however long its conversation is."""
SNAPSHOT_BYTES_MAX: Final = 8 * 2**20
"""Half of what a frame may have; a larger state stays in its records."""

TRANSIENT: Final = (*("activity", "waiters", "waiting_branches", "work"),)
"""What only the running process has a use for."""
_WRITTEN: Final = {"granted": "allowances"}
"""Under which names snapshots have the fields that were called so before."""
STRIPPED: Final = tuple(sorted({"policy", *TRANSIENT}))
"""What of a memory is not in its bytes."""


_FIELDS: Final = tuple(
    field for field in msgspec.structs.fields(Memory) if field.name not in STRIPPED
)
SnapshotFields: Final[type[msgspec.Struct]] = msgspec.defstruct(
    "SnapshotFields",
    [field_as(field, _WRITTEN.get(field.name, field.name)) for field in _FIELDS],
    kw_only=True,
)
"""What the bytes hold."""
_decoder: Final = msgspec.msgpack.Decoder(SnapshotFields)


def encode(memory: Memory) -> bytes:
    """Return ``memory`` as a snapshot of the journal."""
    return msgspec.msgpack.encode(saved(memory))


def saved(memory: Memory) -> SavedState:
    """Return ``memory`` as its snapshot holds it: as the journal could give it."""
    state = {_WRITTEN.get(field.name, field.name): getattr(memory, field.name) for field in _FIELDS}
    return SavedState(
        schema_version=SCHEMA_VERSION,
        state=msgspec.Raw(msgspec.msgpack.encode(state)),
        stripped_fields=STRIPPED,
    )


def conversation_of(memory: Memory) -> Memory:
    """Return a memory that has the conversation of this one and nothing else, as it is now.

    An answer whose calls are open is not in it: nobody has their results.
    """
    messages = patched(memory)
    return Memory(
        messages=messages[:-1] if memory.calls else messages,
        base=memory.base,
        memory_contents=memory.memory_contents,
        sections=memory.sections,
        skills=memory.skills,
        skill_listing=memory.skill_listing,
        system_metadata=memory.system_metadata,
    )


def restore(memory: Memory, snapshot: bytes) -> Memory:
    """Return the memory of ``snapshot`` with the policy of ``memory``; b"" is ``memory`` itself.

    Raises:
        CheckpointUnreadable: it is of a newer schema, or damaged.
    """
    if not snapshot:
        return memory
    state = read_saved(snapshot).state
    try:
        kept = _decoder.decode(state)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointUnreadable(f"the snapshot is damaged: {error}") from error
    values = {field.name: getattr(kept, field.name) for field in _FIELDS}
    return Memory(policy=memory.policy, **values)


def continued(first: Memory, resumption: str, changes: Collection[str]) -> Continued:
    """Return the record that a session goes on with other options.

    ``first`` is what a new session of these options would begin with, ``changes`` are the options
    that were given anew.
    """
    tools, plugins = map(attached_tool, first.tools), map(attached_plugin, first.plugins)
    return Continued(
        resumption=resumption,
        model=first.model if "model" in changes else None,
        provider_opts=first.provider_opts if "provider_opts" in changes else None,
        tools=tuple(tools) if "tools" in changes else None,
        plugins=tuple(plugins) if "plugins" in changes else None,
        mcp_servers=first.mcp_servers if "mcp_servers" in changes else None,
    )


@dataclass(frozen=True, slots=True)
class SessionHistory:
    """What a process gets of its session: a snapshot, b"" for none, and the records after it.

    ``size`` is that of the records, in bytes. ``left_out`` is what is not taken of it any more and
    has still to be recorded.
    """

    snapshot: bytes = b""
    records: tuple[Record, ...] = ()
    size: int = 0
    left_out: tuple[SetAside, ...] = ()

    def unsaved(self) -> "Unsaved":
        """Return what the next snapshot has to hold."""
        return Unsaved(len(self.records), self.size, len(self.snapshot))


@dataclass(frozen=True, slots=True)
class Unsaved:
    """What was recorded since the newest snapshot, and how large that one is, in bytes."""

    records: int = 0
    size: int = 0
    newest: int = 0

    def after(self, records: int, size: int) -> "Unsaved":
        """Return what it is with so many more records of so many bytes."""
        return replace(self, records=self.records + records, size=self.size + size)

    def is_due(self, memory: Memory) -> bool:
        """Say whether the write of a step that leads to ``memory`` is to carry a snapshot.

        Only an idle session is written as a whole: nothing of it is under way then.
        """
        is_much = self.records >= SNAPSHOT_RECORDS or self.size >= SNAPSHOT_RECORD_BYTES
        is_worth_it = self.size * SNAPSHOT_SHARE >= self.newest
        return is_much and is_worth_it and memory.state is State.IDLE and memory.cycle is None
