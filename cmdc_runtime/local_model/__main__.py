"""``python -m cmdc_runtime.local_model``: serves the local model until its stdin ends.

Prints one line, ``ready URL``, once it answers. Ends without a word when stdin is closed or the
process ``--owner-pid`` is gone, so that a demo that was killed leaves nothing behind.
"""

import argparse
import os
import select
import sys
import threading
from pathlib import Path

from cmdc_runtime.local_model.server import Engine, LocalServer
from cmdc_runtime.local_model.weights import Unavailable, weights
from cmdc_runtime.process import EXIT_BAD_OPTIONS, EXIT_OK

# --- until nobody needs it ------------------------------------------------------------------------


def wait_unneeded(stdin_fd: int, owner_pid: int | None) -> None:
    """Return once ``stdin_fd`` is at its end or the process ``owner_pid`` is gone.

    Both are watched: a pipe may be held open by a copy in some other process, and an owner that
    closes the pipe wants the end before its own.
    """
    watched = select.poll()
    watched.register(stdin_fd, select.POLLIN)
    pidfd = -1
    if owner_pid is not None:
        try:
            pidfd = os.pidfd_open(owner_pid)
        except ProcessLookupError:
            return
        watched.register(pidfd, select.POLLIN)
    try:
        while pidfd not in (ready := {fd for fd, _ in watched.poll()}):
            if stdin_fd in ready and not os.read(stdin_fd, select.PIPE_BUF):
                return
    finally:
        if pidfd >= 0:
            os.close(pidfd)


# --- the command ----------------------------------------------------------------------------------


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m cmdc_runtime.local_model", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 (default): the system chooses")
    parser.add_argument("--gguf", type=Path, help="weights other than those of the small model")
    # More threads are faster on an idle machine and spin against each other on a busy one.
    parser.add_argument("--threads", type=int, default=1, help="of the computation; default 1")
    parser.add_argument("--owner-pid", type=int, help="end when this process is gone")
    return parser.parse_args()


def main() -> int:
    """Serve; return an exit code only where serving could not begin."""
    options = _options()
    try:
        server = LocalServer(Engine(weights(options.gguf), options.threads), options.port)
    except (Unavailable, OSError) as error:
        sys.stderr.write(f"cmdc_runtime.local_model: {error}\n")
        return EXIT_BAD_OPTIONS
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"ready {server.url}\n")
    sys.stdout.flush()
    wait_unneeded(sys.stdin.fileno(), options.owner_pid)
    # Answers may be in the middle of native code, which a normal end would wait for.
    os._exit(EXIT_OK)


if __name__ == "__main__":
    sys.exit(main())
