"""A plugin that hands a struggling model's work to a better one: ``SwitchModel`` after a tool.

``on_tool_error`` cannot switch models, since the call may still be tried again; ``after_tool`` can.
It runs as it is, with a model that plays a script; CMDC_MODEL and FALLBACK_MODEL name real ones.

python examples/plugins/04_tool_fallback.py
"""

import os
from typing import Annotated

import msgspec
from msgspec import Meta

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import ScriptedModel, ToolCalls, ToolUse


class ToolFallback(cmdc.Plugin):
    """Switches the model after some failed calls in a row."""

    priority = 400

    class Config(msgspec.Struct, frozen=True):
        """The model to switch to, and after how many failures."""

        fallback: str
        failures: Annotated[int, Meta(ge=1)] = 3

    class State(msgspec.Struct):
        """Outlives a crash of the process."""

        in_a_row: int = 0

    def after_tool(
        self, event: cmdc.AfterTool, _context: cmdc.PluginContext
    ) -> cmdc.SwitchModel | None:
        """Count; a success starts the count anew, and so does a switch."""
        self.state.in_a_row = self.state.in_a_row + 1 if event.is_error else 0
        if self.state.in_a_row < self.config.failures:
            return None
        self.state.in_a_row = 0
        return cmdc.SwitchModel(self.config.fallback)


@cmdc.tool(effects="read", isolation="task")
async def find_order(number: str) -> str:
    """Find an order by its number."""
    if not (number.isdecimal() and len(number) == 6):  # noqa: PLR2004 - said in the text
        raise cmdc.ToolError(f"{number!r} is no order: a number has six digits")
    return f"{number} was delivered"


tries = [ToolCalls(ToolUse("find_order", {"number": text})) for text in ("12-34", "1234", "001234")]
SCRIPT = ScriptedModel([*tries, "It was delivered."])

with (
    SCRIPT,
    cmdc.create_agent(
        model=os.environ.get("CMDC_MODEL") or SCRIPT,
        tools=[find_order],
        plugins=[
            (
                ToolFallback,
                {
                    "fallback": os.environ.get("FALLBACK_MODEL", "openai/better"),
                    "failures": 2,
                },
            )
        ],
    ) as session,
):
    session.prompt("Where is my order 12-34?")
    for envelope in session.subscribe(since=0):
        match envelope.event:
            case events.ToolExecutionEnd(ok=ok, text=text):
                print(f"{'found' if ok else 'failed'}: {text}")
            case events.ModelSwitched(from_=first, to=second):
                print(f"{first} gives way to {second}")
            case events.AgentEnd() | events.AgentError():
                break
            case _:
                pass
    print(session.collect_reply())
