"""Runs a provider's code so that its own cancellation is its failure, and ours goes its way."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cmdc_runtime import foreign
from cmdc_runtime.extensions.provider import FailureKind, ProviderError
from cmdc_runtime.foreign import ForeignError

_T = TypeVar("_T")


async def provided(work: Callable[[], Awaitable[_T]]) -> _T:
    """Return what ``work``, which asks a provider, returns; what it raises comes out as it is.

    Raises:
        ProviderError: the provider cancelled its own request.
    """
    try:
        return await foreign.wait(work)
    except ForeignError as failed:
        error = failed.error
    if isinstance(error, asyncio.CancelledError):
        reason = "the provider cancelled its own request"
        raise ProviderError(FailureKind.TRANSIENT, reason) from error
    raise error
