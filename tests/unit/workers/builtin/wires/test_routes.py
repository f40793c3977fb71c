"""Which way a request goes: each reason for litellm by itself, and each route without it."""

import importlib
import pkgutil

import pytest

from cmdc_runtime.extensions.provider import ToolSpec
from cmdc_runtime.messages import Message, ToolCall
from workers.builtin import tools
from workers.builtin.providers.default import needs_litellm
from workers.builtin.wires.routes import VENDORS, WireFormat, route_of, vendor_of

LOCAL = {"api_base": "http://127.0.0.1:9/v1"}
SCHEMA = {"type": "object", "properties": {}}
SONNET = "anthropic:claude-sonnet-4-5"


def tool(name="read", **parameters):
    return ToolSpec(name=name, description="", parameters=SCHEMA | parameters)


@pytest.fixture
def goes(asked):
    """Say whether a request goes without litellm."""

    def goes_(model, *messages, **changes):
        return route_of(asked(model, *messages, **changes)) is not None

    return goes_


# --- vendors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "provider", "model_id"),
    [
        ("openai:gpt-4o", "openai", "gpt-4o"),
        ("openai/gpt-4o", "openai", "gpt-4o"),
        ("openrouter:openai/gpt-4o", "openrouter", "openai/gpt-4o"),
        ("hosted_vllm:a/b:c", "hosted_vllm", "a/b:c"),
    ],
)
def test_a_model_names_its_vendor(model, provider, model_id):
    """Before the first colon or slash."""
    assert vendor_of(model) == (provider, model_id, VENDORS[provider])


@pytest.mark.parametrize("model", ["gpt-4o", "openai", "openai:", "gemini:x", "ollama/llama3:8b"])
def test_any_other_model_is_litellms(model, goes):
    """A name alone, too: litellm knows whose it is."""
    assert vendor_of(model)[2] is None
    assert not goes(model, **LOCAL)


ADDRESSES = {
    "openai:gpt-4o": "https://api.openai.com/v1",
    "anthropic:claude-sonnet-4-5": "https://api.anthropic.com",
    "groq:llama": "https://api.groq.com/openai/v1",
    "openrouter:a/b": "https://openrouter.ai/api/v1",
}


@pytest.mark.parametrize("model", ADDRESSES)
def test_a_vendor_has_an_address(routed, model):
    """And a wire."""
    route, _ = routed(model)

    assert route.address == ADDRESSES[model]
    is_anthropic = route.vendor.wire is WireFormat.ANTHROPIC
    assert is_anthropic is model.startswith("anthropic")


def test_an_address_is_the_options_or_the_environments(routed, monkeypatch):
    """In that order, and the first variable that is set; the end of it is no matter."""
    monkeypatch.setenv("OPENAI_API_BASE", "http://second")
    assert routed("openai:gpt-4o")[0].address == "http://second"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://first/")
    assert routed("openai:gpt-4o")[0].address == "http://first"
    assert routed("openai:gpt-4o", base_url="http://b//")[0].address == "http://b"
    both = routed("openai:gpt-4o", api_base="http://a", base_url="http://b")
    assert both[0].address == "http://a"


def test_a_server_of_ones_own_needs_an_address(goes, routed):
    """Without one litellm says what is missing; it needs no key."""
    assert not goes("hosted_vllm:m")
    route, _ = routed("hosted_vllm:m", **LOCAL)
    assert route.key is None
    assert not route.vendor.needs_key


def test_a_vendor_needs_a_key():
    """But for servers of one's own."""
    free = {name for name, one in VENDORS.items() if not one.needs_key}

    assert free == {"hosted_vllm", "llamafile", "lm_studio"}


def test_a_key_is_the_options_or_the_environments(routed, monkeypatch):
    """An empty one is none."""
    assert routed("openrouter:a/b")[0].key is None
    monkeypatch.setenv("OR_API_KEY", "second")
    assert routed("openrouter:a/b")[0].key == "second"
    monkeypatch.setenv("OPENROUTER_API_KEY", "first")
    assert routed("openrouter:a/b")[0].key == "first"
    assert routed("openrouter:a/b", api_key="given")[0].key == "given"
    assert routed("openrouter:a/b", api_key="")[0].key == "first"


