"""The edge to a provider's code, which may be an application's own: what goes in, what comes out.

A request has the key of its session. Whatever the code raises ends at worst the request that it was
asked: an exit of it is a failure of the request, and a ``ProviderError`` has fields that the kernel
can decide by.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec
import structlog

from cmdc_runtime import foreign
from cmdc_runtime.errors import InvalidFields
from cmdc_runtime.extensions.provider import (
    Chunk,
    FailureKind,
    ModelRequest,
    Provider,
    ProviderError,
)
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.provider_options import model_parts

log = structlog.get_logger()

_T = TypeVar("_T")


class KeyedProvider:
    """A provider that asks with the keys of the session where a request has none."""

    def __init__(self, provider: Provider, keys: Mapping[str, str]) -> None:
        """Ask by ``provider``; ``keys`` are by model, or by the provider that models name."""
        self._provider, self._keys = provider, keys

    def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Return the chunks of the reply; see ``Provider.stream``."""
        key = self._keys.get(request.model) or self._keys.get(model_parts(request.model)[0])
        if key is not None and request.provider_opts.get("api_key") is None:
            opts = {**request.provider_opts, "api_key": key}
            request = msgspec.structs.replace(request, provider_opts=opts)
        return self._provider.stream(request)


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
