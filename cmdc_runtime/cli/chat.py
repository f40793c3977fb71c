"""``cmdc chat``: prompts line by line, from a person or from a pipe."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from cmdc_runtime.cli.choices import AgentChoice, agent_options, line_of_input
from cmdc_runtime.cli.questions import typed_line
from cmdc_runtime.cli.terminal import Terminal
from cmdc_runtime.errors import AgentAborted, AgentFailed, QueueFull
from cmdc_runtime.lines import neutral

if TYPE_CHECKING:
    from cmdc_runtime.cli.conversation import Conversation

_MARK: Final = "> "
_GREETING: Final = "Ctrl-C aborts an answer, Ctrl-D leaves"
_GOES_ON: Final = (AgentAborted, AgentFailed, QueueFull)
"""What ends one answer and not the session."""


@click.command()
@agent_options
def chat(**given: Any) -> int:  # Any: see AgentChoice.of
    """Talk with a new agent: every line of standard input is a prompt.

    Ctrl-C aborts the answer that is being made, Ctrl-D leaves. When the agent asks, or wants a call
    approved, you are asked. From a pipe the answers alone go to
    standard output, and the exit status is 1 if there was none for some line.
    """
    choice = AgentChoice.of(given)
    from cmdc_runtime.cli.conversation import (  # noqa: PLC0415 - it loads the client
        Transcript,
        conversation,
    )

    terminal = Terminal()
    is_person = sys.stdin.isatty()
    view = Transcript(terminal)
    with conversation(choice, terminal, view, is_attended=is_person) as talk:
        if is_person:
            terminal.note(f"session {talk.session.id}. {_GREETING}")
        failures = 0
        for line in _typed_lines(terminal) if is_person else _piped_lines():
            if line.strip():
                failures += not _is_answered(talk, line, terminal)
    return 1 if failures and not is_person else 0


def _is_answered(talk: "Conversation", line: str, terminal: Terminal) -> bool:
    try:
        talk.ask(line)
    except _GOES_ON as error:
        terminal.note(neutral(str(error)), "bad")
        return False
    return True


def _piped_lines() -> Iterator[str]:
    while line := line_of_input():
        yield line.removesuffix("\n")


def _typed_lines(terminal: Terminal) -> Iterator[str]:
    """Yield what a person types until Ctrl-D; Ctrl-C drops the line."""
    if terminal.is_live:
        import readline  # noqa: F401, PLC0415 - gives input() its line editing
    while True:
        try:
            yield typed_line(terminal, _MARK)
        except EOFError:
            terminal.note("")
            return
        except KeyboardInterrupt:
            terminal.note(f"\n{_GREETING}")
