"""A recorded session played again: the tables decide anew, step by step, what was decided then.

``play`` feeds the machine the inputs that the journal tells of and holds the records that today's
code keeps against the recorded ones. The first difference ends it: what follows was decided in
another situation. A process that took the place of another begins, as it did then, with what the
records before it make.

Nothing of the world is asked again, no code of a plugin or a tool runs, and what cannot be read in
the journal is said, not guessed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, Literal, TypeAlias

import msgspec

from cmdc_runtime.ids import Incarnation
from workers.core import commands, rebuild, results
from workers.core.causes import Given, Recovery, UnreadableCauseError, read_cause
from workers.core.evolve import CODE, replay
from workers.core.inputs import Order
from workers.core.records import CodeTaken, Continued, Record, SetAside, decode_record
from workers.core.state import Memory, State
from workers.core.step import Step

_BEGINNINGS: Final[Mapping[type[Record], str]] = {
    Continued: "options",
    SetAside: "tool_set_aside",
    CodeTaken: "code_taken",
}
"""What a new process records before it takes any step: it is taken as recorded.

Other options are chosen with a process, it has one tool less from its beginning on, it found this
code: none of that was decided.
"""
_HOLE: Final = (
    "it is set aside, a record of {!r}: {}. What was decided on it can't be decided without it"
)
_NO_CAUSE: Final = "it was recorded by a program that did not write down what a step came of"
_NOT_WHOLE: Final = "its step kept {} records, and the journal has {} of it"


@dataclass(frozen=True, slots=True)
class Entry:
    """One record as the journal has it; numbers rise, and the session's commands have some too."""

    number: int
    incarnation: Incarnation
    record: Record


@dataclass(frozen=True, slots=True)
class Played:
    """One step that was decided as it was recorded, and how the session stands after it.

    ``given`` is what it came of, None where a new process has begun with it.
    """

    entries: tuple[Entry, ...]
    input: str
    given: Given | None
    memory: Memory

    @property
    def state(self) -> State:
        """Where the session stands after it."""
        return self.memory.state


@dataclass(frozen=True, slots=True)
class Difference:
    """Where today's code decides otherwise: ``recorded`` then, ``now`` today; None is nothing."""

    number: int
    input: str
    given: Given
    recorded: Record | None
    now: Record | None
    kind: Literal["difference"] = "difference"


@dataclass(frozen=True, slots=True)
class Unplayable:
    """From record ``number`` on the journal does not tell enough to play it."""

    number: int
    why: str
    kind: Literal["unplayable"] = "unplayable"


Outcome: TypeAlias = Played | Difference | Unplayable


@dataclass(slots=True)
class _Stage:
    """The machine as it goes, and ``known``: what a new process would make of the records."""

    memory: Memory
    known: Memory
    incarnation: Incarnation

    def begin(self, incarnation: Incarnation) -> None:
        """Begin a process."""
        self.memory, self.incarnation = self.known, incarnation

    def settle(self, group: tuple[Entry, ...], memory: Memory) -> Memory:
        """Take a step as decided, and return the memory behind it."""
        self.memory = memory
        self.known = replay(self.known, (entry.record for entry in group))
        return memory


def play(first: Memory, entries: Sequence[Entry]) -> Iterator[Outcome]:
    """Yield each step again, up to the end, the first difference, or what can't be played.

    ``first`` is the memory before the first entry, of a session at rest.
    """
    if not entries:
        return
    stage = _Stage(first, first, entries[0].incarnation)
    for group in _steps(entries):
        outcome = _play_step(stage, group)
        yield outcome
        if not isinstance(outcome, Played):
            return


def _steps(entries: Sequence[Entry]) -> Iterator[tuple[Entry, ...]]:
    """Yield the records step by step: a step begins with the record that has its cause."""
    group: list[Entry] = []
    for entry in entries:
        if group and _begins(entry.record, group):
            yield tuple(group)
            group = []
        group.append(entry)
    if group:
        yield tuple(group)


def _begins(record: Record, group: Sequence[Entry]) -> bool:
    if isinstance(record, SetAside):  # it may stand in the place of a record of the step before it
        cause = group[0].record.cause
        return cause is None or len(group) >= cause.records
    return record.cause is not None or isinstance(record, Continued | CodeTaken)


def _play_step(stage: _Stage, group: tuple[Entry, ...]) -> Outcome:
    if (problem := _problem_of(group)) is not None:
        return problem
    first, cause = group[0], group[0].record.cause
    if cause is None or first.incarnation != stage.incarnation:
        stage.begin(first.incarnation)  # a fork counts its processes anew
    recorded = tuple(msgspec.structs.replace(entry.record, cause=None) for entry in group)
    if cause is None:
        name = _BEGINNINGS[type(first.record)]
        return Played(group, name, None, stage.settle(group, replay(stage.memory, recorded)))
    try:
        memory, given = read_cause(cause, recorded, stage.memory)
    except UnreadableCauseError as error:
        return Unplayable(first.number, str(error))
    step = _take(memory, given, first.incarnation)
    for entry, then, now in zip_longest(group, recorded, map(reread, step.records)):
        if then != now:
            return Difference((entry or group[-1]).number, cause.input, given, then, now)
    return Played(group, cause.input, given, stage.settle(group, step.memory))


def _problem_of(group: tuple[Entry, ...]) -> Unplayable | None:
    """Return what of a step is not there."""
    for entry in group:
        if isinstance(hole := entry.record, SetAside) and hole.what not in CODE:
            return Unplayable(entry.number, _HOLE.format(hole.what, hole.why))
    first, cause = group[0], group[0].record.cause
    if cause is None:
        is_beginning = type(first.record) in _BEGINNINGS
        return None if is_beginning else Unplayable(first.number, _NO_CAUSE)
    if cause.records != len(group):
        return Unplayable(first.number, _NOT_WHOLE.format(cause.records, len(group)))
    return None


def _take(memory: Memory, given: Given, incarnation: Incarnation) -> Step:
    if isinstance(given, Order):
        return commands.apply(memory, given)
    if isinstance(given, Recovery):
        return rebuild.resume(memory, incarnation, given.reason, given.at_ms)
    return results.apply(memory, given)


def reread(record: Record) -> Record:
    """Return a record as the journal would give it back."""
    return decode_record(msgspec.msgpack.encode(record))
