"""A recorded session played again: the tables decide anew, step by step, what was decided then.

``play`` feeds the machine the inputs that the journal tells of and holds the records that today's
code keeps against the recorded ones. The first difference ends it: what follows was decided in
another situation. A process that took the place of another begins, as it did then, with what the
records before it make.

Rules of this family (``replaying*.py``): nothing of the world is asked again, no code of a plugin
or a tool runs, and what cannot be told from the journal is said, not guessed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, Literal, TypeAlias

import msgspec

from cmdc_runtime.commands import Command
from cmdc_runtime.ids import CommandId, Incarnation
from workers.core import commands as commands_table
from workers.core import rebuild, results
from workers.core.causes import Given, Recovery, where
from workers.core.evolve import CODE, replay
from workers.core.inputs import Order
from workers.core.records import (
    Cause,
    CodeTaken,
    Continued,
    Record,
    SetAside,
    Where,
    decode_record,
)
from workers.core.replaying_inputs import NotDerivableError, Scene, inputs_of
from workers.core.replaying_paths import find_way
from workers.core.state import Memory, State
from workers.core.step import Step

_OPTIONS: Final = Cause("options", Where(State.IDLE))
"""Other options are chosen with a new process, not decided: they are taken as recorded."""
_LEFT_OUT: Final = Cause("tool_set_aside", Where(State.IDLE))
"""A new process had one tool less from its beginning on: that was not decided either."""
_CODE: Final = Cause("code_taken", Where(State.IDLE))
"""A new process found this code: nor was that."""
_AT_BEGINNING: Final = {Continued: _OPTIONS, SetAside: _LEFT_OUT, CodeTaken: _CODE}
"""What a new process records before it takes any step."""
_HOLE: Final = (
    "it is set aside, a record of {!r}: {}. What was decided on it can't be decided without it"
)
_NO_CAUSE: Final = "it was recorded by a program that did not write down what a step came of"


@dataclass(frozen=True, slots=True)
class Entry:
    """One record as the journal has it; numbers rise, and the session's commands have some too."""

    number: int
    incarnation: Incarnation
    record: Record


@dataclass(frozen=True, slots=True)
class Played:
    """One step that was decided as it was recorded, and how the session stands after it."""

    entries: tuple[Entry, ...]
    cause: Cause
    memory: Memory

    @property
    def state(self) -> State:
        """Where the session stands after it."""
        return self.memory.state


@dataclass(frozen=True, slots=True)
class Difference:
    """Where today's code decides otherwise: ``recorded`` then, ``now`` today; None is nothing.

    ``why`` says what the two records don't: that the step could not be taken at all.
    """

    number: int
    cause: Cause
    recorded: Record | None
    now: Record | None
    why: str = ""
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

    def enter(self, incarnation: Incarnation) -> None:
        """Begin a new process, if this is one."""
        if incarnation != self.incarnation:
            self.begin(incarnation)

    def begin(self, incarnation: Incarnation) -> None:
        """Begin a process."""
        self.memory, self.incarnation = self.known, incarnation

    def settle(self, group: tuple[Entry, ...], cause: Cause, memory: Memory) -> Played:
        """Take a step as decided."""
        self.memory = memory
        self.known = replay(self.known, (entry.record for entry in group))
        return Played(group, cause, memory)


def play(
    first: Memory, entries: Sequence[Entry], commands: Mapping[CommandId, Command]
) -> Iterator[Outcome]:
    """Yield each step again, up to the end, the first difference, or what can't be played.

    ``first`` is the memory before the first entry, of a session at rest; ``commands`` are those
    that the journal still has.
    """
    if not entries:
        return
    stage = _Stage(first, first, entries[0].incarnation)
    for group in _steps(entries):
        outcome = _play_step(stage, group, commands)
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


def _play_step(
    stage: _Stage, group: tuple[Entry, ...], commands: Mapping[CommandId, Command]
) -> Outcome:
    for entry in group:
        if isinstance(hole := entry.record, SetAside) and hole.what not in CODE:
            return Unplayable(entry.number, _HOLE.format(hole.what, hole.why))
    recorded = tuple(msgspec.structs.replace(entry.record, cause=None) for entry in group)
    stage.enter(group[0].incarnation)
    cause = group[0].record.cause
    told = _AT_BEGINNING.get(type(recorded[0]))
    if cause is None and told is not None:
        stage.begin(group[0].incarnation)  # a fork counts its processes anew
        return stage.settle(group, told, replay(stage.memory, recorded))
    try:
        step = _decide(stage, group, recorded, commands)
    except NotDerivableError as error:
        return Unplayable(group[0].number, str(error))
    if isinstance(step, Difference):
        return step
    assert cause is not None  # noqa: S101 - without one there is no step
    kept = tuple(map(reread, step.records))
    differs = _compare(group, cause, recorded, kept)
    return differs or stage.settle(group, cause, step.memory)


def _decide(
    stage: _Stage,
    group: tuple[Entry, ...],
    recorded: tuple[Record, ...],
    commands: Mapping[CommandId, Command],
) -> Step | Difference:
    """Take a step as today's code does, if its input could come at all.

    Raises:
        NotDerivableError: the journal does not tell enough.
    """
    cause = group[0].record.cause
    if cause is None:
        raise NotDerivableError(_NO_CAUSE)
    if cause.records != len(group):
        raise NotDerivableError(
            f"its step kept {cause.records} records, and the journal has {len(group)} of it"
        )
    found = find_way(stage.memory, cause.where, cause.at_ms)
    if not found.is_there:
        now = where(stage.memory)
        why = f"{cause.input} found the session {_told(cause.where)}; now it would be {_told(now)}"
        return Difference(group[0].number, cause, recorded[0], None, why)
    scene = Scene(cause, recorded, found.memory, commands)
    return _take(found.memory, scene, group[0].incarnation)


def _take(memory: Memory, scene: Scene, incarnation: Incarnation) -> Step:
    *before, given = inputs_of(scene)
    for one in before:
        memory = _apply(memory, one, incarnation).memory
    return _apply(memory, given, incarnation)


def _apply(memory: Memory, given: Given, incarnation: Incarnation) -> Step:
    if isinstance(given, Order):
        return commands_table.apply(memory, given)
    if isinstance(given, Recovery):
        return rebuild.resume(memory, incarnation, given.reason, given.at_ms)
    return results.apply(memory, given)


def reread(record: Record) -> Record:
    """Return a record as the journal would give it back."""
    return decode_record(msgspec.msgpack.encode(record))


def _compare(
    group: tuple[Entry, ...],
    cause: Cause,
    recorded: tuple[Record, ...],
    kept: tuple[Record, ...],
) -> Difference | None:
    for entry, then, now in zip_longest(group, recorded, kept):
        if then != now:
            number = entry.number if entry is not None else group[-1].number
            return Difference(number, cause, then, now)
    return None


def _told(place: object) -> str:
    told = msgspec.to_builtins(place)
    state, point, trigger, retries, is_compacted = told
    more = [f"asking plugins ({point})"] if point else []
    more += [f"compacting ({trigger})"] if trigger else []
    more += [f"at retry {retries}"] if retries else []
    more += ["with a request that was made to fit"] if is_compacted else []
    return ", ".join([state, *more])
