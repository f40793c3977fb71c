"""The options of automatic checkpoints."""

from typing import Annotated, ClassVar, Final

import msgspec
from msgspec import Meta

from cmdc_runtime.checkpoints import CHECKPOINTS_MAX
from cmdc_runtime.packing import BuiltInPlugin

EVERY_N_TURNS: Final = 10
"""Requests to the model between two checkpoints, unless the options say otherwise."""
SESSION_END: Final = "session_end"
"""Among ``on_events``: the session ends."""
ON_EVENTS: Final = ("approval_required", SESSION_END)
"""The events that are worth a checkpoint, unless the options name others."""

_Name = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,128}$")]
_Names = Annotated[tuple[_Name, ...], Meta(max_length=512)]


class AutoCheckpoint(BuiltInPlugin, frozen=True, kw_only=True):
    """Saves the session's state by itself: every so many turns, after some tools, at some events.

    Each trigger saves for itself. After a save the oldest of its own checkpoints and those that
    are too old are deleted; checkpoints that others made stay. A save that fails is reported by a
    warning in the log and by nothing else.
    """

    short_name: ClassVar[str] = "auto_checkpoint"
    every_n_turns: Annotated[int, Meta(ge=0, le=100_000)] = EVERY_N_TURNS
    """Turns, which are requests to the model, since the last such checkpoint; they are counted
    when a cycle ends. 0 is never."""
    by_turn: Annotated[int, Meta(ge=0, le=100_000)] | None = None
    """Another name of ``every_n_turns``; give one of them."""
    on_tools: _Names = ()
    """Names of tools, exact: a call of one has ended, and its result is part of the state."""
    on_events: _Names = ON_EVENTS
    """Kinds of events, and ``"session_end"``: the session ends normally."""
    max_checkpoints: Annotated[int, Meta(ge=1, le=CHECKPOINTS_MAX)] = 50
    """Of its own in this session."""
    ttl_seconds: Annotated[float, Meta(gt=0, le=1_000_000_000)] = 2_592_000
    """Older ones of its own are deleted at the next save; the default is 30 days."""

    def __post_init__(self) -> None:
        """Settle the other name.

        Raises:
            ValueError: both names are given, and contradict each other.
        """
        if self.by_turn is None:
            return
        if self.every_n_turns not in (EVERY_N_TURNS, self.by_turn):
            raise ValueError(
                f"every_n_turns is {self.every_n_turns} and by_turn, another name of it, is"
                f" {self.by_turn}: give one of them"
            )
        msgspec.structs.force_setattr(self, "every_n_turns", self.by_turn)
