"""A recorded session played again: decided anew, compared with what it recorded, and shown.

``play`` feeds the machine the inputs that the journal has and holds the records that today's
code keeps against the recorded ones. The first difference ends it: what follows was decided in
another situation. A process that took the place of another begins, as it did then, with what the
records before it make.

Nothing of the world is asked again, no code of a plugin or a tool runs, and what cannot be read in
the journal is said, not guessed.

``of_step``, ``of_left_out`` and ``of_end`` describe how the session stands then, as plain values
for people and programs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final, Literal, TypeAlias

import msgspec

from cmdc_runtime.checkpoints import plain_state
from cmdc_runtime.ids import Incarnation
from workers.core import commands, recovery, results
from workers.core.causes import Given, Restarted, UnreadableCauseError, at_ms_of, read_cause, ref_of
from workers.core.evolve import CODE, rebuild
from workers.core.inputs import Order
from workers.core.records import CodeTaken, Continued, Record, SetAside, decode_record
from workers.core.snapshot import saved
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
class PlayedStep:
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
    """From record ``number`` on the journal does not hold enough to play it."""

    number: int
    why: str
    kind: Literal["unplayable"] = "unplayable"


StepOutcome: TypeAlias = PlayedStep | Difference | Unplayable


@dataclass(slots=True)
class _Stage:
    """The machine as it goes, and ``known``: what a new process would make of the records."""

    memory: Memory
    known: Memory
    incarnation: Incarnation

    def begin(self, incarnation: Incarnation) -> None:
        """Begin a process."""
        self.memory, self.incarnation = self.known, incarnation

    def moved_to(self, group: tuple[Entry, ...], memory: Memory) -> Memory:
        """Take a step as decided, and return the memory behind it."""
        self.memory = memory
        self.known = rebuild(self.known, (entry.record for entry in group))
        return memory


def play(first: Memory, entries: Sequence[Entry]) -> Iterator[StepOutcome]:
    """Yield each step again, up to the end, the first difference, or what can't be played.

    ``first`` is the memory before the first entry, of a session at rest.
    """
    if not entries:
        return
    stage = _Stage(first, first, entries[0].incarnation)
    for group in _steps(entries):
        outcome = _play_step(stage, group)
        yield outcome
        if not isinstance(outcome, PlayedStep):
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


def _play_step(stage: _Stage, group: tuple[Entry, ...]) -> StepOutcome:
    if (problem := _problem_of(group)) is not None:
        return problem
    first, cause = group[0], group[0].record.cause
    if cause is None or first.incarnation != stage.incarnation:
        stage.begin(first.incarnation)  # a fork counts its processes anew
    recorded = tuple(msgspec.structs.replace(entry.record, cause=None) for entry in group)
    if cause is None:
        name = _BEGINNINGS[type(first.record)]
        return PlayedStep(group, name, None, stage.moved_to(group, rebuild(stage.memory, recorded)))
    try:
        memory, given = read_cause(cause, recorded, stage.memory)
    except UnreadableCauseError as error:
        return Unplayable(first.number, str(error))
    step = _take(memory, given, first.incarnation)
    for entry, then, now in zip_longest(group, recorded, map(reread, step.records)):
        if then != now:
            return Difference((entry or group[-1]).number, cause.input, given, then, now)
    return PlayedStep(group, cause.input, given, stage.moved_to(group, step.memory))


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
    if isinstance(given, Restarted):
        return recovery.resume(memory, incarnation, given.reason, given.at_ms)
    return results.apply(memory, given)


def reread(record: Record) -> Record:
    """Return a record as the journal would give it back."""
    return decode_record(msgspec.msgpack.encode(record))


# --- shown to people ------------------------------------------------------------------------------

Plain = dict[str, Any]  # Any: what JSON takes
_CODE: Final = ("tools", "plugins")
"""Fields that hold code: their names are what a person can read of it."""


def of_step(step: PlayedStep) -> Plain:
    """Return one step: what it came of, the records it keeps, and how the session stands then."""
    first, last = step.entries[0], step.entries[-1]
    return {
        "kind": "step",
        "first": first.number,
        "last": last.number,
        "incarnation": first.incarnation,
        **_cause(step.input, step.given),
        "records": [_tag(entry.record) for entry in step.entries],
        "stands": brief(step.memory),
    }


def of_left_out(left_out: SetAside, passed_over: int) -> Plain:
    """Return that the snapshot is left out, and how many records were decided on it."""
    return {
        "kind": "set_aside",
        "what": left_out.what,
        "digest": left_out.digest,
        "why": left_out.why,
        "passed_over": passed_over,
    }


def of_end(outcome: Difference | Unplayable) -> Plain:
    """Return where a replay ended before its time, and why."""
    if isinstance(outcome, Unplayable):
        return {"kind": outcome.kind, "number": outcome.number, "why": outcome.why}
    return {
        "kind": outcome.kind,
        "number": outcome.number,
        **_cause(outcome.input, outcome.given),
        "recorded": _record(outcome.recorded),
        "now": _record(outcome.now),
    }


def _cause(name: str, given: Given | None) -> Plain:
    at_ms, ref = (0, "") if given is None else (at_ms_of(given), ref_of(given))
    return {"at_ms": at_ms, "input": name, "ref": ref}


def brief(memory: Memory) -> Plain:
    """Return how a session stands, in numbers."""
    return {
        "state": memory.state.value,
        "turn": memory.turns_begun,
        "queue": len(memory.queue) + len(memory.steering),
        "calls": sum(1 for open_ in memory.calls if open_.result is None),
        "approvals": len(memory.approvals),
        "messages": len(memory.messages),
        "tokens": memory.usage.total_tokens,
        "cost_usd": memory.usage.cost_usd,
    }


def whole(memory: Memory) -> Plain:
    """Return all that a session remembers; of code and of plugins' states only whose it is."""
    shown = plain_state(saved(memory))
    for name in _CODE:
        shown[name] = [one["name"] for one in shown[name]]
    if shown["own_parts"] is not None:
        shown["own_parts"]["tools"] = [one["name"] for one in shown["own_parts"]["tools"]]
    shown["plugin_states"] = {name: len(value) for name, value in shown["plugin_states"]}
    return {"state": memory.state.value, **shown}


def _tag(record: Record) -> str:
    return str(record.__struct_config__.tag)


def _record(record: Record | None) -> Plain | None:
    if record is None:
        return None
    shown: Plain = msgspec.to_builtins(record)
    del shown["input"]
    return shown
