"""A group restart: end some children in reverse, then start them in order. Pure.

It holds how far it is; ``supervisor`` ends and starts who comes next.
"""

import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from supervisor.core.tree.children import ALIVE, TreeChild
from supervisor.core.tree.messages import ChildState
from supervisor.core.tree.specs import Strategy


class GroupStage(StrEnum):
    """How far a group restart is."""

    ENDING = "ending"
    STARTING = "starting"


@dataclass(slots=True)
class GroupRestart:
    """A group restart, or the start of some children, which has nothing to end.

    Each member is looked at once to be ended and once to be started, so that the work grows with
    their number and not with its square.
    """

    members: dict[str, None]
    """In start order."""
    stage: GroupStage = GroupStage.STARTING
    failed: str | None = None
    """Whose exit it is for."""
    put_off_s: float | None = None
    """How long to wait between the two stages; with 0 the calls that wait have their turn."""
    is_first: bool = False
    """The supervisor's own start: one child that fails fails it."""
    current: TreeChild | None = None
    """Who was started last; the next one follows when it is up."""
    to_end: list[str] = field(init=False)
    to_start: deque[str] = field(init=False)

    def __post_init__(self) -> None:
        """Have everything to do."""
        self.to_end, self.to_start = list(self.members), deque(self.members)

    @classmethod
    def start_of(cls, names: Iterable[str], *, is_first: bool = False) -> "GroupRestart":
        """Return the start of these children in their order."""
        return cls(dict.fromkeys(names), is_first=is_first)

    @property
    def is_waiting(self) -> bool:
        """Whether the child that was started last is not up yet."""
        return self.current is not None and self.current.state is ChildState.STARTING

    def next_to_end(
        self, children: Mapping[str, TreeChild], let_go: Callable[[TreeChild], None]
    ) -> TreeChild | None:
        """Return the last member that lives; ``let_go`` has each that ended before its turn."""
        while self.to_end:
            child = children.get(self.to_end[-1])
            if child is not None and child.state in ALIVE:
                return child
            if self.to_end.pop() != self.failed and child is not None:
                let_go(child)
        return None

    def next_to_start(self, children: Mapping[str, TreeChild]) -> TreeChild | None:
        """Return the next member that is to be started; None: nothing is left to do."""
        while self.to_start:
            child = children.get(self.to_start.popleft())
            if child is not None and child.state in {ChildState.DOWN, ChildState.RESTARTING}:
                self.current = child
                return child
        return None


def group_of(
    strategy: Strategy, children: Iterable[str], waiting: Collection[str | None]
) -> dict[str, None]:
    """Return who is restarted together, in start order; ``waiting`` has who failed."""
    if strategy is Strategy.ONE_FOR_ALL:
        return dict.fromkeys(children)
    return dict.fromkeys(itertools.dropwhile(lambda name: name not in waiting, children))
