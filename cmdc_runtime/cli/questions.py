"""What an agent asks its user: on the terminal, and by ``cmdc approve``, ``reject``, ``respond``.

An approval is answered with y, n or a, a question with the number of an option or with text of
one's own; where nobody can answer it is printed. To ask for something new: a method of both
``TerminalUser`` and ``AbsentUser``, and whoever of ``conversation`` calls it.

A person types a line at a time, with a Ctrl-C that always counts.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final, Literal, Protocol

import click

from cmdc_runtime.cli.choices import (
    address_option,
    json_option,
    line_of_input,
    running_client,
    text_of,
)
from cmdc_runtime.cli.terminal import Terminal, json_line
from cmdc_runtime.commands import ApprovalKind
from cmdc_runtime.events import ApprovalRequired, AskUser
from cmdc_runtime.lines import neutral

# --- the keyboard ---------------------------------------------------------------------------------

_REPEAT_S: Final = 0.05
"""How long a Ctrl-C may wait until it is handled before it is sent again."""


def typed_line(terminal: Terminal, mark: str) -> str:
    """Return what a person types behind ``mark``.

    Raises:
        EOFError: Ctrl-D.
        KeyboardInterrupt: Ctrl-C.

    """
    terminal.end_line()
    with _interrupts_raised():
        if terminal.is_live:
            return input(mark)
        click.echo(mark, nl=False, err=True)  # standard output is for the answers
        line = line_of_input()
    if not line:
        raise EOFError
    return line.removesuffix("\n")


@contextlib.contextmanager
def _interrupts_raised() -> Iterator[None]:
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
        with _signal_repeated():
            try:
                yield
            finally:
                is_waiting = False
    finally:
        is_waiting = False  # once more: the line above may have been interrupted itself
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _signal_repeated() -> Iterator[None]:
    """Send SIGINT to the calling thread again and again once one has come to the process."""
    received, signalled = os.pipe()
    os.set_blocking(signalled, False)
    is_over = threading.Event()
    main = threading.get_ident()

    def repeat() -> None:
        while os.read(received, 1)[0] not in (0, signal.SIGINT):  # the signals, and 0 in the end
            pass
        while not is_over.wait(_REPEAT_S):
            signal.pthread_kill(main, signal.SIGINT)

    repeater = threading.Thread(target=repeat, name="cmdc-interrupts", daemon=True)
    repeater.start()
    before = signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        is_over.set()
        with contextlib.suppress(BlockingIOError):  # so full of signals that it was read long ago
            os.write(signalled, b"\0")
        repeater.join()
        os.close(received)
        os.close(signalled)


# --- what is asked --------------------------------------------------------------------------------

Decision = Literal["approve_once", "approve_always", "reject"]

_ALLOW: Final = "allow it? [y]es, [n]o, [a]lways: "
_ALLOW_ONCE: Final = "allow it? [y]es, [n]o: "
_ANSWER: Final = "your answer: "
_CHOICE: Final = "number, or your own words: "
_DECISIONS: Final[dict[str, Decision]] = {
    "y": "approve_once",
    "yes": "approve_once",
    "a": "approve_always",
    "always": "approve_always",
    "n": "reject",
    "no": "reject",
}


class User(Protocol):
    """Who is asked; None is no answer, and somebody else may give one.

    Both raise KeyboardInterrupt where the person wants the cycle to end instead.
    """

    def decision(self, event: ApprovalRequired) -> Decision | None:
        """Return whether a call may be made."""

    def response(self, event: AskUser) -> str | None:
        """Return the answer to a question."""


class TerminalUser:
    """The user at the terminal, where the event is printed already."""

    def __init__(self, terminal: Terminal) -> None:
        """Ask on ``terminal``."""
        self._terminal = terminal

    def decision(self, event: ApprovalRequired) -> Decision | None:
        """Ask until the answer is one that is offered; Ctrl-D leaves it open."""
        offers_always = "approve_always" in event.options
        question = _ALLOW if offers_always else _ALLOW_ONCE
        try:
            while True:
                found = decision_in(typed_line(self._terminal, question))
                if found is not None and (offers_always or found != "approve_always"):
                    break
        except EOFError:
            self._terminal.note("")
            return None
        return found

    def response(self, event: AskUser) -> str | None:
        """Ask until there is an answer; Ctrl-D is none, and ends the cycle that waits for it."""
        for number, option in enumerate(event.options, 1):
            self._terminal.note(f"  {number}. {neutral(option)}", "plain")
        mark = _CHOICE if event.options else _ANSWER
        try:
            while (found := response_in(typed_line(self._terminal, mark), event.options)) is None:
                pass
        except EOFError:
            raise KeyboardInterrupt from None
        return found


class AbsentUser:
    """No user is here: prints how to answer from elsewhere."""

    def __init__(self, terminal: Terminal, *, is_kept: bool) -> None:
        """Write to ``terminal``; ``is_kept`` says that the session goes on after the command."""
        self._terminal = terminal
        self._is_kept = is_kept

    def decision(self, event: ApprovalRequired) -> Decision | None:
        """Name the commands that decide, or say how the session stays for somebody to decide."""
        which = neutral(f"{event.session_id} {event.id}")
        self._terminal.note(
            f"`cmdc approve {which}` allows it, `cmdc reject {which}` refuses it"
            if self._is_kept
            else "nobody can allow it here; --keep leaves the session running for somebody to"
        )
        return None

    def response(self, event: AskUser) -> str | None:
        """Name the command that answers: the cycle waits for it."""
        which = neutral(f"{event.session_id} {event.ref}")
        self._terminal.note(f"`cmdc respond {which} TEXT` answers it")
        return None


def decision_in(line: str) -> Decision | None:
    """Return the decision that a line is, None if it is none."""
    return _DECISIONS.get(line.strip().lower())


def response_in(line: str, options: tuple[str, ...]) -> str | None:
    """Return the option whose number the line is, else the text itself; None if it is blank."""
    numbered = {str(number): option for number, option in enumerate(options, 1)}
    said = line.strip()
    return numbered.get(said, said) or None


# --- answers for a session that waits -------------------------------------------------------------


@click.command()
@click.argument("session", required=False)
@click.argument("approval_id", metavar="[ID]", required=False)
@click.option("--always", is_flag=True, help="Allow every later call of the tool as well.")
@click.option("--no-resume", is_flag=True, help="Open no cycle for the call if none runs.")
@json_option
@address_option
def approve(  # noqa: PLR0913 - click hands over each option
    session: str | None,
    approval_id: str | None,
    *,
    always: bool,
    no_resume: bool,
    as_json: bool,
    address: str | None,
) -> None:
    """Allow the call of SESSION that waits for approval ID, and let the agent make it.

    Without ID what waits of SESSION is listed, without SESSION what waits of all.
    """
    if session is None or approval_id is None:
        from cmdc_runtime.cli.show import show_waiting  # noqa: PLC0415 - it loads the client

        show_waiting(session, address, as_json=as_json)
        return
    kind: ApprovalKind = "approve_always" if always else "approve_once"
    with running_client(address) as client:
        client.approve(session, approval_id, auto_resume=not no_resume, kind=kind)
    outcome = {"session_id": session, "approval_id": approval_id, "decision": kind}
    Terminal().line(json_line(outcome) if as_json else f"allowed {approval_id}")


@click.command()
@click.argument("session")
@click.argument("approval_id", metavar="ID")
@click.option("--resume", is_flag=True, help="Open a cycle for it, if none runs.")
@json_option
@address_option
def reject(
    session: str, approval_id: str, *, resume: bool, as_json: bool, address: str | None
) -> None:
    """Refuse the call of SESSION that waits for approval ID."""
    with running_client(address) as client:
        client.reject(session, approval_id, auto_resume=resume)
    outcome = {"session_id": session, "approval_id": approval_id, "decision": "reject"}
    Terminal().line(json_line(outcome) if as_json else f"refused {approval_id}")


@click.command()
@click.argument("session")
@click.argument("ref")
@click.argument("text")
@json_option
@address_option
def respond(session: str, ref: str, text: str, *, as_json: bool, address: str | None) -> None:
    """Answer the question REF of SESSION with TEXT; ``-`` reads it from standard input."""
    with running_client(address) as client:
        client.user_respond(session, ref, text_of(text))
    outcome = {"session_id": session, "ref": ref, "answered": True}
    Terminal().line(json_line(outcome) if as_json else f"answered {ref}")
