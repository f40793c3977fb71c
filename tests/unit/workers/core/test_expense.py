"""Whether the next request, and the next subagent, fit into the session's budget."""

import pytest
from msgspec.structs import replace

from cmdc_runtime.messages import Message, TokenUsage
from workers.core.budget import (
    ANSWER_TOKENS_LONGEST,
    COMPLETION_TOKENS_GUESS,
    Budget,
    Grant,
)
from workers.core.children import Child
from workers.core.conversation import switch_model
from workers.core.evolve import count_answer
from workers.core.expense import (
    answer_tokens_max,
    grant_child,
    guess,
    has_lost_count,
    is_priced,
    over_budget,
    request_tokens,
)
from workers.core.state import Memory, Policy, ToolFacts

SAID = (Message(role="user", content="x" * 400),)  # 100 tokens
CHILD = Child("s.1", "a", "a:sub-1", Grant(tokens=50, cost_usd=0.5))


def memory(usage=None, children=(), **policy):
    return Memory(
        policy=Policy(**policy),
        model="x:m",
        messages=SAID,
        usage=usage or TokenUsage(),
        children=children,
    )


@pytest.mark.parametrize(
    ("price", "usage", "has_answered", "priced"),
    [
        (0.1, None, False, True),
        (None, None, False, False),
        (None, TokenUsage(cost_usd=0.5), True, True),
        (None, TokenUsage(cost_usd=0.5), False, False),
    ],
    ids=["table", "nothing", "reported", "reported of another model"],
)
def test_a_cost_is_known_by_the_table_or_reported(price, usage, has_answered, priced):
    """What an earlier model cost says nothing of the one in use."""
    now = memory(usage, price_of=lambda *_: price)

    assert is_priced(replace(now, has_answered=has_answered)) is priced


def test_an_answer_of_unknown_cost_is_not_priced_until_the_next_that_is():
    """What was spent is not all that was."""
    before = memory(price_of=lambda *_: 0.1)
    unknown = count_answer(before, TokenUsage())
    known = count_answer(unknown, TokenUsage(total_tokens=2, cost_usd=0.5))
    other = switch_model(unknown, "another", {})

    assert [is_priced(one) for one in (before, unknown, known, other)] == [True, False, True, True]


def test_an_answer_without_a_usage_took_about_what_its_length_says():
    """At the price of the table, where there is one; so each of many such answers counts."""
    answer = Message(role="assistant", content="y" * 80, thinking="z" * 40)
    priced = memory(price_of=lambda _, prompt, completion: prompt + 10 * completion)
    guessed = guess(priced, answer)

    assert guessed == TokenUsage(
        prompt_tokens=100, completion_tokens=30, total_tokens=130, cost_usd=400
    )
    assert guess(memory(), answer).cost_usd is None
    assert is_priced(count_answer(priced, guessed))


def test_a_request_takes_what_is_around_the_conversation_too():
    """The system prompt, what plugins and files add to it, and the tools: four bytes a token."""
    bare = request_tokens(memory())
    tool = ToolFacts("read", chars=400)
    added = (("t" * 100, "x" * 300),)

    assert request_tokens(memory(system_chars=400)) == bare + 100
    assert request_tokens(replace(memory(system_chars=400), tools=(tool,))) == bare + 200
    assert request_tokens(replace(memory(system_chars=400), sections=added)) == bare + 200
    assert request_tokens(replace(memory(), memory_contents=added, sections=added)) == bare + 200


def test_a_limit_that_counts_no_more_is_reported_once():
    """Until an answer has a cost, or another model is asked; without a limit nobody need know."""
    limited = memory(budget=Budget(max_cost_usd=1.0))
    unknown = count_answer(limited, TokenUsage())
    known = count_answer(unknown, TokenUsage(total_tokens=2, cost_usd=0.5))
    other = switch_model(unknown, "another", {})
    free = memory()

    assert has_lost_count(limited, unknown)
    assert not has_lost_count(unknown, count_answer(unknown, TokenUsage()))
    assert not has_lost_count(unknown, known)
    assert has_lost_count(known, count_answer(known, TokenUsage()))
    assert has_lost_count(other, count_answer(other, TokenUsage()))
    assert not has_lost_count(free, count_answer(free, TokenUsage()))


def test_without_limits_nothing_is_looked_up():
    """The price is not even asked for."""
    asked = []

    assert over_budget(memory(price_of=lambda *given: asked.append(given))) is None
    assert asked == []


