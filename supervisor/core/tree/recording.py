"""A tree that records its inputs, so that an incident of production can be replayed. Pure.

A tree is a function of its specification and its inputs. A recording is both as JSON lines: a
``RecordingHead``, then one ``RecordedInput`` for each input: its time, the input, and one letter
for each effect. ``replay`` gives them to a new tree and compares the letters.

What means nothing to the tree is recorded by name: a start object, a handle or the record of an
end as its type, a call as a number. A traceback is left out: it may be long, and a recording is
read by people.

Room is bounded. The inputs about a supervisor below a dynamic one, and about all below it, are
forgotten when it is gone for good: its siblings do not depend on it. So a daemon keeps the story of
the sessions that it has. What ends with its own supervisor is kept, since that one waited for it.
Where all this is not enough, the oldest inputs go and the head counts them.
"""

from collections import OrderedDict, deque
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.reasons import Exception as Raised
from supervisor.core.tree.messages import (
    AnyInput,
    Ask,
    CancelTimer,
    ChildCall,
    ChildExited,
    Effect,
    Input,
    Kill,
    Launch,
    ProcessEnded,
    Reconfigure,
    Replied,
    Report,
    SetTimer,
    StartChild,
    SupervisorEnded,
    SupervisorPath,
    SupervisorPhase,
    SupervisorUp,
    Terminate,
    Up,
)
from supervisor.core.tree.specs import SUPERVISOR, ChildSpec, SupervisorSpec
from supervisor.core.tree.tree import Tree

VERSION: Final = 2
RECORDS_MAX: Final = 50_000
"""Inputs that are kept: a dozen for each of 4,000 sessions, some 15 MB."""
RAISED: Final = "!"
"""In place of the letters: the tree itself has raised."""

_CALLS: Final = (StartChild, ChildCall)

# fmt: off
LETTERS: Final[dict[type, str]] = {
    Launch:          "L",
    Ask:             "A",
    Terminate:       "T",
    Kill:            "K",
    SetTimer:        "s",
    CancelTimer:     "c",
    ProcessEnded:    "D",
    SupervisorUp:    "U",
    SupervisorEnded: "E",
    Replied:         "r",
    Report:          "n",
}
# fmt: on
"""What a tree did, short enough to be kept with every input."""


