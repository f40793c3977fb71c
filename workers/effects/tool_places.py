"""Where a call runs inside the agent's process: as a task of its loop, or in a thread.

Whatever the tool does comes back as one ``Ending``; only a cancellation of ours passes through.
"""

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any

from cmdc_runtime.extensions.context import Context
from cmdc_runtime.extensions.tool import Tool, ToolError
from workers import threads
from workers.effects.cancelling import is_ending
from workers.toolhost.words import Ending, Refused, crashed, refused, returned


# Any: whatever the tool takes.
async def in_task(tool: Tool, arguments: dict[str, Any], context: Context) -> Ending:
    """Run an async tool as part of the calling task."""

    async def value() -> object:
        found: object = tool.execute(arguments, context)
        return await found if inspect.isawaitable(found) else found

    return await _ending_of(value())


class Threads(threads.Threads):
    """Threads of calls, those that nobody waits for any more among them."""

    def __init__(self) -> None:
        """Have none."""
        super().__init__("tool")

    # Any: whatever the tool takes.
    async def run(self, tool: Tool, arguments: dict[str, Any], context: Context) -> Ending:
        """Run a sync tool in a thread; when cancelled, leave it alone and discard what it returns.

        An awaitable that it returns is awaited in the loop.
        """

        def work() -> Ending | Awaitable[object]:
            try:
                value: object = tool.execute(arguments, context)
                return value if inspect.isawaitable(value) else returned(value)
            except ToolError as error:
                return refused(error)
            except Exception as error:  # noqa: BLE001 - a tool ends here; the runner logs it
                return crashed(error)
            except BaseException as error:  # noqa: BLE001 - sys.exit() ends the call only
                return Refused(text=f"the tool ended its thread by {error!r}")

        found = await self.call(work)
        return await _ending_of(found) if inspect.isawaitable(found) else found


async def _ending_of(value: Awaitable[object]) -> Ending:
    try:
        return returned(await value)
    except ToolError as error:
        _pass_on_cancel(error)
        return refused(error)
    except (Exception, asyncio.CancelledError, SystemExit) as error:  # noqa: BLE001 - as above
        _pass_on_cancel(error)
        return crashed(error)


def _pass_on_cancel(error: BaseException) -> None:
    """Raise our own cancellation of this call; what a tool cancels itself is its own failure."""
    if is_ending():
        raise asyncio.CancelledError from error
