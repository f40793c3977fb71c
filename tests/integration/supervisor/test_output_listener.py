"""Who may connect to the daemon's output socket: bounds of number, time and bytes, no strangers."""

import os
import resource
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from supervisor.adapters import output as module

pytestmark = pytest.mark.process

WAIT_S = 10.0


def until(is_true):
    deadline = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.002)  # tidy: polls another thread


def lines(entries):
    return [entry["line"] for entry in entries if entry["event"] == "worker.wrote"]


def refusals(entries):
    return [entry["connections"] for entry in entries if entry["event"] == "output.refused"]


def greeted(outputs):
    return len(outputs._connections) - len(outputs._nameless)


def is_closed(sock):
    sock.settimeout(WAIT_S)
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:  # what was sent was not even read
        return True


def connect(path, first=b""):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(str(path))
    with suppress(BrokenPipeError):  # it may be closed already
        sock.sendall(first)
    return sock


@pytest.mark.parametrize("first", [b"", b"w-1", b"w-1 in\n", b"\n", b"x" * 1_000, b"\xff out\n"])
def test_a_connection_that_does_not_say_whose_it_is_is_closed(
    path, outputs, entries, first, monkeypatch
):
    """A bound of time and bytes; it is logged, and whoever is connected goes on."""
    monkeypatch.setattr(module, "HEADER_S", 0.1)
    monkeypatch.setattr("supervisor.adapters.output_log.REPORT_S", 0.0)
    with connect(path, first) as nameless, connect(path, b"w-1 o") as slow:
        slow.sendall(b"ut\nhello\n")

        assert is_closed(nameless)
        until(lambda: lines(entries) and refusals(entries))
    assert (outputs.refused, refusals(entries)) == (1, [1])


def test_connections_have_bounds(path, outputs, monkeypatch):
    """One too many is closed at once, of one worker and of all; the others stay."""
    monkeypatch.setattr(module, "CONNECTIONS_MAX", 3)
    monkeypatch.setattr(module, "STREAMS_MAX", 2)
    with connect(path, b"w-1 out\n") as first, connect(path, b"w-1 err\n"):
        until(lambda: greeted(outputs) == 2)
        with connect(path, b"w-1 out\n") as third:
            assert is_closed(third)
        with connect(path, b"w-2 out\n"):
            until(lambda: greeted(outputs) == 3)
            with connect(path, b"w-3 out\n") as fifth:
                assert is_closed(fifth)
        assert outputs.refused == 2
        first.settimeout(0)
        with pytest.raises(BlockingIOError):
            first.recv(1)


def test_those_that_say_nothing_have_a_bound_of_their_own(path, outputs, monkeypatch):
    """The one that has been silent for longest gives way."""
    monkeypatch.setattr(module, "NAMELESS_MAX", 1)
    with connect(path) as oldest:
        until(lambda: outputs._nameless)
        with connect(path):
            assert is_closed(oldest)
        assert outputs.refused == 1


def test_nobody_waits_when_descriptors_are_used_up(path, outputs, entries):
    """Who can't be read learns it by a closed connection; afterwards all is as before."""
    client = """
import socket, sys
with socket.socket(socket.AF_UNIX) as sock:
    sys.stdin.readline()
    sock.connect(sys.argv[1])
    sock.settimeout(10)
    print("closed" if sock.recv(1) == b"" else "read", flush=True)
"""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    line = [sys.executable, "-c", client, str(path)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        limit = max(int(fd.name) for fd in Path("/proc/self/fd").iterdir()) + 1
        taken = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            with suppress(OSError):
                while True:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
            process.stdin.write(b"\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for fd in taken:
                os.close(fd)

    assert answer == b"closed\n"
    with connect(path, b"w-1 out\nhello\n"):
        until(lambda: lines(entries) == ["hello"])
    assert outputs.refused == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_turned_away(path, outputs):
    """Not even where the directory let one through."""
    client = "import socket, sys; s = socket.socket(1); s.connect('output.sock'); s.recv(1)"
    path.chmod(0o777)
    path.parent.chmod(0o711)
    here = os.open(path.parent, os.O_PATH)  # whatever the folders above it allow
    try:
        line = ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-I", "-c", client]
        status = subprocess.run(line, cwd=f"/proc/self/fd/{here}", pass_fds=[here], check=False)
    finally:
        os.close(here)

    assert status.returncode == 0
    until(lambda: outputs.refused == 1)  # it is counted when the client is closed


def test_a_fault_of_ours_ends_one_connection(path, outputs, entries, monkeypatch):
    """The thread serves all others as before."""
    cut = module.LineCutter.cut

    def failing(self, chunk, lines_max):
        if b"bad" in chunk:
            raise ZeroDivisionError
        return cut(self, chunk, lines_max)

    monkeypatch.setattr(module.LineCutter, "cut", failing)
    with connect(path, b"w-1 out\nbad\n") as bad, connect(path, b"w-2 out\n") as good:
        assert is_closed(bad)
        good.sendall(b"good\n")
        until(lambda: lines(entries) == ["good"])
    assert [entry["event"] for entry in entries if entry["log_level"] == "error"] == [
        "output.failed"
    ]
