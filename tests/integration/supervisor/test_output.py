"""What real processes write to stdout and stderr, as the daemon's log has it."""

import asyncio
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from supervisor.adapters import output as module
from supervisor.adapters.output import Outputs
from supervisor.core.output import LINES_BURST, TAIL_BYTES_MAX

pytestmark = pytest.mark.process

WAIT_S = 10.0
RUN_S = 3_600.0
WAIT = "import sys; sys.stdin.readline()\n"
BEGIN = """
import os, subprocess, sys
import faulthandler, logging
from workers.output import send_output
assert send_output(sys.argv[1], sys.argv[2])
"""


@contextmanager
def worker(path, script, worker_id="w-1", begin=BEGIN, known=None):
    """Run a process that may read from ``stdin``, and end it; ``known`` gets its pid before."""
    line = [sys.executable, "-c", WAIT + begin + script, str(path), worker_id]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            if known is not None:
                known(process.pid)
            process.stdin.write(b"go\n")
            process.stdin.flush()
            yield process
        finally:
            process.kill()


def run(path, script, worker_id="w-1", known=None):
    """Run a process to its end; return its status."""
    with worker(path, script, worker_id, known=known) as process:
        return process.wait(WAIT_S)


def drain(outputs, worker_id="w-1", bound_s=WAIT_S):
    asyncio.run(outputs.drained(worker_id, bound_s))


def until(is_true):
    deadline = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.002)  # tidy: polls another thread


class Named:
    """Names a process before it writes, or has it only expected; ``pid`` is its."""

    def __init__(self, outputs, worker_id="w-1", *, is_spare=False):
        self.outputs, self.worker_id, self.is_spare, self.pid = outputs, worker_id, is_spare, None

    def __call__(self, pid):
        self.pid = pid
        if self.is_spare:
            self.outputs.expect(self.worker_id, pid)
        else:
            self.outputs.name(self.worker_id, session_id="s-1", incarnation=2, pid=pid)


def written(entries, event="worker.wrote"):
    return [entry for entry in entries if entry["event"] == event]


def lines(entries, stream="out"):
    return [entry["line"] for entry in written(entries) if entry["stream"] == stream]


def open_fds():
    return sorted(Path("/proc/self/fd").iterdir())


def test_every_line_is_a_record_with_its_session(path, outputs, entries):
    """Python, C code and programs that the worker starts: all of it, the last half line too."""
    known = Named(outputs)
    script = """
print("from print")
os.write(1, b"from the descriptor\\n")
subprocess.run(["sh", "-c", "echo from a program; echo to stderr >&2; exec 2>&1"])
print("api_key=sk-canary, and \\x1b[31mred\\ud800")
logging.warning("from logging")
print("no end", end="", flush=True)
os._exit(3)
"""

    assert run(path, script, known=known) == 3
    drain(outputs)
    assert lines(entries) == [
        *("from print", "from the descriptor", "from a program"),
        *("api_key=[redacted], and ␛[31mred\\ud800", "no end"),
    ]
    assert lines(entries, "err") == ["to stderr", "WARNING:root:from logging"]
    assert outputs.tail("w-1") == "to stderr\nWARNING:root:from logging\n"
    for entry in written(entries):
        assert (entry["session_id"], entry["incarnation"], entry["pid"]) == ("s-1", 2, known.pid)
        assert "worker_id" not in entry


def test_a_worker_without_a_name_writes_as_itself(path, outputs, entries, monkeypatch):
    """A spare has no session yet; the last words of those that ended so are kept for a while."""
    monkeypatch.setattr(module, "UNNAMED_ENDED_MAX", 2)
    known = Named(outputs, is_spare=True)
    with worker(path, "input(); print('later')", known=known) as process:
        pid = process.pid
        process.stdin.write(b"\n")
        process.stdin.close()
        process.wait(WAIT_S)
    drain(outputs)
    for number in range(2, 4):
        known = Named(outputs, f"w-{number}", is_spare=True)
        run(path, "print('x', file=sys.stderr)", f"w-{number}", known)
        drain(outputs, f"w-{number}")

    assert written(entries)[0] == {
        "event": "worker.wrote",
        "line": "later",
        "stream": "out",
        "worker_id": "w-1",
        "pid": pid,
        "log_level": "info",
    }
    assert [outputs.tail(f"w-{number}") for number in range(2, 4)] == ["x\n", "x\n"]
    assert [worker_id for worker_id, _ in outputs._workers] == ["w-2", "w-3"]


