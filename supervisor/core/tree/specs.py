"""What a supervisor and its children are to be: specifications, their check, and the intensity.

The words and the defaults are OTP's (``supervisor``, and Elixir's 3 restarts in 5 s). Beyond OTP:
all problems are reported at once, and a child may have a start deadline and a back-off.

How many restarts are too many is OTP's sliding window, with the back-off that it sees through: see
``Window``.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, get_args

from cmdc_runtime.ids import Incarnation
from cmdc_runtime.requests import RestartType

# --- specifications -------------------------------------------------------------------------------


class Strategy(StrEnum):
    """Who is restarted with a child that ended."""

    ONE_FOR_ONE = "one_for_one"
    ONE_FOR_ALL = "one_for_all"
    REST_FOR_ONE = "rest_for_one"
    DYNAMIC = "dynamic"  # OTP's simple_one_for_one: children of one kind, made at run time


class AutoShutdown(StrEnum):
    """When the end of significant children ends their supervisor."""

    NEVER = "never"
    ANY_SIGNIFICANT = "any_significant"
    ALL_SIGNIFICANT = "all_significant"


WORKER: Final = "worker"
SUPERVISOR: Final = "supervisor"
WORKER_SHUTDOWN_S: Final = 5.0
"""OTP's default for a worker; a supervisor is waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """How one supervisor keeps its children."""

    strategy: Strategy = Strategy.ONE_FOR_ONE
    max_restarts: int = 3
    max_seconds: float = 5.0
    auto_shutdown: AutoShutdown = AutoShutdown.NEVER
    max_children: int | None = None
    """Of a dynamic supervisor, those that wait for a restart included; None: no bound."""
    resumes: bool = False
    """Its children were there before: a first start that fails is a restart that failed."""
    stop_reason: str | None = None
    """The reason that its children get when they are stopped with it; None: the one it got."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """One child; ``start`` means nothing here but to the shell, or is a ``SupervisorSpec``.

    ``shutdown`` is seconds of grace, 0 kills at once, None waits for ever. ``restart_delay`` is the
    first and the longest back-off; the first restart of a series has none. ``generation`` and
    ``restarts`` are those of an earlier life.
    """

    id: str
    start: object
    restart: RestartType = "permanent"
    shutdown: float | None = WORKER_SHUTDOWN_S
    significant: bool = False
    restart_delay: tuple[float, float] = (0.0, 0.0)
    start_timeout: float | None = None
    generation: Incarnation = Incarnation(0)
    restarts: int = 0

    @property
    def type(self) -> str:
        """What OTP calls the child's type."""
        return SUPERVISOR if isinstance(self.start, SupervisorSpec) else WORKER


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSpec:
    """A supervisor with the children that it starts, in order."""

    flags: Flags = Flags()
    children: tuple[ChildSpec, ...] = field(default=())


def spec_problems(spec: SupervisorSpec) -> list[str]:
    """Return what is wrong with a supervisor, its children and all below them."""
    problems = flag_problems(spec.flags)
    seen: set[str] = set()
    for child in spec.children:
        label = f"child {child.id!r}: "
        if str(child.id) in seen:
            problems.append(f"{label}the id is taken by an earlier child")
        seen.add(str(child.id))
        problems += [label + problem for problem in child_problems(child)]
        problems += [label + problem for problem in significance_problems(spec.flags, child)]
    if spec.flags.strategy is Strategy.DYNAMIC and spec.children:
        problems.append("children: a dynamic supervisor starts with none")
    return problems


def flag_problems(flags: Flags) -> list[str]:
    """Return what is wrong with a supervisor's flags."""
    problems = [
        f"{name}: expected one of {', '.join(enum)}, got {value!r}"
        for name, enum, value in _words_of(flags)
        if not isinstance(value, enum)
    ]
    if not _is_count(flags.max_restarts):
        problems.append(f"max_restarts: expected an int of 0 or more, got {flags.max_restarts!r}")
    if not _is_seconds(flags.max_seconds) or flags.max_seconds <= 0:
        problems.append(f"max_seconds: expected seconds above 0, got {flags.max_seconds!r}")
    is_dynamic = flags.strategy is Strategy.DYNAMIC
    if is_dynamic and flags.auto_shutdown is not AutoShutdown.NEVER:
        problems.append(f"auto_shutdown: a dynamic supervisor has none, got {flags.auto_shutdown}")
    if flags.max_children is not None:
        if not _is_count(flags.max_children):
            problems.append(f"max_children: expected an int of 0 or more, got {flags.max_children}")
        if not is_dynamic:
            problems.append("max_children: only a dynamic supervisor has it")
    problems += _no_claim("resumes", flags.resumes)
    stop_reason: object = flags.stop_reason
    if stop_reason is not None and not isinstance(stop_reason, str):
        problems.append(f"stop_reason: expected text or None, got {stop_reason!r}")
    return problems


