"""Windows, abilities and prices read from litellm's table are those that litellm gives itself."""

import importlib
import random

import pytest

from workers.builtin.wires import table

pytestmark = [
    pytest.mark.slow,
    # litellm and pydantic disagree about each other's newest versions; both work.
    pytest.mark.filterwarnings("ignore:Items? .* `ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]
VENDORS = ("openai", "anthropic", "groq", "openrouter", "hosted_vllm", "lm_studio", "llamafile")
UNKNOWN = ("nobody", "gpt-5.9-nobody", "claude-nobody")
USAGES = 6
"""Of a model."""


@pytest.fixture(scope="module")
def models():
    """Import litellm's side, which takes seconds."""
    return importlib.import_module("workers.builtin.providers._models")


@pytest.fixture(scope="module", params=VENDORS)
def named(request, models):
    """Return a vendor, and all models of it that are asked for answers."""
    listed = models.litellm.model_cost.items()
    ids = [name for name, one in listed if one.get("litellm_provider") == request.param]
    chats = [name for name in ids if models.litellm.model_cost[name].get("mode") == "chat"]
    return request.param, [name.removeprefix(f"{request.param}/") for name in chats]


def test_facts_are_litellms(models, named):
    """Of every model of a vendor, and of names that nobody has."""
    provider, ids = named
    found = {one: table.facts_of(provider, one) for one in (*ids, *UNKNOWN)}

    assert found == {one: models.facts_of(f"{provider}/{one}") for one in found}


def openai_usage(chance):
    prompt = chance.choice([10, 5_000, 150_000, 250_000, 300_000])
    cached = chance.choice([0, prompt // 3])
    said = chance.randint(1, 900)
    thought = chance.choice([0, said // 2])
    return {
        "prompt_tokens": prompt,
        "completion_tokens": said,
        "total_tokens": prompt + said,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": thought},
    }


def anthropic_usage(chance):
    read, written = chance.choice([0, 90, 210_000]), chance.choice([0, 30])
    return {
        "input_tokens": chance.choice([10, 5_000, 220_000]),
        "output_tokens": chance.randint(1, 900),
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "cache_creation": {"ephemeral_1h_input_tokens": chance.choice([0, written // 3])},
    }


def by_litellm(models, provider, model_id, raw):
    """Return litellm's usage with its price, which it reads from the vendor's own words."""
    if provider == "anthropic":
        config = importlib.import_module("litellm.llms.anthropic.chat.transformation")
        hour = raw["cache_creation"]["ephemeral_1h_input_tokens"]
        short = raw["cache_creation_input_tokens"] - hour
        whole = raw | {
            "cache_creation": {**raw["cache_creation"], "ephemeral_5m_input_tokens": short}
        }
        usage = config.AnthropicConfig().calculate_usage(usage_object=whole, reasoning_content=None)
        raw = usage.model_dump()
    return models.usage_of(raw, f"{provider}/{model_id}")


def test_prices_are_litellms(models, named):
    """For cached, written, thought and many tokens; a model without a price has none."""
    provider, ids = named
    chance = random.Random(provider)
    make = anthropic_usage if provider == "anthropic" else openai_usage
    for model_id in (*ids, *UNKNOWN):
        for _ in range(USAGES):
            raw = make(chance)
            found = table.usage_of(raw, table.entry_of(provider, model_id))
            expected = by_litellm(models, provider, model_id, raw)
            cost = None if expected.cost_usd is None else pytest.approx(expected.cost_usd)

            assert found.cost_usd == cost, (model_id, raw)
            assert found.prompt_tokens == expected.prompt_tokens
            assert found.completion_tokens == expected.completion_tokens
            assert (found.cached_tokens or 0) == (expected.cached_tokens or 0)
