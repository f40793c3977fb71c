"""The phases of a session: one table, phase x what happens to it, which leads to a phase. Pure.

``docs/reference/phases.md`` is made from it. To add something that can happen: its line in
``Happening``, and its column here; a test says which cell is missing.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from cmdc_runtime.requests import SessionPhase


class Phase(StrEnum):
    """Where a session stands, as its supervisor sees it."""

    STARTING = "starting"
    """A worker is asked for, or builds the agent."""
    UP = "up"
    """Its agent takes commands."""
    RESTARTING = "restarting"
    """Its children are being ended, or the back-off runs."""
    HIBERNATING = "hibernating"
    """Its idle process is asked to end."""
    HIBERNATED = "hibernated"
    """It has no process until the next command."""
    STOPPING = "stopping"
    """It was asked to end, and its process may still be there."""
    ENDING = "ending"
    """Its last process is gone and reported, its children are being ended."""
    ENDED = "ended"
    """Nothing of it is left."""


class Happening(StrEnum):
    """What can happen to a session."""

    LAUNCHED = "launched"
    """The tree wants a process of it."""
    CAME_UP = "came_up"
    """The process that was asked for has an agent."""
    IDLED = "idled"
    """Its agent has been idle for long, and nobody depends on the process."""
    HIBERNATED = "hibernated"
    """The idle process is gone."""
    NOT_HIBERNATED = "not_hibernated"
    """The idle process was not ended alone: the session's supervisor is about to end."""
    WANTED = "wanted"
    """A command came that only an agent can take."""
    STOPPED = "stopped"
    """Somebody stops the session."""
    ASKED = "asked"
    """The tree asks its process to end."""
    RESTARTED = "restarted"
    """Its process has ended, and another one is to take its place."""
    NOT_RESTARTED = "not_restarted"
    """Its process has ended, and none takes its place."""
    OVER = "over"
    """Nothing of it is left in the tree, or it never was there."""


# fmt: off
SHOWN: Final[Mapping[Phase, SessionPhase]] = {
    Phase.STARTING:    "starting",
    Phase.UP:          "up",
    Phase.RESTARTING:  "restarting",
    Phase.HIBERNATING: "hibernated",
    Phase.HIBERNATED:  "hibernated",
    Phase.STOPPING:    "stopping",
    Phase.ENDING:      "ended",
    Phase.ENDED:       "ended",
}
"""What callers see of each phase."""
HAVING_CHILDREN: Final = frozenset({Phase.UP})
"""Where a session may get a child: in the others there is no process, or it is about to end."""

_NEW, _UP, _RE, _GO, _HIB, _STOP, _END, _OVER = Phase
____: Final = None
"""Nothing comes of it, or it can't happen there."""
_NEXT: Final[Mapping[Phase, tuple[Phase | None, ...]]] = {
    # in the order of Happening:
    #       launch up     idle   hib    not    want   stop   ask    again  none   over
    _NEW:  (_NEW,  _UP,   ____,  ____,  ____,  ____,  _STOP, _STOP, _RE,   _END,  _OVER),
    _UP:   (_NEW,  ____,  _GO,   ____,  ____,  ____,  _STOP, _STOP, _RE,   _END,  _OVER),
    _RE:   (_NEW,  ____,  ____,  ____,  ____,  ____,  _STOP, _STOP, _RE,   _END,  _OVER),
    _GO:   (_NEW,  ____,  ____,  _HIB,  _STOP, ____,  _STOP, ____,  ____,  ____,  _OVER),
    _HIB:  (_NEW,  ____,  ____,  ____,  ____,  _NEW,  _STOP, _STOP, _RE,   _END,  _OVER),
    _STOP: (_NEW,  ____,  ____,  ____,  ____,  ____,  ____,  ____,  _RE,   _END,  _OVER),
    _END:  (_NEW,  ____,  ____,  ____,  ____,  ____,  ____,  _STOP, _RE,   _END,  _OVER),
    _OVER: (____,  ____,  ____,  ____,  ____,  ____,  ____,  ____,  ____,  ____,  ____),
}
# fmt: on


def after(phase: Phase, happening: Happening) -> Phase:
    """Return the phase that something leads to."""
    return _NEXT[phase][_COLUMNS[happening]] or phase


_COLUMNS: Final[Mapping[Happening, int]] = {one: at for at, one in enumerate(Happening)}
