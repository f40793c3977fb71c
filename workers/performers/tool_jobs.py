"""One call as it is to be run: its tool, its arguments as the tool takes them, what people see."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec
import structlog

from cmdc_runtime import foreign, plain
from cmdc_runtime.bounded_check import CheckTooLongError, bounded
from cmdc_runtime.extensions.actions import APPROVAL_TIMEOUT_S, RequireApproval
from cmdc_runtime.extensions.tool import Tool, ToolError
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.messages import ToolCall
from workers.core.assemble import read_arguments
from workers.core.step import RunTools
from workers.performers.toolbox import LoadedTool
from workers.toolhost.wire import fit

log = structlog.get_logger()

SUMMARY_CHARS_MAX: Final = 200
"""Of what a tool says about a call, for people."""
MALFORMED_CHARS_SHOWN: Final = 200
"""Of arguments that are no JSON object which can be kept."""
TOO_LONG: Final = (
    "Invalid arguments for {}: they cannot be checked: {}. A pattern of this tool's schema may take"
    " too long for such a text: send a shorter or simpler one."
)

Todos = tuple[dict[str, str], ...]
T = TypeVar("T")


@dataclass(slots=True)
class Tally:
    """How many steps a call has published, in all its runs."""

    steps: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """One call, what it runs and with which arguments."""

    batch: RunTools
    call: ToolCall
    todos: Todos
    loaded: LoadedTool
    arguments: dict[str, Any]  # Any: whatever the tool takes
    tally: Tally

    @property
    def tool(self) -> Tool:
        """The tool itself."""
        return self.loaded.tool

    def args_given(self, asked: ToolCall) -> dict[str, Any] | None:  # Any: whatever the tool takes
        """Return the arguments that plugins gave the call, None where they left them alone."""
        return None if self.call is asked else self.call.arguments

    def approval(
        self, wanted: RequireApproval | None, *, holds: bool = False
    ) -> RequireApproval | None:
        """Return how a person is to be asked, as plugins or the tool itself want; None if not.

        ``holds``: a call that the tool itself wants to have approved is held for that.

        A tool that fails to answer is not trusted.
        """
        if wanted is not None:
            hint = wanted.hint or self.summary
            return msgspec.structs.replace(wanted, hint=hint)
        try:
            if not foreign.call(lambda: bool(self.tool.wants_approval(self.arguments))):
                return None
        except ForeignError as failed:
            _log_crash(self.call, failed)
        timeout_s = APPROVAL_TIMEOUT_S if holds else None
        return RequireApproval(hint=self.summary, hold=holds, timeout_s=timeout_s)

    @property
    def summary(self) -> str:
        """What the tool says of the call, for people; its name where it says nothing."""
        try:
            text = foreign.call(lambda: str(self.tool.meta(self.arguments)))
        except ForeignError as failed:
            _log_crash(self.call, failed)
            text = self.tool.name
        return fit(text[:SUMMARY_CHARS_MAX])


def checked(call: ToolCall, tool: Tool) -> dict[str, Any]:  # Any: whatever the tool takes
    """Return the arguments of a call as its tool takes them.

    Raises:
        ToolError: they do not fit; the text says what is wrong, for the model.
    """
    if call.malformed is not None:
        raise ToolError(_malformed(call.malformed))
    try:
        return foreign.call(lambda: bounded(lambda: tool.check(call.arguments)))
    except ForeignError as failed:
        if isinstance(failed.error, ToolError):
            raise failed.error from failed
        if isinstance(failed.error, CheckTooLongError):
            log.warning("tool.check_ended", tool=call.name, call_id=call.call_id)
            raise ToolError(TOO_LONG.format(call.name, failed.error)) from failed
        _log_crash(call, failed)
        raise ToolError(str(failed)) from failed


def _log_crash(call: ToolCall, failed: ForeignError) -> None:
    trace = foreign.traceback_of(failed)
    log.error("tool.crashed", tool=call.name, call_id=call.call_id, exception=trace)


def _malformed(raw: str) -> str:
    try:
        read_arguments(raw)
    except ValueError as error:
        problem = plain.without_controls(str(error))
    else:
        problem = "it could not be read"  # an older program had other rules
    shown = plain.mended(raw)[:MALFORMED_CHARS_SHOWN]
    return f"the arguments cannot be used: {problem}: {shown!r}. Send a JSON object."


class Seat:
    """A place among the calls that run at once; a call that waits for a person gives it up."""

    def __init__(self, gate: asyncio.Semaphore) -> None:
        """Take a place behind ``gate`` when entered."""
        self._gate = gate
        self._is_taken = False

    async def __aenter__(self) -> Self:
        """Wait for a place."""
        await self._gate.acquire()
        self._is_taken = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the place to the next."""
        self._leave()

    async def left_for(self, waiting: Awaitable[T]) -> T:
        """Return what comes of ``waiting``, with the place given up until then."""
        self._leave()
        result = await waiting
        await self.__aenter__()
        return result

    def _leave(self) -> None:
        if self._is_taken:
            self._is_taken = False
            self._gate.release()
