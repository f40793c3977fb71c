"""Gives tool calls without a result one, before the request that would lack it.

Requests are repaired anyway, each anew; this makes the repair part of the conversation, in words of
one's own. Observers get ``tool_calls_patched``.
"""

from typing import Final

from cmdc_runtime import plugins
from cmdc_runtime.extensions.actions import Emit, SyntheticResult, SyntheticToolResults
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import BeforeRequest
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.ids import CallId
from cmdc_runtime.messages import Message

PATCHED_MAX: Final = 100
"""Calls patched before one request, the oldest first; the others have their turn at the next."""


class PatchToolCalls(Plugin):
    """Patches tool calls; early, so that other plugins see the conversation whole."""

    name = "patch_tool_calls"
    priority = 15
    emits = ("tool_calls_patched",)
    Config = plugins.PatchToolCalls

    def before_request(
        self,
        event: BeforeRequest,  # noqa: ARG002 - its messages are repaired already
        context: PluginContext,
    ) -> list[Emit]:
        """Order results for the calls that have none."""
        call_ids = unanswered(context.messages)[:PATCHED_MAX]
        if not call_ids:
            return []
        results = tuple(
            SyntheticResult(
                call_id=call_id,
                content=self.config.synthetic_content,
                is_error=self.config.is_error,
            )
            for call_id in call_ids
        )
        return [
            Emit(SyntheticToolResults(results=results)),
            Emit("tool_calls_patched", {"call_ids": call_ids}),
        ]


def unanswered(messages: tuple[Message, ...]) -> list[CallId]:
    """Return the calls without a result, oldest first; a result stands behind its call."""
    waiting: dict[CallId, None] = {}
    for message in messages:
        waiting.update((call.call_id, None) for call in message.tool_calls)
        if message.role == "tool_result" and message.call_id is not None:
            waiting.pop(message.call_id, None)
    return list(waiting)


create = PatchToolCalls