@pytest.mark.parametrize("tokens_left", [0, -1])
def test_tokens_are_reserved_before_a_request(tokens_left):
    """The conversation, and an answer of the usual length; what fits exactly may go."""
    limit = 100 + COMPLETION_TOKENS_GUESS + tokens_left
    found = over_budget(memory(budget=Budget(max_total_tokens=limit)))

    assert found == (None if tokens_left == 0 else "max_total_tokens_exceeded")


def test_a_bound_on_answers_is_what_is_reserved_for_one():
    """Where the options have one."""
    budget = Budget(max_total_tokens=110)

    assert over_budget(memory(budget=budget, max_tokens=10)) is None
    assert over_budget(memory(budget=budget, max_tokens=11)) == "max_total_tokens_exceeded"


@pytest.mark.parametrize(
    ("spent", "children", "reason"),
    [
        (None, (), None),
        (TokenUsage(cost_usd=0.5), (), None),
        (TokenUsage(cost_usd=0.5), (CHILD,), "max_cost_usd_exceeded"),
        (TokenUsage(cost_usd=0.9), (), "max_cost_usd_exceeded"),
    ],
    ids=["nothing", "half", "half and a subagent", "most"],
)
def test_costs_are_reserved_before_a_request(spent, children, reason):
    """With what was spent, and what running subagents may spend."""
    budget = Budget(max_cost_usd=1.0)
    asked = []

    def price_of(*given):
        asked.append(given)
        return 0.25

    assert over_budget(memory(spent, children, budget=budget, price_of=price_of)) == reason
    assert asked == [("x:m", 100, COMPLETION_TOKENS_GUESS)]


def test_a_subagent_gets_its_share_of_what_is_left():
    """Others that run keep theirs, and the parent has one too."""
    spent = TokenUsage(total_tokens=50, cost_usd=0.5)
    budget = Budget(max_total_tokens=400, max_cost_usd=4.0)

    assert grant_child(memory(spent, (CHILD,), budget=budget), 2) == Grant(100, 1.0)


def test_a_subagent_without_a_share_is_refused():
    """With the name of the limit that is reached."""
    spent = TokenUsage(total_tokens=400)

    assert grant_child(memory(spent, budget=Budget(max_total_tokens=400)), 1) == (
        "max_total_tokens_exceeded"
    )


@pytest.mark.parametrize(
    ("limit", "own", "children", "asked"),
    [
        (None, None, (), None),
        (None, 40, (), 40),
        (1_100, None, (), 1_000),
        (1_100, 4_000, (), 1_000),
        (1_100, 40, (), 40),
        (1_100, None, (CHILD,), 950),
        (50, None, (), 1),
        (100 + ANSWER_TOKENS_LONGEST, None, (), None),
        (100 + ANSWER_TOKENS_LONGEST, 40, (), 40),
    ],
)
def test_an_answer_may_have_what_is_left(limit, own, children, asked):
    """After the prompt, and without what others may spend; where all answers fit, nothing is said.

    Servers refuse a bound that is above what their model can say.
    """
    now = memory(children=children, budget=Budget(max_total_tokens=limit), max_tokens=own)

    assert answer_tokens_max(now) == asked


def test_what_is_known_of_a_model_is_its_longest_answer():
    """That of its table, or what its window takes."""
    budget = Budget(max_total_tokens=5_100)

    assert answer_tokens_max(memory(budget=budget, answer_max_of=lambda _: 5_001)) == 5_000
    assert answer_tokens_max(memory(budget=budget, answer_max_of=lambda _: 5_000)) is None
    assert answer_tokens_max(memory(budget=budget, window_of=lambda _: 4_000)) is None
    both = memory(budget=budget, answer_max_of=lambda _: 4_000, window_of=lambda _: 9_000)
    assert answer_tokens_max(both) is None


@pytest.mark.parametrize(
    ("usd", "tokens", "asked"),
    [(1.0, None, 450), (1.0, 300, 200), (1.0, 900, 450), (0.05, None, 1)],
)
def test_money_bounds_an_answer_where_it_is_less(usd, tokens, asked):
    """At the price of the table, in which the prompt is paid too."""
    now = memory(
        budget=Budget(max_cost_usd=usd, max_total_tokens=tokens),
        price_of=lambda _, prompt, answer: prompt / 1_000 + answer / 500,
    )

    assert answer_tokens_max(now) == asked


def test_long_answers_that_cost_more_are_asked_for_at_their_price():
    """And what has no price is bound by tokens alone."""
    budget = Budget(max_cost_usd=10.0)
    steep = memory(budget=budget, price_of=lambda _, prompt, answer: (answer / 1_000) ** 2)

    assert answer_tokens_max(steep) == 2_500
    assert answer_tokens_max(memory(budget=budget)) is None
    assert answer_tokens_max(memory(budget=budget, price_of=lambda *_: 0.0)) is None
