"""Plugins and calls: what plugins say before a call, at its failures, and after it.

What they say besides (events, states, notes, another model) is posted at once. A call that plugins
end, or whose cycle they end, is over for the runner: the tables do the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from cmdc_runtime.clock import now_ms
from cmdc_runtime.extensions.hooks import AfterTool, AnyHook, BeforeTool, OnToolError
from cmdc_runtime.extensions.kernel_emits import RequireApproval
from cmdc_runtime.messages import ToolCall
from workers.core.inputs import PluginsAborted, PluginsSpoke, Result, ToolRefused
from workers.core.verdict import Verdict
from workers.pipeline import Pipeline
from workers.toolhost.words import Ending, Refused, Returned


@dataclass(frozen=True, slots=True)
class Heard:
    """What plugins made of a call that may run: its arguments, and whom to ask first."""

    call: ToolCall
    approval: RequireApproval | None = None


class ToolHooks:
    """Asks the plugins of one session about its calls."""

    def __init__(self, plugins: Pipeline | None, post: Callable[[Result], None]) -> None:
        """Post what plugins say by ``post``."""
        self._plugins = plugins
        self._post = post

    async def before(self, work: int, call: ToolCall) -> Heard | None:
        """Return the call as it is to run, or None where it is not to run."""
        verdict = await self._ask(work, BeforeTool(call.name, call.call_id, call.arguments))
        if verdict is None:
            return None
        if verdict.blocked is not None:
            self._post(ToolRefused(work, call.call_id, verdict.blocked, now_ms()))
            return None
        if verdict.args is not None:
            call = msgspec.structs.replace(call, arguments=verdict.args, malformed=None)
        return Heard(call, verdict.approval)

    async def failed(self, work: int, call: ToolCall, ending: Ending, attempt: int) -> bool:
        """Tell of a failure; return whether the call goes on."""
        hook = OnToolError(call.name, call.call_id, ending.text, attempt)
        return await self._ask(work, hook) is not None

    async def after(self, work: int, call: ToolCall, ending: Ending) -> Ending | None:
        """Return the ending as the model is to read it, or None where the cycle is over."""
        is_error = not isinstance(ending, Returned)
        hook = AfterTool(call.name, call.call_id, ending.text, is_error)
        verdict = await self._ask(work, hook)
        if verdict is None:
            return None
        if verdict.result is None:
            return ending
        text, told = verdict.result
        if is_error if told is None else told:
            return Refused(text=text)
        return Returned(text=text, effect=ending.effect if isinstance(ending, Returned) else None)

    async def _ask(self, work: int, hook: AnyHook) -> Verdict | None:
        """Return the plugins' verdict; None where it ends the cycle."""
        if self._plugins is None or hook.kind not in self._plugins.hooks:
            return Verdict()
        verdict = await self._plugins.run(hook)
        besides = replace(verdict, abort=None, blocked=None, args=None, result=None, approval=None)
        if besides != Verdict():
            self._post(PluginsSpoke(besides, work))
        if verdict.abort is not None:
            self._post(PluginsAborted(work, verdict.abort, now_ms()))
            return None
        return verdict
