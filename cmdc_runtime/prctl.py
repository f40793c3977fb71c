"""What a process asks of the kernel about itself: its orphans, who may look into it, its end.

See prctl(2). The C library is opened once per process, at import, so that nothing is opened between
a fork and an exec.
"""

import ctypes
import signal
from typing import Final

_SET_PDEATHSIG: Final = 1
_GET_DUMPABLE: Final = 3
_SET_DUMPABLE: Final = 4
_SET_CHILD_SUBREAPER: Final = 36

_prctl: Final = ctypes.CDLL(None, use_errno=True).prctl


def set_child_subreaper() -> None:
    """Make orphans below this process its children instead of init's; raises OSError.

    Children do not inherit it; an exec keeps it.
    """
    _call(_SET_CHILD_SUBREAPER, 1, "PR_SET_CHILD_SUBREAPER")


def set_parent_death_signal() -> None:
    """Have the kernel kill this process when the thread that forked it ends; raises OSError.

    A fork forgets it. The parent may have ended before: look at the parent's pid afterwards.
    """
    _call(_SET_PDEATHSIG, signal.SIGKILL, "PR_SET_PDEATHSIG")


def set_dumpable(*, is_dumpable: bool) -> None:
    """Say whether other processes of this user may look into this one; raises OSError.

    Where they may not, its memory, environment, descriptors and maps in /proc are readable for
    nobody without CAP_SYS_PTRACE, it can't be traced, and it writes no core file. A fork inherits
    it; an exec makes the process dumpable again. Such a process can't write to its own
    /proc/self/oom_score_adj unless it is root's.
    """
    _call(_SET_DUMPABLE, int(is_dumpable), "PR_SET_DUMPABLE")


def is_dumpable() -> bool:
    """Say whether other processes of this user may look into this one."""
    return bool(_prctl(_GET_DUMPABLE, 0, 0, 0, 0))


def _call(option: int, value: int, name: str) -> None:
    if _prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({name})")