def test_a_workers_own_log_lines_stay_records(path, outputs, entries):
    """Level, event, fields and traceback arrive; locals and what the daemon binds do not."""
    known = Named(outputs)
    script = """
import structlog
from workers.logs import configure_logs
configure_logs("info", as_records=True)
log = structlog.get_logger()
log.debug("not.kept")
print("half a line", end="", file=sys.stderr, flush=True)
log.warning("tool.failed", tool="shell", took_ms=3, session_id="forged", text="secret=x")
try:
    canary = "in a variable"
    raise ValueError("broken")
except ValueError:
    log.exception("model.failed", very_long="x" * 100_000)
"""
    run(path, script, known=known)
    drain(outputs)
    half, first, second = entries
    stack = second.pop("exception")

    assert (half["line"], half["stream"]) == ("half a line", "err")
    bound = {"session_id": "s-1", "incarnation": 2, "pid": known.pid, "stream": "err"}
    failed = {"event": "tool.failed", "log_level": "warning", "tool": "shell", "took_ms": 3}
    assert first == failed | {"text": "secret=[redacted]"} | bound
    assert second.pop("very_long") == "x" * 1_000
    assert second == {"event": "model.failed", "log_level": "error"} | bound
    assert stack.endswith("  ValueError: broken")
    assert "in a variable" not in stack
    assert outputs.tail("w-1") == "half a line"


def test_forged_records_claim_nothing(path, outputs, entries):
    """Whoever prints what looks like a record speaks for its own session, and in one line."""
    known = Named(outputs)
    script = r"""
print('\x1e{"event": "daemon.stopped", "level": "error", "session_id": "s-2", "exc_info": true}')
print('\x1e{"event": "broken')
print('{"event": "daemon.stopped", "level": "error"}')
print('x\r\x1b]0;title\x07')
"""
    run(path, script, known=known)
    drain(outputs)

    bound = {"session_id": "s-1", "incarnation": 2, "pid": known.pid, "stream": "out"}
    assert entries[0] == {"event": "daemon.stopped", "log_level": "error"} | bound
    assert lines(entries) == [
        '␞{"event": "broken',
        '{"event": "daemon.stopped", "level": "error"}',
        "x␍␛]0;title␇",
    ]


@pytest.mark.slow
def test_a_flood_is_bounded_counted_and_holds_up_nobody(path, outputs, entries, monkeypatch):
    """50 MB of junk cost no memory; another worker's lines come through, and so does the end."""
    monkeypatch.setattr("supervisor.adapters.output_log.REPORT_S", 0.2)
    known = Named(outputs)
    flood = """
junk = os.urandom(1 << 20)
for _ in range(50):
    os.write(1, junk)
os.write(2, b"the end\\n")
"""
    before = psutil.Process().memory_info().rss
    with (
        worker(path, flood, known=known) as flooder,
        worker(path, "for line in sys.stdin: print('heard', line, end='')", "w-2") as quiet,
    ):
        until(lambda: written(entries, "output.dropped"))
        quiet.stdin.write(b"hello\n")
        quiet.stdin.flush()
        until(lambda: "heard hello" in lines(entries))
        is_flooding = flooder.poll() is None
        assert flooder.wait(WAIT_S) == 0
        drain(outputs)
    grown = psutil.Process().memory_info().rss - before
    dropped = written(entries, "output.dropped")

    assert is_flooding
    assert grown < 30 * 2**20
    assert outputs.tail("w-1") == "the end\n"
    assert LINES_BURST // 4 < len(lines(entries)) < LINES_BURST * 3
    assert {entry["session_id"] for entry in dropped} == {"s-1"}
    assert 40e6 < sum(entry["bytes"] for entry in dropped) < 53e6
    assert sum(entry["lines"] for entry in dropped) > 100_000


def test_a_grandchild_that_keeps_the_sockets_keeps_nobody(path, outputs, entries):
    """The end of a worker is not its sockets' end: there is a bound, and then they are closed."""
    known = Named(outputs)
    script = """
subprocess.Popen([sys.executable, "-c", "import sys, time\\n"
    "for line in sys.stdin:\\n print(line, end='', flush=True)"], stdin=0)
print("last words", file=sys.stderr)
print("half", end="", flush=True)
os.kill(os.getpid(), 9)
"""
    with worker(path, script, known=known) as process:
        assert process.wait(WAIT_S) == -signal.SIGKILL
        began = time.monotonic()
        drain(outputs, bound_s=0.2)
        waited_s = time.monotonic() - began
        tail = outputs.tail("w-1")
        process.stdin.write(b" and more\n")
        process.stdin.flush()
        until(lambda: lines(entries))
        outputs.forget("w-1")
        until(lambda: not outputs._connections)
        process.stdin.write(b"nobody hears it\n")
        process.stdin.close()
        process.stdout.read()  # ends with the grandchild, which hears that nobody reads

    assert 0.2 <= waited_s < 2.0
    assert tail == "last words\n"
    assert lines(entries) == ["half and more"]
    assert outputs.tail("w-1") == ""


def test_whoever_waits_for_a_drain_ends_the_rest(outputs, monkeypatch):
    """A Down is sent behind it: the rest is for workers that write without an end."""
    monkeypatch.setattr("supervisor.adapters.output.ROUND_S", RUN_S)
    monkeypatch.setattr("supervisor.adapters.output.REST_S_MAX", RUN_S)

    async def drain_twice():
        async with asyncio.timeout(WAIT_S):
            for _ in range(2):  # after the first of which the thread rests
                await outputs.drained("w-1", RUN_S)

    asyncio.run(drain_twice())


