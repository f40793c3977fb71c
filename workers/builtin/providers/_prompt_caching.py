"""Marks for Anthropic's prompt cache: which models take them, and where they go in a request.

A message asks for a mark by ``cache_control`` in its metadata, as Anthropic writes it:
``{"type": "ephemeral"}``. litellm turns a message's mark into one of its last content block, or
into what Bedrock has instead. Other vendors refuse the key or make something else of it (Google a
cache that is paid by the hour), so they never see it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

CACHE_CONTROL: Final = "cache_control"
PROVIDERS: Final = frozenset(
    {"anthropic", "azure_ai", "bedrock", "databricks", "openrouter", "vertex_ai"}
)
"""Who serves Claude and is sent marks by litellm."""
MARKS_MAX: Final = 4
"""Anthropic refuses a request with more."""


def takes_marks(provider: str, model_id: str) -> bool:
    """Say whether a model caches what is marked; ``provider`` is empty where it goes unsaid."""
    is_claude = "claude" in model_id.lower()
    return provider == "anthropic" or (is_claude and provider in PROVIDERS | {""})


def marked(
    entries: Sequence[dict[str, object]], metadata: Sequence[Mapping[str, object]]
) -> list[dict[str, object]]:
    """Return messages in the OpenAI shape with the marks that their metadata ask for.

    A message without text cannot have one. Of too many marks the first and the latest count.
    """
    wanted = {
        at: mark
        for at, (entry, noted) in enumerate(zip(entries, metadata, strict=True))
        if isinstance(mark := noted.get(CACHE_CONTROL), Mapping) and entry["content"]
    }
    places = list(wanted)
    if len(places) > MARKS_MAX:
        places = [places[0], *places[1 - MARKS_MAX :]]
    return [
        {**entry, CACHE_CONTROL: dict(wanted[at])} if at in places else entry
        for at, entry in enumerate(entries)
    ]
