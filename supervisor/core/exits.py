"""From the evidence of an exit to its reason. Pure; the shell gathers the evidence.

The kernel's word comes before the process's own: last words of a process that was killed while it
said goodbye do not make its end a normal one.
"""

import signal
from dataclasses import dataclass
from typing import Final

from cmdc_runtime.process import EXIT_BAD_OPTIONS
from cmdc_runtime.reasons import (
    Exception as Raised,
)
from cmdc_runtime.reasons import (
    ExitCode,
    MaxTurnsExceeded,
    Normal,
    Other,
    PlainReason,
    PluginAborted,
    ProviderTimeout,
    Shutdown,
    Signal,
    StartFailed,
)
from supervisor.core.restart import Ending

_GOODBYES: Final = (Normal, Shutdown)
_CHOSEN: Final = (MaxTurnsExceeded, ProviderTimeout, PluginAborted)
"""What ``exit_on`` may name: the process ends by itself, and the session with it."""
_OWN_WORD_COUNTS: Final = (*_GOODBYES, *_CHOSEN)
"""With status 0 the process's own word is taken; any other word with that status is a bug."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about one exit; ``status`` is None where the nursery could not tell it.

    ``blamed`` is why we killed the process ourselves, ``last_words`` what it said of its own end.
    """

    status: int | None
    last_words: PlainReason | None = None
    not_started: StartFailed | None = None
    blamed: PlainReason | None = None


def classify(evidence: Evidence) -> PlainReason:
    """Return the reason of an exit."""
    if evidence.not_started is not None:
        return evidence.not_started
    if evidence.blamed is not None:
        return evidence.blamed
    status, last_words = evidence.status, evidence.last_words
    if status is None:
        return last_words or Other(detail="its exit status was lost with the nursery")
    if status < 0:
        return last_words if isinstance(last_words, Raised) else _signal(-status)
    if last_words is not None and (status == 0) == isinstance(last_words, _OWN_WORD_COUNTS):
        return last_words
    return ExitCode(code=status)


def ending_of(reason: PlainReason, status: int | None) -> Ending:
    """Return what the restart types have to know of ``reason``."""
    if status == EXIT_BAD_OPTIONS:
        return Ending.HOPELESS
    if isinstance(reason, _CHOSEN):
        return Ending.CHOSEN
    return Ending.NORMAL if isinstance(reason, _GOODBYES) else Ending.CRASH


def _signal(number: int) -> Signal:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"SIG{number}"
    return Signal(number=number, name=name)
