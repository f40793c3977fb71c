"""Tools: a decorated function keeps its types, and options of the decorator are checked."""

from typing import Annotated, assert_type

import msgspec
import pydantic

import cmdc_runtime as cmdc


class Order(pydantic.BaseModel):
    """What is wanted."""

    count: int


@cmdc.tool
def add(left: int, right: Annotated[int, msgspec.Meta(ge=0)] = 0) -> str:
    """Add two numbers."""
    return str(left + right)


@cmdc.tool(effects="read", timeout=5, needs_approval=lambda args: len(args) > 1)
async def buy(
    order: Order, note: str = pydantic.Field("", description="Why."), *, context: cmdc.Context
) -> dict[str, int]:
    """Buy it."""
    return {order.model_dump_json() + note + context.session_id: 1}


class Search(cmdc.Tool):
    """The full contract."""

    name = "search"
    description = "Search."
    effects = "read"

    def execute(self, args: dict[str, object], context: cmdc.Context) -> str:
        """Search."""
        return f"{args}{context.call_id}"


assert_type(add(1, 2), str)
add("1")  # wrong
add(1, wrong=2)  # wrong
cmdc.tool(effects="reads")  # wrong
cmdc.tool(timeout_s=5)  # wrong
session = cmdc.create_agent(model="openai:gpt-4o-mini", tools=[add, buy, Search, Search()])
session.replace_tools([add, cmdc.tools.Grep])
session.attach_tools([add, 5])  # wrong
assert_type(session.attach_tools([buy]), list[str])
