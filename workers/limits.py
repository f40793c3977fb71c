"""Bounds that a process of a session sets for itself and all that it starts.

Descriptors and core files are limits of a single process, so no cgroup holds them. Nothing here can
be taken back by the process: a hard limit is only ever lowered. Call ``step_forward`` in every
worker, and ``apply_limits`` when it is known which session it is for.
"""

import resource
from pathlib import Path
from typing import Final

OOM_SCORE_ADJ: Final = 300
"""As if it had 30 % of the memory more: when the machine runs out, the kernel takes a child before
the daemon, and still the largest of them."""

_OOM_FILE: Final = Path("/proc/self/oom_score_adj")


class LimitError(Exception):
    """A limit can't be set, now or later."""


def step_forward() -> bool:
    """Be chosen before the daemon when the machine is out of memory; says whether that holds.

    Anybody may raise the score. Who was given a higher one keeps it.
    """
    try:
        if int(_OOM_FILE.read_text(encoding="ascii")) < OOM_SCORE_ADJ:
            _OOM_FILE.write_text(str(OOM_SCORE_ADJ), encoding="ascii")
    except OSError:  # /proc is hidden: a worker without it works as well
        return False
    return True


def apply_limits(max_open_files: int | None) -> None:
    """Write no core file, and have at most this many descriptors; None: as many as before.

    Raises:
        LimitError: the system allows fewer.

    """
    # A core holds prompts, answers and keys, and is left in the session's working directory.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if max_open_files is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max_open_files, max_open_files))
    except (ValueError, OSError) as error:
        raise LimitError(
            f"max_open_files: {max_open_files} is more than the {hard} that this system allows the"
            " daemon's processes: ask for fewer, or raise the daemon's limit (LimitNOFILE= in its"
            " unit, ulimit -Hn)"
        ) from error
