"""What a session says of itself and what its agent remembers, before its last kill and after it.

The agent is killed while it rests, so the next one must remember all that it did. Both memories are
those of running processes; nothing here knows how the one is made from the journal.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from cmdc_runtime.client.session import AsyncSession
from cmdc_runtime.commands import Status
from cmdc_runtime.messages import Message
from scripts.soak import inside

OF_A_PROCESS: Final = frozenset({"pid", "activity", "waiters", "work"})
"""What of a memory belongs to one process: its work under way, of which there is none at rest."""
OF_A_MOMENT: Final = frozenset(
    {"pid", "incarnation", "restarts", "uptime_ms", "timestamp_ms", "last_index", "active_at_ms"}
)
"""What of a status is another one after a restart."""
SHOWN_CHARS_MAX: Final = 160
"""Of each of two values that should be equal."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """A session that rests (Any: plain values, by the names of the memory's fields)."""

    status: Status
    messages: tuple[Message, ...]
    memory: Mapping[str, Any]

    @property
    def is_whole(self) -> bool:
        """Whether it is one process that said and wrote all of it, and no subagent goes on."""
        is_one = self.status.pid is None or self.status.pid == self.memory["pid"]
        return is_one and not self.memory["children"]


async def recall(session: AsyncSession, memories: Path) -> Recalled:
    """Return what a session that rests says and remembers; its agent writes in ``memories``."""
    messages = await session.messages()
    status = await session.status()
    return Recalled(status, tuple(messages), inside.read(memories, str(status.session_id)))


def differences(before: Recalled, after: Recalled) -> list[str]:
    """Return what the process after the last kill does not have as the one before it had it."""
    found = [*_compared("the rebuilt", before.memory, after.memory, OF_A_PROCESS)]
    one, other = map(msgspec.structs.asdict, (before.status, after.status))
    found += _compared("the status's", one, other, OF_A_MOMENT)
    if before.messages != after.messages:
        found.append(f"the conversation is another: {_shown(before.messages, after.messages)}")
    if after.status.incarnation <= before.status.incarnation:
        found.append(f"incarnation {after.status.incarnation} follows {before.status.incarnation}")
    return found


def _compared(
    whose: str, before: Mapping[str, Any], after: Mapping[str, Any], apart: frozenset[str]
) -> Iterator[str]:
    for name in sorted((before.keys() | after.keys()) - apart):
        one, other = before.get(name), after.get(name)
        if one != other:
            yield f"{whose} {name} is not as it was: {_shown(one, other)}"


def _shown(before: Any, after: Any) -> str:
    """Return two values where they begin to differ."""
    one, other = str(before), str(after)
    same = next(
        (at for at, pair in enumerate(zip(one, other, strict=False)) if len({*pair}) > 1), 0
    )
    first = max(0, same - SHOWN_CHARS_MAX // 4)
    return " is now ".join(text[first : first + SHOWN_CHARS_MAX] for text in (one, other))
