"""Who may ask the daemon for what: a person anything, an agent what is its own, a tool nothing.

A person is whoever is no process of a session: a shell, an application, a service. Pure: who
somebody is comes in as a value, from ``adapters.peers``. A new request is nobody's but a person's
until it has another row in ``REACH``.

Of what is refused every kind of trouble is logged soon, and a flood not line by line. Counting is
complete; logging is bounded twice: of one peer the 1st, 2nd, 4th, 8th … refusal is logged, and of
all peers together ``LINES_MAX`` within ``WINDOW_S``. What is not logged line by line
shows in the numbers of the next line. Times come in as arguments.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import Any, Final

from cmdc_runtime import requests
from cmdc_runtime.errors import AccessDenied
from cmdc_runtime.ids import Incarnation, SessionId

# --- who may ask ----------------------------------------------------------------------------------


class Kind(StrEnum):
    """What the process of a peer is."""

    PERSON = auto()  # none of ours: its owner decides what it does
    AGENT = auto()  # the process of a session itself
    TOOL = auto()  # what a session has started, or what is left of that
    GONE = auto()  # it has ended: nobody can say any more what it was


@dataclass(frozen=True, slots=True)
class Peer:
    """Who made a connection; the session of an agent or a tool where it is known."""

    kind: Kind
    session_id: SessionId | None = None
    incarnation: Incarnation | None = None


PERSON: Final = Peer(Kind.PERSON)


class Reach(StrEnum):
    """Which of the things that a request can be about are an agent's own."""

    FREE = auto()  # it is about no session
    NEW = auto()  # a session below its own, with nobody else's past
    BELOW = auto()  # sessions below its own
    TREE = auto()  # its own, and sessions below
    OWN = auto()  # its own
    NONE = auto()  # it is a person's


# fmt: off
REACH: Final[Mapping[type[requests.Request], Reach]] = {
    # request                     what an agent may ask that of
    requests.GetFacts:            Reach.FREE,
    requests.ReadPage:            Reach.FREE,  # of an answer that it had, whose name nobody guesses
    requests.StartSession:        Reach.NEW,
    requests.StopSession:         Reach.BELOW,
    requests.FindSession:         Reach.TREE,
    requests.Replay:              Reach.TREE,
    requests.KeepCheckpoint:      Reach.OWN,
    requests.ListCheckpoints:     Reach.OWN,
    requests.DeleteCheckpoint:    Reach.OWN,
    requests.GetBlob:             Reach.OWN,
    requests.KeepBlob:            Reach.NONE,
    requests.ListBlobs:           Reach.NONE,
    requests.GetCheckpoint:       Reach.NONE,
    requests.GetDefinition:       Reach.NONE,
    requests.ListSessions:        Reach.NONE,
    requests.ListInactive:        Reach.NONE,
    requests.GetTree:             Reach.NONE,
    requests.ResizeBuffer:        Reach.NONE,
    requests.Monitor:             Reach.NONE,
    requests.Demonitor:           Reach.NONE,
    requests.PutPart:             Reach.NONE,
    requests.FinishImport:        Reach.NONE,
    requests.ReadPast:            Reach.NONE,
    requests.BackUp:              Reach.NONE,
}
# fmt: on

AGENT_COMMANDS: Final = frozenset({"prompt", "await_cycle", "forget_wait", "next_page"})
"""What an agent may send the sessions below it, by the names that commands travel under; to decide
for a person, above all, is not among it."""

_WAY_OUT: Final = (
    "only a person or an application outside of every session may ask the daemon for that; start"
    " and steer subagents with the task tool"
)


class SenderEnded(AccessDenied):
    """Who asked has ended, so nobody can say any more what it was.

    A process that is killed just behind a call leaves such a frame: it is not done, and is no sign
    of somebody who asks for what is not his.
    """


def problem(peer: Peer) -> AccessDenied | None:
    """Return why nothing is heard from a peer, whatever it asks; None: it may ask."""
    if peer.kind is Kind.TOOL:
        whose = "a session" if peer.session_id is None else f"session {peer.session_id!r}"
        return AccessDenied(
            f"it comes from a process that a tool of {whose} has started: {_WAY_OUT}"
        )
    if peer.kind is Kind.GONE:
        return SenderEnded(
            "the process that asked has ended, so nobody knows any more whose it was"
        )
    return None


def reach_of(request: requests.Request) -> Reach:
    """Return what an agent may send this request about."""
    return REACH.get(type(request), Reach.NONE)


def target_of(request: Any) -> SessionId:  # Any: a request whose reach is its own, or below
    """Return the session that a request is about."""
    if isinstance(request, requests.KeepCheckpoint):
        return request.facts.session_id
    found: SessionId = request.session_id
    return found


def is_own_child(peer: Peer, request: requests.StartSession) -> bool:
    """Say whether an agent starts a session below itself, with its own past or none."""
    past = request.origin
    return (
        request.parent_id == peer.session_id
        and request.parent_incarnation in {None, peer.incarnation}
        and (past is None or past.session_id == peer.session_id)
    )


def refusal(peer: Peer, what: str) -> str:
    """Return what an agent reads that has asked for what is not its own."""
    return f"the agent of session {peer.session_id!r} may not send {what!r} there: {_WAY_OUT}"


# --- what is logged of refusals -------------------------------------------------------------------

LINES_MAX: Final = 20
"""Lines within one window: enough to see a pattern, few enough not to hide what else is logged."""
WINDOW_S: Final = 10.0
"""How long a window lasts."""
PEERS_MAX: Final = 1_024
"""Peers whose refusals are counted one by one; the one refused longest ago is forgotten first."""


@dataclass(slots=True)
class Refusals:
    """The refusals at one socket."""

    total: int = 0
    """How many there were, of all peers."""
    _by_peer: OrderedDict[bytes, int] = field(default_factory=OrderedDict)
    _window_ends_s: float = 0.0
    _lines: int = 0

    def count(self, peer: bytes, now_s: float) -> int | None:
        """Count one of ``peer``; return how many it has had where a line is due, else None."""
        self.total += 1
        of_peer = self._by_peer.pop(peer, 0) + 1
        self._by_peer[peer] = of_peer
        if len(self._by_peer) > PEERS_MAX:
            self._by_peer.popitem(last=False)
        if of_peer & (of_peer - 1):
            return None
        if now_s >= self._window_ends_s:
            self._window_ends_s, self._lines = now_s + WINDOW_S, 0
        self._lines += 1
        return of_peer if self._lines <= LINES_MAX else None
