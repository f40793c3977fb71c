"""The options of the prompt cache."""

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from cmdc_runtime.packing import BuiltInPlugin

CACHE_POINTS_MAX: Final = 4
"""What Anthropic takes in one request."""


class PromptCache(BuiltInPlugin, frozen=True, kw_only=True):
    """Has Claude's provider cache the part of the conversation that comes again.

    It marks, in this order of importance, the system prompt, the last user message, the result
    that closes the earliest round of tool calls, and the latest tool result. What stands before a
    mark, the tools included, is read from the cache in the next request, for a tenth of its price.
    For other models it does nothing.
    """

    short_name: ClassVar[str] = "prompt_cache"
    max_cache_points: Annotated[int, Meta(ge=1, le=CACHE_POINTS_MAX)] = 3
    """Marks in one request: as many of the above, from the first on."""
    min_tokens: Annotated[int, Meta(ge=0)] = 100
    """A message is marked only if the conversation up to its end is this long, 4 characters
    counted as a token. The system prompt is always marked. Anthropic caches nothing shorter than
    1024 tokens for most models, all that comes before a mark counted."""
