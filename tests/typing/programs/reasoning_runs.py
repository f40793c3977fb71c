"""Reasoning: strategies as options, and a runner's result."""

from typing import assert_type

import cmdc_runtime as cmdc

with cmdc.create_agent(
    model="openai:gpt-4o-mini", reasoning_strategy=cmdc.reasoning.TreeOfThoughts
) as session:
    session.run("Think.")
cmdc.create_agent(model="openai:gpt-4o-mini", reasoning_strategy=5)  # wrong
result = cmdc.Runner.run("tree_of_thoughts", "Think.", model="openai:gpt-4o-mini", max_steps=3)
assert_type(result, cmdc.reasoning.ReasoningResult)
cmdc.Runner.run("tree_of_thoughts", "Think.", max_step=3)  # wrong
answers = cmdc.Parallel.map("Tea or coffee?", ["a", session], max_parallel=2)
for answer in answers:
    if isinstance(answer, cmdc.CmdcError):
        print(answer.details())
    else:
        print(answer.text.upper(), answer.output)
