"""A DEALER outlives the loss of its connection wherever it is in what it reads (ADR 0045)."""

import signal
import subprocess
import sys

import pytest

from cmdc_runtime.wire.frames import to_dealer

PATIENCE_S = 120
ROUNDS = 60
"""Of a backlog of two parts each, one round in six to one in three falls within a message."""
PROGRAM = """
import sys
import zmq
from cmdc_runtime.wire.sockets import Role, open_socket

folder, rounds, *parts = sys.argv[1:]
message = [bytes.fromhex(part) for part in parts]

def read_backlog(address, singles):
    ours, theirs = zmq.Context(), zmq.Context()
    dealer = open_socket(ours, Role.CLIENT, identity=b"d")
    monitor = dealer.get_monitor_socket(zmq.EVENT_CONNECT_RETRIED)
    router = open_socket(theirs, Role.CONTROL)
    router.bind(address)
    dealer.connect(address)
    assert dealer.poll(10_000, zmq.POLLOUT)
    dealer.send(b"hello")
    assert router.recv_multipart() == [b"d", b"hello"]
    for sent in [[b"alone"]] * singles + [message] * 200:
        router.send_multipart([b"d", *sent])
    assert dealer.poll(10_000)
    dealer.recv_multipart()  # from here on it knows of no pause in what it reads
    theirs.destroy(linger=10_000)
    assert monitor.poll(10_000)
    within = False
    try:
        while True:
            within = dealer.recv(zmq.NOBLOCK, copy=False).more
    except zmq.Again:
        if within:
            sys.exit("the rest of a message never comes")
    dealer.disable_monitor()
    ours.destroy(linger=0)

for number in range(int(rounds)):
    read_backlog(f"ipc://{folder}/{number}", number % 2)
"""
"""Reads backlogs whose sender is gone: so many parts that libzmq looks at its commands.

It does at each hundredth: within a message, or behind one.
"""


HARMS = {(-signal.SIGABRT, "!_more"), (1, "the rest of a message never comes")}
"""How a reader fares who was within a message: by whether libzmq's thread ran in between."""


def read_backlogs(folder, parts):
    """Return how a process ended that reads messages of these parts."""
    shown = [part.hex() for part in parts]
    command = [sys.executable, "-c", PROGRAM, str(folder), str(ROUNDS), *shown]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.process
def test_a_lost_connection_ends_nobody_who_reads_what_the_daemon_sends(tmp_path):
    """What is left of the backlog is lost, and asked for again; the process goes on."""
    ended = read_backlogs(tmp_path, to_dealer(b"frame"))

    assert ended.returncode == 0, ended.stderr


@pytest.mark.process
def test_two_parts_would_end_it(tmp_path):
    """Why the rule is there: libzmq ends the process, or forgets that it is within a message."""
    ended = read_backlogs(tmp_path, (b"header", b"frame"))

    assert any(ended.returncode == code and words in ended.stderr for code, words in HARMS)
