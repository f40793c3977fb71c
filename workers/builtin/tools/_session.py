"""The session behind a call, for tools that ask it for something instead of doing it themselves."""

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from cmdc_runtime.extensions import Context, SessionPort, ToolError

TIMEOUT_MARGIN_S: Final = 10.0
"""The runner's own timeout comes after the tool's, which says more."""
META_CHARS_MAX: Final = 80

T = TypeVar("T")


def session_of(context: Context, name: str) -> SessionPort:
    """Return what the tool ``name`` may ask of its session.

    Raises:
        ToolError: the call belongs to no session.
    """
    if context.session is None:
        raise ToolError(f"{name} works inside a running session only, and this call has none")
    return context.session


async def within(seconds: float, awaited: Awaitable[T], complaint: str) -> T:
    """Return what is awaited.

    Raises:
        ToolError: it did not come within ``seconds``; the text is the complaint.
    """
    bound = asyncio.timeout(seconds)
    try:
        async with bound:
            return await awaited
    except TimeoutError as error:
        if not bound.expired():
            raise
        raise ToolError(complaint) from error
