"""The options of the cost guard."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from cmdc_runtime.packing import BuiltInPlugin


class CostGuard(BuiltInPlugin, frozen=True, kw_only=True):
    """Aborts the cycle when the session has spent its budget, and warns observers once before."""

    short_name: ClassVar[str] = "cost_guard"
    max_tokens: Annotated[int, Meta(gt=0)] | None = None
    """Of the session and its subagents, over its life; None is no limit."""
    max_cost_usd: Annotated[float, Meta(gt=0)] | None = None
    """As above; see ``unpriced``."""
    unpriced: Literal["abort", "free"] = "abort"
    """What becomes of a request to a model without a known price where ``max_cost_usd`` is set: the
    cycle is aborted, or it counts as costing nothing. An answer whose usage cannot be read costs
    what its length and the price say."""
    warn_threshold: Annotated[float, Meta(gt=0, le=1)] = 0.8
    """The part of a limit at which observers are warned."""
