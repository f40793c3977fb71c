"""``client_tool``: what stands in a session for a tool of the program that has attached it.

What the model sees of the tool travels, its code does not. A call goes to that program, as a
question to the user goes to a person: the program makes it once, under the call's own reference,
and a process that goes on with the call after a crash asks for it again.
"""

from typing import Any, Final

from cmdc_runtime.extensions import Context, Effects, Tool
from workers.builtin.tools._session import session_of

ABSENT_S: Final = 30.0
"""For the program to take a call: as long as a client needs to be connected again, and longer."""
_PART_OF_TIMEOUT: Final = 2.0
"""A tool with little time gets that error within the first half of it, before its time is over."""


class ClientTool(Tool):
    """One tool of a program; ``owner`` names it there."""

    def __init__(self, owner: str, seen: dict[str, Any]) -> None:
        """Take what the model sees: name, description and parameters."""
        self.name = seen["name"]
        self.description = seen["description"]
        self.parameters = seen["parameters"]
        self._owner = owner

    async def execute(self, args: dict[str, Any], context: Context) -> Any:
        """Have the program make the call, and return what it returned."""
        absent_s = ABSENT_S
        if self.timeout is not None:
            absent_s = min(absent_s, self.timeout / _PART_OF_TIMEOUT)
        return await session_of(context, self.name).call_client(self._owner, args, absent_s)


def create(
    owner: str,
    seen: dict[str, Any],
    effects: Effects = "write",
    timeout: float | None = None,
    needs_approval: bool = False,  # noqa: FBT001, FBT002 - given by name, as all options are
) -> Tool:
    """Return the tool."""
    made = ClientTool(owner, seen)
    made.effects, made.timeout, made.needs_approval = effects, timeout, needs_approval
    return made
