"""The heartbeat board: a slot of shared memory for each worker, and what stands in it.

A worker's main loop writes that it turns, what it has used and what it is doing; the daemon reads
that without a message, and after the worker's death too. ``Slot`` is for the one who writes,
``read`` for the one who reads. The rules:

- All numbers are in the machine's own byte order, since both ends run on one machine. Each is one
  aligned store of eight bytes (``memoryview.cast``), which no processor of ours tears apart. No
  number depends on another one: a reader that sees some of them new and some of them old sees
  nothing wrong.
- The text has many bytes, so it can be read while it is written. Its sequence number is odd
  meanwhile, and its checksum catches what a processor that reorders stores can make of that. A text
  that is torn, or was cut off by the death of its writer, reads as an empty ``Doing``.
- A worker isn't trusted: every content of the memory is a ``Beat``, and none raises.
- Times are nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share, which nobody
  can set, and which stands still while the machine is suspended.

To add a number, take the next word, move ``_TEXT`` behind it, and give it to ``Slot`` and ``Beat``.
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
BEAT_WORD: Final = 0
"""Which word of a slot is the time of the last beat; 0 means that there was none."""

PERIOD_S_MAX: Final = 5.0
"""Between two beats at most: what is read of a dead process that was at work is no older."""
PERIOD_S_MIN: Final = 0.1
"""Between two beats at least: more of them would cost more than the work of an idle agent."""
BEATS_PER_LIMIT: Final = 6
"""Beats in the time after which a process counts as silent: five may be late before it is."""

REBUILDING: Final = "rebuilding"
"""The state of a process that makes its session's memory out of the journal. Its ``turns`` are the
step that it takes next: if it dies, that step is to blame."""
SNAPSHOT_STEP: Final = 0
"""The records after the snapshot are the steps from 1 on."""
DROPPED_STEP: Final = 2**31 - 1
"""The cycle that was to be gone on with is given up, because that has killed processes. What dies
from here on did not die of it."""
RESUME_STEP: Final = 2**31
"""To go on where the last process ended; behind it are the commands that it left unanswered."""
PARCEL_STEP: Final = 2**32
"""To open a parcel; behind it are the first 48 bits of its digest, so that the step is the same
wherever the parcel stands, and whatever is left out before it."""
GREETING_STEP: Final = 2**49
"""To have a plugin hear that the session goes on; behind it is the same of its parcel's digest."""
_PARCEL_DIGITS: Final = 12
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


class Doing(msgspec.Struct, frozen=True, array_like=True):
    """What an agent is doing; ``tools`` are its calls in flight, each as name and call id.

    ``opening`` is the step of the parcel that it opens for a command meanwhile, 0 for none.
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
class Beat:
    """What stands in one slot; ``beat_ns`` is 0 where nobody has written yet."""

    beat_ns: int
    usage: Usage
    last_index: int
    doing: Doing


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Doing)


def parcel_step(digest: str) -> int:
    """Return the step of opening the parcel of this digest, in hexadecimal digits."""
    return PARCEL_STEP + int(digest[:_PARCEL_DIGITS], 16)


def greeting_step(digest: str) -> int:
    """Return the step of greeting the plugin whose parcel has this digest."""
    return GREETING_STEP + int(digest[:_PARCEL_DIGITS], 16)


def period_for(limit_s: float) -> float:
    """Return the seconds between two beats of a process that may be silent for ``limit_s``."""
    return max(PERIOD_S_MIN, min(PERIOD_S_MAX, limit_s / BEATS_PER_LIMIT))


class Slot:
    """One slot, for its one writer. Nothing here waits or reads a clock."""

    def __init__(self, memory: memoryview) -> None:
        """Write to ``memory``: ``SLOT_BYTES`` writable bytes that begin at a whole word."""
        self._words = memory[:_TEXT].cast("Q")
        self._text = memory[_TEXT:SLOT_BYTES]
        self._sequence = self._words[_SEQUENCE] & ~1

    def beat(self, now_ns: int, usage: Usage) -> None:
        """Tell that the writer's loop turns, and what it has used so far."""
        words = self._words
        words[_MAX_RSS] = usage.max_rss_bytes
        words[_USER] = usage.user_us
        words[_SYSTEM] = usage.system_us
        words[BEAT_WORD] = now_ns

    def beat_again(self, now_ns: int) -> None:
        """Tell that the writer's loop turns, and has used nothing since the last beat."""
        self._words[BEAT_WORD] = now_ns

    def index(self, last_index: int) -> None:
        """Tell the index of the session's newest event."""
        self._words[_LAST_INDEX] = last_index

    def tell(self, doing: Doing) -> None:
        """Tell what the writer is doing, cut so that it fits."""
        text = _fitting(doing)
        words, self._sequence = self._words, self._sequence + 2
        words[_SEQUENCE] = self._sequence - 1
        self._text[: len(text)] = text
        words[_MARK] = _mark(text)
        words[_SEQUENCE] = self._sequence

    def release(self) -> None:
        """Let go of the memory, so that it can be unmapped; what was written stays."""
        self._words.release()
        self._text.release()


def read(memory: memoryview, now_ns: int) -> Beat:
    """Return what stands in the ``SLOT_BYTES`` bytes of a slot; a beat after ``now_ns`` is now."""
    with memory[:_TEXT].cast("Q") as words:
        beat_ns, max_rss, user, system, last_index = words[: _LAST_INDEX + 1].tolist()
        doing = _read_text(memory, words)
    return Beat(
        beat_ns=min(beat_ns, now_ns),
        usage=Usage(
            max_rss_bytes=min(max_rss, _NUMBER_MAX),
            user_us=min(user, _NUMBER_MAX),
            system_us=min(system, _NUMBER_MAX),
        ),
        last_index=min(last_index, _NUMBER_MAX),
        doing=doing,
    )


def _read_text(memory: memoryview, words: memoryview) -> Doing:
    for _ in range(READS_MAX):
        sequence, mark = words[_SEQUENCE], words[_MARK]
        length = mark % (1 << _LENGTH_BITS)
        text = bytes(memory[_TEXT : _TEXT + length])
        if sequence % 2 == 0 and sequence == words[_SEQUENCE] and _mark(text) == mark:
            return _decoded(text)
    return Doing()


def _decoded(text: bytes) -> Doing:
    try:
        return _DECODER.decode(text)
    except (msgspec.MsgspecError, ValueError):  # empty, or not ours
        return Doing()


def _mark(text: bytes) -> int:
    return zlib.crc32(text) << _LENGTH_BITS | len(text)


def _fitting(doing: Doing) -> bytes:
    """Encode ``doing``; in the place of the tools that find no room stands how many they are."""
    kept = [_cut(tool, TOOL_CHARS_MAX) for tool in doing.tools[:TOOLS_MAX]]
    text = _encoded(doing, kept)
    while len(text) > TEXT_BYTES_MAX:  # without any tool it has room
        kept.pop()
        text = _encoded(doing, kept)
    return text


def _encoded(doing: Doing, kept: Sequence[str]) -> bytes:
    left = len(doing.tools) - len(kept)
    more = (f"and {left} more",) if left else ()
    state = _cut(doing.state, STATE_CHARS_MAX)
    return _ENCODER.encode(Doing(state, doing.turns, (*kept, *more), doing.opening))


def _cut(text: str, chars_max: int) -> str:
    """Shorten a text, and replace what has no UTF-8: half of a pair, as JSON can bring it."""
    return text[:chars_max].encode(errors="replace").decode()
