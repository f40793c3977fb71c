"""What the sessions of a stage need of a daemon: a zygote, a wire, services.

The zygote is the fork server, and the wire takes the place of ZeroMQ: a child is too small for
either. What stands behind both is the daemon's own, and so is all that decides, asks, kills and
judges.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from functools import partial
from pathlib import Path
from unittest import mock

from cmdc_runtime.errors import CmdcError, ProtocolError
from cmdc_runtime.process_table import look_up
from cmdc_runtime.reasons import Normal, Shutdown
from cmdc_runtime.wire.frames import Assign, ExitNotice, NotStarted, Ready, Started, Terminate
from supervisor.adapters.cgroups import Cgroups
from supervisor.adapters.journal.operations import EndSession, FindSession
from supervisor.adapters.pidfd import Reaper, is_over
from supervisor.processes.containment import Containments
from supervisor.processes.pool import WorkerPool
from supervisor.processes.zygotes import Zygotes
from tests.conformance.script import CHOSEN, HOPELESS, RAISED
from tests.unit.supervisor.services import Services

MESSAGE_BYTES_MAX = 65536
END_S = 10.0
"""For the fork server to end, whose pipe is closed."""
ASLEEP = frozenset("ST")
"""How the kernel shows a process that waits for something to happen, or that is stopped."""
WORDS = {
    "normal": Normal(),
    "drained": Shutdown(detail="drained"),
    "raise": RAISED,
    "chosen": CHOSEN,
}
"""What a child says of its end, and which reason that is."""


class ForkServer:
    """The process that all children of a test run are forked from."""

    def __init__(self):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(END_S)
        with theirs:
            script = Path(__file__).with_name("fork_server.py")
            command = [sys.executable, "-I", "-S", str(script), str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=(theirs.fileno(),))

    def fork(self):
        """Return the pid, the pidfd and the channel of a new child."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._socket, [b'["fork"]'], [theirs.fileno()])
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
        self._process.wait(END_S)


