"""Processes and code that say to the daemon what is not theirs to say.

A stranger is a process of its own: ``python strangers.py <workers.sock> <line>...``, each line a
JSON list of an identity and the hexadecimal parts of a message. It prints a line for each frame
that it is sent, and ends when its standard input does.
"""

import contextlib
import gc
import json
import subprocess
import sys
import threading

import zmq

from cmdc_runtime.wire.frames import of_router

ROUND_S = 0.02
"""Between two looks whether something came."""


@contextlib.contextmanager
def stranger(address, *messages):
    """Run a process that sends these (identity, parts) and yield what it was answered."""
    lines = [json.dumps([name, *(part.hex() for part in parts)]) for name, parts in messages]
    command = [sys.executable, __file__, str(address), *lines]
    heard = []
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True) as process:
        reader = threading.Thread(target=lambda: heard.extend(iter(process.stdout.readline, "")))
        reader.start()
        try:
            yield heard
        finally:
            process.stdin.close()
            process.wait()
            reader.join()


def own_link():
    """Return the link of the agent that this runs in."""
    from workers.link import Link  # noqa: PLC0415 - in the agent alone

    return next(one for one in gc.get_objects() if isinstance(one, Link))


def main(address, *lines):
    """Send every line from a socket of its own identity, then print what comes."""
    context = zmq.Context()
    sockets, poller = {}, zmq.Poller()
    for line in lines:
        name, *parts = json.loads(line)
        if name not in sockets:
            sockets[name] = context.socket(zmq.DEALER)
            sockets[name].setsockopt(zmq.ROUTING_ID, name.encode())
            sockets[name].setsockopt(zmq.LINGER, 0)
            sockets[name].connect(f"ipc://{address}")
            poller.register(sockets[name], zmq.POLLIN)
        sockets[name].send_multipart([bytes.fromhex(part) for part in parts])
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set())).start()
    while not ended.is_set():
        for socket, _ in poller.poll(round(ROUND_S * 1000)):
            print(of_router(socket.recv_multipart()).hex(), flush=True)
    context.destroy(linger=0)


if __name__ == "__main__":
    main(*sys.argv[1:])
