"""A process for tests that beats as a worker does, until its main loop comes to harm.

``python beating_process.py SLOT_FD PERIOD_S WAY``: it writes a line when it beats, and goes its
way when it reads one.
"""

import asyncio
import contextlib
import ctypes
import faulthandler
import signal
import sys
import threading

from workers.heartbeat import Heartbeat


def spin():
    """Never return, in Python."""
    while True:
        pass


def hold():
    """Never return, in C, and keep the interpreter from every other thread."""
    library = ctypes.PyDLL(None)
    while True:  # a signal ends a sleep in C
        library.sleep(600)  # tidy: this is the harm


def stay():
    """Live on as a thread."""
    threading.Event().wait()


async def main(heartbeat, period_s, way):
    """Beat, and go the way that was asked for."""
    loop = asyncio.get_running_loop()
    heartbeat.start(period_s)
    go = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), go.set)
    print("beating", flush=True)
    await go.wait()
    loop.remove_reader(sys.stdin.fileno())
    match way:
        case "spin":
            loop.call_soon(spin)
        case "hold":
            threading.Thread(target=hold, daemon=True).start()
        case "leave":
            threading.Thread(target=stay).start()
            return
    await asyncio.Event().wait()


if __name__ == "__main__":
    faulthandler.register(signal.SIGQUIT, all_threads=True, chain=False)
    slot_fd, period, way_out = sys.argv[1:]
    its_heartbeat = Heartbeat(int(slot_fd))
    with (
        contextlib.suppress(KeyboardInterrupt),
        asyncio.Runner(loop_factory=its_heartbeat.new_loop) as runner,
    ):
        runner.run(main(its_heartbeat, float(period), way_out))
