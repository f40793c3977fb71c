"""``python -m scripts.lanes [--then WORDS] LANE [LANE ...]``: run pytest in lanes side by side.

A lane is the paths of one run, separated by blanks. The first lane's output is seen as it comes,
the others' when they are done. The exit status is that of the first lane that failed. Ctrl-C and
SIGTERM end all.

What judges a run as a whole needs all lanes: each has the variable ``LANE_PARTS``, a directory for
what it knows, and ``--then`` says what Python runs with it when the last one has ended.

Each lane yields to those before it: name those first whose tests wait for processes, which a lane
that does nothing but compute would hold up at each step.

A shell without job control has what it starts in the background ignore SIGINT and SIGQUIT, and a
process hands that on to all that it starts. Tests that interrupt want them as in the foreground.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import IO, Final

PYTEST: Final = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")
PARTS: Final = "LANE_PARTS"
YIELD: Final = 1
"""Steps of niceness from a lane to the next one: a fifth less of a core that both want."""
END_S: Final = 60.0
"""For an interrupted run to clear up after itself."""


def main() -> int:
    """Run all lanes, and what comes then; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.lanes", description=__doc__)
    parser.add_argument("--then", default="", help="what Python runs when all lanes have ended")
    parser.add_argument("lanes", nargs="+", help="the paths and options of one run of pytest")
    arguments = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    with tempfile.TemporaryDirectory() as parts:
        environ = os.environ | {PARTS: parts}
        statuses = _run(arguments.lanes, environ)
        if arguments.then:
            last = [sys.executable, *arguments.then.split()]
            statuses += [subprocess.run(last, env=environ, check=False).returncode]  # noqa: S603 - our own
    return next((status for status in statuses if status), 0)


def _run(lanes: Sequence[str], environ: Mapping[str, str]) -> list[int]:
    with ExitStack() as stack:
        outputs: list[IO[bytes] | None] = [None]
        outputs += [stack.enter_context(tempfile.TemporaryFile()) for _ in lanes[1:]]
        running = [
            subprocess.Popen(_command(number, lane), stdout=output, stderr=output, env=environ)  # noqa: S603 - our own tests
            for number, (lane, output) in enumerate(zip(lanes, outputs, strict=True))
        ]
        try:
            return [_finished(*one) for one in zip(running, outputs, strict=True)]
        except BaseException:
            for one in running:
                one.terminate()
            for one in running:
                one.wait(END_S)
            raise


def _command(number: int, lane: str) -> list[str]:
    return ["nice", "-n", str(YIELD * number), *PYTEST, *lane.split()]


def _finished(lane: "subprocess.Popen[bytes]", output: IO[bytes] | None) -> int:
    status = lane.wait()
    if output is not None:
        output.seek(0)
        shutil.copyfileobj(output, sys.stdout.buffer)
        sys.stdout.flush()
    return status


if __name__ == "__main__":
    sys.exit(main())
