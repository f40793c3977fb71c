"""Connections of real sockets are found by their path and their process, and end when cut."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import zmq

from cmdc_runtime.wire.sockets import Role, open_socket
from supervisor.core.peer_memory import UNFINISHED_BYTES_MAX, Heard, Whom
from supervisor.upkeep.memory import MemoryWatch, WatchedSocket, cut, used_bytes
from tests.fault.cases.hoarders import hoarder

PART_BYTES = 2**20
SENT_BYTES = 48 * 2**20
ENDLESS_BYTES = 8 * UNFINISHED_BYTES_MAX
WAIT_S = 20.0
SPEAK = """
import sys, zmq
peer = zmq.Context().socket(zmq.DEALER)
peer.setsockopt(zmq.LINGER, 0)
peer.setsockopt(zmq.ROUTING_ID, b"named")
peer.connect("ipc://" + sys.argv[1])
for line in sys.stdin:
    peer.send(line.strip().encode())
    print(peer.recv().decode(), flush=True)
peer.close()
"""


@pytest.fixture
def router(tmp_path):
    """A router of ours, and the path that it listens at."""
    path = str(tmp_path / "router")
    with zmq.Context() as context, open_socket(context, Role.CONTROL) as socket:
        socket.bind(f"ipc://{path}")
        yield socket, path


@pytest.fixture
def speaker(router):
    """A process that sends what it is asked to, and prints what it is answered."""
    command = [sys.executable, "-c", SPEAK, router[1]]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True) as process:
        try:
            yield process
        finally:
            process.kill()  # it may wait for an answer


def poll(condition):
    """Say whether something becomes true in time."""
    limit = time.monotonic() + WAIT_S
    while not (found := condition()) and time.monotonic() < limit:
        threading.Event().wait(0.01)
    return found


def exchange(router, speaker, text):
    """Have a message come and be answered, and return what the other side has read."""
    speaker.stdin.write(text + "\n")
    speaker.stdin.flush()
    assert router.poll(10_000)
    peer, said = router.recv_multipart()
    router.send_multipart([peer, said + b"!"])
    return speaker.stdout.readline()


def test_a_cut_frees_what_was_kept_and_touches_nobody_else(router, speaker):
    """The parts of a message without end are gone; another process has the same connection."""
    socket, path = router
    assert exchange(socket, speaker, "one") == "one!\n"
    before = used_bytes()
    with hoarder(path, "DEALER", PART_BYTES, SENT_BYTES) as process:
        assert poll(lambda: used_bytes() > before + SENT_BYTES // 2)
        assert cut(path, lambda pid, _is_sending: pid == process.pid) == [process.pid]
        assert poll(lambda: used_bytes() < before + 2 * PART_BYTES)
    assert exchange(socket, speaker, "two") == "two!\n"


def test_who_is_cut_connects_again(router, speaker):
    """As after the end of a daemon."""
    socket, path = router
    exchange(socket, speaker, "one")

    assert cut(path, lambda _pid, _is_sending: True) == [speaker.pid]
    assert exchange(socket, speaker, "two") == "two!\n"


def test_who_is_cut_while_nobody_reads_is_heard_again(router, speaker):
    """It is back under its name before the router has noticed that it was gone."""
    socket, path = router
    exchange(socket, speaker, "one")
    inode = accepted_inodes(path)
    assert cut(path, lambda _pid, _is_sending: True) == [speaker.pid]
    assert poll(lambda: accepted_inodes(path) - inode)

    assert exchange(socket, speaker, "two") == "two!\n"


def accepted_inodes(path):
    """Return the inodes of all sockets bound or accepted at a path that are connected."""
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {line[6] for line in lines if line[-1] == path and line[5] == "03"}


def test_nobody_is_cut_at_another_path_nor_this_process_itself(router, tmp_path):
    """The listener stays, too."""
    socket, path = router
    with zmq.Context() as context, open_socket(context, Role.CLIENT) as own:
        own.connect(f"ipc://{path}")
        own.send(b"hello")
        assert socket.poll(10_000)

        assert cut(path, lambda _pid, _is_sending: True) == []
        assert cut(str(tmp_path / "other"), lambda _pid, _is_sending: True) == []
    assert Path(path).is_socket()


def test_the_watch_cuts_the_stranger_alone(router, speaker):
    """One that was heard keeps its connection; the memory comes back, and the cut is counted."""
    socket, path = router
    heard = Heard()
    exchange(socket, speaker, "one")
    heard.note(speaker.pid, 0.0)
    watch, before = MemoryWatch([WatchedSocket("control", path, heard)]), used_bytes()
    threads = threading.active_count()
    watch.start()
    try:
        with hoarder(path, "DEALER", PART_BYTES, ENDLESS_BYTES) as process:
            assert process.stdout.readline() == "cut\n"
            assert poll(lambda: used_bytes() < before + 2 * PART_BYTES)
    finally:
        watch.stop()
    assert watch.cut == 1
    assert threading.active_count() == threads
    assert exchange(socket, speaker, "two") == "two!\n"


def test_who_sends_and_says_nothing_is_cut_before_who_is_quiet(router, speaker):
    """Both were heard before the growth began: what waits to be read distinguishes them."""
    socket, path = router
    exchange(socket, speaker, "one")
    heard, before = Heard(), used_bytes()
    heard.note(speaker.pid, 0.0)
    with hoarder(path, "DEALER", PART_BYTES, ENDLESS_BYTES // 4) as process:
        heard.note(process.pid, 0.0)
        place = WatchedSocket("control", path, heard)
        assert place.cut(Whom.STRANGERS, 1.0) == []
        assert poll(lambda: place.cut(Whom.SENDING, 1.0)) == [process.pid]
        assert process.stdout.readline() == "cut\n"
    assert poll(lambda: used_bytes() < before + 2 * PART_BYTES)
    assert exchange(socket, speaker, "two") == "two!\n"


def test_a_worker_is_spared(router):
    """However much it sends."""
    _, path = router
    with hoarder(path, "DEALER", PART_BYTES, SENT_BYTES) as process:
        place = WatchedSocket("workers", path, Heard(), lambda: frozenset({process.pid}))
        assert [place.cut(whom, 0.0) for whom in Whom] == [[]] * len(Whom)
        assert process.stdout.readline() == "sent\n"
