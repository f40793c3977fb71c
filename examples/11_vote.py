"""Vote: several models answer, and the answer that most of them give wins.

CMDC_MODEL=openai:gpt-4o-mini OTHER_MODEL=openai:gpt-4o python examples/11_vote.py
"""

import os

import cmdc_runtime as cmdc
from cmdc_runtime.reasoning import search


def vote(question: str, models: list[str]) -> search.Tally:
    """Return the answer with the most votes."""
    ask = f"{question} End with a line 'Answer: …'."
    found = cmdc.Parallel.map(ask, [{"model": model} for model in models])
    texts = [one.text for one in found if isinstance(one, cmdc.Reply)]
    failed = [one for one in found if not isinstance(one, cmdc.Reply)]
    for one in failed:
        print(f"no vote: {one}")
    if not texts:
        raise failed[0]
    return search.vote(cmdc.Thought(f"v{n}", text) for n, text in enumerate(texts))[0]


models = [os.environ["CMDC_MODEL"], os.environ["CMDC_MODEL"], os.environ["OTHER_MODEL"]]
winner = vote("What is six times seven?", models)
print(f"{winner.answer}, by {winner.weight:g} of {len(models)}")
