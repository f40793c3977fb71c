"""Schemas for replies of Claude: which are sent without litellm, and how."""

import pytest

from workers.builtin.wires.claude_schemas import NODES_MAX, sent_schema

WORD = {"type": "string", "description": "a word"}
CLOSED = {"additionalProperties": False}


def an_object(**properties):
    return {"type": "object", "properties": properties}


SENT = {
    "closed": (an_object(a=WORD) | CLOSED, an_object(a=WORD) | CLOSED),
    "open": (an_object(a=WORD), an_object(a=WORD) | CLOSED),
    "inside": (an_object(a=an_object(b=WORD)), an_object(a=an_object(b=WORD) | CLOSED) | CLOSED),
    "or null": ({"type": ["object", "null"]}, {"type": ["object", "null"], **CLOSED}),
    "no object": ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
    "any": ({}, {}),
    "items": (
        {"type": "array", "items": an_object()},
        {"type": "array", "items": an_object() | CLOSED},
    ),
    "one of": ({"anyOf": [an_object(), WORD]}, {"anyOf": [an_object() | CLOSED, WORD]}),
    "what says more": (
        {"enum": ["a", 1], "title": "T", "default": "a", "description": "D"},
        {"enum": ["a", 1], "title": "T", "default": "a", "description": "D"},
    ),
    "values": (
        {"type": "string", "const": "a", "format": "date", "pattern": "^a"},
        {"type": "string", "const": "a", "format": "date", "pattern": "^a"},
    ),
    "required": (
        an_object(a=WORD) | {"required": ["a"]},
        an_object(a=WORD) | {"required": ["a"]} | CLOSED,
    ),
    "names that are words": (an_object(minimum=WORD), an_object(minimum=WORD) | CLOSED),
    "reference": (
        an_object(a={"$ref": "#/$defs/A"})
        | {"$defs": {"A": an_object(b={"$ref": "#/$defs/B"}), "B": WORD}},
        an_object(a=an_object(b=WORD) | CLOSED) | CLOSED,
    ),
    "reference twice": (
        an_object(a={"$ref": "#/$defs/A"}, b={"$ref": "#/$defs/A"}) | {"$defs": {"A": WORD}},
        an_object(a=WORD, b=WORD) | CLOSED,
    ),
    "definitions that nobody uses": (WORD | {"$defs": {"A": {"not": {}}}}, WORD),
}
LITELLMS = {
    "bound": {"type": "integer", "minimum": 1},
    "unknown word": {"type": "string", "x": 1},
    "dialect": an_object() | {"$schema": "s"},
    "enum with a type": {"type": "string", "enum": ["a"]},
    "inside": an_object(a={"type": "string", "minLength": 1}),
    "inside items": {"type": "array", "items": {"minimum": 1}},
    "inside one of": {"anyOf": [WORD, {"minimum": 1}]},
    "items of several": {"type": "array", "items": [WORD]},
    "items that are anything": {"type": "array", "items": True},
    "one of what is no list": {"anyOf": WORD},
    "no properties": {"type": "object", "properties": ["a"]},
    "a property that is anything": an_object(a=True),
    "a map": {"type": "object", "additionalProperties": WORD},
    "open": {"type": "object", "additionalProperties": True},
    "all of": {"allOf": [WORD]},
    "reference with more": {"$ref": "#/$defs/A", "title": "T", "$defs": {"A": WORD}},
    "reference to nothing": {"$ref": "#/$defs/B", "$defs": {"A": WORD}},
    "reference elsewhere": {"$ref": "#/properties/A", "properties": {"A": WORD}},
    "reference that is no text": {"$ref": 1, "$defs": {"A": WORD}},
    "reference without definitions": {"$ref": "#/$defs/A"},
    "definitions that are none": {"$ref": "#/$defs/A", "$defs": [WORD]},
    "bound in a definition": {"$ref": "#/$defs/A", "$defs": {"A": {"minimum": 1}}},
    "definitions inside": an_object(a={"$defs": {}}),
}


@pytest.mark.parametrize("case", SENT)
def test_a_plain_schema_is_sent_closed_and_without_references(case):
    """What else it says is sent as it is."""
    schema, sent = SENT[case]

    assert sent_schema(schema) == sent


@pytest.mark.parametrize("case", LITELLMS)
def test_any_other_schema_is_litellms(case):
    """Wherever in it the reason is."""
    assert sent_schema(LITELLMS[case]) is None


def test_a_schema_may_be_as_long_as_the_bound():
    """The object around its members counts."""
    names = [f"n{at}" for at in range(NODES_MAX)]

    assert sent_schema(an_object(**dict.fromkeys(names[1:], WORD))) is not None
    assert sent_schema(an_object(**dict.fromkeys(names, WORD))) is None


def test_references_that_grow_are_bounded():
    """Twenty definitions, each with two of the next, are a million parts."""
    pair = {
        str(at): an_object(a={"$ref": f"#/$defs/{at + 1}"}, b={"$ref": f"#/$defs/{at + 1}"})
        for at in range(20)
    }

    assert sent_schema({"$ref": "#/$defs/0", "$defs": {**pair, "20": WORD}}) is None


@pytest.mark.parametrize("step", [dict, lambda ref: an_object(a=ref)], ids=["at once", "within"])
def test_references_that_lead_on_are_bounded(step):
    """Each definition leads to the next one: short as it stands, deep as it is meant."""
    chain = {str(at): step({"$ref": f"#/$defs/{at + 1}"}) for at in range(NODES_MAX // 2 - 2)}

    assert sent_schema({"$ref": "#/$defs/0", "$defs": {**chain, str(len(chain)): WORD}}) is None


def test_what_was_given_stays_as_it_was():
    """It is the caller's."""
    schema = an_object(a=an_object())
    sent_schema(schema)

    assert schema == an_object(a=an_object())
