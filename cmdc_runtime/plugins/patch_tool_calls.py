"""The options of the plugin that patches tool calls."""

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from cmdc_runtime.packing import BuiltInPlugin

CONTENT_CHARS_MAX: Final = 4_000


class PatchToolCalls(BuiltInPlugin, frozen=True, kw_only=True):
    """Gives every tool call of the conversation that has no result one, for good.

    An abort, a crash or an imported conversation leaves such calls. Without this plugin each
    request is repaired as it is sent, and the conversation stays as it is.
    """

    short_name: ClassVar[str] = "patch_tool_calls"
    synthetic_content: Annotated[str, Meta(min_length=1, max_length=CONTENT_CHARS_MAX)] = (
        "Error: Tool call was interrupted or not executed."
    )
    """What the model reads as the result."""
    is_error: bool = True
    """Mark the result as an error."""
