"""litellm's table, and what is made of a file that is not as it should be."""

import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from workers.builtin.providers._facts import ModelFacts, forces_calls, media_of
from workers.builtin.wires import table

ENTRIES = {
    "m": {
        "litellm_provider": "openai",
        "mode": "chat",
        "max_input_tokens": 100,
        "max_output_tokens": 10,
        "input_cost_per_token": 0.0,
        "supports_response_schema": True,
        "supports_native_structured_output": True,
        "supports_adaptive_thinking": True,
        "supports_vision": True,
        "supports_pdf_input": True,
    },
    "groq/m": {"litellm_provider": "groq", "max_input_tokens": True, "max_output_tokens": "10"},
    "other/n": {"litellm_provider": "elsewhere"},
    "n": {"litellm_provider": "other"},
    "odd": ["no object"],
}


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Have a table of a test's own; nothing of it is kept."""
    path = tmp_path / "table.json"

    def written_(text):
        path.write_text(text)
        monkeypatch.setattr(table, "_place", lambda: path)
        forget()

    yield written_
    forget()


def forget():
    for one in (table.entry_of, table.facts_of, table._table):
        one.cache_clear()


def test_facts_are_those_of_the_entry(written):
    """Under the vendor's name or without it."""
    written(json.dumps(ENTRIES))

    assert table.facts_of("openai", "m") == ModelFacts(
        provider="openai",
        model_id="m",
        is_listed=True,
        context_window=100,
        answer_tokens=10,
        has_price=True,
        takes_response_format=True,
        keeps_to_schemas=True,
        decodes_by_schema=True,
        thinks_adaptively=True,
        media=frozenset({"image", "image_url", "pdf"}),
    )


def test_what_is_no_whole_number_is_not_known(written):
    """A vendor's own entry outranks the one without its name."""
    written(json.dumps(ENTRIES))

    assert table.facts_of("groq", "m") == ModelFacts(
        provider="groq",
        model_id="m",
        is_listed=True,
        takes_response_format=True,
        media=frozenset(),
    )


@pytest.mark.parametrize(
    ("provider", "entry", "media"),
    [
        ("openai", {"mode": "chat"}, set()),
        ("openai", {"supports_vision": True}, {"image", "image_url"}),
        ("openai", {"supports_vision": False, "supports_pdf_input": True}, {"pdf"}),
        ("anthropic", {"supports_pdf_input": True}, {"pdf", "pdf_url"}),
        ("gemini", {"supports_vision": True, "supports_pdf_input": None}, {"image", "image_url"}),
        ("openai", {}, {"image", "image_url", "pdf"}),
        ("anthropic", {}, {"image", "image_url", "pdf", "pdf_url"}),
        ("bedrock", {}, {"image", "image_url", "pdf"}),
    ],
)
def test_what_a_model_takes_beside_text_is_in_the_table(provider, entry, media):
    """A listed model without a word of it takes none; one that is not listed is asked."""
    assert media_of(provider, entry) == media


def test_an_entry_of_another_vendor_is_none(written):
    """Neither under a name that looks like it nor as a plain one."""
    written(json.dumps(ENTRIES))

    assert table.entry_of("anthropic", "m") == {}
    assert table.entry_of("other", "n") == {"litellm_provider": "other"}
    assert table.entry_of("openai", "odd") == {}
    assert table.entry_of("openai", "nobody") == {}


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a": 1'])
def test_a_table_that_cannot_be_read_is_reported_once(written, text):
    """Nothing is known then, and sessions work."""
    written(text)
    with capture_logs() as logs:
        facts = [table.facts_of("openai", name) for name in ("m", "n")]

    assert [one.is_listed for one in facts] == [False, False]
    assert [one["event"] for one in logs] == ["models.unknown"]


def test_a_table_that_is_missing_is_reported(written, monkeypatch):
    """By its name."""
    written("{}")
    monkeypatch.setattr(table, "_place", lambda: Path("nowhere.json"))
    with capture_logs() as logs:
        assert table.entry_of("openai", "m") == {}

    assert "nowhere.json" in logs[0]["problem"]


@pytest.mark.parametrize(
    ("provider", "model", "takes"),
    [
        ("openai", "gpt-4", False),
        ("openai", "gpt-3.5-turbo-16k", False),
        ("openai", "gpt-4o", True),
        ("groq", "gpt-4", True),
    ],
)
def test_two_models_of_openai_take_no_format(provider, model, takes):
    """By the table that comes with litellm."""
    assert table.facts_of(provider, model).takes_response_format is takes


def test_the_table_of_litellm_is_found():
    """Without an import of it."""
    assert table.facts_of("openai", "gpt-4o").context_window == 128_000


CALLS = {"supports_function_calling": True, "supports_tool_choice": True}
NOT_FORCED = {**CALLS, "supports_forced_tool_use": False}
# fmt: off
FORCED = {
    #                    provider      model       entry                    can be forced
    "openai":           ("openai",     "gpt-4",    CALLS,                   True),
    "claude":           ("anthropic",  "claude-x", CALLS,                   True),
    "claude elsewhere": ("bedrock",    "claude-x", CALLS,                   True),
    "others there":     ("bedrock",    "llama",    CALLS,                   False),
    "no word of it":    ("dashscope",  "qwen",     CALLS,                   False),
    "said not to":      ("anthropic",  "claude-x", NOT_FORCED,              False),
    "calls nothing":    ("openai",     "old",      {"supports_tool_choice": True}, False),
    "chooses nothing":  ("openai",     "old",      {"supports_function_calling": True}, False),
    "not listed":       ("openai",     "new",      {},                      False),
}
# fmt: on


@pytest.mark.parametrize(("provider", "model_id", "entry", "can_be"), FORCED.values(), ids=FORCED)
def test_a_call_is_demanded_of_who_is_known_to_make_it(provider, model_id, entry, can_be):
    """Of model and vendor both: some answer such a request with an error."""
    assert forces_calls(provider, model_id, entry) is can_be
