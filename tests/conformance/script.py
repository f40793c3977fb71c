"""What children do in a case, and how they are kept: the nouns of the language of ``stage``."""

from dataclasses import dataclass

import pytest

from cmdc_runtime.reasons import Exception as Raised
from cmdc_runtime.reasons import (
    ExitCode,
    MaxTurnsExceeded,
    Normal,
    Shutdown,
    Signal,
    StartFailed,
)
from supervisor.core.tree.messages import Ending
from supervisor.core.tree.specs import AutoShutdown, ChildSpec, Flags, Strategy, SupervisorSpec

KILLED = Signal(number=9, name="SIGKILL")
TERMINATED = Signal(number=15, name="SIGTERM")
RAISED = Raised(type="RuntimeError", message="as the script says")
CHOSEN = MaxTurnsExceeded(max_turns=7)
"""An end that ``exit_on`` names."""
EXIT_CODE = 3
"""Of a process that leaves without a word."""

# fmt: off
ENDS = {
    "normal":        (0,         "normal",   Normal()),
    "shutdown":      (0,         "shutdown", Shutdown()),
    "shutdown_term": (0,         "drained",  Shutdown(detail="drained")),
    "chosen":        (0,         "chosen",   CHOSEN),
    "exception":     (1,         "raise",    RAISED),
    "exit":          (EXIT_CODE, "",         ExitCode(code=EXIT_CODE)),
    "silent_zero":   (0,         "",         ExitCode(code=0)),
    "kill":          (-9,        "",         KILLED),
}
# fmt: on
"""The ways in which a process ends by itself: its status, its word before, the reason of both."""

HOPELESS = StartFailed(stage="load", message="no start can work")
"""What a process says that can't start, and never will."""


def case(*names):
    """Say which cases a test plays."""
    return pytest.mark.conformance(*names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What one process of a child does, times in seconds.

    ``start``: ``up`` | ``ignore`` | ``never``, or it fails: ``raise`` | ``exit`` | ``garbage`` |
    ``hopeless``, which is that no start can work.
    ``end``: how it ends by itself ``ends_s`` after it was up, one of ``ENDS``.
    ``stop``: what it makes of the request to end: ``obey`` | ``ignore`` (SIGTERM too) | ``deaf``
    (SIGTERM ends it) | one of ``ENDS``. ``stop_s`` is how long it needs.
    ``company``: a moment after it is up it has a process of its own. ``lock``: a file that no two
    may have at a time; who does not get it fails to start. Both are for real processes alone.
    """

    start: str = "up"
    start_s: float = 0.0
    extra: str = ""
    end: str = "kill"
    ends_s: float | None = None
    stop: str = "obey"
    stop_s: float = 0.0
    unlinks: bool = False
    killable: bool = True
    company: bool = False
    lock: str = ""


@dataclass(frozen=True, slots=True)
class Script:
    """The lives of one child, one for each generation; the last one again and again."""

    lives: tuple[Life, ...]

    def life(self, generation):
        """Return the life of a generation."""
        return self.lives[min(generation, len(self.lives)) - 1]


def child(name, *lives, **more):
    """Return a worker: ``child("a", Life(), restart="transient")``."""
    return ChildSpec(id=name, start=Script(lives or (Life(),)), **more)


def below(name, spec, **more):
    """Return a supervisor as a child, which is waited for unless it says otherwise."""
    return ChildSpec(id=name, start=spec, **({"shutdown": None} | more))


def kept(strategy, *children, **flags):
    """Return a supervisor of this strategy."""
    flags["auto_shutdown"] = AutoShutdown(flags.get("auto_shutdown", "never"))
    return SupervisorSpec(flags=Flags(strategy=Strategy(strategy), **flags), children=children)


def one_for_one(*children, **flags):
    """Return a supervisor that restarts the child that ended."""
    return kept("one_for_one", *children, **flags)


def one_for_all(*children, **flags):
    """Return a supervisor that restarts all with the child that ended."""
    return kept("one_for_all", *children, **flags)


def rest_for_one(*children, **flags):
    """Return a supervisor that restarts those behind the child that ended, too."""
    return kept("rest_for_one", *children, **flags)


def dynamic(**flags):
    """Return a supervisor whose children come at run time."""
    return kept("dynamic", **flags)


def ending_of(reason):
    """Return what the restart types have to know of a reason, as the daemon does."""
    if reason in (CHOSEN, HOPELESS):
        return Ending.FINAL
    return Ending.NORMAL if isinstance(reason, Normal | Shutdown) else Ending.CRASH
