"""Debate: two agents answer each other for some rounds, and a third one says who is right.

CMDC_MODEL=openai:gpt-4o-mini python examples/13_debate.py
"""

import os
from contextlib import ExitStack

import cmdc_runtime as cmdc


def debate(question: str, options: cmdc.Options, rounds: int = 2) -> str:
    """Return what the judge says after so many rounds."""
    with ExitStack() as stack:
        sides = [stack.enter_context(cmdc.create_agent(options)) for _ in range(2)]
        said, texts = [f"{question} Argue {way} it." for way in ("for", "against")], [""]
        for _ in range(rounds):
            found = cmdc.Parallel.map(said, sides)
            texts = [one.text if isinstance(one, cmdc.Reply) else str(one) for one in found]
            said = [f"The other side says: {text}\n\nAnswer it." for text in reversed(texts)]
        judge = stack.enter_context(cmdc.create_agent(options))
        return judge.run(f"{question} Who is right?\n\n" + "\n\n".join(texts)).text


print(debate("Tabs or spaces?", cmdc.Options(model=os.environ["CMDC_MODEL"])))
