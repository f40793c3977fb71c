"""Options: what create_agent takes, and what type checkers say of what it does not."""

from pathlib import Path
from typing import assert_type

import cmdc_runtime as cmdc


@cmdc.tool
def add(left: int, right: int) -> str:
    """Add two numbers."""
    return str(left + right)


class Guard(cmdc.Plugin):
    """Does nothing."""


session = cmdc.create_agent(
    model="openai:gpt-4o-mini",
    tools=[add, cmdc.tools.ReadFile, cmdc.tools.Shell(timeout=20), "module:name"],
    plugins=[Guard, Guard(), (Guard, {"limit": 3}), cmdc.plugins.CostGuard(max_cost_usd=1.0)],
    subagents=[cmdc.SubAgent(name="a", description="b")],
    working_dir=Path(),
    messages=[{"role": "user", "content": "Hello"}],
    memory_limit="512M",
    max_cost_usd=1,
    exit_on=(),
)
assert_type(session, cmdc.Session)
tools = [add]
plugins = (Guard(), Guard())
cmdc.create_agent(cmdc.Options(model="openai:gpt-4o-mini"), tools=tools, plugins=plugins)
cmdc.create_agent(blueprint=cmdc.Blueprint(model="openai:gpt-4o-mini"), reasoning_strategy="cot")
cmdc.create_agent(modle="openai:gpt-4o-mini")  # wrong
cmdc.create_agent(model=5)  # wrong
cmdc.create_agent(model="openai:gpt-4o-mini", max_turns="5")  # wrong
cmdc.create_agent(model="openai:gpt-4o-mini", tools="read_file")  # wrong
cmdc.create_agent(model="openai:gpt-4o-mini", tools=[len])  # wrong
cmdc.create_agent(model="openai:gpt-4o-mini", restart="always")  # wrong
cmdc.create_agent(model="openai:gpt-4o-mini", plugins=[5])  # wrong
cmdc.resume_session(session, max_turns=5, new_id="copy")
cmdc.resume_session(session, max_turn=5)  # wrong
cmdc.resume_session(session, messages=[])  # wrong
session.resume_session(max_cost_usd="a lot")  # wrong
session.attach_tool(add)
session.attach_tool(len)  # wrong
session.attach_plugin(Guard)
session.attach_plugin(add)  # wrong


async def main() -> None:
    """Do the same in an event loop."""
    found = await cmdc.aio.create_agent(model="openai:gpt-4o-mini", tools=[add])
    assert_type(found, cmdc.AsyncSession)
    await cmdc.aio.create_agent(model="openai:gpt-4o-mini", sytem_prompt="Be brief.")  # wrong
    async with cmdc.AsyncClient() as client:
        await client.create_agent(model="openai:gpt-4o-mini", max_turns=2)
        await client.create_agent(model="openai:gpt-4o-mini", max_turns="2")  # wrong
