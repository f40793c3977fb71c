"""Heartbeats: a table in shared memory with one slot for each worker.

A worker's main loop writes that it turns, what it has used and its activity; the daemon reads that
without a message, and after the worker's death too. ``Slot`` is for the one who writes,
``read`` for the one who reads. The rules:

- All numbers are in the machine's own byte order, since both ends run on one machine. Each is one
  aligned store of eight bytes (``memoryview.cast``), which no processor of ours tears apart. No
  number depends on another one: a reader that sees some of them new and some of them old sees
  nothing wrong.
- The text has many bytes, so it can be read while it is written. Its sequence number is odd
  meanwhile, and its checksum catches what a processor that reorders stores can make of that. A text
  that is torn, or was cut off by the death of its writer, reads as an empty ``Activity``.
- A worker isn't trusted: every content of the memory is a ``Heartbeat``, and none raises.
- Times are nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share, which nobody
  can set, and which stands still while the machine is suspended.

To add a number, take the next word, move ``_TEXT`` behind it, and give it to
``Slot`` and ``Heartbeat``.
"""

import mmap
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

SLOT_BYTES: Final = 512
"""Of what stands in a slot."""
SLOT_MEMORY_BYTES: Final = mmap.PAGESIZE
"""Of the memory that a slot has for itself: 4,000 sessions are 16 MB."""
WORD_BYTES: Final = 8
HEARTBEAT_WORD: Final = 0
"""Which word of a slot is the time of the last heartbeat; 0 means that there was none."""

PERIOD_S_MAX: Final = 5.0
"""Between two heartbeats at most: what is read of a dead process that was at work is no older."""
PERIOD_S_MIN: Final = 0.1
"""Between two heartbeats at least: more would cost more than the work of an idle agent."""
HEARTBEATS_PER_LIMIT: Final = 6
"""Heartbeats in the time after which a process counts as silent: five may be late before it is."""

REBUILDING: Final = "rebuilding"
"""The state of a process that makes its session's memory out of the journal. Its ``turns`` are the
step that it takes next: if it dies, that step is the cause."""
SNAPSHOT_STEP: Final = 0
"""The records after the snapshot are the steps from 1 on."""
DROPPED_STEP: Final = 2**31 - 1
"""The cycle that was to be gone on with is given up, because that has killed processes. What dies
from here on did not die of it."""
RESUME_STEP: Final = 2**31
"""To go on where the last process ended; behind it are the commands that it left unanswered."""
PACKED_STEP: Final = 2**32
"""To open packed code; behind it are the first 48 bits of its digest, so that the step is the same
wherever the code stands, and whatever is left out before it."""
GREETING_STEP: Final = 2**49
"""To call a plugin because the session goes on; behind it is the same of its code's digest."""
_PACKED_DIGITS: Final = 12
STATE_CHARS_MAX: Final = 32
TOOL_CHARS_MAX: Final = 100
"""Of one tool in flight, its name and the call's id: providers' ids have about 30 characters."""
TOOLS_MAX: Final = 16
"""Of the tools in flight: more have no room, and a session runs 8 at once by default."""

_MAX_RSS, _USER, _SYSTEM, _LAST_INDEX, _SEQUENCE, _MARK = range(1, 7)
_TEXT: Final = 7 * WORD_BYTES
TEXT_BYTES_MAX: Final = SLOT_BYTES - _TEXT
_LENGTH_BITS: Final = 16
"""The mark is the text's checksum, and in its lowest bits the text's length."""
READS_MAX: Final = 3
"""Of a text that is being written: a write takes a microsecond, and a stopped one never ends."""
_NUMBER_MAX: Final = 2**63 - 1
"""More than any true number, and what a journal can keep."""


class Activity(msgspec.Struct, frozen=True, array_like=True):
    """What an agent does; ``tools`` are its calls in flight, each as name and call id.

    ``opening`` is the step of the packed code that it opens for a command meanwhile, 0 for none.
    """

    state: str = ""
    turns: int = 0
    tools: tuple[str, ...] = ()
    opening: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used since its start."""

    max_rss_bytes: int = 0
    user_us: int = 0
    system_us: int = 0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What stands in one slot; ``heartbeat_ns`` is 0 where nobody has written yet."""

    heartbeat_ns: int
    usage: Usage
    last_index: int
    activity: Activity


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Activity)


def packed_step(digest: str) -> int:
    """Return the step of opening the packed code of this digest, in hexadecimal digits."""
    return PACKED_STEP + int(digest[:_PACKED_DIGITS], 16)


