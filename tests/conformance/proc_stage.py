"""Plays cases with real processes: forked by a troupe, watched by pidfds, killed as groups.

Times are real, so that a case keeps them short and allows for ``SLACK_S``.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cmdc_runtime.reasons import Normal, Shutdown, StartFailed
from supervisor.core import exits
from tests.conformance.audit import named
from tests.conformance.script import ENDS, EXIT_CODE, RAISED, Life
from tests.conformance.stage import Stage

BOUND_S = 10.0
"""For anything that a case waits for, the machine being busy."""
SLACK_S = 2.0
"""How much later than asked for something may be on a busy machine; the engine is exact."""
MESSAGE_BYTES_MAX = 65536
GARBAGE = StartFailed(stage="handshake", message="it said nothing that can be read")
_WORDS = {
    "normal": Normal(),
    "drained": Shutdown(detail="drained"),
    "raise": RAISED,
}


class Troupe:
    """The process that all children of a test run are forked from."""

    def __init__(self):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            script = Path(__file__).with_name("troupe.py")
            command = [sys.executable, "-I", "-S", str(script), str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=(theirs.fileno(),))

    def fork(self, life):
        """Return the pid, the pidfd and the channel of a new child."""
        ours, theirs = socket.socketpair()
        with theirs:
            message = json.dumps(["fork", life]).encode()
            socket.send_fds(self._socket, [message], [theirs.fileno()])
            got, (pidfd,), _, _ = socket.recv_fds(self._socket, MESSAGE_BYTES_MAX, 1)
        ours.setblocking(False)
        return json.loads(got), pidfd, ours

    def reap(self, pid):
        """Return the status of a child that has ended, a signal's as its negative number."""
        self._socket.send(json.dumps(["reap", pid]).encode())
        return json.loads(self._socket.recv(MESSAGE_BYTES_MAX))

    def close(self):
        """End it."""
        self._socket.close()
        self._process.wait(BOUND_S)


@dataclass(slots=True, eq=False)
class RealProcess:
    """One child's process."""

    ref: object
    life: Life
    pid: int
    pidfd: int
    channel: socket.socket
    asked: exits.Asked = exits.Asked.NOTHING
    blamed: object = None
    last_words: object = None
    has_ignored: bool = False
    unread: bytes = field(default=b"")


class ProcStage(Stage):
    """A stage of processes, played in an event loop that runs while a case waits."""

    is_real = True

    def __init__(self, troupe):
        super().__init__()
        self._troupe = troupe
        self._loop = asyncio.new_event_loop()
        self._news = asyncio.Event()
        self._failure = None
        self._processes = {}

    # --- time -------------------------------------------------------------------------------

    def now(self):
        return self._loop.time()

    def at(self, delay_s, work):
        return self._loop.call_later(delay_s, self._step, work)

    def cancel(self, entry):
        entry.cancel()

    def wait(self, condition, what):
        try:
            self._loop.run_until_complete(self._wait(condition, BOUND_S))
        except TimeoutError:
            raise AssertionError(f"{what} never came: {self.log}") from None

    def pass_time(self, seconds):
        with contextlib.suppress(TimeoutError):
            self._loop.run_until_complete(self._wait(lambda: False, seconds))

    def settle(self):
        """Nothing more: what happens, happens by itself."""

    async def _wait(self, condition, bound_s):
        async with asyncio.timeout(bound_s):
            while self._failure is None and not condition():
                self._news.clear()
                await self._news.wait()
        if self._failure is not None:
            raise self._failure

    def _step(self, work):
        """Do what the loop calls for; what fails fails the case, which waits for something."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - raised again by ``_wait``
            self._failure = self._failure or error
        self._news.set()

    # --- processes --------------------------------------------------------------------------

    def _process(self, ref):
        return self._processes[ref]

    def launch(self, ref, life):
        told = asdict(life) | {"end": _leaving(life.end), "exit_code": EXIT_CODE}
        if life.stop in ENDS:
            told["stop"] = _leaving(life.stop)
        pid, pidfd, channel = self._troupe.fork(told)
        process = self._processes[ref] = RealProcess(ref, life, pid, pidfd, channel)
        self._loop.add_reader(channel, self._step, lambda: self._hear(process))
        self._loop.add_reader(pidfd, self._step, lambda: self._bury(process))

    def order(self, process, how):
        if how == "kill":
            signal.pidfd_send_signal(process.pidfd, signal.SIGKILL)
        else:
            self._say(process, ["die", *_leaving(how)])

    def ask(self, process, why):
        process.asked = exits.Asked.POLITELY
        self._say(process, ["stop", why])

    def terminate(self, process):
        process.asked = exits.Asked.SIGTERM
        signal.pidfd_send_signal(process.pidfd, signal.SIGTERM)

    def kill(self, process, blamed):
        process.asked, process.blamed = exits.Asked.SIGKILL, process.blamed or blamed
        os.killpg(process.pid, signal.SIGKILL)  # nobody has waited for it: the number is its own

    def _say(self, process, words):
        with contextlib.suppress(OSError):  # one that is about to end hears no more
            process.channel.send(json.dumps(words).encode() + b"\n")

    def _hear(self, process):
        """Take what a process says; a channel that is closed is no end."""
        try:
            got = process.channel.recv(MESSAGE_BYTES_MAX)
        except OSError:
            got = b""
        if not got:
            self._loop.remove_reader(process.channel)
        *lines, process.unread = (process.unread + got).split(b"\n")
        for line in lines:
            self._heed(process, line)

    def _heed(self, process, line):
        try:
            word, *more = json.loads(line)
        except ValueError:
            self.kill(process, GARBAGE)
            return
        match word:
            case "up":
                self.up(process, process.pid, more[1] or None)
                self.write("ready", named(process.ref), more[0])
            case "cleaned":
                self.write("cleaned", named(process.ref))
            case "ignored":
                process.has_ignored = True
            case "shutdown":
                process.last_words = Shutdown(detail=more[0] if more else "")
            case _:
                process.last_words = _WORDS[word]

    def _bury(self, process):
        """Read what a dead process had still to say, end what is left of it, and tell the tree."""
        self._loop.remove_reader(process.pidfd)
        if self._loop.remove_reader(process.channel):
            self._hear(process)
            self._loop.remove_reader(process.channel)
        process.channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.life.company:
            self.is_alone(process.pid)  # what it had is free before anybody is told
        os.close(process.pidfd)
        status = self._troupe.reap(process.pid)
        known = exits.Evidence(
            status=status,
            last_words=process.last_words,
            blamed=process.blamed,
            asked=process.asked,
        )
        self.exited(process, exits.classify(known))

    # --- its end ----------------------------------------------------------------------------

    def is_alone(self, *pids):
        """Wait until no process of these groups is left."""
        until_s = time.monotonic() + BOUND_S
        while any(_is_group(pid) for pid in pids):
            assert time.monotonic() < until_s, f"left: {pids}"
            os.sched_yield()

    def close(self):
        try:
            super().close()
            self.is_alone(*(process.pid for process in self._processes.values()))
        finally:
            for process in self._processes.values():
                with contextlib.suppress(OSError):
                    process.channel.close()
            self._loop.close()


def _leaving(how):
    status, word, _ = ENDS[how]
    return status, [word] if word else []


def _is_group(pid):
    """Say whether a group has a living process; one that is only not yet waited for is none."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return any(_is_member(entry, pid) for entry in Path("/proc").glob("[0-9]*/stat"))


def _is_member(entry, group):
    try:
        stat = entry.read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    state, _, its_group = stat.rpartition(")")[2].split()[:3]
    return int(its_group) == group and state not in "ZX"
