"""What was told to a tree, as lines that can be played again. Pure.

A tree is a function of its specification and its inputs. A record is both as JSON lines: a
``Head``, then one ``Taken`` for each input, with its time and one letter for each effect.
``replay`` gives them to a new tree, and says of each whether the tree did what it did then.

What means nothing to the tree is kept as a name: a post as its type, a call as a number, a
traceback as nothing. A traceback may be long, and a record is read by people.

To add an input to the tree: its method in ``recorder.RecordedTree``, its word in ``Input`` and its
row in ``_GIVEN``.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.ids import Incarnation
from cmdc_runtime.reasons import AnyReason, Normal
from cmdc_runtime.requests import RestartType
from supervisor.core.tree.specs import ChildSpec, Flags, SupervisorSpec
from supervisor.core.tree.supervisor import plain
from supervisor.core.tree.tree import Tree
from supervisor.core.tree.words import (
    Ask,
    CancelTimer,
    Departed,
    Effect,
    Ending,
    Kill,
    Kind,
    Launch,
    Path,
    Ref,
    Replied,
    Report,
    SetTimer,
    Stop,
    SupervisorEnded,
    SupervisorUp,
    Terminate,
    Timer,
)

VERSION: Final = 1
RAISED: Final = "!"
"""In place of the letters: the tree itself has raised."""

# fmt: off
LETTERS: Final[dict[type, str]] = {
    Launch:          "L",
    Ask:             "A",
    Terminate:       "T",
    Kill:            "K",
    SetTimer:        "s",
    CancelTimer:     "c",
    Departed:        "D",
    SupervisorUp:    "U",
    SupervisorEnded: "E",
    Replied:         "r",
    Report:          "n",
}
# fmt: on
"""What a tree did, short enough to be kept with every input."""

Input: TypeAlias = Literal[
    "begin",
    "up",
    "ignored",
    "exited",
    "due",
    "stop",
    "kill",
    "condemn",
    "start_child",
    "terminate_child",
    "rest_child",
    "restart_child",
    "wake_child",
    "delete_child",
    "reconfigure",
]


class ChildRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A ``ChildSpec`` whose ``start`` is a name."""

    id: str
    start: "SupervisorRecord | str | None"
    restart: RestartType = "permanent"
    shutdown: float | None = 5.0
    significant: bool = False
    restart_delay: tuple[float, float] = (0.0, 0.0)
    start_timeout: float | None = None
    generation: Incarnation = Incarnation(0)
    restarts: int = 0

    @classmethod
    def of(cls, spec: ChildSpec) -> "ChildRecord":
        """Return the record of one child and all below it."""
        known = {one.name: getattr(spec, one.name) for one in fields(spec)}
        below = spec.start
        if isinstance(below, SupervisorSpec):
            return cls(**known | {"start": SupervisorRecord.of(below)})
        return cls(**known | {"start": name_of(below)})

    def spec(self) -> ChildSpec:
        """Return what it is a record of."""
        known = msgspec.structs.asdict(self)
        if isinstance(self.start, SupervisorRecord):
            known["start"] = self.start.spec()
        return ChildSpec(**known)


class SupervisorRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A ``SupervisorSpec``."""

    flags: Flags = Flags()
    children: tuple[ChildRecord, ...] = ()

    @classmethod
    def of(cls, spec: SupervisorSpec) -> "SupervisorRecord":
        """Return the record of a supervisor and all below it."""
        return cls(flags=spec.flags, children=tuple(map(ChildRecord.of, spec.children)))

    def spec(self) -> SupervisorSpec:
        """Return what it is a record of."""
        return SupervisorSpec(flags=self.flags, children=tuple(one.spec() for one in self.children))


class Head(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line: the root as it was made, and how many inputs are missing behind it."""

    version: int
    spec: SupervisorRecord
    dropped: int = 0
    note: str = ""


