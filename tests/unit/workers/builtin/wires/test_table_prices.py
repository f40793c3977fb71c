"""What a usage costs: rates of a table as it could be, one by one."""

import pytest

from cmdc_runtime.messages import TokenUsage
from workers.builtin.wires.table import Counts, cost_of, usage_of

PLAIN = {"input_cost_per_token": 2.0, "output_cost_per_token": 10.0}
FULL = PLAIN | {
    "cache_read_input_token_cost": 0.5,
    "cache_creation_input_token_cost": 3.0,
    "cache_creation_input_token_cost_above_1hr": 4.0,
    "output_cost_per_reasoning_token": 20.0,
}
LONG = FULL | {
    "input_cost_per_token_above_100_tokens": 3.0,
    "output_cost_per_token_above_100_tokens": 11.0,
    "input_cost_per_token_above_1k_tokens": 5.0,
    "cache_read_input_token_cost_above_1k_tokens": 1.0,
}

COSTS = {
    "plain": (PLAIN, Counts(prompt=3, completion=2), 26.0),
    "nothing": (PLAIN, Counts(prompt=0, completion=0), 0.0),
    "a rate that is none": ({"input_cost_per_token": None}, Counts(prompt=3, completion=2), 0.0),
    "no rate for the answer": ({"input_cost_per_token": 2}, Counts(prompt=3, completion=2), 6.0),
    "read": (FULL, Counts(prompt=10, completion=0, read=4), 14.0),
    "read without a rate": (PLAIN, Counts(prompt=10, completion=0, read=4), 20.0),
    "written": (FULL, Counts(prompt=10, completion=0, written=4), 24.0),
    "written without a rate": (PLAIN, Counts(prompt=10, completion=0, written=4), 20.0),
    "for an hour": (FULL, Counts(prompt=10, completion=0, written_for_an_hour=4), 28.0),
    "for an hour without a rate": (
        PLAIN | {"cache_creation_input_token_cost": 3.0},
        Counts(prompt=10, completion=0, written_for_an_hour=4),
        24.0,
    ),
    "all kinds": (
        FULL,
        Counts(prompt=10, completion=5, read=1, written=2, written_for_an_hour=3, reasoned=4),
        8.0 + 0.5 + 6.0 + 12.0 + 10.0 + 80.0,
    ),
    "more cached than asked": (FULL, Counts(prompt=1, completion=0, read=4), 2.0),
    "reasoned without a rate": (PLAIN, Counts(prompt=0, completion=5, reasoned=4), 50.0),
    "more reasoned than said": (FULL, Counts(prompt=0, completion=1, reasoned=4), 80.0),
    "at the bound": (LONG, Counts(prompt=100, completion=1), 210.0),
    "beyond the first": (LONG, Counts(prompt=101, completion=1, read=1), 300.0 + 0.5 + 11.0),
    "at the second": (LONG, Counts(prompt=1_000, completion=1), 3_011.0),
    "beyond the second": (LONG, Counts(prompt=1_001, completion=1, read=1), 5_000.0 + 1.0 + 10.0),
}


@pytest.mark.parametrize("case", COSTS)
def test_tokens_cost_what_their_kind_does(case):
    """The highest bound that is exceeded counts, with the rates that it has."""
    entry, counts, cost = COSTS[case]

    assert cost_of(counts, entry) == pytest.approx(cost)


@pytest.mark.parametrize("entry", [{}, {"output_cost_per_token": 10.0}])
def test_a_model_without_a_price_costs_none(entry):
    """And never 0."""
    assert cost_of(Counts(prompt=3, completion=2), entry) is None


def test_a_rate_that_is_no_number_is_none():
    """As where a table holds a text."""
    entry = FULL | {"cache_read_input_token_cost": "cheap"}

    assert cost_of(Counts(prompt=4, completion=0, read=4), entry) == pytest.approx(8.0)


def test_openais_words_are_priced():
    """Cached tokens are a part of the prompt, thoughts of the answer."""
    raw = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }

    assert usage_of(raw, FULL) == TokenUsage(
        prompt_tokens=10,
        completion_tokens=5,
        total_tokens=15,
        cached_tokens=4,
        cost_usd=pytest.approx(12.0 + 2.0 + 30.0 + 40.0),
    )


def test_anthropics_words_are_priced():
    """Cached tokens stand beside the prompt; those for an hour are among the written ones."""
    raw = {
        "input_tokens": 10,
        "output_tokens": 5,
        "cache_read_input_tokens": 4,
        "cache_creation_input_tokens": 7,
        "cache_creation": {"ephemeral_1h_input_tokens": 2},
    }

    assert usage_of(raw, FULL) == TokenUsage(
        prompt_tokens=21,
        completion_tokens=5,
        total_tokens=26,
        cached_tokens=4,
        cost_usd=pytest.approx(20.0 + 2.0 + 15.0 + 8.0 + 50.0),
    )


def test_more_for_an_hour_than_written_costs_what_it_says():
    """And nothing is taken off elsewhere."""
    raw = {"input_tokens": 0, "cache_creation": {"ephemeral_1h_input_tokens": 2}}

    assert usage_of(raw, FULL).cost_usd == pytest.approx(8.0)


def test_no_more_is_thought_than_said():
    """Whatever the vendor counts."""
    raw = {"completion_tokens": 1, "completion_tokens_details": {"reasoning_tokens": 9}}

    assert usage_of(raw, FULL).cost_usd == pytest.approx(20.0)


@pytest.mark.parametrize("side", ["prompt_tokens_details", "completion_tokens_details"])
def test_tokens_of_sound_have_no_price(side):
    """They have prices of their own; none of them is no reason."""
    raw = {"prompt_tokens": 1, "completion_tokens": 1}

    assert usage_of(raw | {side: {"audio_tokens": 1}}, PLAIN).cost_usd is None
    assert usage_of(raw | {side: {"audio_tokens": 0}}, PLAIN).cost_usd == 12.0
    assert usage_of(raw | {side: None}, PLAIN).cost_usd == 12.0
    assert usage_of(raw | {side: {"audio_tokens": None}}, PLAIN).cost_usd == 12.0