@pytest.mark.parametrize(
    "variable",
    [
        *("ANTHROPIC_AUTH_TOKEN", "USE_LITELLM_PROXY"),
        *("SSL_VERIFY", "SSL_CERTIFICATE", "SSL_SECURITY_LEVEL"),
    ],
)
def test_what_only_litellm_reads_is_its_affair(goes, monkeypatch, variable):
    """Where a variable says how to ask; an empty one says nothing."""
    monkeypatch.setenv(variable, "")
    assert goes("openai:gpt-4o")
    monkeypatch.setenv(variable, "1")
    assert not goes("openai:gpt-4o")


def test_who_asks_for_litellm_gets_it(goes):
    """And an option of None is none."""
    assert not goes("openai:gpt-4o", via="litellm")
    assert goes("openai:gpt-4o", nonsense=None, via=None)


# --- OpenAI's wire --------------------------------------------------------------------------------

OPENAI = {
    "plain": ("gpt-4o", {"temperature": 0, "seed": 1, "stop": "a", "user": "u"}, True),
    "unknown option": ("gpt-4o", {"nonsense": 1}, False),
    "of another wire": ("gpt-4o", {"top_k": 1}, False),
    "where and how": ("gpt-4o", {"timeout": 1, "headers": {}, "extra_headers": {}}, True),
    "query in the address": ("gpt-4o", {"api_base": "http://h/v1?a=b"}, False),
    "effort of a plain model": ("gpt-4o", {"reasoning_effort": "low"}, False),
    "effort of an unknown model": ("nobody", {"reasoning_effort": "low"}, True),
    "user of an unknown model": ("nobody", {"user": "u"}, False),
    "reasons": ("gpt-5", {"max_tokens": 1, "reasoning_effort": "low"}, True),
    "reasons and samples": ("gpt-5", {"temperature": 0}, False),
    "reasons as a chat": ("gpt-5-chat-latest", {"temperature": 0}, True),
    "reasons and searches": ("gpt-5-search-api", {"max_tokens": 1}, False),
    "old and reasons": ("o3", {"max_tokens": 1}, True),
    "old name that nobody knows": ("o9", {"temperature": 0}, True),
    "another endpoint": ("o1-pro", {}, False),
    "not for answers": ("text-embedding-3-small", {}, False),
}


@pytest.mark.parametrize("case", OPENAI)
def test_what_a_model_of_openai_takes_goes_to_it(goes, case):
    """All else is litellm's to put in its way."""
    model, options, is_ours = OPENAI[case]

    assert goes(f"openai:{model}", **options) is is_ours


TOOLS = {
    "plain": ("gpt-4o", {}, True),
    "reasons": ("gpt-5", {}, True),
    "reasons with an effort": ("gpt-5", {"reasoning_effort": "low"}, False),
    "with an effort in the body": ("gpt-5", {"extra_body": {"reasoning_effort": "low"}}, False),
    "with another body": ("gpt-5", {"extra_body": {"a": 1}}, True),
    "at another endpoint": ("gpt-5.4", {}, False),
    "at this endpoint": ("gpt-5.1", {}, True),
    "old and takes them": ("o3", {}, True),
}


@pytest.mark.parametrize("case", TOOLS)
def test_tools_go_where_a_model_takes_them(goes, case):
    """Without tools each of the models is asked here."""
    model, options, is_ours = TOOLS[case]

    assert goes(f"openai:{model}", tools=(tool(),), **options) is is_ours
    assert goes(f"openai:{model}", **options)


@pytest.mark.parametrize("option", ["user", "max_completion_tokens", "store", "reasoning_effort"])
def test_what_a_vendor_refuses_is_litellms(goes, option):
    """Groq's and the others' differ."""
    value = 3 if option.startswith("max") else "x"
    refusing = [one for one in VENDORS if option in VENDORS[one].refuses]
    found = [one for one in VENDORS if not goes(f"{one}:m", **LOCAL, **{option: value})]

    assert "groq" in refusing
    # An unknown model of OpenAI's has a rule of its own, and Anthropic another wire.
    assert {*found} - {"openai", "anthropic"} == {*refusing}