def child_problems(child: ChildSpec) -> list[str]:
    """Return what is wrong with one child, those below it included."""
    problems = []
    name: object = child.id
    if not isinstance(name, str) or not name:
        problems.append(f"id: expected text, got {name!r}")
    if child.restart not in _RESTART_TYPES:
        choices = ", ".join(_RESTART_TYPES)
        problems.append(f"restart: expected one of {choices}, got {child.restart!r}")
    if child.shutdown is not None and not _is_seconds(child.shutdown):
        problems.append(
            f"shutdown: expected seconds of 0 or more or None (wait for ever), "
            f"got {child.shutdown!r}"
        )
    problems += _no_claim("significant", child.significant)
    for count, number in (("generation", child.generation), ("restarts", child.restarts)):
        if not _is_count(number):
            problems.append(f"{count}: expected an int of 0 or more, got {number!r}")
    problems += _timing_problems(child)
    if child.significant is True and child.restart == "permanent":
        problems.append("significant: a permanent child ends nothing, make it transient")
    if isinstance(child.start, SupervisorSpec):
        problems += spec_problems(child.start)
    return problems


def _timing_problems(child: ChildSpec) -> Iterator[str]:
    bounds: object = child.restart_delay
    if not (isinstance(bounds, (tuple, list)) and [*map(_is_seconds, bounds)] == [True, True]):
        yield f"restart_delay: expected two times in seconds, got {bounds!r}"
    if child.start_timeout is None:
        return
    if not _is_seconds(child.start_timeout):
        yield f"start_timeout: expected seconds or None, got {child.start_timeout!r}"
    if child.type == SUPERVISOR:
        yield "start_timeout: a supervisor has none, its children have"


def significance_problems(flags: Flags, child: ChildSpec) -> list[str]:
    """Return what is wrong with a child below a supervisor of these flags."""
    if child.significant and flags.auto_shutdown is AutoShutdown.NEVER:
        return ["significant: its supervisor has auto_shutdown never"]
    return []


_RESTART_TYPES: Final = get_args(RestartType)


def _words_of(flags: Flags) -> Iterable[tuple[str, type[StrEnum], object]]:
    yield "strategy", Strategy, flags.strategy
    yield "auto_shutdown", AutoShutdown, flags.auto_shutdown


def _no_claim(name: str, value: object) -> Iterable[str]:
    if not isinstance(value, bool):
        yield f"{name}: expected True or False, got {value!r}"


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_seconds(value: object) -> bool:
    return (  # whatever a person wrote
        isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf
    )


# --- intensity ------------------------------------------------------------------------------------

DOUBLINGS_MAX: Final = 64
"""Of a back-off; beyond it the power would only overflow."""
SPREAD: Final = 0.2
"""How much longer than it says a back-off may be: who fell together should not come back so."""


class Entry(NamedTuple):
    """One restart."""

    then_s: float
    owner: str
    is_charged: bool


@dataclass(slots=True)
class Window:
    """The restarts of one supervisor that still count.

    From ``supervisor:add_restart/1``: forget what is older than the period (an entry exactly as old
    still counts), add now, and it is too much when there are more entries than ``max_restarts``.
    The window is the supervisor's, shared by all its children.

    A child that waits for its next start makes its own entries no older: the time that we added
    ourselves hides no crash. A restart may be spared: it is an entry, so that the next back-off is
    longer, and counts for nothing else. Who spares has a bound of its own on how many.
    """

    max_restarts: int
    max_seconds: float
    _entries: list[Entry] = field(default_factory=list)

    def charge(self, child_id: str, now_s: float) -> bool:
        """Count one restart that ``child_id`` asks for; False: it is one too many."""
        self._forget(now_s)
        self._entries.append(Entry(now_s, child_id, is_charged=True))
        return self._charged <= self.max_restarts

    def spare(self, child_id: str, now_s: float) -> bool:
        """Remember a restart that is not counted; False: this supervisor restarts nothing."""
        self._forget(now_s)
        self._entries.append(Entry(now_s, child_id, is_charged=False))
        return self.max_restarts > 0

    def count(self, now_s: float) -> int:
        """Return how many count now."""
        self._forget(now_s)
        return self._charged

    def of(self, child_id: str, now_s: float) -> int:
        """Return how many restarts of this child the back-off goes by, spared ones included."""
        self._forget(now_s)
        return sum(entry.owner == child_id for entry in self._entries)

    def delayed(self, child_id: str, delay_s: float) -> None:
        """Make this child's entries younger by the time that it was kept waiting."""
        self._entries = [
            one._replace(then_s=one.then_s + delay_s) if one.owner == child_id else one
            for one in self._entries
        ]

    @property
    def _charged(self) -> int:
        return sum(entry.is_charged for entry in self._entries)

    def _forget(self, now_s: float) -> None:
        # An entry may lie ahead of now: it was pushed there by a delay that is not over yet.
        if self._entries:
            self._entries = [one for one in self._entries if now_s - one.then_s <= self.max_seconds]


def delay_s(bounds: tuple[float, float], earlier: int) -> float:
    """Return the back-off after ``earlier`` restarts: none, then the first bound, doubling."""
    if earlier == 0:
        return 0.0
    return float(min(bounds[0] * 2.0 ** min(earlier - 1, DOUBLINGS_MAX), bounds[1]))


def spread(delay_s: float, chance: float) -> float:
    """Return a back-off that is up to ``SPREAD`` longer, by ``chance`` from 0 to 1.

    What has killed many at once would otherwise meet all of them again at once.
    """
    return delay_s * (1.0 + SPREAD * chance)
