"""Who is silent: from the times of last heartbeats to judgements. Pure: the clock is an argument.

A process is judged from the moment when it is watched. Silent for its limit, it is asked for a
stack; silent for ``DUMP_WAIT_S`` more, it is failed, once and for good. A process that beats in
between is trusted as before.

The judge may have been away itself: stopped, blocked, or suspended with the machine. It sees that
from the time between its own looks, and then everybody starts anew. Who has not beaten since it was
given a new period gets just the time back that the judge was away: so a judge that is away again
and again fails nobody for that, and still finds who is silent.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final, Generic, TypeAlias, TypeVar

LOOK_S: Final = 0.5
"""Between two looks: a sixtieth of the usual limit, and two looks a second cost next to nothing."""
LOOKS_PER_LIMIT: Final = 4
"""Looks in the time of a limit that is below ``LOOK_S`` times this: it is found in time too."""
DUMP_WAIT_S: Final = 1.0
"""From the question for a stack to the end: a thread's stack is written in milliseconds."""
GAP_S: Final = 1.0
"""What a look may be late before the judge counts as away: a busy machine's delays are shorter."""
GAP_INTERVALS: Final = 2
"""The same in intervals; the longer time counts."""

_NS_PER_S: Final = 1_000_000_000
_NS_PER_MS: Final = 1_000_000
_DUMP_WAIT_NS: Final = round(DUMP_WAIT_S * _NS_PER_S)

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class AskForStack(Generic[K]):
    """The process has been silent for its limit: its stacks may show why."""

    key: K


@dataclass(frozen=True, slots=True)
class Silent(Generic[K]):
    """The process is failed; ``silent_ms`` does not count the time that the judge was away."""

    key: K
    silent_ms: int


Judgement: TypeAlias = AskForStack[K] | Silent[K]


class Trust(StrEnum):
    """How the judge thinks of a process."""

    TRUSTED = auto()
    ASKED = auto()
    FAILED = auto()


class Sign(Enum):
    """What the judge sees of a process when it looks."""

    HEARD = auto()  # a heartbeat within its limit, or since it was asked
    SILENT = auto()  # it did not
    WAITED = auto()  # nor did it since it was asked, and the time for that is over


_T, _A, _C = Trust.TRUSTED, Trust.ASKED, Trust.FAILED
# fmt: off
NEXT: Final[Mapping[tuple[Trust, Sign], Trust]] = {
    # a judgement is reported where the trust sinks
    (_T, Sign.HEARD): _T,   (_T, Sign.SILENT): _A,   (_T, Sign.WAITED): _A,
    (_A, Sign.HEARD): _T,   (_A, Sign.SILENT): _A,   (_A, Sign.WAITED): _C,
    (_C, Sign.HEARD): _C,   (_C, Sign.SILENT): _C,   (_C, Sign.WAITED): _C,
}
# fmt: on


@dataclass(slots=True)
class _Watched:
    """One process; ``since_ns`` is when it was watched, or when its newest period began."""

    slot: int
    limit_ns: int
    since_ns: int
    is_pardoned: bool = False
    trust: Trust = Trust.TRUSTED
    asked_ns: int = 0


class Judge(Generic[K]):
    """The memory of who is watched since when, and the decision at each look.

    Times are monotonic nanoseconds. ``heartbeats`` has the time of the last heartbeat at the number
    of each slot; one of the future is one of now.
    """

    def __init__(self) -> None:
        """Watch nobody yet."""
        self._watched: dict[K, _Watched] = {}
        self._limits: Counter[int] = Counter()
        self._looked_ns = 0

    def __len__(self) -> int:
        """Return how many are watched."""
        return len(self._watched)

    @property
    def interval_s(self) -> float:
        """The time between two looks, for the shortest limit that is watched."""
        if not self._limits:
            return LOOK_S
        return min(LOOK_S, min(self._limits) / LOOKS_PER_LIMIT / _NS_PER_S)

    def watch(self, key: K, slot: int, limit_s: float, now_ns: int) -> None:
        """Judge ``key`` from now on by ``slot``; if it was watched, start anew."""
        self.unwatch(key)
        if not self._watched:
            self._looked_ns = now_ns
        limit_ns = round(limit_s * _NS_PER_S)
        self._watched[key] = _Watched(slot, limit_ns, now_ns)
        self._limits[limit_ns] += 1

    def unwatch(self, key: K) -> None:
        """Judge ``key`` no more; one that isn't watched is fine."""
        one = self._watched.pop(key, None)
        if one is None:
            return
        self._limits[one.limit_ns] -= 1
        if not self._limits[one.limit_ns]:
            del self._limits[one.limit_ns]

    def look(self, now_ns: int, heartbeats: Sequence[int]) -> list[Judgement[K]]:
        """Return what there is to say now."""
        interval_ns = round(self.interval_s * _NS_PER_S)
        away_ns, self._looked_ns = now_ns - self._looked_ns, now_ns
        if away_ns > max(GAP_INTERVALS * interval_ns, interval_ns + round(GAP_S * _NS_PER_S)):
            for one in self._watched.values():
                _pardon(one, heartbeats[one.slot], now_ns, away_ns - interval_ns)
        judgements = []
        for key, one in self._watched.items():
            if now_ns - heartbeats[one.slot] < one.limit_ns and one.trust is _T:
                continue  # nearly everybody, nearly always
            if judgement := _judge(key, one, heartbeats[one.slot], now_ns):
                judgements.append(judgement)
        return judgements


def _pardon(one: _Watched, heartbeat_ns: int, now_ns: int, away_ns: int) -> None:
    """Give one process a new period, or the time back where it has had one already."""
    if one.is_pardoned and heartbeat_ns <= one.since_ns:
        one.since_ns += away_ns
        one.asked_ns += away_ns
        return
    one.since_ns, one.is_pardoned = now_ns, True


def _judge(key: K, one: _Watched, heartbeat_ns: int, now_ns: int) -> Judgement[K] | None:
    heard_ns = max(heartbeat_ns, one.since_ns)
    before, one.trust = one.trust, NEXT[one.trust, _sign(one, heard_ns, now_ns)]
    if before is Trust.TRUSTED and one.trust is Trust.ASKED:
        one.asked_ns = now_ns
        return AskForStack(key)
    if before is Trust.ASKED and one.trust is Trust.FAILED:
        return Silent(key, (now_ns - heard_ns) // _NS_PER_MS)
    return None


def _sign(one: _Watched, heard_ns: int, now_ns: int) -> Sign:
    is_asked = one.trust is Trust.ASKED
    if now_ns - heard_ns < one.limit_ns or (is_asked and heard_ns > one.asked_ns):
        return Sign.HEARD
    return Sign.WAITED if is_asked and now_ns - one.asked_ns >= _DUMP_WAIT_NS else Sign.SILENT
