"""What may be asked of whom by a JSON Schema."""

from dataclasses import replace

import msgspec
import pytest

from cmdc_runtime.extensions.provider import ModelRequest, ToolSpec
from workers.builtin.providers import _formats
from workers.builtin.providers._facts import ModelFacts
from workers.builtin.providers._formats import Way

READ = ToolSpec(name="read", description="Read.", parameters={"type": "object"})


class Leaf(msgspec.Struct, forbid_unknown_fields=True):
    """Closed, nothing optional."""

    n: int


class Root(msgspec.Struct, forbid_unknown_fields=True):
    """Closed, nothing optional, with a reference."""

    leaves: list[Leaf]


class Node(msgspec.Struct):
    """Holds its own kind."""

    children: list["Node"]


def closed(**properties):
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


NUMBER = {"type": "integer"}
STRICT = {
    "flat": closed(n=NUMBER),
    "nested": closed(inner=closed(n=NUMBER)),
    "list": closed(items={"type": "array", "items": NUMBER}),
    "choice": closed(n={"anyOf": [NUMBER, {"type": "null"}]}),
    "words": closed(n={"enum": ["a", "b"]}),
    "bounds": closed(n={"type": "integer", "minimum": 1, "maximum": 9}),
    "nothing": closed(),
}
NOT_STRICT = {
    "open": closed(n=NUMBER) | {"additionalProperties": True},
    "unsaid": {"type": "object", "properties": {"n": NUMBER}, "required": ["n"]},
    "optional": closed(n=NUMBER) | {"required": []},
    "open inside": closed(inner={"type": "object"}),
    "anything": closed(n={}),
    "unknown keyword": closed(n={"type": "string", "minLength": 3}),
    "default": closed(n={"type": "integer", "default": 3}),
    "format": closed(n={"type": "string", "format": "binary"}),
    "list of anything": closed(n={"type": "array"}),
    "not even a schema": closed(n=True),
    "no object": {"type": "array", "items": NUMBER},
    "choice at the root": {"anyOf": [closed(n=NUMBER)]},
}


@pytest.mark.parametrize("schema", STRICT.values(), ids=STRICT)
def test_strict_takes_closed_objects_with_nothing_optional(schema):
    """What OpenAI's strict mode documents as its part of JSON Schema."""
    assert _formats.is_strict(schema)


@pytest.mark.parametrize("schema", NOT_STRICT.values(), ids=NOT_STRICT)
def test_strict_takes_nothing_else(schema):
    """One such part anywhere, and OpenAI refuses the request."""
    assert not _formats.is_strict(schema)


def test_the_root_is_an_object_and_no_reference():
    """Msgspec's schemas of classes begin with a reference; nothing else of them changes."""
    schema = msgspec.json.schema(Root)
    rooted = _formats.rooted(schema)

    assert "$ref" in schema
    assert (rooted["type"], "$ref" in rooted) == ("object", False)
    assert rooted["$defs"] == schema["$defs"]
    assert _formats.is_strict(rooted)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"$ref": "#/$defs/gone", "$defs": {}},
        {"$ref": "https://example.org/schema"},
        {"$ref": "#/$defs/a", "$defs": {"a": True}},
    ],
    ids=["no reference", "nowhere", "elsewhere", "no schema"],
)
def test_what_cannot_be_looked_up_stays(schema):
    """The vendor says what it thinks of it."""
    assert _formats.rooted(schema) == schema


def test_a_circle_of_references_ends():
    """A schema that says nothing is none of our business, but must not hang us."""
    circle = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}

    assert "$ref" in _formats.rooted(circle | {"$ref": "#/$defs/a"})


def test_a_system_prompt_is_kept_before_the_instruction():
    """And an empty one leaves no empty lines."""
    schema = {"type": "object"}

    assert _formats.with_instruction("Be brief.", schema).startswith("Be brief.\n\nYour final")
    assert _formats.with_instruction("", schema).endswith(':\n{"type":"object"}')


