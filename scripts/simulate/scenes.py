"""The trees of a run: the daemon's own with its sessions, and random ones of every kind.

A post means nothing to the tree, so a text stands for it. Specifications are made once by the seed
of a run and serve many schedules.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

import msgspec

from cmdc_runtime.ids import Incarnation, SessionId
from cmdc_runtime.requests import RestartType, StartSession, Supervision
from supervisor.core.session_tree import ALL_SESSIONS, root_spec, session_spec
from supervisor.core.tree.messages import SupervisorPath
from supervisor.core.tree.specs import (
    SUPERVISOR,
    AutoShutdown,
    ChildSpec,
    Flags,
    Strategy,
    SupervisorSpec,
)

TREES: Final = 400
"""Random trees of one run."""
ADDED: Final = 100
"""Children that may be added at run time."""
DEPTH: Final = 3
CHILDREN_MAX: Final = 4
SUBTREE_SHARE: Final = 0.25
WHOLE_SHARE: Final = 0.4
"""Of schedules that play the daemon's own tree."""
RESTART_TYPES: Final[tuple[RestartType, ...]] = ("permanent", "transient", "temporary")
_OWN_STRATEGIES: Final = (Strategy.ONE_FOR_ONE, Strategy.ONE_FOR_ALL, Strategy.REST_FOR_ONE)
_ENDING_EARLY: Final = (
    AutoShutdown.NEVER,
    AutoShutdown.ANY_SIGNIFICANT,
    AutoShutdown.ALL_SIGNIFICANT,
)


@dataclass(frozen=True, slots=True)
class Scene:
    """One tree, and what its schedules may do to it."""

    spec: SupervisorSpec
    places: tuple[tuple[SupervisorPath, str], ...]
    """Who is there from the start: the supervisor's path and the child's id."""
    added: tuple[ChildSpec, ...]
    """Who may be added at run time, below ``hosts``."""
    hosts: tuple[SupervisorPath, ...]


@dataclass(frozen=True, slots=True)
class Stock:
    """All scenes of a run."""

    whole: Scene
    others: tuple[Scene, ...]

    def scene(self, chance: Random) -> Scene:
        """Return the scene of one schedule."""
        if chance.random() < WHOLE_SHARE:
            return self.whole
        return self.others[int(chance.random() * len(self.others))]


def stock(chance: Random) -> Stock:
    """Return the scenes that a seed makes."""
    root = root_spec("nursery")
    sessions = tuple(_session(number, chance) for number in range(ADDED))
    added = tuple(_added(number, chance) for number in range(ADDED))
    return Stock(
        whole=Scene(root, tuple(_places(root, ())), sessions, (ALL_SESSIONS,)),
        others=tuple(_scene(chance, added) for _ in range(TREES)),
    )


def _session(number: int, chance: Random) -> ChildSpec:
    policy = Supervision(
        restart=chance.choice(RESTART_TYPES),
        max_restarts=chance.choice((0, 1, 3, 3)),
        restart_delay=chance.choice(((0.0, 0.0), (0.1, 5.0))),
        shutdown=chance.choice((0.0, 1.0, 5.0, None)),
        start_timeout=chance.choice((1.0, 5.0)),
    )
    asked = StartSession(
        session_id=SessionId(f"s{number}"),
        supervision=policy,
        agent=msgspec.Raw(b""),
        carries_code=False,
    )
    lived = Incarnation(chance.choice((0, 0, 4)))
    return session_spec(asked, "agent", incarnation=lived, restarts=lived)


def _scene(chance: Random, added: tuple[ChildSpec, ...]) -> Scene:
    spec = _supervisor(chance, 1)
    places = tuple(_places(spec, ()))
    hosts = tuple({path: None for path, _ in places} | {(): None} | _hosts(spec, ()))
    return Scene(spec, places, added, hosts)


def _supervisor(chance: Random, depth: int) -> SupervisorSpec:
    is_dynamic = depth > 1 and chance.random() < 0.3  # noqa: PLR2004 - a share
    flags = Flags(
        strategy=Strategy.DYNAMIC if is_dynamic else chance.choice(_OWN_STRATEGIES),
        max_restarts=chance.choice((3, 6, 10) if depth == 1 else (0, 1, 3, 6)),
        max_seconds=chance.choice((1.0, 5.0, 5.0, 60.0)),
        auto_shutdown=AutoShutdown.NEVER if is_dynamic else chance.choice(_ENDING_EARLY),
        max_children=chance.choice((None, 2)) if is_dynamic else None,
        resumes=chance.random() < 0.2,  # noqa: PLR2004 - a share
        stop_reason=chance.choice((None, "its parent ended")),
    )
    if is_dynamic:
        return SupervisorSpec(flags=flags)
    names = "abcdef"[: chance.randint(1, CHILDREN_MAX)]
    children = tuple(_child(name, flags, chance, depth) for name in names)
    return SupervisorSpec(flags=flags, children=children)


def _child(name: str, flags: Flags, chance: Random, depth: int) -> ChildSpec:
    restart = chance.choice(RESTART_TYPES)
    may_matter = flags.auto_shutdown is not AutoShutdown.NEVER and restart != "permanent"
    is_tree = depth < DEPTH and chance.random() < SUBTREE_SHARE
    return ChildSpec(
        id=name,
        start=_supervisor(chance, depth + 1) if is_tree else f"post of {name}",
        restart=restart,
        shutdown=chance.choice((0.0, 0.5, 5.0, None)),
        significant=may_matter and chance.random() < 0.5,  # noqa: PLR2004 - a share
        restart_delay=chance.choice(((0.0, 0.0), (0.0, 0.0), (0.5, 4.0))),
        start_timeout=None if is_tree else chance.choice((None, 1.0, 5.0)),
    )


def _added(number: int, chance: Random) -> ChildSpec:
    return _child(f"n{number}", Flags(), chance, DEPTH - 1)


def _places(spec: SupervisorSpec, path: SupervisorPath) -> list[tuple[SupervisorPath, str]]:
    found = []
    for child in spec.children:
        found.append((path, child.id))
        if isinstance(child.start, SupervisorSpec):
            found += _places(child.start, (*path, child.id))
    return found


def _hosts(spec: SupervisorSpec, path: SupervisorPath) -> dict[SupervisorPath, None]:
    """Return every supervisor of a tree."""
    found = {path: None}
    for child in spec.children:
        if child.type == SUPERVISOR and isinstance(child.start, SupervisorSpec):
            found |= _hosts(child.start, (*path, child.id))
    return found