@pytest.mark.parametrize(("model", "is_ours"), [("groq:m", False), ("hosted_vllm:m", True)])
def test_a_schema_goes_where_a_vendor_takes_it(goes, model, is_ours):
    """As a parameter."""
    assert goes(model, **LOCAL, response_format=SCHEMA) is is_ours


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "string"},
        {"type": None},
        {"anyOf": []},
        {"oneOf": []},
        {"allOf": []},
        {"not": {}},
        {"enum": []},
        {"$ref": "#"},
        {"properties": {"a": {"type": "string", "pattern": r"^\p{Lu}"}}},
        {"properties": {"a": {"anyOf": [{"items": {"pattern": "("}}]}}},
        {"properties": {"a": {"type": "object", "patternProperties": {"[": {}}}}},
    ],
    ids=str,
)
@pytest.mark.parametrize("model", ["openai:gpt-4o", SONNET])
def test_a_tool_that_a_vendor_may_refuse_is_litellms(goes, model, parameters):
    """It knows what each of them takes; further down a combination is plain."""
    assert not goes(model, tools=(tool(), tool("b", **parameters)))
    inside = {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}
    assert goes(model, tools=(tool("b", **inside),))


@pytest.mark.parametrize(
    "properties",
    [
        {"pattern": {"type": "string"}},
        {"a": {"type": "string", "pattern": r"\S"}},
        {"a": {"type": "object", "patternProperties": {"^x": {"type": "string"}}}},
        {"a": {"type": "array", "items": {"type": "string", "pattern": "^(?!x)"}}},
    ],
    ids=str,
)
@pytest.mark.parametrize("model", ["openai:gpt-4o", SONNET])
def test_a_pattern_that_python_knows_is_plain(goes, model, properties):
    """So is a parameter of that name, which tools that search have."""
    assert goes(model, tools=(tool("b", properties=properties),))


BUILT_IN = sorted(
    one.name for one in pkgutil.iter_modules(tools.__path__) if not one.name.startswith("_")
)
NEEDED = {"fetch_url": {"allow": ["example.org"]}}
"""What a tool has no default for."""


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("model", ["openai:gpt-4o", SONNET])
def test_no_tool_of_ours_needs_litellm(goes, model, name):
    """Whatever is in its schema: a session with it would wait for litellm."""
    made = importlib.import_module(f"{tools.__name__}.{name}").create(**NEEDED.get(name, {}))
    spec = ToolSpec(name=made.name, description="", parameters=made.parameters)

    assert goes(model, tools=(spec,))


@pytest.mark.parametrize(
    ("model", "takes"),
    [("gpt-4o", True), ("gpt-5", True), ("o1", True), ("o3", False), ("o9", False)],
)
def test_old_models_that_reason_may_know_no_system_prompt(routed, model, takes):
    """The table names those that do."""
    assert routed(f"openai:{model}")[0].takes_system is takes


# --- Anthropic's wire -----------------------------------------------------------------------------

ENABLED = {"type": "enabled", "budget_tokens": 2_000}
ADAPTIVE = {"type": "adaptive"}
ANTHROPIC = {
    "plain": ("claude-sonnet-4-5", {"temperature": 0, "top_k": 1, "stop": "a"}, True),
    "of another wire": ("claude-sonnet-4-5", {"seed": 1}, False),
    "where and how": ("claude-sonnet-4-5", {"timeout": 1, "base_url": "http://h"}, True),
    "unknown model": ("nobody-3", {"max_tokens": 1}, True),
    "unknown model that samples": ("nobody-3", {"temperature": 0}, False),
    "unknown model that thinks": ("nobody-3", {"thinking": ENABLED}, False),
    "another key": ("claude-sonnet-4-5", {"api_key": "sk-ant-oat-1"}, False),
    "thinks": ("claude-sonnet-4-5", {"thinking": ENABLED}, True),
    "thinks adaptively and can't": ("claude-sonnet-4-5", {"thinking": ADAPTIVE}, False),
    "thinks adaptively": ("claude-opus-4-6", {"thinking": ADAPTIVE}, True),
    "thinks in no form": ("claude-sonnet-4-5", {"thinking": True}, False),
    "takes no samples": ("claude-opus-5", {"temperature": 0}, False),
}


