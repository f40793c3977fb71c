"""Switches the model before a request, as the first rule says whose condition holds.

It decides anew before every request, and says nothing where that model is in use already. So a
person's or another plugin's switch lasts until then: the router overrules it, unless no rule holds
and there is no default model. ``choice`` is the whole decision, the hour an argument of it.

How complex a task is, a rule of thumb says; no model is asked. Each of the signs in ``_points``
gives a point; their sum decides. What counts is the user's latest message and the tool calls since
then, so until the user speaks again a task may become more complex, and never less.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from cmdc_runtime import plugins
from cmdc_runtime.extensions.actions import SwitchModel
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import BeforeRequest
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.messages import Message
from cmdc_runtime.plugins.thinking import (
    Complexity,
    Condition,
    CostGt,
    RouterCondition,
    TaskComplexity,
    TaskComplexityIn,
    TimeOfDayIn,
    TokenBudgetLt,
    TokensGt,
    TurnGt,
    UserData,
    UserDataGt,
    UserTier,
    UserTierIn,
)
from workers.builtin.plugins._conversation import latest_request

# --- complexity -----------------------------------------------------------------------------------

MEDIUM_TOKENS: Final = 40
"""A text from this length on, a few sentences, gives a point."""
LONG_TOKENS: Final = 250
"""A text from this length on, about half a page, gives another one."""
SOME_CALLS: Final = 3
MANY_CALLS: Final = 10
COMPLEX_POINTS: Final = 3
ITEMS_MIN: Final = 3
"""Of a list; fewer are no sign of several demands."""
READ_CHARS_MAX: Final = 20_000
"""Of the message, from its beginning; a longer one has its points anyway."""
ASCII_PER_TOKEN: Final = 4
"""Characters; of other scripts each counts as one token, which is about right for Chinese."""

_ITEM: Final = re.compile(r"^[ \t]*(?:[-*+•][ \t]|\d{1,3}(?:[.)][ \t]|、))", re.MULTILINE)
_WORK: Final = re.compile(
    r"\b(?:algorithm|analy[sz]e|architect|compare|debug|derive|design|evaluate|implement|"
    r"investigate|migrate|optimi[sz]e|plan(?:ning)?\b|prove|refactor|research|rewrite|step by step|"
    r"strategy|trade-?off)"
    r"|分析|设计|实现|重构|优化|架构|证明|迁移|调试|比较|评估|推导|研究|规划",
    re.IGNORECASE,
)
"""Words of work that takes several steps of thought."""


def complexity(messages: Sequence[Message]) -> Complexity:
    """Return how complex the task is that the conversation is at; without one it is simple."""
    place = latest_request(messages)
    if place is None:
        return "simple"
    calls = sum(len(message.tool_calls) for message in messages[place:])
    points = _points(messages[place].content[:READ_CHARS_MAX], calls)
    if points >= COMPLEX_POINTS:
        return "complex"
    return "normal" if points else "simple"


def _points(text: str, calls: int) -> int:
    tokens = _tokens(text)
    signs = (
        tokens >= MEDIUM_TOKENS,
        tokens >= LONG_TOKENS,
        "```" in text,
        len(_ITEM.findall(text)) >= ITEMS_MIN,
        _WORK.search(text) is not None,
        calls >= SOME_CALLS,
        calls >= MANY_CALLS,
    )
    return sum(signs)


def _tokens(text: str) -> int:
    others = sum(not char.isascii() for char in text)
    return others + (len(text) - others) // ASCII_PER_TOKEN


# --- the plugin -----------------------------------------------------------------------------------

TOKEN_BUDGET: Final = "token_budget"  # noqa: S105 - it is no password
"""Key of ``user_data``: how many tokens the session may use."""
USER_TIER: Final = "user_tier"
"""Key of ``user_data``: what the user has subscribed to."""


class ModelRouter(Plugin):
    """Routes requests to models."""

    name = "model_router"
    priority = 110
    Config = plugins.ModelRouter

    class State(msgspec.Struct):
        """The model that the rules chose last; None until they choose one."""

        chosen: str | None = None

    def before_request(
        self,
        event: BeforeRequest,  # noqa: ARG002 - the contract of the hook
        context: PluginContext,
    ) -> SwitchModel | None:
        """Switch where the rules choose another model than the one in use."""
        wanted = choice(self.config, context, datetime.now(UTC).hour)
        if wanted is None:
            return None
        self.state.chosen = wanted.model
        return None if wanted.model == context.model else wanted


def choice(config: plugins.ModelRouter, context: PluginContext, hour: int) -> SwitchModel | None:
    """Return the model that the rules choose at this hour, UTC, or None where they choose none."""
    for rule in config.rules:
        if holds(rule.condition, context, hour):
            return SwitchModel(rule.model, rule.provider_opts)
    if config.default_model is None:
        return None
    return SwitchModel(config.default_model, config.default_provider_opts)


def holds(condition: Condition, context: PluginContext, hour: int) -> bool:
    """Say whether a condition holds."""
    return _TESTS[type(condition)](condition, context, hour)


def _is_left_below(context: PluginContext, n: int) -> bool:
    budget = _number(context, TOKEN_BUDGET)
    return budget is not None and budget - context.total_tokens < n


def _is_within(ranges: tuple[tuple[int, int], ...], hour: int) -> bool:
    return any(
        start <= hour < end if start < end else hour >= start or hour < end for start, end in ranges
    )


def _number(context: PluginContext, key: str) -> float | None:
    """Return a number of ``user_data``; True and False are none."""
    value = context.user_data.get(key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else None


def _is_above(context: PluginContext, key: str, n: float) -> bool:
    number = _number(context, key)
    return number is not None and number > n


def _is_equal(context: PluginContext, key: str, value: object) -> bool:
    return key in context.user_data and bool(context.user_data[key] == value)


def _is_tier(context: PluginContext, tiers: tuple[str, ...]) -> bool:
    return context.user_data.get(USER_TIER) in tiers


# Any: a condition of the row's own class.
_TESTS: Final[Mapping[type[RouterCondition], Callable[[Any, PluginContext, int], bool]]] = {
    TurnGt: lambda wanted, context, _: context.turn > wanted.n,
    CostGt: lambda wanted, context, _: context.cost_usd > wanted.usd,
    TokensGt: lambda wanted, context, _: context.total_tokens > wanted.n,
    TokenBudgetLt: lambda wanted, context, _: _is_left_below(context, wanted.n),
    TaskComplexity: lambda wanted, context, _: complexity(context.messages) == wanted.value,
    TaskComplexityIn: lambda wanted, context, _: complexity(context.messages) in wanted.values,
    TimeOfDayIn: lambda wanted, _, hour: _is_within(wanted.ranges, hour),
    UserTier: lambda wanted, context, _: _is_tier(context, (wanted.value,)),
    UserTierIn: lambda wanted, context, _: _is_tier(context, wanted.values),
    UserData: lambda wanted, context, _: _is_equal(context, wanted.key, wanted.value),
    UserDataGt: lambda wanted, context, _: _is_above(context, wanted.key, wanted.n),
}
"""What each condition means; a test fails when one has no row."""

create = ModelRouter
