"""The process that forks the children of ``ProcStage``, and what such a child does.

It is a script of its own, ``python fork_server.py FD``: small and single-threaded, so that a fork
takes a millisecond and is safe whatever the tests' process runs. It takes one message at a time
from the socket FD: ``fork`` comes with one end of the child's channel and is answered by its pid
and a pidfd of it, ``reap`` by its status. When the socket is closed it ends, and its children with
it. A child leads a POSIX session, as an agent does, and talks in lines of JSON; ``stage_services``
has the other side. It is ready at once and waits for its life. What takes time in that is timed by
the stage: the child asks it for an alarm, and sleeps until it rings.
"""

import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import sys
import time

PR_SET_PDEATHSIG = 1
MESSAGE_BYTES_MAX = 65536
MOMENT_S = 0.001
LIBC = ctypes.CDLL(None)


class Player:
    """One child: it follows its life until it ends."""

    def __init__(self, channel, fork_server):
        self.channel, self.fork_server = channel, fork_server
        self.life = None
        self.at_alarm = None
        self.alarms = 0
        self.is_asked = False
        self.words = b""

    def play(self):
        """Do one thing after the other; the only way out is the end of the process."""
        self.say(["ready"])
        while True:
            watched = [] if self.channel is None else [self.channel]
            select.select(watched, [], [])
            self.hear()

    def be(self, life):
        """Take a life, and begin it."""
        self.life = life
        is_deaf = life["stop"] == "deaf"
        signal.signal(signal.SIGTERM, signal.SIG_DFL if is_deaf else signal.SIG_IGN)
        self.after(life["start_s"], self.begin)

    def after(self, seconds, work):
        """Do something when the stage's clock says so, in place of what was to be done before."""
        self.alarms += 1
        self.at_alarm = work
        if seconds > 0:
            self.say(["alarm", self.alarms, seconds])
        else:
            work()

    def begin(self):
        """Become ready, or not."""
        match self.life["start"]:
            case "up":
                self.take_lock()
                self.say(["up", time.monotonic(), self.life["extra"]])
                self.live()
            case "ignore":
                self.leave(0, ["ignored"])
            case "raise":
                self.leave(1, ["raise"])
            case "exit":
                self.leave(self.life["exit_code"], [])
            case "hopeless":
                self.leave(self.life["hopeless"], ["hopeless"])
            case "garbage":
                self.channel.sendall(b"\xff\xfe\n")
            case "never":
                pass

    def live(self):
        """Do what there is to do once it is ready."""
        if self.life["unlinks"]:
            self.channel.close()
            self.channel = None
        elif self.life["company"]:
            self.after(MOMENT_S, lambda: keep_company(self.fork_server))
        elif self.life["ends_s"] is not None:
            self.after(self.life["ends_s"], lambda: self.leave(*self.life["end"]))

    def take_lock(self):
        """Have the lock at once, or fail."""
        if self.life["lock"]:
            fd = os.open(self.life["lock"], os.O_RDWR)  # the company has it too
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self.leave(1, ["raise"])

    def hear(self):
        """Take what the stage says; without it there is nobody to play for."""
        got = self.channel.recv(MESSAGE_BYTES_MAX)
        if not got:
            os._exit(0)
        self.words += got
        *lines, self.words = self.words.split(b"\n")
        for line in lines:
            self.obey(*json.loads(line))

    def obey(self, word, *more):
        """Do what one word asks for."""
        match word:
            case "be":
                self.be(*more)
            case "die":
                self.leave(*more)
            case "ring":
                if more[0] == self.alarms:
                    self.at_alarm()
            case "stop":
                self.stop(*more)

    def stop(self, why):
        """End as the life says, after as long as it says."""
        how = "obey" if self.life is None else self.life["stop"]
        if self.is_asked or how in ("ignore", "deaf"):
            return
        self.is_asked = True
        last = (0, ["shutdown", why]) if how == "obey" else tuple(how)
        self.after(0 if self.life is None else self.life["stop_s"], lambda: self.clean_up(*last))

    def clean_up(self, status, words):
        """Say that it ends in order, and end."""
        self.say(["cleaned"])
        self.leave(status, words)

    def say(self, words):
        """Send the stage something; one that unlinked has no channel for it."""
        if self.channel is not None:
            self.channel.sendall(json.dumps(words).encode() + b"\n")

    def leave(self, status, words):
        """Say the last words and end, by a signal where the status is below 0."""
        if words:
            self.say(words)
        if status < 0:
            os.kill(os.getpid(), -status)
        os._exit(status)


def keep_company(fork_server):
    """Have a process in the same session that ends with the fork server alone, if not killed."""
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.read(fork_server, 1)
        os._exit(0)


def fork(channel, stage, pipe):
    """Return the pid of a new child."""
    pid = os.fork()
    if pid == 0:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        stage.close()
        os.close(pipe[1])
        Player(channel, pipe[0]).play()
    return pid


def main():
    """Serve until the stage is gone."""
    pipe = os.pipe()
    with socket.socket(fileno=int(sys.argv[1])) as stage:
        while True:
            got, fds, _, _ = socket.recv_fds(stage, MESSAGE_BYTES_MAX, 1)
            if not got:
                return
            word, *more = json.loads(got)
            if word == "reap":
                _, status = os.waitpid(*more, 0)
                stage.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())
                continue
            channel = socket.socket(fileno=fds[0])
            pid = fork(channel, stage, pipe)
            channel.close()
            pidfd = os.pidfd_open(pid)
            socket.send_fds(stage, [json.dumps(pid).encode()], [pidfd])
            os.close(pidfd)


if __name__ == "__main__":
    main()
