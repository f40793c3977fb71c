"""What a reasoning strategy is: code that says, step by step, how a question is thought about.

A strategy decides and never waits. ``step`` and ``aggregate`` answer with a decision: thoughts of
its own, branches that a model works on in sessions of their own, a revision, or the end. Who runs
the strategy carries that out, and asks again. Scores that a model gives are branches, too.

A run that was interrupted is played again from its beginning, with the thoughts that are there
already: a strategy must decide the same when it is asked the same, so chance is ``context.random``,
and time, files and networks are none of its business.

To add a decision: its class here, its place in ``Decision``, and a case in
``workers.reasoning.run``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.events import reasoning as reasoning_events
from cmdc_runtime.extensions.plugin import made
from cmdc_runtime.ids import SessionId
from cmdc_runtime.plain import short
from cmdc_runtime.reasons import snake

ERROR: Final = "error"
"""The key in a thought's metadata that says why there is no content: its branch failed."""
OUTPUT: Final = "output"
"""The key in a thought's metadata that holds the typed answer of a branch with a ``result``."""
ROLE: Final = reasoning_events.ROLE
"""The key in a branch's metadata that says what it is for; None of ``JUDGE`` is no answer."""
PARENTS: Final = "parents"
"""The key in metadata that lists ids of further thoughts that a thought was made of."""
JUDGE: Final = reasoning_events.JUDGE
"""The role of a branch that scores others."""

RunStatus: TypeAlias = Literal[
    "done", "failed", "aborted", "timeout", "budget_exceeded", "max_steps_exceeded"
]
"""How a run ends."""


_NOBODY: Final = SessionId("")


class Thought(msgspec.Struct, frozen=True, metaclass=Checked):
    """One thought: what a branch came to, or what the strategy put there itself.

    That of a branch that failed or was ended has no content and no score, and says why in
    ``metadata["error"]``.
    """

    id: str
    """Unique within the run; that of a branch is the branch's."""
    content: str
    parent_id: str | None = None
    """The thought that this one goes on from."""
    score: float | None = None
    """The greater the better; None: not scored."""
    score_detail: dict[str, Any] = {}  # Any: plain data of whoever scored
    metadata: dict[str, Any] = {}  # Any: plain data of whoever asked, and a typed answer
    """That of the branch, with "output" and "error" of the run's own. One of the strategy's own has
    no "error". The run reads "parents", further thoughts that it was made of, by their ids."""

    @property
    def error(self) -> str | None:
        """Why there is no content, None where nothing went wrong."""
        error = self.metadata.get(ERROR)
        return None if error is None else str(error)


class Branch(msgspec.Struct, frozen=True, metaclass=Checked):
    """A question to a model, in a session of its own below the one that reasons."""

    prompt: str
    id: str | None = None
    """Unique within the run; None: "b1", "b2" and so on. A branch that is asked for again by its id
    is not run again: its thought is there."""
    parent_id: str | None = None
    """The thought that it goes on from."""
    metadata: dict[str, Any] = {}  # Any: plain data, comes back with the thought
    """The run reads "role" ("judge": its thought is no answer) and "parents", as of a thought; it
    adds "output" and "error" itself, and a branch may not have them."""
    model: str | None = None
    """"provider:model_id"; None: the session's own."""
    fork: bool = False
    """Whether it begins with the session's conversation."""
    result: Any = None  # Any: a type that msgspec has a JSON Schema for
    """The type of a typed answer: the thought has it as ``metadata["output"]``."""


class Continue_(msgspec.Struct, frozen=True, metaclass=Checked):  # noqa: N801 - a reserved word gets an underscore
    """Put thoughts of the strategy's own there, and be asked for the next step."""

    thought: "str | Thought | Sequence[str | Thought]"


class Revise(msgspec.Struct, frozen=True, metaclass=Checked):
    """Run branches again, the same prompts with ``feedback`` below them."""

    feedback: str
    branch_ids: tuple[str, ...] = ()
    """Which; none: all of the latest decision."""


class Done(msgspec.Struct, frozen=True, metaclass=Checked):
    """The strategy has its answer; branches that still run are ended."""

    answer: Any  # Any: plain data


class Failed(msgspec.Struct, frozen=True, metaclass=Checked):
    """The strategy gives up."""

    reason: str


