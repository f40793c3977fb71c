"""Carries out ``RunTools``: prepare, execute, finalize, for every call of a batch.

*Prepare* finds the tool and checks the arguments; *execute* runs it with its bound of time and its
retries; *finalize* makes the text that the model reads. Failures are data: a batch always ends
with one result for each call. An async tool runs as a task, a sync one in a thread of its own; a
thread cannot be ended, so what a cancelled one returns is discarded.
"""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from cmdc_runtime.clock import now_ms
from cmdc_runtime.extensions.context import Context
from cmdc_runtime.extensions.tool import Tool, ToolError
from cmdc_runtime.ids import Incarnation, SessionId
from cmdc_runtime.messages import ToolCall
from workers.core.state import Result, RunTools, ToolBegun, ToolReturned
from workers.effects.intake import fit

log = structlog.get_logger()

RESULT_CHARS_MAX: Final = 400_000
"""A longer result is cut; the model is told so."""
REPEATABLE: Final = frozenset({"read", "idempotent"})


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """What every call of a session has in common; times are seconds."""

    session_id: SessionId
    incarnation: Incarnation
    group_id: str | None
    working_dir: str
    user_data: dict[str, Any]  # Any: the application's own
    parallel_max: int
    timeout_s: float
    retries_max: int


class ToolRunner:
    """Runs batches of calls and posts what becomes of them."""

    def __init__(
        self,
        tools: tuple[Tool, ...],
        settings: ToolSettings,
        post: Callable[[Result], None],
        synced: Callable[[], Awaitable[None]],
    ) -> None:
        """Post results by ``post``; a call that may not run twice waits for ``synced`` first."""
        self.tools = {tool.name: tool for tool in tools}
        self._settings = settings
        self._post = post
        self._synced = synced
        self._gate = asyncio.Semaphore(settings.parallel_max)
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, batch: RunTools) -> list[asyncio.Task[None]]:
        """Start every call of the batch."""
        tasks = [
            asyncio.create_task(self._call(batch, call), name=f"tool-{call.name}")
            for call in batch.calls
        ]
        self._tasks.update(tasks)
        for task in tasks:
            task.add_done_callback(self._tasks.discard)
        return tasks

    def cancel(self) -> None:
        """End the calls that can be ended."""
        for task in self._tasks:
            task.cancel()

    async def settle(self) -> None:
        """Return when every call that was ended is gone, its processes too."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _call(self, batch: RunTools, call: ToolCall) -> None:
        async with self._gate:
            tool = self.tools.get(call.name)
            if tool is None:
                known = ", ".join(sorted(self.tools)) or "none"
                text = f"Error: there is no tool named {call.name!r}. Tools: {known}."
                self._return(batch, call, text, ok=False, is_unknown=True)
                return
            self._post(ToolBegun(batch.work, call.call_id, now_ms()))
            try:
                text, ok = await self._execute(batch, call, tool), True
            except ToolError as error:
                text, ok = str(error), False
            self._return(batch, call, text, ok=ok)

    async def _execute(self, batch: RunTools, call: ToolCall, tool: Tool) -> str:
        if call.malformed is not None:
            raise ToolError(
                f"the arguments are no JSON object: {call.malformed[:200]!r}. Send a JSON object."
            )
        arguments = _checked(call, tool)
        if tool.effects not in REPEATABLE:
            await self._synced()
        attempt = 0
        while True:
            try:
                return await self._once(batch, call, tool, arguments)
            except ToolError:
                raise
            except (Exception, asyncio.CancelledError, SystemExit) as error:
                if _is_ending():
                    raise asyncio.CancelledError from error
                attempt += 1
                if attempt > self._retries_max(tool):
                    log.exception("tool.crashed", tool=call.name, call_id=call.call_id)
                    raise ToolError(f"{type(error).__name__}: {error}") from error

    async def _once(
        self, batch: RunTools, call: ToolCall, tool: Tool, arguments: dict[str, Any]
    ) -> str:
        bound_s = self._settings.timeout_s if tool.timeout is None else tool.timeout
        context = self._context(batch, call)
        bound = asyncio.timeout(bound_s)
        try:
            async with bound:
                value = await _run(tool, arguments, context)
        except TimeoutError as error:
            if not bound.expired():
                raise
            raise ToolError(f"{call.name} took longer than {bound_s:g} s and was ended") from error
        return value if isinstance(value, str) else str(value)

    def _context(self, batch: RunTools, call: ToolCall) -> Context:
        return Context(
            session_id=self._settings.session_id,
            call_id=call.call_id,
            working_dir=self._settings.working_dir,
            model=batch.model,
            turn=batch.turn,
            user_data=self._settings.user_data,
            group_id=self._settings.group_id,
            incarnation=self._settings.incarnation,
        )

    def _retries_max(self, tool: Tool) -> int:
        if tool.max_retries is not None:
            return tool.max_retries
        return self._settings.retries_max if tool.effects in REPEATABLE else 0

    def _return(
        self, batch: RunTools, call: ToolCall, text: str, *, ok: bool, is_unknown: bool = False
    ) -> None:
        if len(text) > RESULT_CHARS_MAX:
            text = f"{text[:RESULT_CHARS_MAX]}\n[cut: the result had {len(text)} characters]"
        text = fit(text)
        self._post(
            ToolReturned(batch.work, call.call_id, ok, text, now_ms(), is_unknown=is_unknown)
        )


def _checked(call: ToolCall, tool: Tool) -> dict[str, Any]:  # Any: whatever the tool takes
    try:
        return tool.check(call.arguments)
    except ToolError:
        raise
    except Exception as error:
        log.exception("tool.crashed", tool=call.name, call_id=call.call_id)
        raise ToolError(f"{type(error).__name__}: {error}") from error


def _is_ending() -> bool:
    """Say whether we cancelled this call: what a tool cancels itself is a failure of the tool."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _run(tool: Tool, arguments: dict[str, Any], context: Context) -> object:
    value: object
    if tool.isolation == "task":
        value = tool.execute(arguments, context)
    else:
        value = await _in_thread(lambda: tool.execute(arguments, context))
    return await value if inspect.isawaitable(value) else value


async def _in_thread(function: Callable[[], object]) -> object:
    """Run ``function`` in a thread of its own.

    A pool would fill up with threads that never return; here they cost only themselves.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[object] = loop.create_future()

    def settle(value: object, error: BaseException | None) -> None:
        if future.done():
            return  # cancelled meanwhile: the result is discarded
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def run() -> None:
        try:
            value = function()
        except BaseException as error:  # noqa: BLE001 - handed to the awaiting task
            # Other than plain exceptions may not travel in a future, nor may StopIteration; a
            # tool that "exits" ends its call only.
            is_plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            told = error if is_plain else ToolError(f"the tool ended its thread by {error!r}")
            loop.call_soon_threadsafe(settle, None, told)
        else:
            loop.call_soon_threadsafe(settle, value, None)

    threading.Thread(target=run, name="tool", daemon=True).start()
    return await future
