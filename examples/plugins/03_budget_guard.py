"""A plugin that ends a cycle when its session has cost too much: ``Abort`` after a response.

It runs as it is, with a model that plays a script; CMDC_MODEL=openai:gpt-4o-mini names a real one.
``CostGuard`` of ``cmdc.plugins`` warns before, and asks before the request instead of after it.

python examples/plugins/03_budget_guard.py
"""

import os
from typing import Annotated

import msgspec
from msgspec import Meta

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ScriptedModel, Text


class BudgetGuard(cmdc.Plugin):
    """Ends the cycle of a response that takes the session over its budget."""

    priority = 300
    fail = "closed"

    class Config(msgspec.Struct, frozen=True):
        """US dollars for the whole session, with its subagents."""

        max_usd: Annotated[float, Meta(gt=0)]

    def after_response(
        self, _event: cmdc.AfterResponse, context: cmdc.PluginContext
    ) -> cmdc.Abort | None:
        """Compare; what has no known price has no known cost, so it cannot be allowed."""
        if not context.is_priced:
            return cmdc.Abort(f"the price of {context.model} is not known")
        if context.cost_usd > self.config.max_usd:
            return cmdc.Abort(f"budget: ${context.cost_usd:.4f} of ${self.config.max_usd:g}")
        return None


# The script is played under the name of a model that has a price.
used = cmdc.TokenUsage(prompt_tokens=2_000, completion_tokens=500)
SCRIPT = ScriptedModel([Text(f"Chapter {number}.", usage=used) for number in (1, 2, 3)])

with SCRIPT:
    real = os.environ.get("CMDC_MODEL")
    with cmdc.create_agent(
        model=real or "openai/gpt-4o-mini",
        provider_opts={} if real else SCRIPT.model_source()[1],
        plugins=[(BudgetGuard, {"max_usd": 0.001})],
    ) as session:
        for number in (1, 2, 3):
            try:
                text = session.run(f"Write chapter {number} of a book about supervisors.").text
            except cmdc.AgentAborted as error:
                print(error)
                break
            print(f"{text} So far ${session.status().cost_usd or 0.0:.4f}")
        print(f"The session is {session.status().state} and has {len(session.messages())} messages")
