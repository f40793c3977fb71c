"""The names of the conventions, and what is recorded of models and of reasons."""

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes import error_attributes

from cmdc_runtime.reasons import Exception as ExceptionReason
from cmdc_runtime.reasons import Signal
from workers.builtin.telemetry import names

WORDS = {name: word for name, word in vars(names).items() if isinstance(word, str)}
CONVENTIONS = {
    word
    for module in (gen_ai_attributes, gen_ai_metrics, error_attributes)
    for word in vars(module).values()
    if isinstance(word, str)
}
CMDC = {
    "agent.turn", "compactor.run", "llm.request", "plugin.crash", "plugin.pipeline",
    "session.restart", "subagent.run", "tool.exec",
}  # fmt: skip


def test_names_are_those_of_the_conventions():
    """What begins with gen_ai is one of theirs, letter by letter."""
    ours = {word for word in WORDS.values() if word.startswith(("gen_ai", "error."))}

    assert ours
    assert ours <= CONVENTIONS


def test_operations_and_providers_are_those_of_the_conventions():
    """Each has a closed list of well-known words."""
    operations = {one.value for one in gen_ai_attributes.GenAiOperationNameValues}
    providers = {one.value for one in gen_ai_attributes.GenAiProviderNameValues}
    sides = {one.value for one in gen_ai_attributes.GenAiTokenTypeValues}

    assert {names.INVOKE_AGENT, names.CHAT, names.EXECUTE_TOOL} <= operations
    assert set(names._PROVIDERS.values()) <= providers
    assert {"openai", "anthropic", "cohere", "groq", "deepseek", "perplexity"} <= providers
    assert {"input", "output"} <= sides


def test_events_have_the_names_of_cmdc():
    """Whoever comes from there finds them again."""
    assert set(WORDS.values()) >= CMDC


@pytest.mark.parametrize("name", names.INSTRUMENTS)
def test_a_metric_says_what_it_is(name):
    """A histogram has bounds that rise, a counter has none."""
    kept = names.INSTRUMENTS[name]

    assert kept.description.endswith(".")
    assert (kept.kind == "histogram") == bool(kept.buckets)
    assert list(kept.buckets) == sorted(set(kept.buckets))
    assert name.startswith(("gen_ai.", "cmdc."))


@pytest.mark.parametrize(
    ("model", "provider", "model_id"),
    [
        ("openai:gpt-5", "openai", "gpt-5"),
        ("anthropic/claude-sonnet-4-5", "anthropic", "claude-sonnet-4-5"),
        ("azure/my-deployment", "azure.ai.openai", "my-deployment"),
        ("bedrock/anthropic.claude-v2:1", "aws.bedrock", "anthropic.claude-v2:1"),
        ("ollama/llama3:8b", "ollama", "llama3:8b"),
        ("openrouter/meta/llama", "openrouter", "meta/llama"),
        ("gpt-5", "_OTHER", "gpt-5"),
        ("", "_OTHER", ""),
    ],
)
def test_a_model_has_a_provider(model, provider, model_id):
    """The conventions' word for it; where a model names none, there is none."""
    assert (names.provider_of(model), names.model_id_of(model)) == (provider, model_id)


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("Timeout", "Timeout"),
        ("RateLimitError: slow down, john@example.org", "RateLimitError"),
        ("crashed(killed by signal 9)", "crashed"),
        ("max_turns_exceeded", "max_turns_exceeded"),
        ("no such thing", None),
        ("hello, world", None),
        ("sk-1234: is no key", None),
        ("x" * 65, None),
        ("", None),
        (None, None),
    ],
)
def test_a_reason_is_named_by_one_word(reason, word):
    """A sentence may quote what was said."""
    assert names.word_of(reason) == word


def test_the_end_of_a_process_is_named_by_its_kind():
    """Without what an exception said."""
    died = ExceptionReason(type="ValueError", message="the launch code is 0000")

    assert names.kind_of(died) == "exception"
    assert names.kind_of(Signal(number=9, name="SIGKILL")) == "signal"
