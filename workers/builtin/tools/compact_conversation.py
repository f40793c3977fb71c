"""``compact_conversation``: the model's wish to have its conversation summed up, now.

The session does it, and its report is the result. To do it once more after a crash costs nothing
but time, since what is compacted already is short.
"""

from typing import Annotated, Any, Final

from msgspec import Meta

from cmdc_runtime.extensions import Context, Tool, tool
from workers.builtin.tools._session import session_of

REASON_CHARS_MAX: Final = 1000

ReasonText = Annotated[str, Meta(max_length=REASON_CHARS_MAX)]


async def compact_conversation(  # noqa: D417 - the context is not the model's
    reason: ReasonText = "manual compact", *, context: Context
) -> str:
    """Replace the older part of this conversation by a summary, when it has become too long.

    Args:
        reason: Why it is done now.
    """
    return await session_of(context, "compact_conversation").compact(reason)


def create() -> Tool:
    """Return the tool; it has no options."""
    return tool(effects="idempotent", meta=_meta)(compact_conversation)


def _meta(args: dict[str, Any]) -> str:
    return f"Compact the conversation: {args.get('reason', 'manual compact')}"