class Taken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One input: ``at_s`` is its time, ``did`` what came of it in ``LETTERS``."""

    at_s: float
    input: Input
    path: Path = ()
    child: str = ""
    generation: Incarnation = Incarnation(0)
    timer: Kind | None = None
    reason: AnyReason | None = None
    ending: Ending = Ending.CRASH
    why: str = ""
    deadline_s: float | None = None
    handle: str | None = None
    call: int = 0
    child_spec: ChildRecord | None = None
    spec: SupervisorRecord | None = None
    did: str = ""

    @property
    def place(self) -> Path:
        """Return who it is about."""
        return (*self.path, self.child) if self.child else self.path


class Played(NamedTuple):
    """One input that was played again, and what came of it."""

    taken: Taken
    effects: list[Effect]

    @property
    def is_same(self) -> bool:
        """Whether the tree did what it did then."""
        return letters(self.effects) == self.taken.did


def letters(effects: Iterable[Effect]) -> str:
    """Return one letter for each effect."""
    return "".join(LETTERS[type(effect)] for effect in effects)


def name_of(thing: object) -> str | None:
    """Return what is recorded of a thing that the tree only hands on."""
    return thing if thing is None or isinstance(thing, str) else type(thing).__name__


def read(lines: Iterable[bytes]) -> tuple[Head, list[Taken]]:
    """Return what the lines of a record say.

    Raises:
        InvalidOptions: if it is no record of this version, or not a whole one.
    """
    try:
        first, *rest = lines
        head = _HEAD.decode(first)
        if head.version != VERSION:
            raise InvalidOptions(
                [f"version: this is a record of version {head.version}, expected {VERSION}"]
            )
        return head, [_TAKEN.decode(line) for line in rest]
    except (ValueError, msgspec.MsgspecError) as error:
        raise InvalidOptions([f"this is no record of a supervision tree: {error}"]) from error


def replay(lines: Iterable[bytes]) -> Iterator[Played]:
    """Give what was recorded to a new tree, and yield each input with what comes of it.

    Raises:
        InvalidOptions: if it is no record, or its beginning is missing.
    """
    head, rest = read(lines)
    if head.dropped:
        raise InvalidOptions(
            [f"{head.dropped} inputs behind the head are missing: it can be read, but not replayed"]
        )
    tree = Tree(head.spec.spec())
    for taken in rest:
        yield Played(taken, give(tree, taken))


def give(tree: Tree, taken: Taken) -> list[Effect]:
    """Give one input to a tree and return what comes of it."""
    return _GIVEN[taken.input](tree, taken)


def _ref(taken: Taken) -> Ref:
    return Ref(taken.path, taken.child, taken.generation)


def _due(tree: Tree, taken: Taken) -> list[Effect]:
    assert taken.timer is not None  # noqa: S101 - ``RecordedTree`` writes it
    return tree.due(Timer(taken.path, taken.child, taken.timer), taken.at_s)


def _start_child(tree: Tree, taken: Taken) -> list[Effect]:
    assert taken.child_spec is not None  # noqa: S101 - as above
    return tree.start_child(taken.path, taken.child_spec.spec(), taken.call, taken.at_s)


def _reconfigure(tree: Tree, taken: Taken) -> list[Effect]:
    assert taken.spec is not None  # noqa: S101 - as above
    return tree.reconfigure(taken.path, taken.spec.spec(), taken.at_s)


# fmt: off
_GIVEN: Final[dict[Input, Callable[[Tree, Taken], list[Effect]]]] = {
    "begin":           lambda tree, it: tree.begin(it.at_s),
    "up":              lambda tree, it: tree.up(_ref(it), it.at_s, it.handle),
    "ignored":         lambda tree, it: tree.ignored(_ref(it), it.at_s),
    "exited":          lambda tree, it: tree.exited(
                           _ref(it), it.reason or Normal(), it.ending, it.at_s),
    "due":             _due,
    "stop":            lambda tree, it: tree.stop(it.why, it.deadline_s, it.at_s),
    "kill":            lambda tree, it: tree.kill(it.path, it.at_s),
    "condemn":         lambda tree, it: tree.condemn(
                           _ref(it), plain(it.reason or Normal()), it.at_s),
    "start_child":     _start_child,
    "terminate_child": lambda tree, it: tree.terminate_child(
                           it.path, it.child, it.call, it.at_s, Stop(it.why, it.deadline_s)),
    "rest_child":      lambda tree, it: tree.rest_child(
                           it.path, it.child, it.call, it.at_s, Stop(it.why, it.deadline_s)),
    "restart_child":   lambda tree, it: tree.restart_child(it.path, it.child, it.call, it.at_s),
    "wake_child":      lambda tree, it: tree.wake_child(it.path, it.child, it.call, it.at_s),
    "delete_child":    lambda tree, it: tree.delete_child(it.path, it.child, it.call, it.at_s),
    "reconfigure":     _reconfigure,
}
# fmt: on
_HEAD: Final = msgspec.json.Decoder(Head)
_TAKEN: Final = msgspec.json.Decoder(Taken)
