"""``cmdc run``: one prompt and one answer; ``cmdc chat``, ``attach``: from a person or a pipe."""

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from cmdc_runtime.cli.choices import (
    AgentChoice,
    address_option,
    agent_options,
    json_option,
    line_of_input,
    running_address,
    text_of,
)
from cmdc_runtime.cli.questions import typed_line
from cmdc_runtime.cli.terminal import Terminal
from cmdc_runtime.errors import AgentAborted, AgentFailed, QueueFull
from cmdc_runtime.lines import neutral

if TYPE_CHECKING:
    from cmdc_runtime.cli.conversation import Conversation

# --- chat -----------------------------------------------------------------------------------------

_MARK: Final = "> "
_JOIN_MESSAGES: Final = 6
"""Of a session that is joined, so many of its newest messages are shown."""
_GREETING: Final = "Ctrl-C aborts an answer, Ctrl-D leaves"
_GOES_ON: Final = (AgentAborted, AgentFailed, QueueFull)
"""What ends one answer and not the session."""


@click.command()
@click.option("--attach", metavar="SESSION", help="Join this session in place of starting one.")
@click.option("--plain", is_flag=True, help="Line by line, without a screen, as in a pipe.")
@agent_options
def chat(*, attach: str | None, plain: bool, **given: Any) -> int:  # Any: see AgentChoice.of
    """Talk with a new agent, or with --attach with one that is there.

    On a terminal: Enter sends, Alt-Enter is a new line, Up has what was sent before, Ctrl-C aborts
    the answer, Ctrl-D leaves; /help lists the commands. What is typed while an answer comes is
    kept, and sent behind it. When the agent asks, or wants a call approved, you are asked.

    From a pipe every line is a prompt; the answers alone go to standard output, and the exit status
    is 1 if there was none for some line. --plain, and a terminal without prompt_toolkit (the extra
    "cli"), are as a pipe is, with Ctrl-C and Ctrl-D.
    """
    if attach is not None:
        return _joined(attach, given, is_plain=plain)
    choice = AgentChoice.of(given)
    if _has_screen(is_plain=plain):
        return _on_screen(choice)
    return _line_by_line(choice)


@click.command()
@click.argument("session")
@address_option
def attach(session: str, *, address: str | None) -> int:
    """Follow SESSION and type into it: `cmdc chat --attach SESSION`. It goes on when you leave."""
    return _joined(session, {"address": address}, is_plain=False)


def _has_screen(*, is_plain: bool) -> bool:
    if is_plain or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    if os.environ.get("TERM", "dumb") == "dumb":
        return False
    if importlib.util.find_spec("prompt_toolkit") is None:
        Terminal().note("the plain form, without prompt_toolkit: pip install 'cmdc-runtime[cli]'")
        return False
    return True


def _on_screen(choice: AgentChoice) -> int:
    # These load the client, prompt_toolkit and rich.
    from cmdc_runtime.cli.chat_screen import ChatScreen  # noqa: PLC0415
    from cmdc_runtime.cli.conversation import ending_in_order, started, stop_session  # noqa: PLC0415
    from cmdc_runtime.client.sync.session import Client  # noqa: PLC0415

    terminal = Terminal()
    with (
        ending_in_order(),
        contextlib.closing(Client(choice.address)) as client,
        contextlib.ExitStack() as stack,
    ):
        session = started(client, choice, terminal)
        if not choice.keep:
            stack.callback(stop_session, session)
        terminal.note(f"session {session.id}. {_GREETING}, /help lists commands")
        ChatScreen(client, session, choice.address).run(since=0)
        if choice.keep:
            terminal.note(f"session {session.id} goes on; `cmdc stop {session.id}` ends it")
    return 0


def _joined(session_id: str, given: Mapping[str, Any], *, is_plain: bool) -> int:  # Any: as above
    if not _has_screen(is_plain=is_plain):
        raise click.UsageError(
            "joining a session needs a terminal and prompt_toolkit (pip install "
            "'cmdc-runtime[cli]'); elsewhere: cmdc tail SESSION, and cmdc prompt SESSION TEXT"
        )
    # These load the client, prompt_toolkit and rich.
    from cmdc_runtime.cli.chat_screen import ChatScreen, last_messages  # noqa: PLC0415
    from cmdc_runtime.client.arguments import checked_id  # noqa: PLC0415
    from cmdc_runtime.client.sync.session import Client, Session  # noqa: PLC0415

    address, terminal = running_address(given["address"]), Terminal()
    with contextlib.closing(Client(address)) as client:
        session = Session(checked_id(session_id), client)
        since = session.last_index()
        for role, text in last_messages(session, _JOIN_MESSAGES):
            terminal.line(f"> {text}" if role == "user" else text, "quiet")
        terminal.note(f"joined session {session.id}. {_GREETING}; it goes on then")
        ChatScreen(client, session, address).run(since=since)
    return 0


def _line_by_line(choice: AgentChoice) -> int:
    from cmdc_runtime.cli.conversation import (  # noqa: PLC0415 - it loads the client
        Transcript,
        conversation,
    )
    from cmdc_runtime.cli.slash import SlashCommands  # noqa: PLC0415 - with it

    terminal = Terminal()
    is_person = sys.stdin.isatty()
    view = Transcript(terminal)
    with conversation(choice, terminal, view, is_attended=is_person) as talk:
        if not is_person:
            failures = sum(
                not _is_answered(talk, line, terminal) for line in _piped_lines() if line.strip()
            )
            return 1 if failures else 0
        terminal.note(f"session {talk.session.id}. {_GREETING}")
        slash = SlashCommands(talk.session.client, talk.session, terminal.note, choice.address)
        for line in _typed_lines(terminal):
            prompt = slash.take(line) if line.strip() else None
            if prompt is not None:
                _is_answered(talk, prompt, terminal)
            if slash.is_over:
                break
    return 0


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
