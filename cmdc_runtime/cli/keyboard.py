"""What a person types at the terminal, a line at a time, with a Ctrl-C that always counts."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final

import click

from cmdc_runtime.cli.choices import line_of_input
from cmdc_runtime.cli.terminal import Terminal

_NUDGE_S: Final = 0.05
"""How long a Ctrl-C may wait to be heard before it is passed on again."""


def typed_line(terminal: Terminal, mark: str) -> str:
    """Return what a person types behind ``mark``.

    Raises:
        EOFError: Ctrl-D.
        KeyboardInterrupt: Ctrl-C.

    """
    terminal.end_line()
    with _interrupts_heard():
        if terminal.is_live:
            return input(mark)
        click.echo(mark, nl=False, err=True)  # standard output is for the answers
        line = line_of_input()
    if not line:
        raise EOFError
    return line.removesuffix("\n")


@contextlib.contextmanager
def _interrupts_heard() -> Iterator[None]:
    """Have a Ctrl-C raise KeyboardInterrupt whenever it comes, in the main thread.

    Python runs a handler between two of its instructions. A wait in C is interrupted so that it
    may; but a signal that comes right before the wait, with the prompt on the screen already, or
    that the kernel gives to another thread, interrupts nothing, and the wait goes on to the next
    key. So the signal's descriptor (``signal.set_wakeup_fd``), which is written to in any case,
    wakes a thread that interrupts the main one until it is out of its wait.
    """
    is_waiting = True

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if is_waiting:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with _nudged():
            try:
                yield
            finally:
                is_waiting = False
    finally:
        is_waiting = False  # once more: the line above may have been interrupted itself
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _nudged() -> Iterator[None]:
    """Send SIGINT to the calling thread again and again once one has come to the process."""
    heard, signalled = os.pipe()
    os.set_blocking(signalled, False)
    is_over = threading.Event()
    main = threading.get_ident()

    def nudge() -> None:
        while os.read(heard, 1)[0] not in (0, signal.SIGINT):  # the signals, and 0 in the end
            pass
        while not is_over.wait(_NUDGE_S):
            signal.pthread_kill(main, signal.SIGINT)

    nudger = threading.Thread(target=nudge, name="cmdc-interrupts", daemon=True)
    nudger.start()
    before = signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        is_over.set()
        with contextlib.suppress(BlockingIOError):  # so full of signals that it was read long ago
            os.write(signalled, b"\0")
        nudger.join()
        os.close(heard)
        os.close(signalled)
