"""``cmdc run``, one prompt and one answer; ``cmdc chat``, line by line, from a person or a pipe."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from cmdc_runtime.cli.choices import AgentChoice, agent_options, json_option, line_of_input, text_of
from cmdc_runtime.cli.questions import typed_line
from cmdc_runtime.cli.terminal import Terminal
from cmdc_runtime.errors import AgentAborted, AgentFailed, QueueFull
from cmdc_runtime.lines import neutral

if TYPE_CHECKING:
    from cmdc_runtime.cli.conversation import Conversation

# --- chat -----------------------------------------------------------------------------------------

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


# --- one prompt -----------------------------------------------------------------------------------


@click.command()
@click.argument("prompt")
@agent_options
@json_option
def run(prompt: str, *, as_json: bool, **given: Any) -> int:  # Any: see AgentChoice.of
    """Run PROMPT with a new agent and print the answer; ``-`` reads it from standard input.

    The answer goes to standard output, everything about it to standard error. Ctrl-C aborts.
    """
    choice = AgentChoice.of(given)
    text = text_of(prompt)
    # These load the client.
    from cmdc_runtime.cli.conversation import INTERRUPTED, JsonTranscript, Transcript, conversation  # noqa: PLC0415  # noqa: PLC0415

    terminal = Terminal()
    view = JsonTranscript(terminal) if as_json else Transcript(terminal)
    try:
        with conversation(choice, terminal, view) as talk:
            talk.ask(text)
    except AgentAborted as error:
        if error.reason == INTERRUPTED:
            raise KeyboardInterrupt from error
        raise
    return 0