class RecordingHead(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: the root as it was made, and how many inputs are missing behind it."""

    version: int
    spec: SupervisorSpec
    dropped: int = 0
    note: str = ""


class RecordedInput(msgspec.Struct, frozen=True):
    """One input: ``at_s`` is its time, ``did`` its effects in ``LETTERS``."""

    at_s: float
    input: AnyInput
    did: str


class Replayed(NamedTuple):
    """One recorded input that was given again, and its effects now."""

    recorded: RecordedInput
    effects: list[Effect]

    @property
    def is_same(self) -> bool:
        """Whether the tree did what it did then."""
        return letters(self.effects) == self.recorded.did


class Recorder:
    """The inputs of one tree, as lines."""

    def __init__(self, spec: SupervisorSpec, records_max: int = RECORDS_MAX) -> None:
        """Have kept nothing yet of the tree of ``spec``."""
        self._spec = _named(spec)
        self._records_max = records_max
        self._lines: OrderedDict[int, tuple[bytes, deque[int] | None]] = OrderedDict()
        """Each with the story that it is part of."""
        self._stories: dict[SupervisorPath, deque[int]] = {}
        """Which lines are about what may be gone for good; no story is within another."""
        self._taken = self._dropped = self._calls = 0

    def keep(self, given: Input, now_s: float, did: str) -> None:
        """Keep one input behind the others; where there is no room the oldest goes."""
        self._taken += 1
        story = self._story_of(given.place)
        self._calls += isinstance(given, _CALLS)
        line = {"at_s": now_s, "input": _nameless(given, self._calls), "did": did}
        self._lines[self._taken] = _ENCODER.encode(line), story
        if story is not None:
            story.append(self._taken)
        if len(self._lines) > self._records_max:
            _, (_, lost) = self._lines.popitem(last=False)
            if lost:  # a session may live for months: its story must not grow with that
                lost.popleft()
            self._dropped += 1

    def begun(self, path: SupervisorPath) -> None:
        """Begin a story with the last line: it made what nobody depends on once it is gone."""
        if self._story_of(path) is None and self._taken in self._lines:
            line, _ = self._lines[self._taken]
            self._stories[path] = deque([self._taken])
            self._lines[self._taken] = line, self._stories[path]

    def take_back(self) -> None:
        """Forget the last line: nothing came of it."""
        _, story = self._lines.pop(self._taken, (b"", None))
        if story:
            story.pop()

    def over(self, path: SupervisorPath, *, is_forgotten: bool) -> None:
        """End the story of ``path``, and forget its lines unless others depend on them."""
        story = self._stories.pop(path, ())
        if is_forgotten:
            for number in story:
                self._lines.pop(number, None)

    def lines(self, note: str = "") -> Iterator[bytes]:
        """Yield the recording as it is now, a line each."""
        head = RecordingHead(version=VERSION, spec=self._spec, dropped=self._dropped, note=note)
        return iter([_ENCODER.encode(head), *(line for line, _ in self._lines.values())])

    def _story_of(self, place: SupervisorPath) -> deque[int] | None:
        paths = (place[: depth + 1] for depth in range(len(place)))
        return next((self._stories[path] for path in paths if path in self._stories), None)


class RecordedTree(Tree):
    """A tree with the recording of its inputs."""

    def __init__(self, spec: SupervisorSpec, records_max: int = RECORDS_MAX) -> None:
        """Be the tree of ``spec``, not yet started.

        Raises:
            InvalidOptions: with one line for each problem.
        """
        super().__init__(spec)
        self.recorder = Recorder(spec, records_max)

    def handle(self, given: Input, now_s: float) -> list[Effect]:
        """Take one input and keep it, unless it was refused as wrong."""
        try:
            effects = super().handle(given, now_s)
        except InvalidOptions:
            raise
        except Exception:
            self.recorder.keep(given, now_s, RAISED)
            raise
        self.recorder.keep(given, now_s, letters(effects))
        ended = {effect.path for effect in effects if type(effect) is SupervisorEnded}
        for path in ended:
            if path and self.child(path[:-1], path[-1]) is None:
                self.recorder.over(path, is_forgotten=self._was_alone(path, ended))
        if type(given) is StartChild and self._is_passing(given.path):
            if self.child(given.path, given.spec.id) is None:
                self.recorder.take_back()  # it was refused for those who may be forgotten
            elif given.spec.type == SUPERVISOR:
                self.recorder.begun(given.place)
        return effects

    def _was_alone(self, path: SupervisorPath, ended: Container[SupervisorPath]) -> bool:
        """Say whether a supervisor did not end because one above it ends."""
        above = [path[:depth] for depth in range(len(path))]
        supervisors = [self._supervisors.get(one) for one in above if one not in ended]
        return len(supervisors) == len(above) and all(
            one is not None and one.phase is SupervisorPhase.UP for one in supervisors
        )

    def _is_passing(self, path: SupervisorPath) -> bool:
        """Say whether the children of this supervisor come and go without a trace."""
        supervisor = self._supervisors.get(path)
        return supervisor is not None and supervisor.is_dynamic


def read(lines: Iterable[bytes]) -> tuple[RecordingHead, list[RecordedInput]]:
    """Return what the lines of a recording say.

    Raises:
        InvalidOptions: if it is no recording of this version, or not a whole one.
    """
    try:
        first, *rest = lines
        version = _VERSION.decode(first).version
        if version != VERSION:
            raise InvalidOptions(
                [f"version: this is a record of version {version}, expected {VERSION}"]
            )
        head = _HEAD.decode(first)
        head = msgspec.structs.replace(head, spec=_rebuilt(head.spec))
        return head, [_whole(_RECORDED.decode(line)) for line in rest]
    except (ValueError, msgspec.MsgspecError) as error:
        raise InvalidOptions([f"this is no record of a supervision tree: {error}"]) from error


def replay(lines: Iterable[bytes]) -> Iterator[Replayed]:
    """Give what was recorded to a new tree, and yield each input with its effects.

    Raises:
        InvalidOptions: if it is no recording, or its beginning is missing.
    """
    head, rest = read(lines)
    if head.dropped:
        raise InvalidOptions(
            [f"{head.dropped} inputs behind the head are missing: it can be read, but not replayed"]
        )
    tree = Tree(head.spec)
    for one in rest:
        yield Replayed(one, tree.handle(one.input, one.at_s))


def letters(effects: Iterable[Effect]) -> str:
    """Return one letter for each effect."""
    return "".join(LETTERS[type(effect)] for effect in effects)


def name_of(thing: object) -> str | None:
    """Return what is recorded of a thing that the tree only hands on."""
    return thing if thing is None or isinstance(thing, str) else type(thing).__name__


def _nameless(given: Input, number: int) -> Input:
    """Return an input with names in place of what only the shell knows."""
    match given:
        case Up():
            return msgspec.structs.replace(given, handle=name_of(given.handle), extra=None)
        case ChildExited(reason=reason, record=record):
            if isinstance(reason, Raised):
                reason = msgspec.structs.replace(reason, traceback="")
            return msgspec.structs.replace(given, reason=reason, record=name_of(record))
        case StartChild():
            return msgspec.structs.replace(given, spec=_named_child(given.spec), call=number)
        case ChildCall():
            return msgspec.structs.replace(given, call=number)
        case Reconfigure():
            return msgspec.structs.replace(given, spec=_named(given.spec))
        case _:
            return given


def _named(spec: SupervisorSpec) -> SupervisorSpec:
    return replace(spec, children=tuple(map(_named_child, spec.children)))


def _named_child(spec: ChildSpec) -> ChildSpec:
    below = spec.start
    start = _named(below) if isinstance(below, SupervisorSpec) else name_of(below)
    return replace(spec, start=start)


def _whole(one: RecordedInput) -> RecordedInput:
    """Return a recorded input whose specification has its supervisors back."""
    given = one.input
    match given:
        case StartChild():
            given = msgspec.structs.replace(given, spec=_rebuilt_child(given.spec))
        case Reconfigure():
            given = msgspec.structs.replace(given, spec=_rebuilt(given.spec))
        case _:
            return one
    return msgspec.structs.replace(one, input=given)


def _rebuilt(spec: SupervisorSpec) -> SupervisorSpec:
    return replace(spec, children=tuple(map(_rebuilt_child, spec.children)))


def _rebuilt_child(spec: ChildSpec) -> ChildSpec:
    if not isinstance(spec.start, dict):
        return spec
    return replace(spec, start=_rebuilt(msgspec.convert(spec.start, SupervisorSpec)))


class _Version(msgspec.Struct):
    version: int


_ENCODER: Final = msgspec.json.Encoder()
_VERSION: Final = msgspec.json.Decoder(_Version)
_HEAD: Final = msgspec.json.Decoder(RecordingHead)
_RECORDED: Final = msgspec.json.Decoder(RecordedInput)
