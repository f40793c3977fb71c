"""Signals of a daemon, in a process of their own: it gives the main thread's handlers away."""

import subprocess
import sys

STORM = """
import asyncio, os, signal
from supervisor.daemon import on_signal

async def main():
    received, stop = [], asyncio.Event()
    on_signal(signal.SIGCHLD, lambda: received.append(1))
    on_signal(signal.SIGTERM, stop.set)
    for _ in range(2_000):
        os.kill(os.getpid(), signal.SIGCHLD)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(stop.wait(), 10.0)
    print("ended", bool(received))

asyncio.run(main())
signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and print("as before")
"""


def test_a_storm_of_ends_hides_no_other_signal():
    """Nothing is lost, nothing is printed, and what is left behind is as before."""
    command = [sys.executable, "-c", STORM]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ended.stdout.splitlines() == ["ended True", "as before"]
    assert not ended.stderr
