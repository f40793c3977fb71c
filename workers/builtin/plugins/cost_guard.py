"""Ends a cycle before its next request when the session's budget is spent.

A request is refused when a limit is reached, tokens before cost. The request that reaches it has
been made, so a limit is overrun by one request at most; ``max_total_tokens`` and ``max_cost_usd``
of the session's options reserve before the call instead. Where cost is limited a model without a
known price is refused, unless the options say otherwise. Observers get ``cost_warning`` once.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from cmdc_runtime import plugins
from cmdc_runtime.extensions.actions import Abort, Emit
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import BeforeRequest
from cmdc_runtime.extensions.plugin import Plugin

_BLIND: Final = (
    "max_cost_usd cannot be kept: {model} has no known price;"
    ' limit max_tokens instead, or let what has no price be free with unpriced="free"'
)


class _Use(NamedTuple):
    """How much of one limit is used."""

    limit: str
    used: float
    allowed: float


class CostGuard(Plugin):
    """Guards the session's budget."""

    name = "cost_guard"
    priority = 120
    fail = "closed"
    emits = ("cost_warning",)
    Config = plugins.CostGuard

    class State(msgspec.Struct):
        """Whether observers were warned."""

        warned: bool = False

    def before_request(
        self,
        event: BeforeRequest,  # noqa: ARG002 - the contract of the hook
        context: PluginContext,
    ) -> list[Abort | Emit]:
        """Abort at a limit, or where one can't be kept; warn near one."""
        if self._is_blind(context):
            return [Abort(_BLIND.format(model=context.model))]
        uses = tuple(self._uses(context))
        for use in uses:
            if use.used >= use.allowed:
                reason = f"{use.limit} is reached: {use.used:.10g} of {use.allowed:.10g} used"
                return [Abort(reason)]
        near = [use for use in uses if use.used >= use.allowed * self.config.warn_threshold]
        if self.state.warned or not near:
            return []
        self.state.warned = True
        return [Emit("cost_warning", near[0]._asdict())]

    def _uses(self, context: PluginContext) -> Iterator[_Use]:
        if self.config.max_tokens is not None:
            yield _Use("max_tokens", context.total_tokens, self.config.max_tokens)
        if self.config.max_cost_usd is not None:
            yield _Use("max_cost_usd", context.cost_usd, self.config.max_cost_usd)

    def _is_blind(self, context: PluginContext) -> bool:
        limits, strict = self.config.max_cost_usd is not None, self.config.unpriced == "abort"
        return limits and strict and not context.is_priced


create = CostGuard