class ChildProcess:
    """One child's process as the reaper has it, and the kernel's proof of its end for the stage."""

    def __init__(self, fork_server, peer):
        self.peer = peer
        self.pid, self.pidfd, self.channel = fork_server.fork()
        self.started_at = time.monotonic()
        self.proof = os.dup(self.pidfd)
        self.is_closed = self.is_reaped = False
        self.has_ignored = False
        self.extra = ""
        self.unread = b""
        self._fork_server = fork_server

    @property
    def has_ended(self):
        """Whether the kernel says that it is gone."""
        return is_over(self.proof)

    def status(self):
        """Return nothing: nobody waits for it before it is reaped."""

    def listen(self, listener):
        """Call nobody: the fork server reports no status, the kernel does."""

    def close(self):
        """Give it back: the kernel forgets it now, if it has ended; who lives goes on."""
        os.close(self.pidfd)
        self.is_closed = True
        if self.has_ended:
            self._reap()

    def _reap(self):
        self._fork_server.reap(self.pid)
        self.is_reaped = True

    def send_signal(self, number):
        """Send a signal from outside, of which the daemon knows nothing."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.proof, number)

    def say(self, *words):
        """Send it something; False: it hears no more."""
        try:
            self.channel.send(json.dumps(words).encode() + b"\n")
        except OSError:
            return False
        return True

    def is_at_rest(self):
        """Say whether it does nothing until something is sent to it."""
        if self.has_ended:
            return self.is_reaped
        if self.channel.fileno() >= 0 and _unread_there(self.channel):
            return False
        line = look_up(self.pid)
        return line is not None and line.state in ASLEEP

    def kill(self):
        """End it, whatever it was about to do."""
        self.send_signal(signal.SIGKILL)
        is_over(self.proof, END_S)

    def reap(self):
        """Give everything back; one that was still forked while the others were ended is, too."""
        if not self.is_reaped:
            self.kill()
        if not self.is_closed:
            self.close()
        if not self.is_reaped:
            self._reap()
        self.channel.close()
        os.close(self.proof)


class Wire:
    """Takes the place of the router: a line of JSON each way for what a frame says."""

    def __init__(self, receive, on_life, note):
        self.processes = {}
        self.check = self.on_refused = None
        self._receive, self._on_life, self._note = receive, on_life, note

    def open(self, process):
        """Hear a new process."""
        self.processes[process.peer] = process
        asyncio.get_running_loop().add_reader(process.channel, self._hear, process)

    def send(self, peer, frame):
        """Send a process what a frame says; False: it hears no more."""
        process = self.processes[peer]
        match frame:
            case Assign(session_id=name, incarnation=generation):
                return process.say("be", self._on_life(process, name, generation))
            case Terminate(reason=why):
                return process.say("stop", why)
        return True

    def is_connected(self, peer):
        """Say whether something is left to be read."""
        try:
            return bool(self.processes[peer].channel.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def drain(self):
        """Read what has arrived."""
        for process in list(self.processes.values()):
            while self.is_connected(process.peer):
                self._hear(process)

    def _hear(self, process):
        try:
            got = process.channel.recv(MESSAGE_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            got = b""
        if not got:  # that is no end of the process
            asyncio.get_running_loop().remove_reader(process.channel)
            process.channel.close()
        *lines, process.unread = (process.unread + got).split(b"\n")
        for line in lines:
            self._hear_line(process, line)

    def _hear_line(self, process, line):
        try:
            word, *more = json.loads(line)
        except ValueError:
            refusal = ProtocolError("not a message of this protocol")
            self.on_refused(process.peer, process.pid, refusal)
            return
        match word:
            case "alarm":
                number, seconds = more
                ring = partial(process.say, "ring", number)
                asyncio.get_running_loop().call_later(seconds, ring)
            case "ignored":
                process.has_ignored = True
            case "cleaned":
                self._note("cleaned", process, None)
            case "up":
                process.extra = more[1]
                self._note("ready", process, more[0])
                self._give(process, Started())
            case "ready":
                self._give(process, Ready(pid=process.pid))
            case "shutdown":
                self._give(process, ExitNotice(reason=Shutdown(detail=more[0] if more else "")))
            case "hopeless":
                self._give(process, NotStarted(stage=HOPELESS.stage, message=HOPELESS.message))
            case _:
                self._give(process, ExitNotice(reason=WORDS[word]))

    def _give(self, process, frame):
        """Hand a frame to the pool, as the router does: checked, or refused."""
        try:
            self.check(process.peer, process.pid, frame)
        except CmdcError as error:
            self.on_refused(process.peer, process.pid, error)
        else:
            self._receive(process.peer, frame, ())


class Zygote:
    """Takes the place of the zygote: processes come from the fork server."""

    pids = frozenset()

    def __init__(self, fork_server, wire):
        self._fork_server, self._wire = fork_server, wire
        self.warmed = asyncio.Event()
        self.warmed.set()

    async def fork(self, boot):
        """Return a new process, which is about to say that it is ready."""
        process = ChildProcess(self._fork_server, boot["worker_id"].encode())
        self._wire.open(process)
        return process

    async def close(self):
        """Nothing: the fork server is for all stages."""


class StageServices(Services):
    """The sessions of one stage; ``stage`` hears what monitors would get."""

    def __init__(self, fork_server, containments, stage):
        self.wire = Wire(self._receive, stage.life_of, stage.heard)
        zygote = Zygote(fork_server, self.wire)
        pool = WorkerPool(
            Zygotes(lean=zygote, full=zygote),
            Reaper(),
            containments,
            f"ipc://{containments.heartbeats_path}",
            0,
        )
        super().__init__(pool=pool)
        self.hub.close()  # nothing is published, and no tick of it may move the stage's clock
        self.pool.router = self.wire
        self.wire.check, self.wire.on_refused = self.pool.check, self.pool.refused
        self._on_down = stage.saw_down

    def _receive(self, *given):
        self.pool.receive(*given)

    def notify(self, session, ended):
        """Hand over the notice of an end that monitors would get."""
        super().notify(session, ended)
        self._on_down(ended)

    def write_down(self, session):
        """Have it in the journal; a child that is added again is a new session of its id."""
        if self.journal.read(FindSession(session.id)).result() is not None:
            self.journal.write(EndSession(session.id, b"", 0)).result()
        super().write_down(session)


def containments_at(folder, versions=()):
    """Return the surroundings of workers, with cgroups of these versions: it may move us there."""
    among = partial(Cgroups.survey, versions=versions)
    with mock.patch.object(Cgroups, "survey", among):
        containments = Containments(folder, folder, "info")

    async def begin():
        containments.start()

    asyncio.run(begin())
    containments.outputs.close()  # a child writes nothing, so nobody waits for it to be read
    return containments


def _unread_there(channel):
    """Return how much of what was sent the other side has not taken yet."""
    (length,) = struct.unpack("i", fcntl.ioctl(channel, termios.TIOCOUTQ, bytes(4)))
    return length
