"""The conversation and its price."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.checked_struct import TOTAL_MAX
from cmdc_runtime.messages import Message, TokenUsage, ToolCall

FIELDS = ("prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens")
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


RAW = {
    "openai": (
        {
            "prompt_tokens": 9,
            "completion_tokens": 2,
            "total_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
        (9, 2, 12, 4),
    ),
    "openai responses": (
        {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}},
        (9, 2, 11, 4),
    ),
    "anthropic": (
        {
            "input_tokens": 9,
            "output_tokens": 2,
            "cache_read_input_tokens": 4,
            "cache_creation_input_tokens": 3,
        },
        (16, 2, 18, 4),
    ),
    "anthropic uncached": (
        {"input_tokens": 9, "output_tokens": 2, "cache_read_input_tokens": 0},
        (9, 2, 11, 0),
    ),
    "google": (
        {
            "promptTokenCount": 9,
            "candidatesTokenCount": 2,
            "thoughtsTokenCount": 3,
            "totalTokenCount": 14,
            "cachedContentTokenCount": 4,
        },
        (9, 5, 14, 4),
    ),
    "google in snake case": (
        {
            "prompt_token_count": 9,
            "candidates_token_count": 2,
            "cached_content_token_count": 4,
        },
        (9, 2, 11, 4),
    ),
    "litellm": (
        {
            "prompt_tokens": 16,
            "completion_tokens": 2,
            "total_tokens": 18,
            "cache_read_input_tokens": 4,
            "cache_creation_input_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
        (16, 2, 18, 4),
    ),
    "partly": ({"prompt_tokens": None, "total_tokens": 5}, (0, 0, 5, None)),
    "details of nothing": ({"prompt_tokens": 3, "prompt_tokens_details": None}, (3, 0, 3, None)),
    "nothing": ({}, (0, 0, 0, None)),
}


@pytest.mark.parametrize(("raw", "right"), RAW.values(), ids=RAW)
def test_usage_is_read_in_each_providers_words(raw, right):
    """What is not said is 0, but for cached tokens, which may be unknown; the total is filled."""
    usage = TokenUsage.from_raw(raw)

    assert (
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.total_tokens,
        usage.cached_tokens,
    ) == right
    assert usage.cost_usd is None


@given(fresh=counts, cached=counts, said=counts, thought=counts)
def test_the_same_request_counts_the_same_in_every_vendors_words(fresh, cached, said, thought):
    """They differ in whether cached tokens and thoughts are counted with the rest."""
    openai = {
        "prompt_tokens": fresh + cached,
        "completion_tokens": said + thought,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    anthropic = {
        "input_tokens": fresh,
        "cache_read_input_tokens": cached,
        "output_tokens": said + thought,
    }
    google = {
        "promptTokenCount": fresh + cached,
        "candidatesTokenCount": said,
        "thoughtsTokenCount": thought,
        "cachedContentTokenCount": cached,
    }
    usage = TokenUsage.from_raw(openai)

    assert TokenUsage.from_raw(anthropic) == usage
    assert TokenUsage.from_raw(google) == usage
    assert usage.total_tokens == fresh + cached + said + thought
    assert usage.cached_tokens == cached


def test_unknown_is_not_nothing():
    """A sum knows a part that one side knows; a difference knows what the later one knew."""
    known = TokenUsage(prompt_tokens=3, total_tokens=3, cost_usd=0.5, cached_tokens=2)
    unknown = TokenUsage(prompt_tokens=1, total_tokens=1)

    assert ((known + unknown).cost_usd, (known + unknown).cached_tokens) == (0.5, 2)
    assert ((unknown + unknown).cost_usd, (unknown + unknown).cached_tokens) == (None, None)
    assert ((known - unknown).cost_usd, (known - unknown).cached_tokens) == (0.5, 2)
    assert ((unknown - known).cost_usd, (unknown - known).cached_tokens) == (None, None)


@given(st.lists(usages, max_size=5))
def test_a_sum_over_a_session_is_the_sum_of_its_parts(parts):
    """Added one by one, as a session does; the price is that of the requests that have one."""
    total = sum(parts, start=TokenUsage())
    prices_usd = [part.cost_usd for part in parts if part.cost_usd is not None]

    assert total.prompt_tokens == sum(part.prompt_tokens for part in parts)
    assert total.total_tokens == sum(part.total_tokens for part in parts)
    assert total.cost_usd == (sum(prices_usd) if prices_usd else None)
    assert total - total == msgspec.structs.replace(
        TokenUsage(),
        cost_usd=None if total.cost_usd is None else 0.0,
        cached_tokens=None if total.cached_tokens is None else 0,
    )


@given(st.lists(st.builds(TokenUsage, **dict.fromkeys(FIELDS, st.integers(0, TOTAL_MAX)))))
def test_a_sum_can_be_written_and_read_again_however_much_is_added(parts):
    """A journal from elsewhere may say anything that a count can be."""
    total = sum(parts, start=TokenUsage())

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(total), type=TokenUsage) == total


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("number", [-1, TOTAL_MAX + 1])
def test_what_is_no_count_is_refused_where_it_is_read(field, number):
    """It is nobody's usage."""
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert({field: number}, TokenUsage)
