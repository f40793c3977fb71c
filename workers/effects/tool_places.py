"""Where a call runs inside the agent's process: as a task of its loop, or in a thread.

Whatever the tool does comes back as one ``Ending``; only a cancellation of ours passes through.
"""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from cmdc_runtime.extensions.context import Context
from cmdc_runtime.extensions.tool import Tool, ToolError
from workers.toolhost.words import Ending, Refused, crashed, refused, returned

_T = TypeVar("_T")


# Any: whatever the tool takes.
async def in_task(tool: Tool, arguments: dict[str, Any], context: Context) -> Ending:
    """Run an async tool as part of the calling task."""

    async def value() -> object:
        found: object = tool.execute(arguments, context)
        return await found if inspect.isawaitable(found) else found

    return await _ending_of(value())


class Threads:
    """Threads of calls, those that nobody waits for any more among them."""

    def __init__(self) -> None:
        """Have none."""
        self._running: Final[set[threading.Thread]] = set()

    def __len__(self) -> int:
        """Return how many run."""
        return len(self._running)

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

    async def call(self, work: Callable[[], _T]) -> _T:
        """Return what ``work``, which raises nothing, returns in a thread of its own.

        A pool would fill up with threads that never return; here they cost only themselves.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_T] = loop.create_future()

        def settle(value: _T) -> None:
            self._running.discard(thread)
            if not done.done():  # else cancelled meanwhile: the result is discarded
                done.set_result(value)

        def run() -> None:
            value = work()
            with suppress(RuntimeError):  # the loop is closed: nobody is there to hear of it
                loop.call_soon_threadsafe(settle, value)

        thread = threading.Thread(target=run, name="tool", daemon=True)
        self._running.add(thread)
        thread.start()
        return await done


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
    task = asyncio.current_task()
    if task is not None and task.cancelling() > 0:
        raise asyncio.CancelledError from error
