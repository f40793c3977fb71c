"""Guardrails: functions look at a prompt beside its request, and at an answer before it counts.

CMDC_MODEL=openai:gpt-4o-mini python examples/18_guardrails.py
"""

import os
import re

import cmdc_runtime as cmdc

MODEL = os.environ["CMDC_MODEL"]
POSTCARD_CHARS = 400


def no_addresses(text: str, _context: cmdc.PluginContext) -> cmdc.Tripwire | None:
    """Trip where a text has a mail address."""
    found = re.findall(r"\S+@\S+", text)
    return cmdc.Tripwire("it has a mail address", found) if found else None


async def is_short(text: str, _context: cmdc.PluginContext) -> str | None:
    """Trip where an answer is longer than a postcard."""
    return "it is too long for a postcard" if len(text) > POSTCARD_CHARS else None


def ask(session: cmdc.Session, question: str) -> None:
    """Print the answer, or which guardrail is against it."""
    try:
        print(session.run(question).text)
    except cmdc.GuardrailTripped as tripped:
        print(f"{tripped.side}: {tripped.guardrail}: {tripped.reason}; {tripped.info}")


with cmdc.create_agent(
    model=MODEL, input_guardrails=[no_addresses], output_guardrails=[no_addresses, is_short]
) as session:
    ask(session, "Write a postcard from the sea.")
    # Nothing of an answer is shown, and no tool is called, before the prompt has passed.
    ask(session, "Send it to ada@example.org.")
    # An answer that does not pass was shown in the stream; it is taken back, for the model too.
    ask(session, "To whom could it go?")
