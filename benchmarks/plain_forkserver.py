"""For orientation: ``multiprocess``'s forkserver with litellm preloaded, as it comes.

No freeze, no warm-up, no spare; the answer goes through a ``multiprocess`` pipe. This file is the
main module that every child imports again, so it is kept small.
"""

import time
from typing import Any

import multiprocess

from benchmarks.processes import serve

CONTEXT = multiprocess.get_context("forkserver")


def echo(connection: Any) -> None:  # Any: multiprocess has no types
    """Send everything back until the other end is closed."""
    while True:
        try:
            connection.send(connection.recv())
        except EOFError:
            return


def spawn() -> float:
    """Time one process from start to first answer, in milliseconds; it is gone afterwards."""
    ours, theirs = CONTEXT.Pipe()
    start = time.perf_counter()
    process = CONTEXT.Process(target=echo, args=(theirs,))
    process.start()
    theirs.close()
    ours.send("ping")
    ours.recv()
    took_ms = (time.perf_counter() - start) * 1e3
    ours.close()
    process.join()
    return took_ms


if __name__ == "__main__":
    CONTEXT.set_forkserver_preload(["litellm"])
    serve({"spawn": spawn})
