"""The edge to a provider's code, which may be an application's own.

Whatever it raises ends at worst the request that it was asked: an exit of it is a failure of the
request, and a ``ProviderError`` has fields that the kernel can decide by.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from cmdc_runtime import foreign
from cmdc_runtime.errors import InvalidFields
from cmdc_runtime.extensions.provider import FailureKind, ProviderError
from cmdc_runtime.foreign import ForeignError

log = structlog.get_logger()

_T = TypeVar("_T")


async def provided(work: Callable[[], Awaitable[_T]]) -> _T:
    """Return what ``work``, which asks a provider, returns.

    A ``ProviderError`` comes out with the fields that its class checks, whatever was set on it
    since; any other exception comes out as it is.

    Raises:
        ProviderError: the provider cancelled its own request, or left it by ``sys.exit()`` or
            another exception that is meant to end a program.
        InvalidFields: it raised a ``ProviderError`` whose fields are wrong, or not there.
    """
    try:
        return await foreign.wait(work)
    except ForeignError as caught:
        failed = caught
    error = failed.error
    if isinstance(error, asyncio.CancelledError):
        reason = "the provider cancelled its own request"
        raise ProviderError(FailureKind.TRANSIENT, reason) from error
    if failed.is_exit:
        log.error("provider.crashed", exception=failed.trace)
        reason = f"the provider's code tried to end the process: {failed}"
        raise ProviderError(FailureKind.PERMANENT, reason) from failed
    raise _whole(error) if isinstance(error, ProviderError) else error


def _whole(error: ProviderError) -> ProviderError:
    """Return a ``ProviderError`` as its class makes it; a subclass may have left parts out."""
    try:
        kind, reason = error.kind, error.reason
        status, after_s = error.status, error.retry_after_s
    except AttributeError:
        missing = "its __init__ has to call super().__init__(kind, reason)"
        raise InvalidFields([f"{type(error).__name__}: {missing}"]) from error
    whole = ProviderError(kind, reason, status=status, retry_after_s=after_s)
    whole.__cause__ = error
    return whole
