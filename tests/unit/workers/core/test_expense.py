"""Whether the next request, and the next subagent, fit into the session's budget."""

from dataclasses import replace

import pytest

from cmdc_runtime.messages import Message, TokenUsage
from workers.core.budget import COMPLETION_TOKENS_GUESS, Budget, Grant
from workers.core.changes import switch_model
from workers.core.conversation import count_answer
from workers.core.expense import (
    grant_child,
    guess,
    has_lost_count,
    is_priced,
    over_budget,
    request_tokens,
)
from workers.core.state import Child, Memory, Policy, ToolFacts

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
    ids=["table", "nothing", "told", "told of another model"],
)
def test_a_cost_is_known_by_the_table_or_told(price, usage, has_answered, priced):
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
    told = guess(priced, answer)

    assert told == TokenUsage(
        prompt_tokens=100, completion_tokens=30, total_tokens=130, cost_usd=400
    )
    assert guess(memory(), answer).cost_usd is None
    assert is_priced(count_answer(priced, told))


def test_a_request_takes_what_is_around_the_conversation_too():
    """The system prompt, what plugins and files add to it, and the tools: four bytes a token."""
    bare = request_tokens(memory())
    tool = ToolFacts("read", chars=400)
    added = (("t" * 100, "x" * 300),)

    assert request_tokens(memory(system_chars=400)) == bare + 100
    assert request_tokens(replace(memory(system_chars=400), tools=(tool,))) == bare + 200
    assert request_tokens(replace(memory(system_chars=400), sections=added)) == bare + 200
    assert request_tokens(replace(memory(), memory_contents=added, sections=added)) == bare + 200


def test_a_limit_that_counts_no_more_is_told_once():
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
