"""A tool of an MCP server as a tool of the session."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from cmdc_runtime.extensions.context import Context
from cmdc_runtime.extensions.tool import Tool

PROGRESS: Final = "mcp_progress"
"""The name of the event that tells how far a call is."""
PROGRESS_MAX: Final = 500
"""Events of one call; what it tells beyond them is left out."""

Call = Callable[[str, dict[str, Any], Context], Awaitable[str]]
"""Calls a tool of one server by the server's own name for it (Any: whatever the tool takes)."""


class McpTool(Tool):
    """One tool of a server; what it does nobody knows, so it is not run twice."""

    isolation = "task"
    effects = "write"

    # Any: a JSON Schema.
    def __init__(self, name: str, own_name: str, text: str, parameters: dict[str, Any]) -> None:
        """Be called ``name`` here, and ``own_name`` by the server; ``bind`` says how."""
        self.name = name
        self.own_name = own_name
        self.description = text or own_name
        self.parameters = parameters
        self._call: Call | None = None

    def bind(self, call: Call) -> "McpTool":
        """Run calls by ``call``; return this tool."""
        self._call = call
        return self

    # Any: whatever the tool takes.
    async def execute(self, args: dict[str, Any], context: Context) -> str:
        """Have the server do it."""
        assert self._call is not None  # noqa: S101 - bound where it is made
        return await self._call(self.own_name, args, context)
