"""How complex a task is, by what it says and how many tools it has taken: a rule of thumb.

No model is asked. Each of the signs in ``_points`` gives a point; their sum decides. What counts is
the user's latest message and the tool calls since then, so until the user speaks again a task may
become more complex, and never less.
"""

import re
from collections.abc import Sequence
from typing import Final

from cmdc_runtime.messages import Message
from cmdc_runtime.plugins.model_router import Complexity
from workers.builtin.plugins._conversation import latest_request

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
