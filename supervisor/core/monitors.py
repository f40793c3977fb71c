"""Who wants to know when a session's process ends: one Down for each monitor, exactly once. Pure.

A monitor is opened first and watches once it is started: what was recorded before is looked up
in between, and what ends meanwhile is held. A recorded end has a number, and a monitor takes
numbers that grow, so what comes from both sides is sent once. What could not be recorded has none
and is sent to whoever watches now. What ended before a new monitor was opened is not for it, also
when its record is done later: ends are counted as they are reported, too.

``Tally`` counts the notices to each client, so that one that has lost some can notice.
"""

from collections import OrderedDict
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from cmdc_runtime.ids import DownSeq, MonitorRef, SessionId
from cmdc_runtime.reasons import Down


@dataclass(frozen=True, slots=True)
class Monitor:
    """One client's wish; ``client`` is the identity of its connection."""

    ref: MonitorRef
    session_id: SessionId
    client: bytes
    persistent: bool


@dataclass(frozen=True, slots=True)
class RecordedDown:
    """One end, for all its monitors: ``down`` has no reference yet; ``seq`` None: no record."""

    down: Down
    seq: DownSeq | None


class Notice(NamedTuple):
    """What is to be sent to one client; ``after`` is the recorded end that it had before."""

    client: bytes
    down: Down
    seq: DownSeq | None
    after: DownSeq


@dataclass(slots=True, eq=False)
class MonitorState:
    """One monitor as it stands.

    ``seen`` is the newest recorded end that it has had, or that is not for it. Those counted up to
    ``after`` are not for it. ``since`` is what ``seen`` was when it was started, ``held`` is None
    from then on.
    """

    monitor: Monitor
    seen: DownSeq
    after: int
    since: DownSeq = DownSeq(0)
    held: list[RecordedDown] | None = field(default_factory=list)


@dataclass(slots=True)
class Monitors:
    """All monitors of the daemon."""

    _by_ref: dict[MonitorRef, MonitorState] = field(default_factory=dict)
    _by_session: dict[SessionId, dict[MonitorRef, MonitorState]] = field(default_factory=dict)
    _by_client: dict[bytes, set[MonitorRef]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._by_ref)

    def __contains__(self, ref: MonitorRef) -> bool:
        """Say whether ``ref`` is set."""
        return ref in self._by_ref

    @property
    def clients(self) -> AbstractSet[bytes]:
        """Return who has monitors."""
        return self._by_client.keys()

    def find(self, monitor: Monitor) -> MonitorState | None:
        """Return this very monitor if it is watching already."""
        state = self._by_ref.get(monitor.ref)
        return state if state and state.monitor == monitor and state.held is None else None

    def holds(self, state: MonitorState) -> bool:
        """Say whether ``state`` is still wanted, and has not had its last notice."""
        return self._by_ref.get(state.monitor.ref) is state

    def open(self, monitor: Monitor, seen: DownSeq, after: int = 0) -> MonitorState:
        """Begin to hold what ends; the same reference again takes the place of the one before."""
        self.remove(monitor.ref)
        state = self._by_ref[monitor.ref] = MonitorState(monitor, seen, after)
        self._by_session.setdefault(monitor.session_id, {})[monitor.ref] = state
        self._by_client.setdefault(monitor.client, set()).add(monitor.ref)
        return state

    def give(self, state: MonitorState, recorded: Iterable[RecordedDown]) -> list[Notice]:
        """Return the notices of what was recorded, which is in order; it goes on holding."""
        notices = []
        for one in recorded:
            if self.holds(state):
                notices += self._notices(state, one)
        return notices

    def start(self, state: MonitorState, newest: DownSeq) -> list[Notice]:
        """Begin to watch, and return the notices of what was held.

        ``newest`` is the newest recorded end. Some of those that were held may have been recorded
        by then: what is not for this monitor is older than they are.
        """
        held, state.held = state.held or [], None
        first = min((one.seq for one in held if one.seq is not None), default=None)
        if first is not None:
            newest = min(newest, DownSeq(first - 1))
        state.seen = state.since = max(state.seen, newest)
        return self.give(state, held)

    def conclude(self, state: MonitorState, recorded: RecordedDown) -> list[Notice]:
        """Return the only notice of a monitor whose session is over already."""
        if not self.holds(state):
            return []
        if recorded.seq is not None:
            state.seen = state.since = DownSeq(recorded.seq - 1)
        return self._notices(state, recorded)

    def fire(self, recorded: RecordedDown, count: int) -> list[Notice]:
        """Return the notices of what ended now, in the order in which the monitors were set.

        ``count`` is the end's place among all that this daemon reported.
        """
        notices = []
        for state in list(self._by_session.get(recorded.down.session_id, {}).values()):
            if count <= state.after:
                continue
            if state.held is not None:
                state.held.append(recorded)
            else:
                notices += self._notices(state, recorded)
        return notices

    def remove(self, ref: MonitorRef) -> None:
        """Forget a monitor; an unknown reference is forgotten already."""
        state = self._by_ref.pop(ref, None)
        if state is None:
            return
        monitor = state.monitor
        others = self._by_session[monitor.session_id]
        del others[ref]
        if not others:
            del self._by_session[monitor.session_id]
        refs = self._by_client[monitor.client]
        refs.remove(ref)
        if not refs:
            del self._by_client[monitor.client]

    def forget(self, client: bytes) -> None:
        """Forget all monitors of one client."""
        for ref in list(self._by_client.get(client, ())):
            self.remove(ref)

    def _notices(self, state: MonitorState, recorded: RecordedDown) -> list[Notice]:
        after = state.seen
        if recorded.seq is not None:
            if recorded.seq <= after:
                return []
            state.seen = recorded.seq
        if not (state.monitor.persistent and recorded.down.restarting):
            self.remove(state.monitor.ref)
        down = msgspec.structs.replace(recorded.down, ref=state.monitor.ref)
        return [Notice(state.monitor.client, down, recorded.seq, after)]


@dataclass(slots=True)
class _Count:
    number: int
    asked_s: float


@dataclass(slots=True)
class Tally:
    """How many notices each client was sent, lost ones included.

    A new count begins above every number given so far: a client whose count was forgotten, or who
    missed a notice of an earlier one, never finds the number that it has counted up to.
    """

    counts_max: int
    _newest: int = 0
    _counts: OrderedDict[bytes, _Count] = field(default_factory=OrderedDict)

    def ask(self, client: bytes, now_s: float) -> int:
        """Return the number of the newest notice to ``client``, who shows thereby that it lives."""
        count = self._of(client, now_s)
        count.asked_s = now_s
        self._counts.move_to_end(client)
        return count.number

    def add(self, client: bytes, now_s: float) -> int:
        """Count one notice, and return its number."""
        count = self._of(client, now_s)
        count.number += 1
        self._newest += 1
        return count.number

    def drop(self, client: bytes) -> None:
        """Forget a count."""
        self._counts.pop(client, None)

    def is_silent(self, client: bytes, since_s: float) -> bool:
        """Say whether ``client`` has not asked since then."""
        count = self._counts.get(client)
        return count is None or count.asked_s < since_s

    def _of(self, client: bytes, now_s: float) -> _Count:
        count = self._counts.get(client)
        if count is None:
            self._newest += 1
            count = self._counts[client] = _Count(self._newest, now_s)
            if len(self._counts) > self.counts_max:
                self._counts.popitem(last=False)
        return count
