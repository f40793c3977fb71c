"""Spending is checked before a call, over what is spent and what is granted."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmdc_runtime.messages import TokenUsage
from workers.core.budget import (
    COMPLETION_TOKENS_GUESS,
    ROUNDING_USD,
    Budget,
    Grant,
    Spent,
    Wanted,
    answer_room,
    capped,
    check_call,
    estimate_tokens,
    grant,
    rest_of,
)

TOKENS, COST = "max_total_tokens_exceeded", "max_cost_usd_exceeded"


@pytest.mark.parametrize(
    ("granted", "limit", "left"),
    [
        (Grant(), Grant(), Grant()),
        (Grant(5, 0.5), Grant(), Grant(5, 0.5)),
        (Grant(), Grant(5, 0.5), Grant(5, 0.5)),
        (Grant(5, 0.5), Grant(4, 0.6), Grant(4, 0.5)),
        (Grant(5, None), Grant(None, 0.1), Grant(5, 0.1)),
    ],
)
def test_of_a_share_and_a_limit_the_smaller_counts(granted, limit, left):
    """Each quantity by itself; what has no limit is larger than any."""
    assert capped(granted, limit) == capped(limit, granted) == left


@pytest.mark.parametrize(
    ("granted", "used", "rest"),
    [
        (Grant(), (10**9, 1e9), Grant()),
        (Grant(5, 0.5), (4, 0.25), Grant(1, 0.25)),
        (Grant(5), (5, None), TOKENS),
        (Grant(None, 0.5), (4, None), Grant(None, 0.5)),
        (Grant(None, 2 * ROUNDING_USD), (4, None), Grant(None, 2 * ROUNDING_USD)),
        (Grant(None, ROUNDING_USD), (4, None), COST),
        (Grant(5, 0.5), (6, 0.6), TOKENS),
    ],
)
def test_a_used_up_grant_has_no_rest(granted, used, rest):
    """The last token is one; of a cost, what rounding may have left is none."""
    total_tokens, cost_usd = used

    assert rest_of(granted, TokenUsage(total_tokens=total_tokens, cost_usd=cost_usd)) == rest


@pytest.mark.parametrize(("chars", "tokens"), [(0, 0), (1, 1), (4, 1), (5, 2), (400_001, 100_001)])
def test_tokens_are_rounded_up(chars, tokens):
    """A text that is there has a token at least."""
    assert estimate_tokens(chars) == tokens


@pytest.mark.parametrize(
    ("one", "other", "total"),
    [
        (Spent(), Spent(5, 0.5), Spent(5, 0.5)),
        (Spent(1, None), Spent(2, None), Spent(3, None)),
        (Spent(1, 0.1), Spent(2, 0.2), Spent(3, 0.1 + 0.2)),
        (Spent(1, 0.0), Spent(2, None), Spent(3, 0.0)),
    ],
)
def test_spending_adds_up(one, other, total):
    """A cost is unknown only as long as every part of it is."""
    assert one + other == total


@pytest.mark.parametrize(
    ("budget", "spent", "grants", "wanted", "refusal"),
    [
        (Budget(), Spent(10**9, 1e9), [Grant()], Wanted(10**9, 0, 1e9), None),
        (Budget(100), Spent(40), [], Wanted(50, 10), None),
        (Budget(100), Spent(40), [], Wanted(50, 11), TOKENS),
        (Budget(100), Spent(40), [Grant(1)], Wanted(50, 10), TOKENS),
        (Budget(100), Spent(40), [Grant(None, 9.0)], Wanted(50, 10), None),
        (Budget(None, 0.3), Spent(0, 0.1), [], Wanted(1, 1, 0.2), None),
        (Budget(None, 0.3), Spent(0, 0.1), [], Wanted(1, 1, 0.21), COST),
        (Budget(None, 0.3), Spent(0, 0.1), [Grant(None, 0.1)], Wanted(1, 1, 0.2), COST),
        (Budget(None, 0.3), Spent(0, None), [], Wanted(1, 1, None), None),
        (Budget(None, 0.3), Spent(0, 0.3), [], Wanted(1, 1, None), None),
        (Budget(None, 0.3), Spent(0, 0.4), [], Wanted(1, 1, None), COST),
        (Budget(10, 0.1), Spent(9, 0.09), [], Wanted(1, 1, 1.0), TOKENS),
        (Budget(0), Spent(), [], Wanted(0, 1), TOKENS),
    ],
)
def test_a_call_is_refused_where_it_would_overrun_a_limit(budget, spent, grants, wanted, refusal):
    """Reaching a limit is allowed; open grants count as spent, an unknown cost as nothing."""
    assert check_call(budget, spent, grants, wanted) == refusal


def test_an_answer_of_unknown_length_reserves_a_little():
    """A call without max_tokens is not refused for an answer that it will hardly give."""
    full = Budget(100 + COMPLETION_TOKENS_GUESS)

    assert check_call(full, Spent(), (), Wanted(100)) is None
    assert check_call(full, Spent(), (), Wanted(101)) == TOKENS


@pytest.mark.parametrize(
    ("budget", "spent", "grants", "children", "given_"),
    [
        (Budget(), Spent(10, 1.0), [], 3, Grant()),
        (Budget(100), Spent(20), [], 3, Grant(20)),
        (Budget(100), Spent(21), [], 3, Grant(19)),
        (Budget(100), Spent(20), [Grant(40)], 1, Grant(20)),
        (Budget(100, 1.0), Spent(20, None), [], 1, Grant(40, 0.5)),
        (Budget(None, 1.0), Spent(0, 0.25), [Grant(None, 0.25)], 1, Grant(None, 0.25)),
        (Budget(100), Spent(97), [], 3, TOKENS),
        (Budget(100), Spent(120), [], 1, TOKENS),
        (Budget(None, 1.0), Spent(0, 1.0), [], 1, COST),
        (Budget(100, 1.0), Spent(100, 1.0), [], 1, TOKENS),
    ],
)
def test_what_is_left_is_parted_evenly(budget, spent, grants, children, given_):
    """Each child and the parent get one share; where a share would be nothing, none is given."""
    assert grant(budget, spent, grants, children) == given_


@settings(derandomize=True)
@given(st.integers(9, 10_000), st.integers(1, 8))
def test_granting_one_by_one_gives_the_same(limit, children):
    """The first of a batch of subagents gets what the last one gets, up to what does not divide."""
    at_once = grant(Budget(limit), Spent(), (), children)
    given_ = []
    for without in range(children, 0, -1):
        given_.append(grant(Budget(limit), Spent(), given_, without))

    assert given_[0] == at_once
    assert all(0 <= one.tokens - at_once.tokens <= 1 for one in given_)


# A step: grant to so many children, settle the grant of this place by this share of it, or call.
STEPS = st.lists(
    st.tuples(st.just("grant"), st.integers(1, 8), st.just(0.0))
    | st.tuples(st.just("settle"), st.integers(0, 50), st.floats(0, 1))
    | st.tuples(st.just("call"), st.integers(0, 3_000), st.floats(0, 0.5)),
    max_size=40,
)


def carried_out(budget, steps):
    """Yield what is spent and granted after each step; a model that only counts what is allowed."""
    spent, grants = Spent(), []
    for kind, number, share in steps:
        if kind == "grant":
            offered = grant(budget, spent, grants, number)
            grants += [offered] * number if isinstance(offered, Grant) else []
        elif kind == "settle" and grants:
            ended = grants.pop(number % len(grants))
            spent += Spent(int((ended.tokens or 0) * share), (ended.cost_usd or 0.0) * share)
        elif kind == "call" and not check_call(budget, spent, grants, Wanted(number, 0, share)):
            spent += Spent(number, share)
        yield spent, grants


@settings(derandomize=True, max_examples=300)
@given(STEPS, st.integers(0, 10_000), st.floats(0, 10))
def test_grants_and_calls_never_exceed_the_limits(steps, max_tokens, max_cost_usd):
    """Whatever is granted, settled and called in whatever order, the sum stays within."""
    for spent, grants in carried_out(Budget(max_tokens, max_cost_usd), steps):
        cost_usd = (spent.cost_usd or 0.0) + sum(one.cost_usd for one in grants)

        assert spent.tokens + sum(one.tokens for one in grants) <= max_tokens
        assert cost_usd <= max_cost_usd + 2 * ROUNDING_USD
        assert all(one.tokens > 0 and one.cost_usd > 0 for one in grants)


def test_what_is_just_left_may_be_spent():
    """A cent of rounding refuses nobody who keeps to the limit, and grants nothing."""
    budget = Budget(max_total_tokens=None, max_cost_usd=1.0)
    left = Wanted(1, 1, 1.0 + ROUNDING_USD)

    assert check_call(budget, Spent(), (), left) is None
    assert check_call(budget, Spent(), (), Wanted(1, 1, 1.0 + 3 * ROUNDING_USD)) == COST
    assert grant(Budget(max_cost_usd=ROUNDING_USD), Spent(), (), 1) == COST


def test_a_grant_without_a_cost_takes_none_of_it():
    """Tokens alone were granted."""
    budget = Budget(max_total_tokens=100, max_cost_usd=1.0)

    assert check_call(budget, Spent(), [Grant(5, None)], Wanted(1, 1, 1.0)) is None


@pytest.mark.parametrize(
    ("budget", "prompt_tokens", "room"),
    [
        (Budget(), 10, None),
        (Budget(100), 40, 60),
        (Budget(100), 101, 0),
        (Budget(None, 1.0), 0, 100),
        (Budget(None, 1.0), 150, 0),
        (Budget(60, 1.0), 30, 30),
        (Budget(100, 1.0), 40, 60),
    ],
)
def test_an_answer_has_the_room_that_both_limits_leave(budget, prompt_tokens, room):
    """A token of either kind is a cent here; beyond a limit there is no room."""

    def price_of(prompt_tokens, answer_tokens):
        return (prompt_tokens + answer_tokens) / 100

    assert answer_room(budget, Spent(), (), prompt_tokens, price_of) == room


def test_an_answer_may_cost_what_is_just_left():
    """And where the price of its length is not known, it is taken for what its parts cost."""
    token_usd = 0.5 + ROUNDING_USD
    known = {0: 0.0, 1_000: 1_000 * 0.25}

    assert answer_room(Budget(None, 0.5), Spent(), (), 0, lambda _, count: count * token_usd) == 1
    assert answer_room(Budget(None, 0.5), Spent(), (), 0, lambda _, count: known.get(count)) == 2
