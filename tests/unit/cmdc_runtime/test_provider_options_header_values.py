"""Keys and headers that no request can carry are found, and not shown."""

import pytest

from cmdc_runtime.client.arguments import checked_model
from cmdc_runtime.client.resuming import start_request
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.options import parse
from cmdc_runtime.provider_options import header_problem
from cmdc_runtime.subagent import SubAgent

SECRET = "sk-secretsecret"
STRIP = "it begins or ends with whitespace"
NONE = "is none that a header may have"
BAD = {
    "line break": ({"api_key": SECRET + "\n"}, f"['api_key']: {STRIP}"),
    "blank": ({"api_key": " " + SECRET}, f"['api_key']: {STRIP}"),
    "inside": ({"api_key": "sk-se\ncret"}, f"['api_key']: its character 6 of 10 {NONE}"),
    "not ASCII": ({"api_key": SECRET + "ä"}, f"['api_key']: its character 16 of 16 {NONE}"),
    "escape": ({"azure_ad_token": SECRET + "\x1b."}, "['azure_ad_token']: its character 16"),
    "number": ({"api_key": 5}, "['api_key']: expected a str, got int"),
    "list": ({"api_key": [SECRET]}, "['api_key']: expected a str, got list"),
    "header": (
        {"extra_headers": {"x-key": SECRET + "\r\nx: y"}},
        "['extra_headers']['x-key']: its character 16",
    ),
    "header of another type": (
        {"headers": {"x-n": 5}},
        "['headers']['x-n']: expected a str, got int",
    ),
    "headers as text": (
        {"extra_headers": SECRET},
        "['extra_headers']: expected a dict of names and values, got str",
    ),
    "headers as a list": (
        {"headers": [SECRET]},
        "['headers']: expected a dict of names and values, got list",
    ),
    "headers as pairs": (
        {"default_headers": [("x-key", SECRET)]},
        "['default_headers']: expected a dict of names and values, got list",
    ),
    "name of a header": ({"extra_headers": {"x y": "1"}}, "['extra_headers']: one of its names"),
}
FINE = {
    "none": {},
    "key": {"api_key": SECRET},
    "no key": {"api_key": None},
    "empty": {"api_key": ""},
    "headers": {"extra_headers": {"X-Title": "a b", "x-none": None}},
    "no headers": {"extra_headers": None, "headers": {}},
    "other options": {"stop": ["\n", "ä"], "timeout": 5},
}


@pytest.mark.parametrize(("options", "problem"), BAD.values(), ids=BAD)
def test_what_no_header_takes_is_named_and_not_shown(options, problem):
    """The place, what is wrong, and the way out."""
    found = header_problem(options)

    assert found.startswith(problem)
    assert SECRET not in found


@pytest.mark.parametrize("options", FINE.values(), ids=FINE)
def test_what_can_be_sent_has_no_problem(options):
    """All else is the provider's affair."""
    assert header_problem(options) is None


class Source:
    """A model that brings the options that reach it."""

    def __init__(self, opts):
        self.opts = opts

    def model_source(self):
        return "openai:x", self.opts


GIVEN = {
    "options": lambda opts: parse(None, {"model": "openai:x", "provider_opts": opts}),
    "subagent": lambda opts: parse(
        None,
        {
            "model": "openai:x",
            "subagents": [SubAgent(name="a", description="b", provider_opts=opts)],
        },
    ),
    "switch": lambda opts: checked_model("openai:x", opts),
    "model object": lambda opts: start_request(None, {"model": Source(opts)}),
    "model object of a subagent": lambda opts: start_request(
        None,
        {
            "model": "openai:x",
            "subagents": [SubAgent(name="a", description="b", model=Source(opts))],
        },
    ),
    "switch to a model object": lambda opts: checked_model(Source(opts), None),
}


@pytest.mark.parametrize("give", GIVEN.values(), ids=GIVEN)
@pytest.mark.parametrize(("options", "problem"), BAD.values(), ids=BAD)
def test_it_is_refused_where_it_is_given(give, options, problem):
    """Before anything is started or sent."""
    with pytest.raises(InvalidOptions) as caught:
        give(options)

    assert f"provider_opts{problem}" in str(caught.value)
    assert SECRET not in str(caught.value)
