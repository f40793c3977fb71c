"""What a daemon and its workers agree on before the first frame: entry point, exit codes, titles.

``run_module`` is the only function that the zygote's children are started with. The daemon names
a worker module by a string and never imports it, and what crosses by pickle stays this small.
"""

import importlib
from typing import Final

SWITCH_INTERVAL_S: Final = 0.0005
"""How long a thread of a daemon or an agent may keep the interpreter from one that asks for it.

Python's own 5 ms (``sys.setswitchinterval``) are what an event loop would wait behind a thread that
computes, each time that it has waited for anything itself.
"""

EXIT_OK: Final = 0
EXIT_CRASHED: Final = 70
"""Python code raised; the exit notice has the traceback (EX_SOFTWARE)."""
EXIT_ORPHANED: Final = 75
"""The daemon is gone (EX_TEMPFAIL)."""
EXIT_BAD_OPTIONS: Final = 78
"""The options can never work (EX_CONFIG); of a worker the daemon believes its NotStarted only."""

HIBERNATE: Final = "hibernate"
"""The reason of a Terminate that the session survives."""

DAEMON_RESTARTED: Final = "the daemon was restarted"
"""Why a session's process ended that ended with its daemon: no fault of what it was doing."""

UNWATCHED: Final = "its process ended while no daemon ran"
"""Why a child is down whose parent's process goes on: nobody saw how it ended."""

RESUMED: Final = "the session was resumed from a saved state"
"""Why a process goes on with what it finds, though none of the session died of it."""

CODE_STAGE: Final = "code"
"""Where a start fails because the code of the session is not the code that it took."""

SANDBOX_STAGE: Final = "sandbox"
"""At which a start fails where the session's sandbox can't be had."""
FRAME_STAGE: Final = "frame"
"""Where a start fails because the process cannot read what the daemon sends it."""

DAEMON_TITLE: Final = "cmdcd"
"""What ``ps`` shows in place of a daemon's program; its arguments follow."""
TITLE_PREFIX: Final = "cmdc "
"""What the title of every other process of a daemon begins with. No program has such a name."""

WORKER_MODULE: Final = "workers.worker"
HOST_MODULE: Final = "workers.toolhost.start"
PRELOAD_MODULE: Final = "workers.preload"
ZYGOTE_MODULE: Final = "workers.zygote"


def run_module(module: str, boot: dict[str, str | int | float]) -> None:
    """Call ``main(boot)`` of the module named ``module``; it ends the process by itself."""
    importlib.import_module(module).main(boot)
