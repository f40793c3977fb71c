"""The line that says how the daemon stands; ``systemctl status`` shows it."""

from collections import Counter
from collections.abc import Iterable
from typing import get_args

from cmdc_runtime.requests import SessionPhase


def status_line(
    phases: Iterable[SessionPhase], spares: int, nursery: str, journal: str = "open"
) -> str:
    """Return one line: how many sessions there are and in which phases, and who serves them.

    A journal that is not open comes first: nothing matters more.
    """
    counts = Counter(phase for phase in phases if phase != "ended")
    phrase = _counted(counts.total(), "session")
    told = ", ".join(
        f"{counts[phase]} {phase}" for phase in get_args(SessionPhase) if counts[phase]
    )
    trouble = "" if journal == "open" else f"journal {journal}; "
    return (
        f"{trouble}{phrase}{told and f' ({told})'}, {_counted(spares, 'spare')}, nursery {nursery}"
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