def test_the_stack_of_a_segfault_is_in_the_tail(path, outputs):
    """What the interpreter says of its crash is logged whole."""
    known = Named(outputs)
    script = """
import ctypes
faulthandler.enable()
print("x" * 20_000, file=sys.stderr)
def deep(n):
    deep(n - 1) if n else ctypes.string_at(0)
deep(20)
"""

    assert run(path, script, known=known) == -signal.SIGSEGV
    drain(outputs)
    dump = outputs.tail("w-1").partition("Fatal Python error: ")[2]
    assert dump.startswith("Segmentation fault\n\nCurrent thread 0x")
    assert dump.count(" in deep\n") == 21
    assert " in <module>\n" in dump
    assert len(outputs.tail("w-1")) <= TAIL_BYTES_MAX
    assert len(outputs.tail("w-1", 9)) <= 9


def test_a_process_that_is_killed_at_once_has_said_all_that_it_wrote(path, outputs, entries):
    """Waiting for a worker whose connection nobody has seen yet begins with looking for it."""
    for number in range(5):
        run(
            path,
            "print('a' * 100); os.write(2, b'b' * 100); os.kill(os.getpid(), 9)",
            f"w-{number}",
            Named(outputs, f"w-{number}", is_spare=True),
        )
        drain(outputs, f"w-{number}")

        assert (len(lines(entries)), len(lines(entries, "err"))) == (number + 1, number + 1)
    drain(outputs, "w-unknown")


def test_another_process_writes_nothing_in_the_name_of_a_worker(path, outputs, entries):
    """Not after it is known which process that is, and not before."""
    begin = "import os, sys; from workers.output import send_output as send\n"
    lie = """
assert send(sys.argv[1], sys.argv[2])
print("a lie")
print("a last lie", file=sys.stderr)
sys.stdin.read()
"""
    known, refused = Named(outputs), outputs.refused
    with worker(path, lie, begin=begin) as early:
        until(lambda: "a lie" in lines(entries))
        with worker(path, "print('mine'); print('me', file=sys.stderr); input()", known=known):
            until(lambda: outputs.refused == refused + 2)  # both streams of the early one
            with worker(path, lie, begin=begin):
                until(lambda: outputs.refused == refused + 4)
            until(lambda: "mine" in lines(entries))
        drain(outputs)

    logged = {entry["line"]: entry for entry in written(entries)}
    assert logged["mine"]["pid"] == known.pid
    assert (logged["a lie"]["worker_id"], logged["a lie"]["pid"]) == ("w-1", early.pid)
    assert [entry["line"] for entry in written(entries)].count("a lie") == 1
    assert outputs.tail("w-1") == "me\n"


def test_without_a_daemon_output_stays_where_it_was(path):
    """Who can't be reached changes nothing; a daemon that goes makes no print fail."""
    begin = "import sys; from workers.output import send_output\n"
    script = "print(send_output(sys.argv[1], sys.argv[2]), flush=True)"
    with worker(path, script, begin=begin) as process:
        assert process.stdout.read() == b"False\n"

    outputs = Outputs(path)
    outputs.start()
    script = """
sys.stdin.read()
for _ in range(100):
    print("x" * 1_000)
logging.warning("and %d", 1)
sys.stdout.flush()
sys.exit(5)
"""
    with worker(path, script) as process:
        until(lambda: len(outputs._connections) == 2)
        outputs.close()
        process.stdin.close()

        assert process.wait(WAIT_S) == 5


def test_a_tool_hosts_output_survives_its_exec(path, outputs, entries, monkeypatch, tmp_path):
    """The interpreter that the host becomes writes where the process did before."""
    word = "import sys\nprint('an interpreter begins', file=sys.stderr, flush=True)\n"
    (tmp_path / "sitecustomize.py").write_text(word)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # one of the variables that a host has
    script = """
from workers.toolhost.start import main
main({"address": "nobody", "daemon_pid": os.getpid(), "output": sys.argv[1], "output_id": "w-h"})
"""
    known = Named(outputs, "w-h")
    with worker(path, script, begin="import os, sys", known=known) as process:
        process.wait(WAIT_S)
    drain(outputs, "w-h")

    assert "an interpreter begins" in lines(entries, "err")


def test_closing_leaves_nothing_and_logs_what_was_there(path, entries):
    """No thread, descriptor or file is left; what a socket held is logged, and nobody waits on."""
    before = open_fds()
    outputs = Outputs(path)
    drain(outputs)
    outputs.start()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        sock.sendall(b"w-1 out\nlast")
        outputs.close()
        outputs.close()
        drain(outputs)

        assert sock.recv(1) == b""
    assert lines(entries) == ["last"]
    assert not path.exists()
    assert open_fds() == before
    assert [thread.name for thread in threading.enumerate() if thread.name == "output"] == []
