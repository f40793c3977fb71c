"""Where a call runs inside the agent's process: as a task of its loop, or in a thread.

Whatever the tool does comes back as one ``Ending``; only a cancellation of ours passes through.
"""

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from cmdc_runtime import foreign
from cmdc_runtime.extensions.context import Context
from cmdc_runtime.extensions.tool import Tool
from cmdc_runtime.foreign import ForeignError
from workers import threads
from workers.toolhost.words import Ending, failed, is_awaitable, returned


# Any: whatever the tool takes.
async def in_task(tool: Tool, arguments: dict[str, Any], context: Context) -> Ending:
    """Run an async tool; who cancels the calling task ends it."""
    return await _ending_of(partial(tool.execute, arguments, context))


class Threads(threads.Threads):
    """Threads of calls, those that nobody waits for any more among them."""

    def __init__(self) -> None:
        """Have none."""
        super().__init__("tool")

    # Any: whatever the tool takes.
    async def run_tool(self, tool: Tool, arguments: dict[str, Any], context: Context) -> Ending:
        """Run a sync tool in a thread; when cancelled, leave it alone and discard what it returns.

        An awaitable that it returns is awaited in the loop.
        """

        def work() -> Ending | Awaitable[object]:
            value: Any = tool.execute(arguments, context)  # Any: the tool's own
            return value if is_awaitable(value) else returned(value)

        try:
            found = await self.run(work)
        except ForeignError as failure:
            return failed(failure)
        return await _ending_of(lambda: found) if inspect.isawaitable(found) else found


async def _ending_of(work: Callable[[], object]) -> Ending:
    try:
        value = await foreign.wait(work)
        return foreign.call(lambda: returned(value))  # its text is the tool's code too
    except ForeignError as failure:
        return failed(failure)
