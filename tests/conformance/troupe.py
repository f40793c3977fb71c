"""The process that forks the children of ``ProcStage``, and what such a child does.

It is a script of its own, ``python troupe.py FD``: small and single-threaded, so that a fork takes
a millisecond and is safe whatever the tests' process runs. It takes one message at a time from the
socket FD: ``fork`` comes with one end of the child's channel and is answered by its pid and a pidfd
of it, ``reap`` by its status. When the socket is closed it ends, and its children with it.

A child talks in lines of JSON and is a process group of its own. ``proc_stage`` has the other side.
"""

import contextlib
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
NEVER_S = 3600.0
LIBC = ctypes.CDLL(None)


class Player:
    """One child: it follows its life until it ends."""

    def __init__(self, life, channel, troupe):
        self.life, self.channel, self.troupe = life, channel, troupe
        self.is_up = False
        self.next_s = time.monotonic() + life["start_s"]
        self.reply = None
        self.words = b""

    def play(self):
        """Do one thing after the other; the only way out is the end of the process."""
        stop = self.life["stop"]
        signal.signal(signal.SIGTERM, signal.SIG_DFL if stop == "deaf" else signal.SIG_IGN)
        while True:
            watched = [] if self.channel is None else [self.channel]
            ready, _, _ = select.select(watched, [], [], max(0.0, self.next_s - time.monotonic()))
            if ready:
                self.hear()
            elif self.reply is not None:
                self.say(["cleaned"])
                self.leave(*self.reply)
            elif self.is_up:
                self.leave(*self.life["end"])
            else:
                self.begin()

    def begin(self):
        """Become ready, or not."""
        self.next_s = time.monotonic() + NEVER_S
        match self.life["start"]:
            case "up":
                self.is_up = True
                self.take_lock()
                if self.life["company"]:
                    keep_company(self.troupe)
                self.say(["up", time.monotonic(), self.life["extra"]])
                if self.life["ends_s"] is not None:
                    self.next_s = time.monotonic() + self.life["ends_s"]
                if self.life["unlinks"]:
                    self.channel.close()
                    self.channel = None
            case "ignore":
                self.leave(0, ["ignored"])
            case "raise":
                self.leave(1, ["raise"])
            case "exit":
                self.leave(self.life["exit_code"], [])
            case "garbage":
                self.channel.sendall(b"\xff\xfe\n")
            case "never":
                pass

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
            word, *more = json.loads(line)
            if word == "die":
                self.leave(*more)
            elif self.reply is None and self.life["stop"] not in ("ignore", "deaf"):
                obeys = self.life["stop"] == "obey"
                self.reply = (0, ["shutdown", *more]) if obeys else tuple(self.life["stop"])
                self.next_s = time.monotonic() + self.life["stop_s"]

    def say(self, words):
        """Tell the stage something; one that unlinked has nobody to tell."""
        if self.channel is not None:
            self.channel.sendall(json.dumps(words).encode() + b"\n")

    def leave(self, status, words):
        """Say the last words and end, by a signal where the status is below 0."""
        if words:
            self.say(words)
        if status < 0:
            os.kill(os.getpid(), -status)
        os._exit(status)


def keep_company(troupe):
    """Have a process in the same group that ends with the troupe alone, unless it is killed."""
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.read(troupe, 1)
        os._exit(0)


def fork(life, channel, stage, pipe):
    """Return the pid of a new child."""
    pid = os.fork()
    if pid == 0:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setpgid(0, 0)
        stage.close()
        os.close(pipe[1])
        Player(life, channel, pipe[0]).play()
    with contextlib.suppress(OSError):  # the child does it too: whoever comes first
        os.setpgid(pid, pid)
    return pid


def main():
    """Serve until the stage is gone."""
    pipe = os.pipe()
    with socket.socket(fileno=int(sys.argv[1])) as stage:
        while True:
            got, fds, _, _ = socket.recv_fds(stage, MESSAGE_BYTES_MAX, 1)
            if not got:
                return
            word, more = json.loads(got)
            if word == "reap":
                _, status = os.waitpid(more, 0)
                stage.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())
                continue
            channel = socket.socket(fileno=fds[0])
            pid = fork(more, channel, stage, pipe)
            channel.close()
            pidfd = os.pidfd_open(pid)
            socket.send_fds(stage, [json.dumps(pid).encode()], [pidfd])
            os.close(pidfd)


if __name__ == "__main__":
    main()
