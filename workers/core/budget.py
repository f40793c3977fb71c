"""What a session and all sessions below it may spend: tokens and US dollars.

Spending is reserved before a call and counted after it. What is given to a running subagent is a
``Grant``; as long as it is open it counts as spent, and when the subagent ends the caller drops it
and adds what was really spent. So the limits hold for the whole tree, whoever spends first.

A call is made where an answer of a usual length fits, and may have the length of all that is left:
``answer_room`` is the limit that the request gives the provider. How long the prompt is, is an
estimate: a provider counts tokens otherwise than by characters. So a limit is overrun by the error
of one estimate at most, and by one answer where a provider does not keep to its ``max_tokens``,
since the next call is checked against what was really spent. A cost that nobody knows counts as
nothing.

To limit one more quantity, add it to each of the classes, to ``Refusal`` and to all functions.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypeVar

from cmdc_runtime.checked_struct import Total
from cmdc_runtime.messages import TokenUsage

N = TypeVar("N", int, float)
Refusal: TypeAlias = Literal["max_total_tokens_exceeded", "max_cost_usd_exceeded"]

CHARS_PER_TOKEN: Final = 4
"""Of English text; other scripts have fewer."""
COMPLETION_TOKENS_GUESS: Final = 256
"""What has to be left for an answer, or a smaller ``max_tokens``. It is small, since most answers
are: a large one would refuse the last calls of a session that had room for them."""
ANSWER_TOKENS_LONGEST: Final = 128_000
"""Taken for the longest answer of a model of which nobody knows: a server refuses a ``max_tokens``
that is more than its model can say, so none is sent where more is left."""
_PRICED_TOKENS: Final = 1_000
"""The price of one token is computed from that of so many."""
ROUNDING_USD: Final = 1e-9
"""Sums of floats are a little off; this is less than the price of one token."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a session and everything below it; None is no limit."""

    max_total_tokens: int | None = None
    max_cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Spent:
    """What was spent, ended subagents included; ``a + b`` adds up. None is no known cost."""

    tokens: int = 0
    cost_usd: float | None = None

    def __add__(self, other: "Spent") -> "Spent":
        """Return the sum; what is unknown on both sides stays unknown."""
        known = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return Spent(self.tokens + other.tokens, math.fsum(known) if known else None)


@dataclass(frozen=True, slots=True)
class Grant:
    """What one running subagent may spend; None where there is no limit."""

    tokens: Total | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the next call is expected to spend; the cost is None for a model without a price."""

    prompt_tokens: int
    completion_tokens: int = COMPLETION_TOKENS_GUESS
    cost_usd: float | None = None


def estimate_tokens(text_chars: int) -> int:
    """Return about how many tokens a text of so many characters has, rounded up."""
    return -(-text_chars // CHARS_PER_TOKEN)


def check_call(
    budget: Budget, spent: Spent, grants: Iterable[Grant], wanted: Wanted
) -> Refusal | None:
    """Say which limit the call would overrun, tokens before cost, or None where it may be made."""
    tokens, cost_usd = _left(budget, spent, grants)
    if tokens is not None and wanted.prompt_tokens + wanted.completion_tokens > tokens:
        return "max_total_tokens_exceeded"
    if cost_usd is not None and (wanted.cost_usd or 0.0) > cost_usd + ROUNDING_USD:
        return "max_cost_usd_exceeded"
    return None


def answer_room(
    budget: Budget,
    spent: Spent,
    grants: Iterable[Grant],
    prompt_tokens: int,
    price_of: Callable[[int, int], float | None],
) -> int | None:
    """Return how many tokens the next answer may have within both limits; None without one.

    ``price_of`` a prompt and an answer of so many tokens is in dollars, None where nobody knows.
    """
    tokens, cost_usd = _left(budget, spent, grants)
    room = None if tokens is None else max(0, tokens - prompt_tokens)
    if cost_usd is None:
        return room
    return _least(room, _affordable(cost_usd, lambda count: price_of(prompt_tokens, count)))


def _affordable(cost_usd: float, price_of: Callable[[int], float | None]) -> int | None:
    """Return how long an answer may be for so much; None where it costs nothing that is known."""
    prompt_usd, priced_usd = price_of(0), price_of(_PRICED_TOKENS)
    if prompt_usd is None or priced_usd is None or priced_usd <= prompt_usd:
        return None
    token_usd = (priced_usd - prompt_usd) / _PRICED_TOKENS
    count = max(0, math.floor((cost_usd - prompt_usd + ROUNDING_USD) / token_usd))
    while count and (price_of(count) or 0.0) > cost_usd + ROUNDING_USD:
        count //= 2  # long answers have a price of their own
    return count


def grant(budget: Budget, spent: Spent, grants: Iterable[Grant], children: int) -> Grant | Refusal:
    """Return what each of ``children`` subagents about to start may spend, or why none may.

    What is left is parted evenly among them and the parent, who needs a share to read their
    answers. The same comes out for granting all at once and one after the other, when
    ``children`` counts those still without a grant.
    """
    assert children >= 1  # noqa: S101 - nobody is granted nothing
    tokens, cost_usd = _left(budget, spent, grants)
    shares = children + 1
    if tokens is not None and tokens < shares:
        return "max_total_tokens_exceeded"
    if cost_usd is not None and cost_usd <= ROUNDING_USD:
        return "max_cost_usd_exceeded"
    return Grant(
        None if tokens is None else tokens // shares,
        None if cost_usd is None else cost_usd / shares,
    )


def capped(granted: Grant, limit: Grant) -> Grant:
    """Return the smaller of two grants, each quantity by itself; None is no limit."""
    return Grant(
        _least(granted.tokens, limit.tokens),
        _least(granted.cost_usd, limit.cost_usd),
    )


def rest_of(granted: Grant, used: TokenUsage) -> Grant | Refusal:
    """Return what is left of a grant, or which limit is reached."""
    tokens, cost_usd = granted.tokens, granted.cost_usd
    if tokens is not None and (tokens := tokens - used.total_tokens) <= 0:
        return "max_total_tokens_exceeded"
    if cost_usd is not None and (cost_usd := cost_usd - (used.cost_usd or 0.0)) <= ROUNDING_USD:
        return "max_cost_usd_exceeded"
    return Grant(tokens, cost_usd)


def _least(one: N | None, other: N | None) -> N | None:
    known = [value for value in (one, other) if value is not None]
    return min(known) if known else None


def _left(budget: Budget, spent: Spent, grants: Iterable[Grant]) -> tuple[int | None, float | None]:
    """Return the tokens and dollars that are neither spent nor granted; None is no limit."""
    opened = tuple(grants)
    tokens = spent.tokens + sum(open_.tokens or 0 for open_ in opened)
    costs = [spent.cost_usd or 0.0, *(open_.cost_usd or 0.0 for open_ in opened)]
    return (
        None if budget.max_total_tokens is None else budget.max_total_tokens - tokens,
        None if budget.max_cost_usd is None else budget.max_cost_usd - math.fsum(costs),
    )
