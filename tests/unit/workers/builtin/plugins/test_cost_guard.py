"""The cost guard: what it refuses, what it warns of, and that it warns once."""

import pytest

from cmdc_runtime.extensions.actions import Abort, Emit
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import BeforeRequest
from workers.builtin.plugins.cost_guard import CostGuard

LIMITS = {"max_tokens": 1000, "max_cost_usd": 2.0}


def ask(guard, tokens=0, cost_usd=0.0, is_priced=True):
    """Return what the guard says to a request."""
    context = PluginContext(
        session_id="s-1", model="m", total_tokens=tokens, cost_usd=cost_usd, is_priced=is_priced
    )
    return guard.before_request(BeforeRequest(()), context)


def warning(limit, used, allowed):
    """Return the event that observers get."""
    return Emit("cost_warning", {"limit": limit, "used": used, "allowed": allowed})


@pytest.mark.parametrize(
    ("used", "answer"),
    [
        ({}, []),
        ({"tokens": 799, "cost_usd": 1.59}, []),
        ({"tokens": 800}, [warning("max_tokens", 800, 1000)]),
        ({"cost_usd": 1.6}, [warning("max_cost_usd", 1.6, 2.0)]),
        ({"tokens": 900, "cost_usd": 1.9}, [warning("max_tokens", 900, 1000)]),
        ({"tokens": 1000}, [Abort("max_tokens is reached: 1000 of 1000 used")]),
        ({"cost_usd": 2.5}, [Abort("max_cost_usd is reached: 2.5 of 2 used")]),
        (
            {"tokens": 1234567, "cost_usd": 3.0},
            [Abort("max_tokens is reached: 1234567 of 1000 used")],
        ),
        ({"tokens": 900, "cost_usd": 3.0}, [Abort("max_cost_usd is reached: 3 of 2 used")]),
    ],
    ids=[
        "nothing", "below", "tokens near", "cost near", "both near", "tokens", "cost", "both",
        "cost and tokens near",
    ],
)  # fmt: skip
def test_budget_is_guarded(used, answer):
    """It aborts at a limit, tokens before cost, and warns at the threshold, once for both."""
    assert ask(CostGuard(**LIMITS), **used) == answer


@pytest.mark.parametrize(
    ("options", "is_refused"),
    [
        ({"max_cost_usd": 1.0}, True),
        ({"max_cost_usd": 1.0, "unpriced": "free"}, False),
        ({"max_tokens": 10}, False),
    ],
    ids=["cost", "free", "tokens"],
)
def test_a_model_without_a_price_cannot_be_limited_by_cost(options, is_refused):
    """It is refused, and the reason says what would do; it used to pass without a limit."""
    said = ask(CostGuard(**options), is_priced=False)

    assert [type(one) for one in said] == ([Abort] if is_refused else [])
    assert not is_refused or "m has no known price" in said[0].reason


def test_warning_comes_once():
    """Observers are notified once in a session's life."""
    guard = CostGuard(**LIMITS, warn_threshold=0.5)

    assert ask(guard, tokens=499) == []
    assert ask(guard, tokens=500) == [warning("max_tokens", 500, 1000)]
    assert ask(guard, tokens=600, cost_usd=1.5) == []
    assert guard.state.warned


def test_abort_counts_as_no_warning():
    """A session that gets a larger budget later is warned of that one."""
    guard = CostGuard(**LIMITS)
    ask(guard, tokens=900, cost_usd=3.0)

    assert not guard.state.warned


def test_without_limits_nothing_is_refused():
    """A guard with no limit lets everything pass."""
    assert ask(CostGuard(), tokens=10**9, cost_usd=10.0**6) == []
