"""litellm, imported in the one way that needs no network and reads nobody's files.

Import it from here and from nowhere else: the settings below count only when they come first.
"""

import os
import sys
import warnings

# Without the first, a thread of the import asks the network for prices; without the second, the
# first request to Claude with a schema does so for headers, and blocks the loop for up to 5 s;
# without the third, the import loads a .env file into the environment; without the fourth, it
# writes tracebacks and what servers and models have said to standard error.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
os.environ.setdefault("LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS", "True")
os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
os.environ.setdefault("LITELLM_LOG", "CRITICAL")

import litellm
from httpx import AsyncHTTPTransport
from litellm import _logging
from litellm.litellm_core_utils import exception_mapping_utils
from litellm.llms.custom_httpx import aiohttp_transport, http_handler

from workers.builtin.providers._failures import with_cut_text
from workers.builtin.providers._responses import BoundedTransport, bounded_transports

litellm.suppress_debug_info = True  # it would print advice to standard output at every failure
# An answer may say the same thing a hundred times over.
litellm.REPEATED_STREAMING_CHUNK_LIMIT = sys.maxsize


class _BoundedAiohttp(BoundedTransport, aiohttp_transport.LiteLLMAiohttpTransport):  # type: ignore[misc]  # Any, to mypy
    """litellm's own transport."""


class _BoundedHttpx(BoundedTransport, AsyncHTTPTransport):
    """What litellm uses where its own is switched off."""


# No setting of litellm bounds what an answer may have, and it makes its clients in many places. It
# looks these three up whenever it makes one.
aiohttp_transport.LiteLLMAiohttpTransport = _BoundedAiohttp
http_handler.AsyncHTTPTransport = _BoundedHttpx
http_handler.AsyncHTTPHandler.create_async_transport = staticmethod(
    bounded_transports(http_handler.AsyncHTTPHandler.create_async_transport, _BoundedHttpx)
)
# What it does with the text of an error takes it 20 µs a character, on the loop. The two names are
# those by which its other modules come to it.
for module in (_logging, exception_mapping_utils):
    module.redact_secret_string = with_cut_text(module.redact_secret_string)
# Its types make pydantic warn once each on standard error, about nothing that anyone here can do.
warnings.filterwarnings("ignore", message="Items? .* `ReadOnly` qualifier", category=UserWarning)
# It makes a request's coroutine in a thread; who cancels the call meanwhile leaves it unawaited.
_UNAWAITED = r"coroutine '\w+\.\w*(completion|streaming)\w*' was never awaited"
warnings.filterwarnings("ignore", message=_UNAWAITED, category=RuntimeWarning)

__all__ = ["litellm"]
