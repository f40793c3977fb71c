"""A command on a pseudo-terminal, and the person before it."""

import contextlib
import os
import pty
import select
import subprocess
import sys
import termios
import time

RUN_S = 60.0
"""For one command, the machine being busy."""
ROWS, COLUMNS = 24, 80
"""Of the terminal."""
WHERE, HERE = b"\x1b[6n", b"\x1b[10;1R"
"""How a program asks where the cursor is, and what a terminal answers."""
ON_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes standard input the controlling terminal, so that its Ctrl-C is a signal."""


class PseudoTerminal:
    """A command on a terminal, and the person before it."""

    def __init__(self, process, fd):
        self._process = process
        self._fd = fd
        self._unread = ""

    def type(self, text):
        os.write(self._fd, text.encode())

    def expect(self, text):
        """Read until ``text`` is there; what came before it is read."""
        deadline_s = time.monotonic() + RUN_S
        while text not in self._unread:
            if time.monotonic() > deadline_s or not self._read():
                raise AssertionError(f"no {text!r} in {self._unread!r}")
        self._unread = self._unread.partition(text)[2]

    def is_raw(self):
        """Whether what is typed reaches the command as it is, key by key."""
        return not termios.tcgetattr(self._fd)[3] & termios.ICANON

    @property
    def unread(self):
        """What the command has written since."""
        return self._unread

    def status(self):
        """Read to the end and return the exit status."""
        deadline_s = time.monotonic() + RUN_S
        while self._read() and time.monotonic() < deadline_s:
            pass
        return self._process.wait(RUN_S)

    def close(self):
        """End the command if it still runs."""
        self._process.kill()
        self._process.wait()
        os.close(self._fd)

    def _read(self):
        if not select.select([self._fd], [], [], RUN_S)[0]:
            return False
        try:
            piece = os.read(self._fd, 65536)
        except OSError:  # the other end is closed
            return False
        if WHERE in piece:
            os.write(self._fd, HERE)
        self._unread += piece.decode(errors="replace")
        return bool(piece)


@contextlib.contextmanager
def typing(command, environment):
    """Run a command on a pseudo-terminal."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (ROWS, COLUMNS))
    process = subprocess.Popen(
        [sys.executable, "-c", ON_TERMINAL, *command],
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    terminal = PseudoTerminal(process, ours)
    try:
        yield terminal
    finally:
        terminal.close()
