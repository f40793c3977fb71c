"""From the options of the command line to those of ``create_agent``."""

import io
import sys

import click
import pytest

from cmdc_runtime.cli import choices
from cmdc_runtime.cli.choices import AgentChoice, line_of_input, text_of

GIVEN = {
    "model": "openai:m",
    "tools": (),
    "system": None,
    "working_dir": ".",
    "session_id": None,
    "keep": False,
    "api_base": None,
    "provider_opts": (),
    "address": "/run/here",
}


def choice(**given):
    return AgentChoice.of(GIVEN | given)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("temperature=0.2", {"temperature": 0.2}),
        ("stream=false", {"stream": False}),
        ('stop=["a", "b"]', {"stop": ["a", "b"]}),
        ("api_key=sk-1", {"api_key": "sk-1"}),
        ('api_key="123"', {"api_key": "123"}),
        ("api_base=http://h/?a=b", {"api_base": "http://h/?a=b"}),
        ("empty=", {"empty": ""}),
    ],
    ids=["number", "bool", "list", "text", "quoted", "with-equals", "empty"],
)
def test_provider_options_are_json_or_text(text, found):
    """What reads as JSON is taken as such, the rest is text, up to the first ``=`` the name."""
    assert choice(provider_opts=(text,)).options["provider_opts"] == found


def test_api_base_is_a_provider_option():
    """The shorthand says the same as the long form, and wins over it."""
    found = choice(api_base="http://a", provider_opts=("api_base=http://b",))

    assert found.options["provider_opts"] == {"api_base": "http://a"}


@pytest.mark.parametrize("text", ["novalue", "=x", ""])
def test_provider_option_without_name_is_refused(text):
    """KEY and ``=`` are needed, and the error does not show what was there, which may be a key."""
    with pytest.raises(click.UsageError, match="KEY=VALUE"):
        choice(provider_opts=(text,))


def test_missing_model_names_the_ways_out():
    """Who forgot the model sees all three ways to name one."""
    with pytest.raises(click.UsageError) as caught:
        choice(model=None)

    assert all(word in str(caught.value) for word in ("--model", "CMDC_MODEL", "--api-base"))


def test_prompt_is_the_argument():
    """Anything but a lone dash is the prompt itself."""
    assert text_of("- and more") == "- and more"


@pytest.mark.parametrize("read", [lambda: text_of("-"), line_of_input], ids=["all", "line"])
def test_prompt_on_standard_input_has_a_bound(read, monkeypatch):
    """What is too long is refused as a whole, and never sent in parts."""
    monkeypatch.setattr(choices, "PROMPT_CHARS_MAX", 3)
    monkeypatch.setattr(sys, "stdin", io.StringIO("four"))

    with pytest.raises(click.UsageError, match="over 3 characters"):
        read()
