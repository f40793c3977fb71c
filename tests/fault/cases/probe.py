"""How long commands of sessions that are at work take while something befalls others.

A client in a process of its own asks one session after the other, each of which answers itself. So
neither who brings about the storm nor what is measured waits for the other's interpreter.
"""

import contextlib
import itertools
import json
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import cmdc_runtime as cmdc

ROOT = Path(__file__).parents[3]
PAUSE_S = 0.002
SAMPLES_MIN = 500
"""Of less the p99 says what the worst few were."""


@dataclass(frozen=True)
class Latency:
    """What a command took, in seconds, over one stretch of time."""

    took_s: tuple[float, ...]

    def share_s(self, share):
        """Return what such a share of the commands took no more than."""
        return sorted(self.took_s)[round(share * (len(self.took_s) - 1))]

    def __str__(self):
        p50, p99, worst = (1_000 * self.share_s(one) for one in (0.5, 0.99, 1.0))
        return f"n={len(self.took_s)} p50={p50:.1f} p99={p99:.1f} max={worst:.1f} ms"


class Probe:
    """The process that asks, from the beginning of ``probing`` to its end."""

    def __init__(self, process):
        self._process = process

    def lap(self):
        """Return the latency since the last lap, of as many commands as its p99 wants at least."""
        self._process.stdin.write("lap\n")
        self._process.stdin.flush()
        return Latency(tuple(json.loads(self._process.stdout.readline())))


@contextlib.contextmanager
def probing(place, sessions):
    """Ask some sessions all the time."""
    ids = [one.id for one in sessions]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fault.cases.probe", str(place.address), *ids],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield Probe(process)
        finally:
            process.kill()


def is_asked():
    """Pause, and say whether a lap is asked for; end when there is nobody to ask any more."""
    if not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        return False
    if not sys.stdin.readline():
        sys.exit()
    return True


def took_s(client, session_id):
    """Return the seconds that one command takes."""
    before_s = time.monotonic()
    client.status(session_id)
    return time.monotonic() - before_s


def main():
    """Answer each line of standard input with a list of seconds."""
    address, *ids = sys.argv[1:]
    found, wanted = [], 0
    with cmdc.Client(address) as client:
        for one in ids:
            took_s(client, one)
        for one in itertools.cycle(ids):
            found.append(took_s(client, one))
            wanted += is_asked()
            if wanted and len(found) >= SAMPLES_MIN:
                print(json.dumps(found), flush=True)
                found, wanted = [], wanted - 1


if __name__ == "__main__":
    main()
