"""What can go wrong with a connection to an MCP server, and what of that the SDK's errors are."""

import asyncio
import contextlib
import re
from collections.abc import Iterator
from typing import Final

import anyio
import httpx2
import mcp_types as types
import pydantic
from mcp import MCPError

from cmdc_runtime.lines import one_line
from workers.mcp.http import BadStatus
from workers.mcp.tool_lists import summary_of

UNREADABLE: Final = object()
"""The data of an error that stands for an answer of this server that can't be read."""
_UNREAD_BY_SDK: Final = re.compile(
    r"(?:Failed to parse (?:JSON response|SSE message)|SSE stream failed): "
)
"""What an error begins with that the SDK makes of an answer by HTTP."""
_MORE_INFORMATION: Final = re.compile(r"\s*For further information visit \S+")
_FOREIGN_VERSION: Final = "Unsupported protocol version"


class ConnectionFailedError(Exception):
    """The server cannot be spoken to; the message says why."""

    is_final = False
    """Another try would end alike."""
    is_answer = False
    """It is what the server says to us, whichever way we speak to it."""

    def at(self, url: str) -> str:
        """Return what is said of a server at an address."""
        return f"{url} does not answer: {self}"


class UnusableAnswerError(ConnectionFailedError):
    """The server has answered, and what it says can't be used; the message says why."""

    is_final = is_answer = True

    def at(self, _url: str) -> str:
        """Return what is said of a server at an address."""
        return str(self)


class ForeignVersionError(UnusableAnswerError):
    """The server speaks other versions of the protocol."""


class BadStatusError(ConnectionFailedError):
    """The server has answered with a status that is none of success."""

    def __init__(self, status: BadStatus) -> None:
        """Name it."""
        super().__init__(str(status))
        self.is_final, self.is_answer = status.is_final, status.is_unwanted

    def at(self, url: str) -> str:
        """Return what is said of a server at an address."""
        return f"{url} answers with {self}"


@contextlib.contextmanager
def translated(unreadable: str = "") -> Iterator[None]:
    """Raise what fails as ours; ``unreadable`` stands before what is wrong with an answer."""
    try:
        yield
    except BaseExceptionGroup as group:
        if group.subgroup(asyncio.CancelledError) is not None:
            raise
        found = [_failure_of(error, unreadable) for error in _leaves(group)]
        if len(found) == 1:
            raise found[0] from group
        is_answer = all(isinstance(one, UnusableAnswerError) for one in found)
        kind = UnusableAnswerError if is_answer else ConnectionFailedError
        raise kind("; ".join(map(str, found))) from group
    except (
        MCPError,
        RuntimeError,
        ValueError,
        OSError,
        httpx2.HTTPError,
        anyio.ClosedResourceError,
        anyio.BrokenResourceError,
    ) as error:
        raise _failure_of(error, unreadable) from error


def _failure_of(error: BaseException, unreadable: str) -> ConnectionFailedError:
    """Return what a failure of the SDK is for us."""
    if isinstance(error, ConnectionFailedError):
        return error
    if (status := _status_in(error)) is not None:
        return BadStatusError(status)
    text = str(error) or type(error).__name__
    if _is_of_version(error):
        return ForeignVersionError(text)
    problem = _problem_of_answer(error, text)
    if problem is None:
        return ConnectionFailedError(text)
    return UnusableAnswerError(f"{unreadable}: {problem}" if unreadable else problem)


def _status_in(error: BaseException) -> BadStatus | None:
    if isinstance(error, httpx2.HTTPStatusError):
        return BadStatus.of(error.response)
    data = error.error.data if isinstance(error, MCPError) else None
    return data if isinstance(data, BadStatus) else None


def _is_of_version(error: BaseException) -> bool:
    if isinstance(error, MCPError):
        return error.error.code == types.UNSUPPORTED_PROTOCOL_VERSION
    return isinstance(error, RuntimeError) and str(error).startswith(_FOREIGN_VERSION)


def _problem_of_answer(error: BaseException, text: str) -> str | None:
    """Return what is wrong with an answer that can't be read; None: it is another failure."""
    if isinstance(error, pydantic.ValidationError):
        return summary_of(error)
    if not isinstance(error, MCPError):
        return None
    if error.error.data is UNREADABLE:
        return error.error.message
    found = _UNREAD_BY_SDK.match(text)
    return None if found is None else one_line(_MORE_INFORMATION.sub("", text[found.end() :]))


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
