"""What litellm's table is asked: names, prices, windows, abilities; all of it offline."""

import importlib

import pytest

from cmdc_runtime.extensions.provider import ModelTable, answer_tokens_of
from cmdc_runtime.messages import TokenUsage
from workers.builtin.providers import _facts

pytestmark = [
    # litellm and pydantic disagree about each other's newest versions; both work.
    pytest.mark.filterwarnings("ignore:Items? .* `ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def models():
    """Import the table with litellm, which takes seconds."""
    return importlib.import_module("workers.builtin.providers._models")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("openai:gpt-4o", "openai/gpt-4o"),
        ("openai/gpt-4o", "openai/gpt-4o"),
        ("gpt-4o", "gpt-4o"),
        ("ollama:llama3:8b", "ollama/llama3:8b"),
        ("ollama/llama3:8b", "ollama/llama3:8b"),
        ("openrouter:meta/llama:free", "openrouter/meta/llama:free"),
    ],
)
def test_the_first_colon_before_a_slash_parts_provider_and_model(models, model, name):
    """Both spellings of a model lead to litellm's."""
    assert models.litellm_model(model) == name


@pytest.mark.parametrize(
    "raw",
    [
        {
            "prompt_tokens": 1000,
            "completion_tokens": 100,
            "total_tokens": 1100,
            "prompt_tokens_details": {"cached_tokens": 400},
        },
        {
            "prompt_tokens": 1000,
            "completion_tokens": 100,
            "cache_read_input_tokens": 400,
            "prompt_tokens_details": {"cached_tokens": 400},
        },
    ],
    ids=["openai", "anthropic"],
)
def test_cached_tokens_are_reported_and_cost_less(models, raw):
    """600 tokens at 2.50 $, 400 cached ones at 1.25 $ and 100 new ones at 10 $ per million."""
    usage = models.usage_of(raw, "openai:gpt-4o")

    assert usage.cost_usd == pytest.approx(0.0030)
    assert (usage.total_tokens, usage.cached_tokens) == (1100, 400)


@pytest.mark.parametrize(
    ("model", "cost_usd"),
    [
        ("openai:scripted", None),
        ("nobody", None),
        ("github_copilot/gpt-4o", None),
        ("ollama/llama3", 0.0),
    ],
)
def test_only_a_price_in_the_table_is_a_price(models, model, cost_usd):
    """A model without a known price costs None; 0 is what the table calls free."""
    usage = models.usage_of({"prompt_tokens": 3, "completion_tokens": 2}, model)

    assert usage == TokenUsage(
        prompt_tokens=3, completion_tokens=2, total_tokens=5, cost_usd=cost_usd
    )


def test_a_usage_that_was_written_to_a_cache_costs_more(models):
    """Anthropic asks 3.75 $ for writing, 0.30 $ for reading, 3 $ for the rest, 15 $ for output."""
    raw = {
        "prompt_tokens": 120,
        "completion_tokens": 20,
        "cache_read_input_tokens": 90,
        "cache_creation_input_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 90, "cache_creation_tokens": 20},
    }

    assert models.usage_of(raw, "anthropic:claude-sonnet-4-5").cost_usd == pytest.approx(0.000432)


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("openai:gpt-4o", 128_000),
        ("openai/gpt-4o", 128_000),
        ("anthropic:claude-sonnet-4-5", 200_000),
        ("gemini:gemini-2.5-flash", 1_048_576),
        ("openai:nobody-knows", None),
        ("nobody", None),
        ("", None),
    ],
)
def test_a_context_window_is_the_tables(models, model, window):
    """In both spellings of a name; what the table does not know is None."""
    assert models.facts_of(model).context_window == window


@pytest.mark.parametrize(
    ("model", "cost_usd"),
    [
        ("openai:gpt-4o", 0.0035),
        ("openai/gpt-4o", 0.0035),
        ("anthropic:claude-sonnet-4-5", 0.0045),
        ("ollama/llama3", 0.0),
        ("openai:nobody-knows", None),
        ("nobody", None),
    ],
)
def test_a_price_is_the_tables(models, model, cost_usd):
    """1000 tokens in and 100 out; free is 0, unknown is None."""
    found = models.price_usd(model, 1_000, 100)

    assert found == (None if cost_usd is None else pytest.approx(cost_usd))


def test_the_table_is_read_once_per_model(models):
    """It is asked before every request."""
    models.facts_of.cache_clear()
    for _ in range(3):
        models.facts_of("openai:gpt-4o")

    assert models.facts_of.cache_info().misses == 1


def test_the_adapter_answers_for_its_models(models):
    """The kernel finds both methods by the contract."""
    provider = importlib.import_module("workers.builtin.providers.litellm").create()

    assert isinstance(provider, ModelTable)
    assert provider.context_window("openai:gpt-4o") == 128_000
    assert provider.price_usd("openai:gpt-4o", 1_000, 100) == pytest.approx(0.0035)
    assert provider.price_usd("nobody", 1_000, 100) is None
    assert answer_tokens_of(provider, "openai:gpt-4o") == 16_384
    assert answer_tokens_of(provider, "nobody") is None


@pytest.mark.parametrize(
    ("model", "is_claude", "is_gemini"),
    [
        ("anthropic:claude-sonnet-4-5", True, False),
        ("vertex_ai/claude-sonnet-4-5", True, False),
        ("openrouter/anthropic/claude-sonnet-4.5", True, False),
        ("gemini:gemini-2.5-flash", False, True),
        ("vertex_ai/gemini-2.5-flash", False, True),
        ("openrouter/google/gemini-2.5-flash", False, False),
        ("openai:gpt-4o", False, False),
        ("nobody", False, False),
    ],
)
def test_a_familys_ways_go_with_it(models, model, is_claude, is_gemini):
    """A Claude is one wherever it is served; Google's wire is Google's own servers'."""
    facts = models.facts_of(model)

    assert (_facts.is_claude(facts), _facts.is_gemini(facts)) == (is_claude, is_gemini)
