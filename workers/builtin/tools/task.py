"""``task``: a piece of work for a subagent, a session of its own whose answer is the result.

The session decides whether one may be started and which; this tool asks it. What types there are
is known when the tool is described to the model, so ``describe`` lists them.
"""

import textwrap
from collections.abc import Awaitable
from typing import Annotated, Any, Final

from msgspec import Meta

from cmdc_runtime.extensions import Context, FunctionTool, Tool, ToolContext
from cmdc_runtime.tools import TASK_TIMEOUT_S
from workers.builtin.tools._session import META_CHARS_MAX, TIMEOUT_MARGIN_S, session_of, within

GENERAL_PURPOSE: Final = "general-purpose"
DESCRIPTION_CHARS_MAX: Final = 50_000
TYPE_CHARS_MAX: Final = 64

_GENERAL_PURPOSE_IS: Final = "does any task, with your tools apart from this one"

Description = Annotated[str, Meta(pattern=r"\S", max_length=DESCRIPTION_CHARS_MAX)]
SubagentType = Annotated[str, Meta(min_length=1, max_length=TYPE_CHARS_MAX)]


class _Task(FunctionTool[..., Awaitable[str]]):
    """The function with a description that depends on the session."""

    def describe(self, tool_context: ToolContext) -> str:
        """Return the description with the subagents that there are."""
        known = {GENERAL_PURPOSE: _GENERAL_PURPOSE_IS, **dict(tool_context.subagents)}
        lines = [f"- {name}: {description}" for name, description in known.items()]
        return "\n".join([self.description, "", "Types of subagents:", *lines])


def create(timeout: float = TASK_TIMEOUT_S) -> Tool:
    """Return the tool; a subagent that takes longer than ``timeout`` seconds is ended."""

    async def task(  # noqa: D417 - the context is not the model's
        description: Description,
        subagent_type: SubagentType = GENERAL_PURPOSE,
        *,
        context: Context,
    ) -> str:
        """Let a subagent do a task of several steps on its own; its last answer comes back.

        Args:
            description: The task; it is all that the subagent knows, so say what to bring back.
            subagent_type: Which subagent does it.
        """
        session = session_of(context, "task")
        complaint = (
            f"The subagent was not done within {timeout:g} s and was ended. Give it a smaller task."
        )
        return await within(timeout, session.delegate(description, subagent_type), complaint)

    bound_s = timeout + TIMEOUT_MARGIN_S
    return _Task(task, {"effects": "write", "meta": _meta, "timeout": bound_s})


def _meta(args: dict[str, Any]) -> str:
    text = f"Task for {args.get('subagent_type', GENERAL_PURPOSE)}: {args.get('description')}"
    return textwrap.shorten(text, META_CHARS_MAX, placeholder="…")