Decision: TypeAlias = Continue_ | Branch | list[Branch] | Revise | Done | Failed
"""What a strategy answers with; ``(decision, state)`` has another state from then on."""
DECISIONS: Final = (Continue_, Branch, list, Revise, Done, Failed)
_NO_STATES: Final = (Continue_, Branch, Revise, Done, Failed)
Decided: TypeAlias = Decision | tuple[Decision, Any]
"""What ``step``, ``aggregate`` and ``early`` may return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningContext:
    """What a strategy may know of its run."""

    question: str
    opts: Any = field(default_factory=dict)  # Any: the strategy's own
    random: Random = field(default_factory=lambda: Random(0))  # noqa: S311 - no secret
    """Chance, the same whenever the run is played."""
    session_id: SessionId = _NOBODY
    """The session that reasons."""
    thoughts: tuple[Thought, ...] = ()
    """All that are there, in the order in which they were asked for."""
    steps_left: int = 0
    """Decisions that the run has left, ``Done`` and ``Failed`` not counted."""
    tokens_left: int | None = None
    """Neither used nor reserved; None: no limit."""
    usd_left: float | None = None
    """As above."""


class ReasoningStrategy:
    """Base of all strategies.

    One instance serves one run. Methods are called one at a time and must not block; one that
    raises ends the run as ``Failed`` does. Nothing is remembered but the state that ``init`` makes
    and the methods change or replace; it lives in the run's process alone.
    """

    name: str = ""
    """For events and people: the class name in snake_case unless the class sets it."""
    Config: ClassVar[type[msgspec.Struct] | None] = None
    """The options, as fields of a Struct; None: ``opts`` is a dict of whatever is given."""

    opts: Any  # Any: an instance of the subclass's own Config, or the options as they came

    def __init_subclass__(cls, **arguments: Any) -> None:  # Any: whatever a base class takes
        """Name the class."""
        super().__init_subclass__(**arguments)
        if "name" not in vars(cls):
            cls.name = snake(cls.__name__)

    def __init__(self, **opts: Any) -> None:  # Any: options as they come
        """Check the options.

        Raises:
            InvalidOptions: options are missing, unknown or wrong; it names each.
        """
        config = self.Config
        if config is None:
            self.opts = opts
        else:
            self.opts = made(f"strategy {self.name!r}", config, opts, config)

    def init(self, opts: Any, context: ReasoningContext) -> Any:  # noqa: ARG002 - for subclasses
        """Return the state that the run begins with."""
        return None

    def step(self, state: Any, context: ReasoningContext) -> Decided:  # noqa: ARG002 - for subclasses
        """Decide what comes next; asked at the beginning and after each ``Continue_``."""
        return Failed(f"{self.name} has no method step")

    def aggregate(self, thoughts: list[Thought], state: Any) -> Decided:  # noqa: ARG002 - for subclasses
        """Decide what comes next, when all branches of a decision have ended.

        ``thoughts`` are theirs, in the order in which the branches were asked for, those that
        failed included.
        """
        return Failed(f"{self.name} has no method aggregate")

    def early(self, thoughts: list[Thought], state: Any) -> Decided | None:  # noqa: ARG002 - for subclasses
        """Decide before all branches have ended; None waits for the others.

        Asked after each that ends but the last. ``thoughts`` are those that are there, in the order
        of their branches. After a decision the other branches are ended.
        """
        return None

    def best(self, thoughts: tuple[Thought, ...], state: Any) -> Any:  # noqa: ARG002 - for subclasses
        """Return the answer of a run that is cut off: by its budget, its time or its steps.

        Unless overridden: the content of the thought with the best score, else of the latest one;
        None where there is none. So it is where an override raises, which the result notes.
        """
        found = [one for one in thoughts if one.error is None and one.metadata.get(ROLE) != JUDGE]
        scored = [one for one in found if one.score is not None]
        if scored:
            return max(scored, key=_score_of).content
        return found[-1].content if found else None

    def scored(self, thoughts: Iterable[Thought]) -> None:
        """Report that thoughts have scores now, as their ``score`` and ``score_detail`` say."""
        self._noted().scored.extend(thoughts)

    def prune(self, thoughts: Iterable[Thought | str], reason: str = "") -> None:
        """Report thoughts, or those of these ids, as given up; branches that run are ended."""
        if isinstance(thoughts, str | bytes | Mapping) or not isinstance(thoughts, Iterable):
            raise TypeError(f"prune: expected thoughts or their ids, got {short(thoughts)}")
        if not isinstance(reason, str):
            raise TypeError(f"prune: reason: expected a str, got {short(reason)}")
        ids = tuple(one.id if isinstance(one, Thought) else one for one in thoughts)
        if ids:
            self._noted().pruned.append((ids, reason))

    def _noted(self) -> "Notes":
        notes: Notes = vars(self).setdefault("_notes", Notes())
        return notes


def _score_of(thought: Thought) -> float:
    return 0.0 if thought.score is None else thought.score


@dataclass(slots=True)
class Notes:
    """What a strategy has reported while it decided, for who runs it."""

    scored: list[Thought] = field(default_factory=list)
    pruned: list[tuple[tuple[str, ...], str]] = field(default_factory=list)


def drained(strategy: ReasoningStrategy) -> Notes:
    """Return what a strategy has reported since it was asked last."""
    notes: Notes = vars(strategy).pop("_notes", None) or Notes()
    return notes


def parted(given: Any, state: Any) -> tuple[Decision, Any]:  # Any: what a strategy returned
    """Return the decision and the state that it leaves.

    Raises:
        TypeError: it is no decision.
    """
    pair = 2
    decision = given
    if isinstance(given, tuple) and len(given) == pair and isinstance(given[0], DECISIONS):
        decision, state = given
        if isinstance(state, _NO_STATES):
            raise TypeError(
                f"a tuple is (decision, state), and {type(state).__name__} is no state: return a"
                " list of branches to ask for several"
            )
    if not isinstance(decision, DECISIONS):
        what = type(given).__name__
        if isinstance(given, type):
            what = f"the class {given.__name__}, not an instance of it,"
        raise TypeError(
            f"{what} is no decision: return Continue_, Branch, a list of Branch,"
            " Revise, Done or Failed, or one of them with the new state"
        )
    return decision, state
