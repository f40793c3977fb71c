"""Map-reduce: each part has an agent of its own, and one more makes an answer of theirs.

CMDC_MODEL=openai:gpt-4o-mini python examples/10_map_reduce.py
"""

import os

import cmdc_runtime as cmdc


def map_reduce(question: str, parts: list[str], options: cmdc.Options) -> str:
    """Have each part answered, and one answer made of all; a part that fails fails it."""
    asked = [f"{question}\n\n{part}" for part in parts]
    found = cmdc.Parallel.map(asked, [options] * len(parts), max_parallel=4)
    failed = [one for one in found if not isinstance(one, cmdc.Reply)]
    if failed:
        raise failed[0]
    notes = [one.text for one in found if isinstance(one, cmdc.Reply)]
    with cmdc.create_agent(options) as session:
        return session.run(f"{question} Answer from these notes:\n\n" + "\n".join(notes)).text


chapters = ["The fox sleeps.", "The fox eats.", "The fox walks home."]
print(map_reduce("What does the fox do?", chapters, cmdc.Options(model=os.environ["CMDC_MODEL"])))
