"""A process that makes the daemon remember: ``python hoarders.py <socket> <kind> <bytes>``.

It speaks the wire itself (ZMTP 3.0, NULL), since libzmq sends no message before it is whole. It
prints a line when it is connected, another one when it has sent all or was cut, and ends when its
standard input does.
"""

import contextlib
import socket
import struct
import subprocess
import sys

import zmq

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
COMMAND, MORE_LONG = 4, 3


def connected(path, kind):
    """Return a connection to a socket of libzmq after the handshake."""
    found = socket.socket(socket.AF_UNIX)
    found.connect(str(path))
    body = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
    found.sendall(GREETING)
    found.recv(len(GREETING), socket.MSG_WAITALL)
    found.sendall(bytes([COMMAND, len(body)]) + body)
    found.recv(1_000)
    return found


def part(size, kind):
    """Return a part of a message that goes on."""
    first = b"\2" if kind == b"SUB" else b""
    return struct.pack(">BQ", MORE_LONG, size) + first + bytes(size - len(first))


@contextlib.contextmanager
def hoarder(path, kind, part_bytes, total_bytes):
    """Run a process that sends parts of one message; yield it."""
    command = [sys.executable, __file__, str(path), kind, str(part_bytes), str(total_bytes)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True) as process:
        try:
            assert process.stdout.readline() == "connected\n"
            yield process
        finally:
            process.stdin.close()
            process.wait()


@contextlib.contextmanager
def topics_follower(path, count, *, last="none"):
    """Run a process that follows so many topics, and a session; it prints when it hears of it."""
    command = [sys.executable, __file__, str(path), "TOPICS", str(count), last]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True) as process:
        try:
            yield process
        finally:
            process.stdin.close()
            process.wait()


def follow(path, count, last):
    """Follow them as any client does, by libzmq, which connects again whenever it is cut."""
    with zmq.Context() as context, context.socket(zmq.SUB) as found:
        found.setsockopt(zmq.LINGER, 0)
        found.setsockopt(zmq.SNDHWM, 0)
        for number in range(count):
            found.subscribe(f"s-{number * 7919 * 104729:016x}".encode() + b"\0")
        found.subscribe(last.encode() + b"\0")
        found.connect(f"ipc://{path}")
        if last != "none" and found.poll(60_000):
            print("heard", flush=True)
        sys.stdin.read()


def main(path, kind, part_bytes, total_bytes):
    """Send until all is sent, or the connection is cut."""
    with connected(path, kind.encode()) as found:
        print("connected", flush=True)
        one = part(int(part_bytes), kind.encode())
        block = one * max(1, 2**20 // len(one))
        try:
            for _ in range(int(total_bytes) // len(block)):
                found.sendall(block)
            print("sent", flush=True)
        except OSError:
            print("cut", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    if sys.argv[2] == "TOPICS":
        follow(sys.argv[1], int(sys.argv[3]), sys.argv[4])
    else:
        main(*sys.argv[1:])
