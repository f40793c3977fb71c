"""``cmdc run``: one prompt, one answer."""

from typing import Any

import click

from cmdc_runtime.cli.choices import AgentChoice, agent_options, json_option, text_of
from cmdc_runtime.cli.terminal import Terminal
from cmdc_runtime.errors import AgentAborted


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