OPENAI = ModelFacts(
    provider="openai", model_id="m", takes_response_format=True, keeps_to_schemas=True
)
CLAUDE = ModelFacts(
    provider="anthropic", model_id="claude-x", takes_response_format=True, decodes_by_schema=True
)
OLD_CLAUDE = ModelFacts(provider="anthropic", model_id="claude-x", takes_response_format=True)
GEMINI_2 = ModelFacts(provider="gemini", model_id="gemini-2.5-pro", takes_response_format=True)
GEMINI_3 = ModelFacts(provider="gemini", model_id="gemini-3.1-pro", takes_response_format=True)
LISTED = ModelFacts(provider="openai", model_id="gpt-4", is_listed=True, takes_response_format=True)
LEAF = msgspec.json.schema(Leaf)
TREE = msgspec.json.schema(Node)
MAP = closed(by_name={"type": "object", "additionalProperties": NUMBER})
# fmt: off
SENT = {
    #                          model       schema  tools  by parameter
    "openai":                 (OPENAI,     LEAF,   True,  True),
    "openai, tree":           (OPENAI,     TREE,   True,  True),
    "openai, map":            (OPENAI,     MAP,    True,  True),
    "known not to keep to it": (LISTED,    LEAF,   False, False),
    "unknown model":          (ModelFacts(), LEAF, False, False),
    "claude":                 (CLAUDE,     LEAF,   True,  True),
    "claude, references":     (CLAUDE,     msgspec.json.schema(Root), True, True),
    "claude, tree":           (CLAUDE,     TREE,   False, False),
    "claude, root again":     (CLAUDE,     closed(n={"$ref": "#"}), False, False),
    "claude, map":            (CLAUDE,     MAP,    False, False),
    "claude, plain map":      (CLAUDE,     closed(n={"type": "object"}), False, False),
    "older claude":           (OLD_CLAUDE, LEAF,   False, False),
    "gemini 2":               (GEMINI_2,   LEAF,   False, True),
    "gemini 2, tools":        (GEMINI_2,   LEAF,   True,  False),
    "gemini 3, tools":        (GEMINI_3,   LEAF,   True,  True),
}
# fmt: on


@pytest.mark.parametrize(("facts", "schema", "has_tools", "is_sent"), SENT.values(), ids=SENT)
def test_a_schema_is_sent_where_it_asks_the_same_question(facts, schema, has_tools, is_sent):
    """Where a vendor refuses it, or litellm bends it, it is not."""
    assert _formats.is_sent(schema, facts, has_tools=has_tools) is is_sent


GPT_4 = ModelFacts(provider="openai", model_id="gpt-4", is_listed=True, forces_calls=True)
SONNET = replace(CLAUDE, is_listed=True, keeps_to_schemas=True, forces_calls=True)
FLASH = replace(GEMINI_2, is_listed=True, keeps_to_schemas=True, forces_calls=True)
ENABLED, ADAPTIVE = ({"type": one} for one in ("enabled", "adaptive"))
# fmt: off
WAYS = {
    #                           model   schema  options                         way
    "no schema":               (GPT_4,  None,   {},                             None),
    "a parameter":             (SONNET, LEAF,   {},                             Way.PARAMETER),
    "forced":                  (GPT_4,  LEAF,   {},                             Way.TOOL),
    "cannot be forced":        (LISTED, LEAF,   {},                             Way.WORDS),
    "nobody knows":            (ModelFacts(), LEAF, {},                         Way.WORDS),
    "no object":               (GPT_4,  {"type": "array"}, {},                  Way.WORDS),
    "combined at the root":    (GPT_4,  closed() | {"anyOf": [{}]}, {},         Way.WORDS),
    "claude, map":             (SONNET, MAP,    {},                             Way.TOOL),
    "claude, tree":            (SONNET, TREE,   {},                             Way.TOOL),
    "claude thinks":           (SONNET, MAP,    {"thinking": ENABLED},          Way.WORDS),
    "claude thinks as needed": (SONNET, MAP,    {"thinking": ADAPTIVE},         Way.WORDS),
    "claude does not think":   (SONNET, MAP,    {"thinking": {"type": "disabled"}}, Way.TOOL),
    "claude with effort":      (SONNET, MAP,    {"reasoning_effort": "low"},    Way.WORDS),
    "another with effort":     (GPT_4,  LEAF,   {"reasoning_effort": "low"},    Way.TOOL),
    "gemini 2, tools":         (FLASH,  LEAF,   {},                             Way.TOOL),
    "gemini 2, tools, tree":   (FLASH,  TREE,   {},                             Way.WORDS),
}
# fmt: on


@pytest.mark.parametrize(("facts", "schema", "options", "way"), WAYS.values(), ids=WAYS)
def test_a_parameter_comes_before_a_tool_and_a_tool_before_words(facts, schema, options, way):
    """By what the model can, and by what the options leave it."""
    request = ModelRequest(
        model="m", messages=(), tools=(READ,), response_format=schema, provider_opts=options
    )

    assert _formats.way_of(request, facts) is way