@pytest.mark.parametrize("case", ANTHROPIC)
def test_what_claude_takes_goes_to_it(goes, case):
    """All else is litellm's to put in its way."""
    model, options, is_ours = ANTHROPIC[case]

    assert goes(f"anthropic:{model}", **options) is is_ours


@pytest.mark.parametrize(
    ("model", "options", "is_ours"),
    [
        *((model, {}, True) for model in ADDRESSES),
        *((f"anthropic:{name}", options, is_ours) for name, options, is_ours in ANTHROPIC.values()),
        ("openai:gpt-4o", {"via": "litellm"}, False),
    ],
)
def test_a_session_is_where_its_requests_go(goes, model, options, is_ours):
    """Its process is chosen before anything is asked: by what any session may ask."""
    assert goes(model, **options) is is_ours
    assert needs_litellm(model, dict(options)) is not is_ours


BOUND = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}
MAP = {"type": "object", "properties": {"m": {"type": "object"}}}
PLAIN = {"type": "object", "properties": {"n": {"type": "integer"}}}
ROOTED = {"$ref": "#/$defs/A", "$defs": {"A": PLAIN}}
BETA = {"Anthropic-Beta": "x"}
FORMATS = {
    "plain": ("claude-sonnet-4-5", PLAIN, {}, True),
    "reference at the root": ("claude-sonnet-4-5", ROOTED, {}, True),
    "with a bound": ("claude-sonnet-4-5", BOUND, {}, False),
    "in words": ("claude-sonnet-4-5", MAP, {}, True),
    "in words with a bound": ("nobody-3", BOUND, {}, True),
    "with a beta of one's own": ("claude-sonnet-4-5", PLAIN, {"extra_headers": BETA}, False),
    "with another header": ("claude-sonnet-4-5", PLAIN, {"headers": {"x": "y"}}, True),
    "with headers that are none": ("claude-sonnet-4-5", PLAIN, {"headers": None}, True),
    "in words with a beta": ("nobody-3", PLAIN, {"headers": BETA}, True),
}


@pytest.mark.parametrize("case", FORMATS)
def test_a_schema_for_a_reply_of_claude_goes_as_it_is(goes, case):
    """One that has to be bent is litellm's, and so is a header with two words in it."""
    model, schema, options, is_ours = FORMATS[case]

    assert goes(f"anthropic:{model}", response_format=schema, **options) is is_ours


CALL = ToolCall(call_id="c", name="read", arguments={})
BAD = ToolCall(call_id="c", name="read.it", arguments={})
HI = Message.user("hi")
RESULT = Message.tool_result("c", "done")
CONVERSATIONS = {
    "round": ((HI, Message.assistant("", (CALL,)), RESULT), True),
    "a name in the history": ((HI, Message.assistant("", (BAD,)), RESULT), False),
    "model at the end": ((HI, Message.assistant("so")), False),
    "model at the end that says nothing": ((HI, Message.assistant("")), True),
    "model at the beginning": ((Message.assistant("so"), HI), True),
    "system at the beginning": ((Message.system("s"), HI), True),
    "system later": ((HI, Message.system("s"), HI), False),
    "system alone": ((Message.system("s"),), False),
}


@pytest.mark.parametrize("case", CONVERSATIONS)
def test_a_conversation_that_claude_takes_goes_to_it(goes, case):
    """What litellm would put in order is its affair."""
    messages, is_ours = CONVERSATIONS[case]

    assert goes(SONNET, *messages) is is_ours


@pytest.mark.parametrize("name", ["read.it", "", "r" * 65, "ä"])
def test_a_tools_name_that_claude_refuses_is_litellms(goes, name):
    """Of any tool."""
    assert not goes(SONNET, tools=(tool(), tool(name)))
    assert goes(SONNET, tools=(tool("r" * 64),))
