"""Replies by a JSON Schema: what each vendor gets over the wire, and what comes back."""

import json

import jsonschema
import msgspec
import pytest

from cmdc_runtime.extensions.provider import ToolSpec
from cmdc_runtime.messages import Message
from workers.core.assemble import assemble

READ = ToolSpec(name="read", description="Read.", parameters={"type": "object", "properties": {}})


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """One line of an invoice."""

    text: str
    cents: int


class Invoice(msgspec.Struct, forbid_unknown_fields=True):
    """What strict mode takes: closed, and nothing in it is optional."""

    number: str
    lines: list[Line]


class Loose(msgspec.Struct):
    """What strict mode refuses: a default, and unknown names."""

    number: str
    note: str = ""


INVOICE = msgspec.json.schema(Invoice)
LOOSE = msgspec.json.schema(Loose)
MAP = {"type": "object", "properties": {"by_name": {"type": "object"}}, "required": ["by_name"]}


@pytest.fixture
def sent(ask, llmock):
    """Ask for a schema; return the request as it came over the wire, and the reply."""

    def sent_(wire, schema, **changes):
        chunks, failure = ask(llmock, wire, response_format=schema, **changes)
        assert failure is None
        return llmock.seen()[-1], assemble(chunks, id_prefix="m")

    return sent_


def words_of(request):
    """Return all of a request's text."""
    return json.dumps(request)


def test_openai_gets_the_schema_in_strict_mode(sent):
    """By name, with an object at its root; the reply that comes back is valid by it."""
    request, reply = sent("openai", INVOICE)
    asked = request["response_format"]

    assert asked["type"] == "json_schema"
    assert (asked["json_schema"]["name"], asked["json_schema"]["strict"]) == ("reply", True)
    assert asked["json_schema"]["schema"]["type"] == "object"
    assert msgspec.json.decode(reply.text, type=Invoice)


def test_a_schema_that_strict_mode_refuses_is_not_strict(sent):
    """Else OpenAI refuses the whole request."""
    request, reply = sent("openai", LOOSE)

    assert request["response_format"]["json_schema"]["strict"] is False
    assert msgspec.json.decode(reply.text, type=Loose)


def test_openai_gets_schema_and_tools_together(sent):
    """The schema binds the text; calls stay possible."""
    request, _ = sent("openai", INVOICE, tools=(READ,))

    assert "response_format" in request
    assert [tool["function"]["name"] for tool in request["tools"]] == ["read"]


def test_claude_gets_the_schema_for_its_decoder(sent):
    """Closed and unrolled, as the vendor demands it; calls stay possible."""
    request, _ = sent("anthropic", INVOICE, tools=(READ,))
    schema = request["output_format"]["schema"]

    assert request["output_format"]["type"] == "json_schema"
    assert "$ref" not in json.dumps(schema)
    assert schema["properties"]["lines"]["items"]["additionalProperties"] is False
    assert [tool["name"] for tool in request["tools"]] == ["read"]
    assert "tool_choice" not in request


def test_google_gets_the_schema_in_its_own_field(sent):
    """With the kind of text that goes with it; the reply that comes back is valid by it."""
    request, reply = sent("gemini", INVOICE)
    config = request["generationConfig"]

    assert config["response_mime_type"] == "application/json"
    assert config["response_json_schema"]["type"] == "object"
    assert reply.text


IN_WORDS = {
    # litellm would force a call of a tool that it makes up, in place of all others
    "a Claude that does not decode by schemas": ("anthropic:claude-3-5-sonnet-20241022", INVOICE),
    # it calls no tools
    "a model from before schemas and calls": ("openai:gpt-3.5-turbo-16k", INVOICE),
}
BY_A_CALL = {
    # litellm would close the map, so that it stays empty
    "a map for Claude": ("anthropic:claude-sonnet-4-5", MAP),
    # the vendor takes either of them
    "tools and a schema for Gemini 2": ("gemini:gemini-2.5-flash", INVOICE),
    # litellm refuses the parameter
    "a model from before schemas": ("openai:gpt-4", INVOICE),
}
FORCED = {
    "anthropic": {"type": "any"},
    "gemini": {"functionCallingConfig": {"mode": "ANY"}},
    "openai": "required",
}


@pytest.mark.parametrize(("model", "schema"), BY_A_CALL.values(), ids=BY_A_CALL)
def test_where_a_call_can_be_forced_the_answer_is_one(sent, model, schema):
    """It is offered beside the session's tools, and the model calls one of them or it."""
    wire = model.partition(":")[0]
    request, _ = sent(wire, schema, model=model, system="Be brief.", tools=(READ,))
    words = words_of(request)

    assert "final_answer" in words
    assert "valid by this JSON Schema" not in words
    assert not {"response_format", "output_format"} & request.keys()
    assert "response_json_schema" not in words
    assert (request.get("tool_choice") or request["toolConfig"]) == FORCED[wire]


@pytest.mark.parametrize(("model", "schema"), IN_WORDS.values(), ids=IN_WORDS)
def test_where_a_parameter_would_do_harm_the_model_is_asked_in_words(sent, model, schema):
    """The system prompt holds the schema; tools are offered as ever, and none is forced."""
    wire = model.partition(":")[0]
    request, _ = sent(wire, schema, model=model, system="Be brief.", tools=(READ,))
    words = words_of(request)

    assert "valid by this JSON Schema" in words
    assert "Be brief." in words
    assert not {"response_format", "output_format", "tool_choice"} & request.keys()
    assert "response_json_schema" not in words
    assert len(request["tools"]) == 1


def test_gemini_3_gets_tools_and_schema_together(sent):
    """The first generation that takes both."""
    request, _ = sent("gemini", INVOICE, model="gemini:gemini-3-pro-preview", tools=(READ,))

    assert "response_json_schema" in request["generationConfig"]
    assert len(request["tools"]) == 1


@pytest.mark.parametrize("wire", ["openai", "anthropic", "gemini"])
def test_free_text_asks_for_nothing(ask, llmock, wire):
    """Without a schema no vendor hears of one."""
    ask(llmock, wire, messages=(Message.user("hi"),))
    words = words_of(llmock.seen()[-1])

    assert "schema" not in words.lower()


def test_the_schemas_of_these_tests_are_schemas():
    """A typo in them would make the tests above say nothing."""
    for schema in (INVOICE, LOOSE, MAP):
        jsonschema.Draft202012Validator.check_schema(schema)
