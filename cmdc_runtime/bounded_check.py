"""A check that may take for ever, such as the match of a pattern, ended after a bound of CPU time.

``re`` holds the interpreter's lock while it matches, so that no task and no thread can end it, and
a pattern as ``^(a+)+$`` takes years on a text of 40 characters. In the main thread it looks for
signals as it goes, and their handler may raise. The timer counts CPU time of the process: a busy
machine ends no check.
"""

import signal
from collections.abc import Callable
from types import FrameType
from typing import Final, TypeVar

T = TypeVar("T")

CHECK_CPU_S: Final = 1.0
"""CPU time of one check, in seconds; it takes below a millisecond as a rule."""
AGAIN_S: Final = 0.25
"""Until the next signal, where the code that is checked has swallowed the first."""


class CheckTooLongError(Exception):
    """A check took more CPU time than it may; nobody knows how it would have ended."""


def bounded(check: Callable[[], T]) -> T:
    """Return what ``check`` returns; outside of the main thread, without a bound.

    The handler stays when the check is over, and does nothing then: a signal that is late finds it.

    Raises:
        CheckTooLongError: it took more than ``CHECK_CPU_S``.
    """
    is_over = False

    def end(_number: int, _frame: FrameType | None) -> None:
        if not is_over:
            raise CheckTooLongError(f"it took more than {CHECK_CPU_S:g} s of CPU time")

    try:
        signal.signal(signal.SIGVTALRM, end)
    except ValueError:  # signals are handled in the main thread alone
        return check()
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, CHECK_CPU_S, AGAIN_S)
        try:
            return check()
        finally:
            is_over = True
    finally:  # apart, since a signal may come right before the line above
        is_over = True
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
