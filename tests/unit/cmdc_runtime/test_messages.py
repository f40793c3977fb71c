"""The conversation and its price."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.messages import Message, TokenUsage, ToolCall

counts = st.integers(0, 10**6)
# Sixteenths add up exactly, so that the laws below hold for prices too.
prices = st.none() | st.integers(0, 1_000).map(lambda number: number / 16)
usages = st.builds(
    TokenUsage,
    prompt_tokens=counts,
    completion_tokens=counts,
    total_tokens=counts,
    cost_usd=prices,
    cached_tokens=st.none() | counts,
)


def test_each_role_has_its_maker():
    """The fields of a role are filled in, and every message has an id of its own."""
    calls = (ToolCall(call_id="a", name="read"),)
    made = [
        Message.system("be kind"),
        Message.user("hi"),
        Message.assistant("yes", calls, thinking="hm"),
        Message.tool_result("a", "no", is_error=True),
    ]

    assert [one.role for one in made] == ["system", "user", "assistant", "tool_result"]
    assert (made[2].tool_calls, made[2].thinking) == (calls, "hm")
    assert (made[3].call_id, made[3].content, made[3].is_error) == ("a", "no", True)
    assert len({one.id for one in made}) == 4


def test_what_is_not_said_takes_no_room():
    """A message is written down often, so its defaults are left out."""
    body = msgspec.msgpack.decode(msgspec.msgpack.encode(Message(id="m-1", role="user")))

    assert body == {"id": "m-1", "role": "user"}


@given(usages, usages, usages)
def test_usage_adds_up(one, two, three):
    """In any order; nothing added to it changes it."""
    assert one + two == two + one
    assert (one + two) + three == one + (two + three)
    assert one + TokenUsage() == one


@given(usages, usages)
def test_what_came_on_top_is_what_was_added(before, added):
    """Unknown parts stay unknown only where they never were known."""
    on_top = (before + added) - before

    assert on_top.prompt_tokens == added.prompt_tokens
    assert on_top.completion_tokens == added.completion_tokens
    assert on_top.total_tokens == added.total_tokens
    assert (on_top.cost_usd or 0.0) == (added.cost_usd or 0.0)
    assert (on_top.cached_tokens or 0) == (added.cached_tokens or 0)
    assert on_top.cost_usd is not None or before.cost_usd is added.cost_usd is None


@pytest.mark.parametrize(
    ("raw", "right"),
    [
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "total_tokens": 12,
                "prompt_tokens_details": {"cached_tokens": 4},
            },
            (9, 2, 12, 4),
        ),
        (
            {"input_tokens": 9, "output_tokens": 2, "cache_read_input_tokens": 0},
            (9, 2, 11, 0),
        ),
        ({"prompt_token_count": 9, "candidates_token_count": 2}, (9, 2, 11, None)),
        ({"prompt_tokens": None, "total_tokens": 5}, (0, 0, 5, None)),
        ({}, (0, 0, 0, None)),
    ],
    ids=["openai", "anthropic", "google", "partly", "nothing"],
)
def test_usage_is_read_in_each_providers_words(raw, right):
    """What is not told is 0, but for cached tokens, which may be unknown."""
    usage = TokenUsage.from_raw(raw)

    assert (
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.total_tokens,
        usage.cached_tokens,
    ) == right
    assert usage.cost_usd is None
