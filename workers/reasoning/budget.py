"""What a run may spend: shares are reserved before a branch starts, the rest comes back after it.

Dollars are counted in whole billionths, so that no sum drifts.
"""

from math import ceil
from typing import Final

import msgspec

from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.reasoning.limits import RunLimits

_NANO: Final = 1_000_000_000
_SHARE_MIN_NANO: Final = 1_000
"""A millionth of a dollar: less than any request costs."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What one branch may use; None is no limit."""

    tokens: int | None = None
    cost_usd: float | None = None


class Purse:
    """One of the two budgets, in whole units: what is left of it, and what is reserved."""

    def __init__(self, limit: int | None, share_min: int) -> None:
        """Begin with all of ``limit``; a share below ``share_min`` is none."""
        self._limit = limit
        self._share_min = share_min
        self._spent = 0
        self._reserved: dict[str, int] = {}

    @property
    def left(self) -> int | None:
        """What is neither spent nor reserved; below 0 where a branch took more than its share."""
        return None if self._limit is None else self._limit - self._spent - self._promised()

    def share(self, waiting: int) -> int | None:
        """Return an equal part for each of those that wait; None without a limit."""
        return None if self.left is None else max(0, self.left) // waiting

    def is_enough(self, share: int | None) -> bool:
        """Say whether anything can be done with a share."""
        return share is None or share >= self._share_min

    def reserve(self, branch_id: str, share: int | None) -> None:
        """Keep a share for a branch."""
        self._reserved[branch_id] = share or 0

    def settle(self, branch_id: str, spent: int | None) -> None:
        """Take what a branch has spent, None where nobody knows: then all of its share."""
        share = self._reserved.pop(branch_id, 0)
        self._spent += share if spent is None else spent

    def _promised(self) -> int:
        return sum(self._reserved.values())


class RunBudget:
    """Tokens and dollars of one run."""

    def __init__(self, limits: RunLimits) -> None:
        """Begin with all of it."""
        nano = None if limits.budget_usd is None else int(limits.budget_usd * _NANO)
        self._tokens = Purse(limits.budget_tokens, 1)
        self._nano = Purse(nano, _SHARE_MIN_NANO)

    @property
    def tokens_left(self) -> int | None:
        """As of ``Purse.left``."""
        return self._tokens.left

    @property
    def usd_left(self) -> float | None:
        """As of ``Purse.left``."""
        return None if self._nano.left is None else self._nano.left / _NANO

    def reserve(self, branch_id: str, waiting: int) -> Share | None:
        """Reserve an equal part for one of ``waiting`` branches; None where too little is left."""
        tokens, nano = self._tokens.share(waiting), self._nano.share(waiting)
        if not (self._tokens.is_enough(tokens) and self._nano.is_enough(nano)):
            return None
        self._tokens.reserve(branch_id, tokens)
        self._nano.reserve(branch_id, nano)
        return Share(tokens=tokens, cost_usd=None if nano is None else nano / _NANO)

    def settle(self, branch_id: str, usage: TokenUsage) -> None:
        """Give back what a branch has not used."""
        self._tokens.settle(branch_id, usage.total_tokens)
        is_unpriced = usage.cost_usd is None and usage.total_tokens > 0
        nano = ceil(round((usage.cost_usd or 0) * _NANO, 3))  # never less than it was
        self._nano.settle(branch_id, None if is_unpriced else nano)