def greeting_step(digest: str) -> int:
    """Return the step of greeting the plugin whose packed code has this digest."""
    return GREETING_STEP + int(digest[:_PACKED_DIGITS], 16)


def period_for(limit_s: float) -> float:
    """Return the seconds between two heartbeats of a process that may be silent for ``limit_s``."""
    return max(PERIOD_S_MIN, min(PERIOD_S_MAX, limit_s / HEARTBEATS_PER_LIMIT))


class Slot:
    """One slot, for its one writer. Nothing here waits or reads a clock."""

    def __init__(self, memory: memoryview) -> None:
        """Write to ``memory``: ``SLOT_BYTES`` writable bytes that begin at a whole word."""
        self._words = memory[:_TEXT].cast("Q")
        self._text = memory[_TEXT:SLOT_BYTES]
        self._sequence = self._words[_SEQUENCE] & ~1

    def write_heartbeat(self, now_ns: int, usage: Usage) -> None:
        """Write that the writer's loop turns, and what it has used so far."""
        words = self._words
        words[_MAX_RSS] = usage.max_rss_bytes
        words[_USER] = usage.user_us
        words[_SYSTEM] = usage.system_us
        words[HEARTBEAT_WORD] = now_ns

    def repeat_heartbeat(self, now_ns: int) -> None:
        """Write that the writer's loop turns, and has used nothing since the last heartbeat."""
        self._words[HEARTBEAT_WORD] = now_ns

    def index(self, last_index: int) -> None:
        """Write the index of the session's newest event."""
        self._words[_LAST_INDEX] = last_index

    def set_activity(self, activity: Activity) -> None:
        """Write what the writer does, cut so that it fits."""
        text = _fitting(activity)
        words, self._sequence = self._words, self._sequence + 2
        words[_SEQUENCE] = self._sequence - 1
        self._text[: len(text)] = text
        words[_MARK] = _mark(text)
        words[_SEQUENCE] = self._sequence

    def release(self) -> None:
        """Let go of the memory, so that it can be unmapped; what was written stays."""
        self._words.release()
        self._text.release()


def read(memory: memoryview, now_ns: int) -> Heartbeat:
    """Return what the ``SLOT_BYTES`` bytes of a slot say; a heartbeat after ``now_ns`` is now."""
    with memory[:_TEXT].cast("Q") as words:
        heartbeat_ns, max_rss, user, system, last_index = words[: _LAST_INDEX + 1].tolist()
        activity = _read_text(memory, words)
    return Heartbeat(
        heartbeat_ns=min(heartbeat_ns, now_ns),
        usage=Usage(
            max_rss_bytes=min(max_rss, _NUMBER_MAX),
            user_us=min(user, _NUMBER_MAX),
            system_us=min(system, _NUMBER_MAX),
        ),
        last_index=min(last_index, _NUMBER_MAX),
        activity=activity,
    )


def _read_text(memory: memoryview, words: memoryview) -> Activity:
    for _ in range(READS_MAX):
        sequence, mark = words[_SEQUENCE], words[_MARK]
        length = mark % (1 << _LENGTH_BITS)
        text = bytes(memory[_TEXT : _TEXT + length])
        if sequence % 2 == 0 and sequence == words[_SEQUENCE] and _mark(text) == mark:
            return _decoded(text)
    return Activity()


def _decoded(text: bytes) -> Activity:
    try:
        return _DECODER.decode(text)
    except (msgspec.MsgspecError, ValueError):  # empty, or not ours
        return Activity()


def _mark(text: bytes) -> int:
    return zlib.crc32(text) << _LENGTH_BITS | len(text)


def _fitting(activity: Activity) -> bytes:
    """Encode ``activity``; in the place of the tools that find no room stands how many they are."""
    kept = [_cut(tool, TOOL_CHARS_MAX) for tool in activity.tools[:TOOLS_MAX]]
    text = _encoded(activity, kept)
    while len(text) > TEXT_BYTES_MAX:  # without any tool it has room
        kept.pop()
        text = _encoded(activity, kept)
    return text


def _encoded(activity: Activity, kept: Sequence[str]) -> bytes:
    left = len(activity.tools) - len(kept)
    more = (f"and {left} more",) if left else ()
    state = _cut(activity.state, STATE_CHARS_MAX)
    return _ENCODER.encode(Activity(state, activity.turns, (*kept, *more), activity.opening))


def _cut(text: str, chars_max: int) -> str:
    """Shorten a text, and replace what has no UTF-8: half of a pair, as JSON can bring it."""
    return text[:chars_max].encode(errors="replace").decode()
