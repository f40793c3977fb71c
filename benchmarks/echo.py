"""Baseline of a round trip: two hops over ROUTER and DEALER, and nothing else.

``python -m benchmarks.echo broker FRONT BACK`` passes frames between a client's ROUTER and a
worker's, ``… worker BACK BYTES`` answers each with ``BYTES`` bytes. Blocking sockets, no event
loop, no decoding; options as in the project, so that only the work in between differs.
"""

import sys
import threading
from typing import Final

import zmq

from benchmarks.proxy import end_with_stdin
from cmdc_runtime.wire.frames import HEADER
from cmdc_runtime.wire.sockets import Role, open_socket

WORKER: Final = b"worker"


def broker(front: str, back: str) -> None:
    """Pass the requests of one client to one worker and the answers back, for ever."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    clients = open_socket(context, Role.CONTROL)
    workers = open_socket(context, Role.WORKERS)
    workers.bind(back)
    workers.recv_multipart()  # a ROUTER cannot send to whom it has not heard of
    clients.bind(front)
    poller = zmq.Poller()
    poller.register(clients, zmq.POLLIN)
    poller.register(workers, zmq.POLLIN)
    client = b""
    while True:
        for socket, _ in poller.poll():
            if socket is clients:
                client, *request = clients.recv_multipart()
                workers.send_multipart([WORKER, b"".join(request)])
            else:
                _, *answer = workers.recv_multipart()
                clients.send_multipart([client, b"".join(answer)])


def worker(back: str, answer_bytes: int) -> None:
    """Answer every request with as many bytes as a status has, for ever."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = open_socket(context, Role.WORKER, identity=WORKER)
    socket.connect(back)
    socket.send_multipart([HEADER, b"ready"])
    answer = b"." * answer_bytes
    while True:
        socket.recv()
        socket.send_multipart([HEADER, answer])


def main() -> None:
    """Be what the arguments say, until stdin ends."""
    role, first, second = sys.argv[1:4]
    threading.Thread(target=end_with_stdin, daemon=True).start()
    if role == "broker":
        broker(first, second)
    else:
        worker(first, int(second))


if __name__ == "__main__":
    main()
